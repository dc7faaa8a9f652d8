/*
 * How long a peer over TCP may be silent before its connection is given up: by UCX's own settings of keepalive,
 * TCP_KEEPIDLE, TCP_KEEPINTVL and TCP_KEEPCNT. The kernel heeds them on idle connections, and this library on those
 * where something is on its way.
 */
#ifndef HWS_CORE_SILENCE_H
#define HWS_CORE_SILENCE_H

#include <stdint.h>

struct hws__silence {
    int idle_s, interval_s, probes; /* of the kernel's keepalive */
    uint32_t unheard_ms;            /* nothing of what is on its way is acknowledged */
    uint32_t mute_ms; /* something is expected, and the kernel's question has no answer */
    /* Nothing is expected, and there is no answer either; 0: the kernel alone says when. */
    uint32_t idle_ms;
    int questions; /* that many without an answer; where there is an idle_ms the looks ask, too */
};

/** A peer is given up after about a second and a half, or two where nothing happens. */
extern const struct hws__silence hws__silence_default;

/**
 * Where both ends are on one host: nothing can be cut there, the kernel tells of a peer's end at once, and an
 * answer that does not come within a second means that the host is overloaded.
 */
const struct hws__silence *hws__silence_on_one_host(const struct hws__silence *s);

/**
 * As the user's settings say, those of a context or of the environment; the default where there are none.
 * @param pairs  key, value, ..., null
 */
struct hws__silence hws__silence_of(const char *const *pairs);

#endif
