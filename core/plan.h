/*
 * Plans: lists of transfers that are checked once and posted often.
 */
#ifndef HWS_CORE_PLAN_H
#define HWS_CORE_PLAN_H

#include "endpoint.h"

/** Close one; with a posting under way it goes when that ends. Owner only. */
void hws__plan_close(struct hws__obj *plan);
struct hws__worker *hws__plan_worker(const struct hws__obj *plan);
/** The endpoint is gone: so are its plans. Owner only. */
void hws__plans_forget(struct hws__endpoint *ep);

#endif
