#include "pairing.h"
#include "ucx_loader.h"
#include "uworker.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The first that is not below `peer`. */
static uint32_t place(const struct hws__pairings *p, uint64_t peer)
{
    uint32_t low = 0, high = p->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (p->of[middle].peer < peer) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool make_room(struct hws__pairings *p)
{
    uint32_t room = p->room == 0 ? 8 : 2 * p->room;
    struct hws__pairing *of = p->of;

    if (p->count < p->room) {
        return true;
    }
    if ((of = realloc(of, room * sizeof *of)) == NULL) {
        return false;
    }
    p->of = of;
    p->room = room;
    return true;
}

uint64_t *hws__pairing(struct hws__uworker *u, const void *address)
{
    ucp_worker_address_attr_t a = {.field_mask = UCP_WORKER_ADDRESS_ATTR_FIELD_UID};
    struct hws__pairings *p = &u->pairings;
    uint32_t i;

    if (hws__ucx.ucp_worker_address_query((void *)(uintptr_t)address, &a) != UCS_OK) {
        return NULL;
    }
    i = place(p, a.worker_uid);
    if (i == p->count || p->of[i].peer != a.worker_uid) {
        if (!make_room(p)) {
            return NULL;
        }
        memmove(&p->of[i + 1], &p->of[i], (p->count - i) * sizeof *p->of);
        p->of[i] = (struct hws__pairing){.peer = a.worker_uid};
        p->count++;
    }
    return &p->of[i].made;
}

void hws__pairings_free(struct hws__pairings *p)
{
    free(p->of);
    *p = (struct hws__pairings){0};
}
