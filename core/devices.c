#include "devices.h"
#include "address.h"
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool runs(const struct ifaddrs *i)
{
    return (i->ifa_flags & IFF_UP) && (i->ifa_flags & IFF_RUNNING);
}

/* As UCX sees it. */
static bool is_bridge(const char *name)
{
    char path[64];

    snprintf(path, sizeof path, "/sys/class/net/%s/bridge", name);
    return access(path, F_OK) == 0;
}

/* False: neither IPv4 nor IPv6. */
static bool parse(const struct sockaddr *a, struct hws__device_address *out)
{
    *out = (struct hws__device_address){0};
    if (a == NULL || (a->sa_family != AF_INET && a->sa_family != AF_INET6)) {
        return false;
    }
    out->family = a->sa_family;
    if (a->sa_family == AF_INET) {
        memcpy(out->address, &((const struct sockaddr_in *)(const void *)a)->sin_addr, 4);
    } else {
        memcpy(out->address, &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, 16);
    }
    return true;
}

static bool same_address(const struct hws__device_address *a, const struct hws__device_address *b)
{
    return a->family == b->family && memcmp(a->address, b->address, sizeof a->address) == 0;
}

static bool knows_address(const struct hws__devices *d, const struct hws__device_address *a)
{
    for (uint32_t i = 0; i < d->count; i++) {
        if (same_address(&d->at[i], a)) {
            return true;
        }
    }
    return d->count == HWS__DEVICES;
}

static bool knows_name(const struct hws__devices *d, const char *name)
{
    for (uint32_t i = 0; i < d->count; i++) {
        if (strncmp(d->at[i].name, name, IF_NAMESIZE) == 0) {
            return true;
        }
    }
    return d->count == HWS__DEVICES;
}

void hws__devices_read(struct hws__devices *d, bool bridges)
{
    struct hws__device_address a;
    struct ifaddrs *list = NULL;

    d->bridges = bridges;
    d->count = 0;
    if (getifaddrs(&list) != 0) {
        d->count = HWS__DEVICES; /* whatever comes is taken for known */
        return;
    }
    for (struct ifaddrs *i = list; i != NULL && d->count < HWS__DEVICES; i = i->ifa_next) {
        if (runs(i) && parse(i->ifa_addr, &a) && (bridges || !is_bridge(i->ifa_name))) {
            snprintf(a.name, sizeof a.name, "%s", i->ifa_name);
            d->at[d->count++] = a;
        }
    }
    freeifaddrs(list);
}

bool hws__devices_more(const struct hws__devices *known)
{
    struct hws__devices now;

    hws__devices_read(&now, known->bridges);
    for (uint32_t i = 0; i < now.count && now.count < HWS__DEVICES; i++) {
        if (!knows_name(known, now.at[i].name)) {
            return true;
        }
    }
    return false;
}

/* The address that this machine would send from; nothing is sent. */
static bool local_towards(const struct sockaddr_storage *peer, struct hws__device_address *out)
{
    struct sockaddr_storage local = {0};
    socklen_t length = sizeof local;
    int fd = socket(peer->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool ok = fd >= 0 &&
              connect(fd, (const struct sockaddr *)peer, hws__address_length(peer)) == 0 &&
              getsockname(fd, (struct sockaddr *)&local, &length) == 0;

    if (fd >= 0) {
        close(fd);
    }
    return ok && parse((const struct sockaddr *)&local, out);
}

enum hws__device hws__device_towards(const struct hws__devices *known,
                                     const struct sockaddr_storage *peer)
{
    enum hws__device found = HWS__DEVICE_KNOWN;
    struct hws__device_address local, a;
    struct ifaddrs *list = NULL;

    if (!local_towards(peer, &local) || knows_address(known, &local) || getifaddrs(&list) != 0) {
        return HWS__DEVICE_KNOWN;
    }
    for (struct ifaddrs *i = list; i != NULL; i = i->ifa_next) {
        if (parse(i->ifa_addr, &a) && same_address(&a, &local) && !knows_name(known, i->ifa_name)) {
            found = !runs(i)                                    ? HWS__DEVICE_STARTING
                    : known->bridges || !is_bridge(i->ifa_name) ? HWS__DEVICE_NEW
                                                                : HWS__DEVICE_BRIDGE;
            break;
        }
    }
    freeifaddrs(list);
    return found;
}
