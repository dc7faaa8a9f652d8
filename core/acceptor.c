#include "acceptor.h"
#include "sockets.h"
#include "ucx_loader.h"
#include "uworker.h"
#include "waddress.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

struct search {
    const char *address;
    uint64_t length;
    struct hws__acceptors *found;
};

/* The packed address of a UCX worker holds the ports as they are on the wire. */
static bool note(int fd, void *arg)
{
    const struct search *s = arg;
    struct hws__acceptors *a = s->found;
    uint16_t port = hws__sockets_listening(fd), wire = htons(port);

    if (port != 0 && memmem(s->address, s->length, &wire, sizeof wire) != NULL) {
        a->at[a->count].fd = fd;
        a->at[a->count++].port = port;
    }
    return a->count == HWS__ACCEPTORS;
}

void hws__acceptors_note(struct hws__uworker *u)
{
    struct search s = {.found = &u->acceptors};
    char *address = hws__address_own(u, 0, &s.length);

    if ((s.address = address) != NULL) {
        hws__sockets_each(note, &s);
    }
    free(address);
}

bool hws__acceptors_lost(struct hws__uworker *u)
{
    bool lost = false;

    for (uint32_t i = 0; i < u->acceptors.count; i++) {
        int fd = u->acceptors.at[i].fd;

        if (hws__sockets_listens(fd, u->acceptors.at[i].port)) {
            continue;
        }
        lost = true;
        if (fcntl(fd, F_GETFD) < 0) {
            hws__ucx.ucs_async_remove_handler(fd, 0);
        }
    }
    return lost;
}
