/*
 * Which transports an endpoint really uses. UCX answers since 1.14; before that, what
 * ucp_ep_print_info prints is read. (All versions print alike, but since 1.16 printing computes
 * every protocol of the endpoint.)
 */
#ifndef HWS_CORE_LANES_H
#define HWS_CORE_LANES_H

#include <stddef.h>
#include <stdint.h>

#include "ucx_compat.h"

/** Kinds of transport, a bit each. */
#define HWS__LANE_SHM 1u /**< posix, sysv, xpmem, cma, knem */
#define HWS__LANE_TCP 2u
#define HWS__LANE_RDMA 4u /**< rc, dc, ud, srd, gdaki and the like */
#define HWS__LANE_SELF 8u
#define HWS__LANE_CUDA 16u      /**< cuda_copy, cuda_ipc, gdr_copy, rocm */
#define HWS__LANE_OTHER 32u     /**< a transport this table does not know */
#define HWS__LANE_DATA_SHM 256u /**< messages travel by shared memory (not only remote access) */

/**
 * Lists the transports and devices of an endpoint, "posix/memory,tcp/lo", each once, without the
 * connection manager's lane.
 * @param[out] buf   always terminated; cut if it does not fit
 * @param[out] flags HWS__LANE_*, or NULL
 * @return the length the text needs without its end, or HWS_E_NO_MEMORY
 * @thread owner: calls into the endpoint's worker
 */
int32_t hws__ucx_ep_lanes(ucp_ep_h ep, char *buf, size_t cap, unsigned *flags);

/** The same from the printed text. */
int32_t hws__lanes_parse(const char *text, char *buf, size_t cap, unsigned *flags);

#endif
