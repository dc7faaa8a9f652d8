/*
 * The clients that the listeners of a worker have taken in, by their addresses.
 */
#ifndef HWS_CORE_SERVED_H
#define HWS_CORE_SERVED_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>

struct hws__worker;

/** Valid until an endpoint of the worker opens or closes. */
struct hws__served {
    const struct sockaddr_storage **at;
    size_t n;
};

/** List them; false: there is no memory for it. Owner only. */
bool hws__served_list(struct hws__served *s, const struct hws__worker *w);
bool hws__served_has(const struct hws__served *s, const struct sockaddr_storage *client);
void hws__served_free(struct hws__served *s);

#endif
