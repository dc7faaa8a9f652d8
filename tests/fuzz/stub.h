/*
 * A worker and endpoints without UCX, for targets of what comes over the wire: UCX's functions that the core
 * calls meanwhile are stubs. What they are given is read, so that a sanitizer sees it.
 */
#ifndef TESTS_FUZZ_STUB_H
#define TESTS_FUZZ_STUB_H

#include "endpoint.h"
#include "listener.h"

struct stub {
    struct hws__context context;
    struct hws__worker *worker;
    struct hws__listener *listener; /* whoever is let in waits for the application */
    struct hws__uworker uworker;
};

/** The one of the process, made by the first call. */
struct stub *stub_get(void);
/** An endpoint whose messages come next on the UCX worker. */
struct hws__endpoint *stub_connect(struct stub *s, bool server);
/** A server's whose hello is over. */
struct hws__endpoint *stub_open(struct stub *s);
/** What happens after a sweep. */
void stub_swept(struct stub *s);
/** Cut it, and free it. */
void stub_forget(struct stub *s, struct hws__endpoint *ep);

/** A message as UCX hands it over: in memory of exactly its size. */
typedef ucs_status_t (*stub_handler)(void *arg, const void *header, size_t header_length,
                                     void *data, size_t length, const ucp_am_recv_param_t *param);
/**
 * @param attr  0; UCP_AM_RECV_ATTR_FLAG_DATA if the core may keep the data; UCP_AM_RECV_ATTR_FLAG_RNDV if it is
 *              not there, `data` is null then and `length` anything
 */
void stub_arrives(struct stub *s, stub_handler handler, const void *header, size_t header_length,
                  const void *data, size_t length, uint64_t attr);

/** The next bytes of an input; as many as there are. */
struct input {
    const unsigned char *at;
    size_t left;
};
unsigned input_byte(struct input *in);
/** A number of two bytes. */
size_t input_size(struct input *in);
const unsigned char *input_bytes(struct input *in, size_t *length);

#endif
