/*
 * UCX configuration of one context: Hawser's defaults, then the user's pairs, on every version.
 *
 * Keys are UCX's names with or without "UCX_", such as TLS or POSIX_FIFO_SIZE. UCX 1.13 takes any
 * key without a word and knows the transports' ones by other names; this is hidden here: a key
 * works on all versions or is refused on all. (Not hidden: on 1.13 a bad value of a transport's key
 * is only logged by UCX, and a transport's key also reaches other transports that have the same.)
 */
#ifndef HWS_CORE_UCX_CONFIG_H
#define HWS_CORE_UCX_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ucx_compat.h"

struct hws__kv {
    const char *key;
    const char *value;
};

/** What a context is for. */
enum hws__profile {
    HWS__PROFILE_NONE = 0, /**< nothing of ours: UCX's own defaults */
    HWS__PROFILE_MAIN,     /**< every transport but posix; without RDMA devices the local profile */
    HWS__PROFILE_LOCAL,    /**< shared memory and TCP, small pools: cheap isolated workers */
    HWS__PROFILE_SHM, /**< no network, whatever the user says: isolated workers that nobody dials by TCP */
    HWS__PROFILE_TCP /**< TCP only, whatever the user or the environment says */
};

enum { HWS__PROFILE_PAIRS_MAX = 24 };

/**
 * Hawser's own pairs for a profile, constant strings.
 * @return how many there are; at most `cap` are written
 */
size_t hws__ucx_config_defaults(int profile, struct hws__kv *out, size_t cap);

/**
 * Reads UCX's configuration (environment included), applies the profile's pairs except those that
 * the user's pairs or the environment (UCX_KEY) also set, then the user's pairs.
 * @param[in] pairs key, value, key, value, ..., NULL; or NULL
 * @param[out] out  to be released by ucp_config_release
 * @return 0, HWS_E_CONFIG naming the key, HWS_E_NO_MEMORY, or what the UCX status means
 */
int32_t hws__ucx_config(int profile, const char *const *pairs, ucp_config_t **out);

/** What the user's pairs or the environment set a key (without "UCX_") to; null: nothing. */
const char *hws__ucx_config_user(const char *key, const char *const *pairs);

/** Whether the user's choice of transports, if there is one, leaves out every network. */
bool hws__ucx_config_no_network(const char *const *pairs);
/** Whether the user's choice of transports, if there is one, leaves some for HWS__PROFILE_SHM. */
bool hws__ucx_config_has_shm(const char *const *pairs);

/** Like hws__ucx_config for what is set already: one more pair. */
int32_t hws__ucx_config_set(ucp_config_t *config, const char *key, const char *value);

#endif
