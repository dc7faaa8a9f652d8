/*
 * Socket addresses as text, and back.
 */
#ifndef HWS_CORE_ADDRESS_H
#define HWS_CORE_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

/** "1.2.3.4:5" or "[::1]:5"; "" for another family. */
void hws__address_text(const struct sockaddr_storage *a, char *text, size_t size);
/** The address alone, without the port. */
void hws__address_host(const struct sockaddr_storage *a, char *text, size_t size);
uint16_t hws__address_port(const struct sockaddr_storage *a);
/** Family and address are the same; never of other families than IPv4 and IPv6. */
bool hws__address_same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b);
/** The port, too. */
bool hws__address_same(const struct sockaddr_storage *a, const struct sockaddr_storage *b);
/** An order of IPv4 and IPv6 addresses with ports: below, equal to or above 0. */
int hws__address_order(const struct sockaddr_storage *a, const struct sockaddr_storage *b);
socklen_t hws__address_length(const struct sockaddr_storage *a);

/**
 * The address to give to UCX. It looks for the interface that has the address, and none has 127.0.0.2 and its
 * like, though they all are this machine: 127.0.0.1 stands for them. Both sides do that.
 */
struct sockaddr_storage hws__address_for_ucx(const struct sockaddr_storage *a);

/** Whether a socket can be bound to the address; true also if that cannot be tried. */
bool hws__address_is_here(const struct sockaddr_storage *a);
/** Whether the system knows a way to the address; true also if it cannot be asked. Sends nothing. */
bool hws__address_has_route(const struct sockaddr_storage *a);

/**
 * Resolve into a new array, at most 32 entries.
 * @param numeric  only if `host` is an address: never asks anybody
 * @return how many; 0 if there is none, or no memory (errno is ENOMEM then, else 0)
 */
uint32_t hws__address_resolve(const char *host, uint16_t port, bool numeric, bool passive,
                              struct sockaddr_storage **out);

#endif
