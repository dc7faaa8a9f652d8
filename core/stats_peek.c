/*
 * Reading the pages of another process. What is there was written by somebody else: its size is
 * looked at and held before it is believed, and numbers are all that is taken from it.
 */
#include "error.h"
#include "guard.h"
#include "options.h"
#include "stats_page.h"
#include "time.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINK "/memfd:" HWS__STATS_PAGE_NAME " "

/* The number by which the process knows itself: the last one of NSpid. */
static uint32_t pid_inside(uint32_t pid)
{
    char path[64], line[256];
    uint32_t inside = pid;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%u/status", pid);
    if ((f = fopen(path, "re")) == NULL) {
        return pid;
    }
    while (fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, "NSpid:", 6) == 0) {
            char *last = strrchr(line, '\t');

            inside = last != NULL ? (uint32_t)strtoul(last, NULL, 10) : pid;
        }
    }
    fclose(f);
    return inside;
}

static struct hws__stats_page *map(int fd)
{
    struct stat s;
    void *at;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &s) != 0 ||
        s.st_size < (off_t)sizeof(struct hws__stats_page)) {
        return NULL;
    }
    at = mmap(NULL, sizeof(struct hws__stats_page), PROT_READ, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* The page behind one descriptor of the process, or null. `pages` counts what is called one. */
static struct hws__stats_page *open_one(const char *fds, const char *name, uint32_t *pages)
{
    struct hws__stats_page *page = NULL;
    char path[320], link[64] = "";
    int fd;

    snprintf(path, sizeof path, "%s/%s", fds, name);
    if (readlink(path, link, sizeof link - 1) <= 0 || strncmp(link, LINK, strlen(LINK)) != 0) {
        return NULL;
    }
    ++*pages;
    if ((fd = open(path, O_RDONLY | O_CLOEXEC)) >= 0) {
        page = map(fd);
        close(fd);
    }
    return page;
}

/* A page of this version of the library, made by that process and not its parent. */
static bool usable(const struct hws__stats_page *page, uint32_t pid)
{
    return page->magic == HWS__STATS_PAGE_MAGIC && page->size == sizeof *page &&
           page->stats_size == sizeof(hws_stats) && page->pid == pid;
}

static int32_t find(uint32_t pid, uint32_t index, struct hws__stats_page **out)
{
    uint32_t pages = 0, found = 0, inside = pid_inside(pid);
    struct hws__stats_page *page = NULL;
    struct dirent *e;
    char path[64];
    DIR *d;

    snprintf(path, sizeof path, "/proc/%u/fd", pid);
    if ((d = opendir(path)) == NULL) {
        return errno == ENOENT ? hws__fail(HWS_E_NOT_FOUND, 0, "there is no process %u", pid)
                               : hws__fail_errno(errno, 0, "process %u: %s", pid, strerror(errno));
    }
    while (page == NULL && (e = readdir(d)) != NULL) {
        page = open_one(path, e->d_name, &pages);
        if (page != NULL && (!usable(page, inside) || found++ != index)) {
            munmap(page, sizeof *page);
            page = NULL;
        }
    }
    closedir(d);
    *out = page;
    return page != NULL ? HWS_OK
           : pages != 0 && found == 0
               ? hws__fail(HWS_E_PEER_VERSION, 0,
                           "process %u runs another version of Hawser, or was forked", pid)
               : hws__fail(HWS_E_NOT_FOUND, 0, "process %u has no worker number %u", pid, index);
}

int32_t hws_stats_peek(uint32_t pid, uint32_t index, hws_stats *stats, hws_peek_info *info)
{
    struct hws__stats_page *page;
    hws_peek_info i = {0};
    uint64_t at, now;
    hws_stats s;
    int32_t r;

    HWS__ENTER();
    if ((stats != NULL && (r = hws__fillable(stats, "statistics")) < 0) ||
        (info != NULL && (r = hws__fillable(info, "peek info")) < 0) ||
        (r = find(pid, index, &page)) < 0) {
        return r;
    }
    if (!hws__stats_read(&page->stats, &s, &at)) {
        r = hws__fail(HWS_E_BUSY, 0, "process %u is in the middle of writing", pid);
    }
    now = hws__now();
    i.mode = page->mode;
    i.latency = page->has_latency;
    i.worker = page->worker;
    snprintf(i.name, sizeof i.name, "%.63s", page->name);
    munmap(page, sizeof *page);
    if (r < 0) {
        return r;
    }
    i.age_ns = now > at ? now - at : 0;
    if (stats != NULL && (r = hws__fill(stats, &s, sizeof s, "statistics")) < 0) {
        return r;
    }
    return info == NULL ? HWS_OK : hws__fill(info, &i, sizeof i, "peek info");
}

int32_t hws_latency_peek(uint32_t pid, uint32_t index, uint32_t kind, hws_latency *out)
{
    struct hws__stats_page *page;
    hws_latency l;
    int32_t r;

    HWS__ENTER();
    if (kind >= HWS__LATENCY_KINDS) {
        return hws__fail(HWS_E_INVALID, 0, "%u is no kind of an operation", kind);
    }
    if ((r = hws__fillable(out, "latency")) < 0 || (r = find(pid, index, &page)) < 0) {
        return r;
    }
    if (page->has_latency) {
        hws__latency_fill(&page->latency.kind[kind], kind, &l);
    } else {
        r = hws__fail(HWS_E_UNSUPPORTED, 0, "that worker keeps no histograms");
    }
    munmap(page, sizeof *page);
    return r < 0 ? r : hws__fill(out, &l, sizeof l, "latency");
}
