/*
 * What every public function checks first: that the library is ready and that this is not a forked
 * child (UCX's threads and mappings do not survive fork).
 */
#ifndef HWS_CORE_GUARD_H
#define HWS_CORE_GUARD_H

#include "error.h"
#include <stdatomic.h>
#include <stdbool.h>

#define HWS__NEW 0
#define HWS__READY 1
#define HWS__FORKED 2
#define HWS__ENDING 3 /* the process ends, see exit.h */

extern _Atomic int hws__library_state;

static inline bool hws__library_ending(void)
{
    return atomic_load_explicit(&hws__library_state, memory_order_relaxed) == HWS__ENDING;
}

/** Bring the library to READY, or fail. */
int32_t hws__library_enter(void);

#define HWS__ENTER()                                                                            \
    do {                                                                                        \
        if (__builtin_expect(atomic_load_explicit(&hws__library_state, memory_order_acquire) != \
                                 HWS__READY,                                                    \
                             0)) {                                                              \
            int32_t hws__enter = hws__library_enter();                                          \
            if (hws__enter < 0) {                                                               \
                return hws__enter;                                                              \
            }                                                                                   \
        }                                                                                       \
    } while (0)

#endif
