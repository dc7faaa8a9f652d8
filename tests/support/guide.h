/* The guides of docs/guide, for tests that what they list is what there is. */
#ifndef TESTS_SUPPORT_GUIDE_H
#define TESTS_SUPPORT_GUIDE_H

#include <stddef.h>

/* The text of docs/guide/`name`, or null where nobody told where the sources are (HAWSER_SOURCE_DIR). The caller's. */
char *t_guide(const char *name);

/* How much the last column of the table's row says that begins with `start`, in bytes; 0: there is no such row. */
size_t t_guide_says(const char *guide, const char *start);

#endif
