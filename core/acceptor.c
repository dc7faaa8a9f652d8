#include "acceptor.h"
#include "sockets.h"
#include "ucx_loader.h"
#include "uworker.h"
#include "waddress.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* LOCK: leaf */
static struct hws__list noted = {&noted, &noted};        /* of the whole process */

struct search {
    const char *address;
    uint64_t length;
    struct hws__acceptors *found;
};

/* Another UCX worker's. With the lock. */
static bool is_noted(int fd)
{
    for (struct hws__list *n = noted.next; n != &noted; n = n->next) {
        const struct hws__acceptors *a = hws__container(n, struct hws__acceptors, link);

        for (uint32_t i = 0; i < a->count; i++) {
            if (a->at[i].fd == fd) {
                return true;
            }
        }
    }
    return false;
}

/* The packed address of a UCX worker holds the ports as they are on the wire. */
static bool note(int fd, void *arg)
{
    const struct search *s = arg;
    struct hws__acceptors *a = s->found;
    uint16_t port = hws__sockets_listening(fd), wire = htons(port);

    if (port != 0 && memmem(s->address, s->length, &wire, sizeof wire) != NULL && !is_noted(fd)) {
        hws__sockets_close_on_exec(fd);
        a->at[a->count].fd = fd;
        a->at[a->count++].port = port;
    }
    return a->count == HWS__ACCEPTORS;
}

void hws__acceptors_note(struct hws__uworker *u)
{
    struct search s = {.found = &u->acceptors};
    char *address = hws__address_own(u, 0, &s.length);

    pthread_mutex_lock(&lock);
    if ((s.address = address) != NULL) {
        hws__sockets_each(note, &s);
    }
    hws__list_append(&noted, &u->acceptors.link);
    pthread_mutex_unlock(&lock);
    free(address);
}

/* While the number is somebody else's it is not looked at: it might not have been UCX's socket that had the port. */
static void clear(struct hws__acceptors *a)
{
    for (uint32_t i = 0; i < a->count; i++) {
        int fd = a->at[i].fd;

        if (fd < 0 || hws__sockets_listens(fd, a->at[i].port)) {
            continue;
        }
        a->lost = true;
        if (fcntl(fd, F_GETFD) < 0) {
            hws__ucx.ucs_async_remove_handler(fd, 0);
            a->at[i].fd = -1;
        }
    }
}

bool hws__acceptors_lost(struct hws__uworker *u)
{
    bool lost;

    pthread_mutex_lock(&lock);
    clear(&u->acceptors);
    lost = u->acceptors.lost;
    pthread_mutex_unlock(&lock);
    return lost;
}

void hws__acceptors_sweep(void)
{
    pthread_mutex_lock(&lock);
    for (struct hws__list *n = noted.next; n != &noted; n = n->next) {
        clear(hws__container(n, struct hws__acceptors, link));
    }
    pthread_mutex_unlock(&lock);
}

void hws__acceptors_forget(struct hws__uworker *u)
{
    pthread_mutex_lock(&lock);
    clear(&u->acceptors);
    hws__list_remove(&u->acceptors.link);
    pthread_mutex_unlock(&lock);
}
