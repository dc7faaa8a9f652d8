/*
 * Lists of UCX transports, as UCX_TLS has them.
 */
#ifndef HWS_CORE_UCX_TLS_H
#define HWS_CORE_UCX_TLS_H

#include <stdbool.h>
#include <stddef.h>

/**
 * What is left of the user's choice without networks.
 * @param[out] out  a list for UCX_TLS, cut off at `size` bytes
 * @return false: no shared memory is left, or the list has more than `size` bytes
 */
bool hws__tls_without_network(const char *tls, char *out, size_t size);
/**
 * The user's choice with TCP, by which connections are made, where it names no network.
 * @param[out] out  a list for UCX_TLS, cut off at `size` bytes
 * @return false: there is a network already, or the list has more than `size` bytes
 */
bool hws__tls_with_tcp(const char *tls, char *out, size_t size);
/** Whether a list lets UCX use the transport `name`. */
bool hws__tls_names(const char *tls, const char *name);

#endif
