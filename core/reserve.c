#include "reserve.h"
#include "worker.h"
#include <stdlib.h>

/* Below what malloc() asks the system for by itself: it goes back to the heap that UCX allocates from. */
#define RESERVE (64u << 10)

void hws__reserve_keep(struct hws__worker *w)
{
    if (w->reserve == NULL) {
        w->reserve = malloc(RESERVE);
    }
}

void hws__reserve_spend(struct hws__worker *w)
{
    free(w->reserve);
    w->reserve = NULL;
}
