/*
 * The sockets on which UCX's TCP transport takes the connections that peers make back to a UCX worker,
 * one for each network device.
 *
 * When accept() finds no descriptor left, UCX closes that socket for ever: nobody can connect by TCP to
 * the worker any more, however much room there is later. Its number stays in UCX's table of events, where
 * it bars the next socket of UCX that is given it, and UCX 1.13 may abort. Nothing tells, so whoever is about
 * to connect, to accept or to make a UCX worker looks.
 */
#ifndef HWS_CORE_ACCEPTOR_H
#define HWS_CORE_ACCEPTOR_H

#include "list.h"
#include <stdbool.h>
#include <stdint.h>

/** So many devices are looked after. */
#define HWS__ACCEPTORS 8

struct hws__uworker;

struct hws__acceptors {
    struct hws__list link;
    uint32_t count;
    bool lost; /* one of them, for ever */
    struct {
        int fd; /* -1: lost, and cleared */
        uint16_t port;
    } at[HWS__ACCEPTORS];
};

/** Find those of a new UCX worker, which is looked after until hws__acceptors_forget(). Any thread. */
void hws__acceptors_note(struct hws__uworker *u);
/** Whether one is lost; what it left is cleared. Any thread. */
bool hws__acceptors_lost(struct hws__uworker *u);
/** Clear what those that are lost have left, of all that are looked after. Any thread. */
void hws__acceptors_sweep(void);
/** Before a UCX worker is destroyed, noted or not. Any thread. */
void hws__acceptors_forget(struct hws__uworker *u);

#endif
