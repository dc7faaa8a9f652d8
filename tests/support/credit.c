#include "support/credit.h"

const hws_worker_opts t_tight = {
    .struct_size = sizeof t_tight, .credit_messages = WINDOW, .credit_bytes = 64 * KIB};

void t_tight_open(t_pair *pair, int both)
{
    t_pair_opts opts = {.worker = {both ? &t_tight : NULL, &t_tight}};

    t_pair_open(pair, &opts);
}

uint64_t t_credit_waits(const t_pair *pair, int side)
{
    return t_stats(pair->worker[side]).credit_waits;
}
