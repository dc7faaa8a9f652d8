/*
 * The sockets on which UCX's TCP transport takes the connections that peers make back to a UCX worker,
 * one for each network device.
 *
 * When accept() finds no descriptor left, UCX closes that socket for ever: no dial of the worker can
 * succeed any more, however much room there is later. Its number stays in UCX's table of events, where
 * it bars the next that is given it. Nothing tells, so a failed dial looks.
 */
#ifndef HWS_CORE_ACCEPTOR_H
#define HWS_CORE_ACCEPTOR_H

#include <stdbool.h>
#include <stdint.h>

/** Descriptors that a connection by TCP takes for a moment, and some for the program's other threads. */
#define HWS__DIAL_FDS 8
/** So many devices are looked after. */
#define HWS__ACCEPTORS 8

struct hws__uworker;

struct hws__acceptors {
    uint32_t count;
    struct {
        int fd;
        uint16_t port;
    } at[HWS__ACCEPTORS];
};

/** Find those of a new UCX worker. Owner only. */
void hws__acceptors_note(struct hws__uworker *u);
/** Whether one is lost; what it left is cleared. */
bool hws__acceptors_lost(struct hws__uworker *u);

#endif
