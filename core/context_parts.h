/*
 * What context.c, context_options.c and context_ucx.c share: the parts that a context is opened from and ends with.
 */
#ifndef HWS_CORE_CONTEXT_PARTS_H
#define HWS_CORE_CONTEXT_PARTS_H

#include "context.h"

/** Check the options and copy them. `*profile`: HWS__PROFILE_* of the UCX context. */
int32_t hws__context_options_read(struct hws__context *c, const hws_context_opts *o, int *profile);
/** Free what was copied, however much that is. */
void hws__context_options_free(struct hws__context *c);

/** Whether UCX's libraries and its own thread find descriptors: it aborts where the thread finds none. */
int32_t hws__context_room(void);
/** The UCX context with everything. */
int32_t hws__context_ucx_open(struct hws__context *c, int profile);
/** All of them end. Nothing uses them any more. */
void hws__context_ucx_end(struct hws__context *c);

#endif
