/*
 * Waiting for the device on the way to a peer: the kernel lets data through up to a second before it says that the
 * device runs, and before that UCX does not take it.
 */
#ifndef HWS_CORE_LATE_DEVICE_H
#define HWS_CORE_LATE_DEVICE_H

#include <stdbool.h>

struct hws__endpoint;

/**
 * Call `then` a little later, unless the endpoint has failed or ended meanwhile. False: it has waited long enough, or
 * cannot. Owner only.
 */
bool hws__late_device_wait(struct hws__endpoint *ep, void (*then)(struct hws__endpoint *ep));

#endif
