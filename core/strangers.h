/*
 * Connections to a listener that never become a request: port scans, silence, half a hello. UCX
 * keeps them for ever, so the background thread looks for them and the owner ends them.
 */
#ifndef HWS_CORE_STRANGERS_H
#define HWS_CORE_STRANGERS_H

#include "listener.h"

/** Look after a listener from now on. Owner only. */
void hws__strangers_watch(struct hws__listener *l);

/**
 * Before a listener is destroyed: end what is connected and has not asked yet. UCX 1.13 hands a request
 * that comes later to the listener, which is gone. Owner only.
 */
void hws__strangers_end(struct hws__listener *l);

#endif
