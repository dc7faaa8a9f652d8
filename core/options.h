/*
 * Option structures: size first, zero is the default, an unknown non-zero tail is refused.
 */
#ifndef HWS_CORE_OPTIONS_H
#define HWS_CORE_OPTIONS_H

#include <hawser.h>
#include <stdbool.h>

/**
 * Copy a caller's structure (null: all defaults) of any size into ours of `size` bytes.
 * @return 0, HWS_E_INVALID (no size), HWS_E_NEWER (sets what this library does not know)
 */
int32_t hws__options(void *ours, size_t size, const void *theirs, const char *what);

/** Copy ours out to a caller's structure of the size it says: for query functions. */
int32_t hws__fill(void *theirs, const void *ours, size_t size, const char *what);
/** The same without an error text; false: null, or no size. */
bool hws__copy_out(void *theirs, const void *ours, size_t size);
/** Whether hws__fill() will work: for queries that can fail in other ways. 0 or HWS_E_INVALID. */
int32_t hws__fillable(const void *theirs, const char *what);

#endif
