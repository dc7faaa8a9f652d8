#include "stats_page.h"
#include "time.h"
#include "worker.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* Beyond the limit of a file's size ftruncate() ends the process, by a signal. */
static bool may_be_long(uint64_t size)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= size;
}

static void *map(int fd)
{
    void *at;

    if (!may_be_long(sizeof(struct hws__stats_page)) ||
        ftruncate(fd, sizeof(struct hws__stats_page)) != 0 ||
        /* So that it can be read without fear of a hole. */
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return NULL;
    }
    at = mmap(NULL, sizeof(struct hws__stats_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

bool hws__stats_page_open(struct hws__worker *w, bool latency)
{
    w->page_fd = memfd_create(HWS__STATS_PAGE_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (w->page_fd < 0 || (w->page = map(w->page_fd)) == NULL) {
        hws__stats_page_close(w);
        return !latency;
    }
    w->page->size = sizeof *w->page;
    w->page->stats_size = sizeof(hws_stats);
    w->page->pid = (uint32_t)getpid();
    w->page->mode = w->mode;
    w->page->has_latency = latency;
    snprintf(w->page->name, sizeof w->page->name, "%s", w->name);
    w->latency = latency ? &w->page->latency : NULL;
    return true;
}

void hws__stats_page_announce(struct hws__worker *w, hws_id id)
{
    hws__stats_publish(w, hws__now());
    if (w->page != NULL) {
        w->page->worker = id;
        w->page->magic = HWS__STATS_PAGE_MAGIC;
    }
}

void hws__stats_page_close(struct hws__worker *w)
{
    if (w->page != NULL) {
        munmap(w->page, sizeof *w->page);
    }
    if (w->page_fd >= 0) {
        close(w->page_fd);
    }
    w->page = NULL;
    w->latency = NULL;
    w->page_fd = -1;
}
