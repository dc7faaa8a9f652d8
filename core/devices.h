/*
 * Network devices. UCX looks for them when a context is made and takes those that run; for that context no other one
 * ever exists. A device that gets its cable, its address or its virtual peer later carries connections all the same
 * (the kernel even begins up to a second before it says that a device runs): hence contexts for TCP that are made anew.
 */
#ifndef HWS_CORE_DEVICES_H
#define HWS_CORE_DEVICES_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/** Addresses of devices; where there are more, every other one is taken for known. */
#define HWS__DEVICES 64

struct hws__devices {
    bool
        bridges; /* UCX takes them, or must not by the user's wish; since 1.16 it does not by itself */
    uint32_t count;
    struct hws__device_address {
        char name[IF_NAMESIZE];
        uint16_t family;
        unsigned char address[16];
    } at[HWS__DEVICES];
};

enum hws__device {
    HWS__DEVICE_KNOWN,  /* or it cannot be told */
    HWS__DEVICE_NEW,    /* runs, and is not one of `known` */
    HWS__DEVICE_BRIDGE, /* runs, and UCX must be told to take it */
    HWS__DEVICE_STARTING
};

/** Those with an address that run now; of these only such as UCX takes. */
void hws__devices_read(struct hws__devices *d, bool bridges);
/** Some device runs now that is not one of `known`. */
bool hws__devices_more(const struct hws__devices *known);
/** What the device is on the way to a peer. */
enum hws__device hws__device_towards(const struct hws__devices *known,
                                     const struct sockaddr_storage *peer);

#endif
