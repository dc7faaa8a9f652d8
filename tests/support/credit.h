/*
 * Pairs whose window is tight: what nobody takes soon waits for credit.
 */
#ifndef TESTS_SUPPORT_CREDIT_H
#define TESTS_SUPPORT_CREDIT_H

#include "support/pair.h"

#define WINDOW 8
#define KIB 1024u
/* For so long nothing must happen that a full window forbids. */
#define QUIET (20 * T_MS)

/* WINDOW messages, 64 KiB. */
extern const hws_worker_opts t_tight;

/* The server's window is tight; both if `both`. */
void t_tight_open(t_pair *pair, int both);

/* How many sends of a side had to wait for credit. */
uint64_t t_credit_waits(const t_pair *pair, int side);

#endif
