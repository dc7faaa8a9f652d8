/*
 * While descriptors are short, connections are let in a few at a time.
 *
 * UCX accepts whatever connects to a listener, on a thread of its own and as fast as it comes, and each connection
 * takes a descriptor. A burst may take the last: then a UCX worker that is just being made, or an endpoint that opens
 * or closes, ends the process on UCX 1.22 (it looks into /sys as it goes); a connection that gets half way loses a
 * TCP worker its socket (acceptor.h), and ends a peer with UCX 1.13.1. So the sockets of listeners are kept from UCX
 * then, but for moments, as long as there is room for what comes; the others wait in the kernel's backlog.
 *
 * Likewise the sockets of UCX workers whose address was handed out: who dials an address comes to them at once. There a
 * connection without a descriptor would end the process that dialled, on both versions.
 */
#ifndef HWS_CORE_GATE_H
#define HWS_CORE_GATE_H

#include "list.h"
#include <stdbool.h>
#include <stdint.h>

struct hws__listener;
struct hws__uworker;
struct hws__worker;
struct hws__gate_job;

/** Sockets of a listener: one, and one for each IPv6 address; of a UCX worker: one for each device. */
#define HWS__GATE_SOCKETS 9u

struct hws__gate {
    struct hws__list link;
    struct hws__worker *worker; /* null: not in use */
    struct hws__gate_job *job;  /* it is shut, and this opens it */
    uint64_t in_vain_since;     /* somebody waits, and there has been no room; 0: not so */
    uint32_t count;
    int fd[HWS__GATE_SOCKETS];
    /* Where UCX may close the socket by itself, and the number is another's then; else 0. */
    uint16_t port[HWS__GATE_SOCKETS];
};

/** A listener that listens now. Owner only. */
void hws__gate_join(struct hws__listener *l);
/**
 * Before it is destroyed: no event of its sockets comes, and none waits. Progresses the main UCX worker. Owner
 * only.
 */
void hws__gate_leave(struct hws__listener *l);
/** A UCX worker for addresses, with its acceptors noted. Owner only. */
void hws__gate_join_acceptors(struct hws__uworker *u);
/** Before it is destroyed; nothing where it has not joined. Owner only. */
void hws__gate_leave_acceptors(struct hws__uworker *u);
/**
 * Each HWS__GATE_NS of progress, and after each who came by address: nothing else tells that descriptors have become
 * short. Any thread.
 */
void hws__gate_watch(void);
#define HWS__GATE_NS UINT64_C(10000000)

/** Let nobody in until hws__gate_let_go(). Any thread. */
void hws__gate_hold(void);
void hws__gate_let_go(void);
/** The same if descriptors are short; false: they are not. */
bool hws__gate_hold_if_short(void);

/** Whether descriptors are short: then the gates are shut. Any thread. */
bool hws__gate_is_short(void);

/**
 * Whether there is room for a connection that asks, or is to be dialled; it counts as under way for a while. Any
 * thread.
 */
bool hws__gate_admits(void);

#endif
