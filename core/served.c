#include "served.h"
#include "address.h"
#include "endpoint.h"
#include "worker.h"
#include <stdlib.h>

static int by_address(const void *a, const void *b)
{
    return hws__address_order(*(const struct sockaddr_storage *const *)a,
                              *(const struct sockaddr_storage *const *)b);
}

static size_t count(const struct hws__worker *w)
{
    size_t n = 0;

    for (const struct hws__list *l = w->endpoints.next; l != &w->endpoints; l = l->next) {
        n += hws__container(l, struct hws__endpoint, link)->server;
    }
    return n;
}

bool hws__served_list(struct hws__served *s, const struct hws__worker *w)
{
    size_t room = count(w);

    s->n = 0;
    s->at = NULL;
    if (room == 0) {
        return true;
    }
    if ((s->at = calloc(room, sizeof *s->at)) == NULL) {
        return false;
    }
    for (const struct hws__list *l = w->endpoints.next; l != &w->endpoints; l = l->next) {
        const struct hws__endpoint *ep = hws__container(l, struct hws__endpoint, link);

        if (ep->server) {
            s->at[s->n++] = &ep->request_peer;
        }
    }
    qsort(s->at, s->n, sizeof(*s->at), by_address);
    return true;
}

bool hws__served_has(const struct hws__served *s, const struct sockaddr_storage *client)
{
    return s->n != 0 && bsearch(&client, s->at, s->n, sizeof(*s->at), by_address) != NULL;
}

void hws__served_free(struct hws__served *s)
{
    free(s->at);
}
