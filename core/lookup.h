/*
 * Names of hosts are resolved on threads that nothing waits for: a name server may let getaddrinfo() wait for many
 * seconds, and nothing interrupts it. Who asked may give up at any time.
 */
#ifndef HWS_CORE_LOOKUP_H
#define HWS_CORE_LOOKUP_H

#include "worker.h"
#include <netinet/in.h>

enum hws__lookup_state {
    HWS__LOOKUP_QUEUED,
    HWS__LOOKUP_ASKED,
    HWS__LOOKUP_ANSWERED, /* on its way to `told` */
    HWS__LOOKUP_ABANDONED
};

/** One name. It belongs to the worker's owner while it is asked for, but for what `told` says. */
struct hws__lookup {
    struct hws__list link; /* those that no thread has begun */
    struct hws__worker *worker;
    hws_id endpoint; /* who asks; 0: nobody any more */
    void (*told)(struct hws__worker *w, void *lookup);
    enum hws__lookup_state state;
    char host[256];
    uint16_t port;

    struct sockaddr_storage *addresses; /* the answer; whoever takes it sets it to null */
    uint32_t count;                     /* 0: there is none */
    bool no_memory;                     /* and that is why */
};

/**
 * Have the name resolved, then `told` called under the worker's ownership, which ends in hws__lookup_free(). It
 * counts in hws__worker.jobs until then. False: there is no thread to do it; the lookup stays the caller's. Owner
 * only.
 */
bool hws__lookup_begin(struct hws__lookup *l);
/** The answer is not wanted any more, and the worker need not wait for it. Owner only. */
void hws__lookup_abandon(struct hws__lookup *l);
/** With the addresses that nobody took. */
void hws__lookup_free(struct hws__lookup *l);

#endif
