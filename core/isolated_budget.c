/*
 * The budget of isolated workers: how many the machine bears, and the user allows.
 */
#include "isolated.h"
#include "host.h"
#include "log.h"
#include "time.h"

/* How long a look at the machine's resources is good for. */
#define CAP_AGE_NS 50000000u

bool hws__isolated_reserve(struct hws__context *c)
{
    uint32_t now_used, cap;
    const char *why = "what the machine bore a moment ago";
    uint64_t now;

    pthread_mutex_lock(&c->lock);
    now_used = atomic_load(&c->isolated); /* only less until the lock is left */
    now = hws__now();
    if (now - c->cap_time > CAP_AGE_NS) {
        c->cap_time = now;
        c->cap_further = hws__isolated_cap(c->dev_shm, &why);
        c->cap_base = now_used;
    }
    cap = c->cap_base + (uint32_t)(c->cap_further > 0 ? c->cap_further : 0);
    if (c->isolated_max != 0 && c->isolated_max < cap) {
        cap = c->isolated_max;
    }
    atomic_store(&c->isolated_cap, cap);
    if (now_used >= cap) {
        pthread_mutex_unlock(&c->lock);
        hws__log(HWS_LOG_INFO, "no isolated worker: %u in use, bounded by %s", now_used,
                 c->isolated_max != 0 && now_used >= c->isolated_max ? "the option" : why);
        return false;
    }
    atomic_fetch_add(&c->isolated, 1);
    pthread_mutex_unlock(&c->lock);
    return true;
}

void hws__isolated_unreserve(struct hws__context *c)
{
    atomic_fetch_sub(&c->isolated, 1);
}
