/*
 * UCX at run time: libhawser does not link UCX, it opens one copy and calls it through a table.
 *
 * Two copies in a process never work soundly (symbols of one are satisfied by the other), so a copy
 * that is mapped already is used if it is whole and from one folder, and refused otherwise. Nothing
 * is ever closed: UCX hooks memory functions and starts threads that outlive any use of it.
 */
#ifndef HWS_CORE_UCX_LOADER_H
#define HWS_CORE_UCX_LOADER_H

#include <limits.h>
#include <stdbool.h>

#include "ucx_compat.h"
#include "ucx_find.h"

/** Every function of UCX that is used, under its own name, and what is known about the copy. */
struct hws__ucx {
#define HWS_UCX_REQUIRED(library, name) __typeof__(name) *name;
#define HWS_UCX_INTERNAL(library, name, type) type name;
#define HWS_UCX_OPTIONAL(library, name, type) type name;
#include "ucx_symbols.def"
#undef HWS_UCX_REQUIRED
#undef HWS_UCX_INTERNAL
#undef HWS_UCX_OPTIONAL

    unsigned version; /**< major << 24 | minor << 16 | release, of the running copy */
    int major;
    int minor;
    int release;
    int origin;             /**< enum hws__ucx_origin */
    char lib_dir[PATH_MAX]; /**< the folder, without symbolic links */
    char reason[256];       /**< why this copy, one sentence */
};

/** Filled by the first successful hws__ucx_load and constant from then on. */
extern struct hws__ucx hws__ucx;

/**
 * Opens UCX, once per process; later calls only check that they mean the same copy.
 * @param[in] choice NULL for the machine's choice, else "system", "wheel" or a path: a folder, its
 *                   parent, or a libucp.so
 * @return 0, or HWS_E_NO_UCX, HWS_E_UCX_CONFLICT, HWS_E_UCX_VERSION with the reason as last error
 * @thread any @blocks on the file system
 */
int32_t hws__ucx_load(const char *choice);

/** One line: version, folder and why. Fills buf (never overflows) and returns it. */
const char *hws__ucx_text(char *buf, size_t cap);

/** No thread is loading UCX just now: asked in the child of a fork, where it would never end. */
bool hws__ucx_load_settled(void);

/** Non-zero if the running copy is at least this version. @thread any, after a load */
int hws__ucx_at_least(int major, int minor);

#endif
