/*
 * Where the copies of UCX are: in this process, on this system, in the Python environment; and
 * which of them a choice means. Opens nothing.
 */
#ifndef HWS_CORE_UCX_FIND_H
#define HWS_CORE_UCX_FIND_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

/** How the copy was chosen. */
enum hws__ucx_origin {
    HWS__UCX_NONE = 0, /**< nothing is loaded */
    HWS__UCX_MAPPED,   /**< it was in the process already */
    HWS__UCX_OPTION,   /**< by the caller of hws__ucx_load */
    HWS__UCX_ENV,      /**< by HAWSER_UCX */
    HWS__UCX_FILE,     /**< by a configuration file */
    HWS__UCX_SYSTEM,   /**< automatic: the system's copy */
    HWS__UCX_WHEEL     /**< automatic: the wheel of the Python environment */
};

/** The four libraries that make a copy, in the order in which they are opened. */
enum { HWS__UCM, HWS__UCS, HWS__UCT, HWS__UCP, HWS__UCX_LIBS };
extern const char *const hws__ucx_lib_names[HWS__UCX_LIBS];

/** What of UCX is mapped into this process. */
struct hws__ucx_mapped {
    int count[HWS__UCX_LIBS];           /**< copies of each library */
    char path[HWS__UCX_LIBS][PATH_MAX]; /**< real path of the first copy of each */
    char other[PATH_MAX];               /**< a second copy, or one in another folder */
    char dir[PATH_MAX];                 /**< the folder of the first one found */
};

struct hws__ucx_found {
    int origin;
    char dir[PATH_MAX]; /**< the folder that holds libucp.so.0, without symbolic links */
    char why[160];      /**< one sentence */
};

/** Scans the loaded objects. @return the number of UCX's libraries that are mapped */
int hws__ucx_scan(struct hws__ucx_mapped *mapped);

/**
 * Finds the copy that a choice means.
 * @param[in] choice NULL for the machine's choice (HAWSER_UCX, then the configuration files, then
 *                   automatic), else "system", "wheel" or a path
 * @return 0 or HWS_E_NO_UCX
 */
int32_t hws__ucx_find(const char *choice, struct hws__ucx_found *found);

/** The system's copy, or the wheel's; 0 if there is none. dir has PATH_MAX bytes. */
int hws__ucx_system_dir(char *dir);
int hws__ucx_wheel_dir(char *dir);

/** Non-zero if an RDMA device exists (/sys/class/infiniband is not empty). */
int hws__rdma_present(void);

/** Non-zero if the driver of a GPU is there: its device file is, or this process has loaded libcuda. */
int hws__cuda_present(void);

#endif
