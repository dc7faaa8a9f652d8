/*
 * The UCX contexts of a context: the one with everything, those for TCP with the devices of their time, and the one
 * for shared memory.
 */
#include "context_parts.h"
#include "error.h"
#include "exit.h"
#include "host.h"
#include "log.h"
#include "ucx_config.h"
#include "ucx_loader.h"
#include <stdlib.h>

/* UCX's option to take network devices that are bridges. */
#define BRIDGES "TCP_BRIDGE_ENABLE"
/* UCX's option by which it looks for lanes once more when a connection stands, among all devices. It takes the one of
 * the best speed then, though the peer may not be behind it. */
#define ALL_DEVICES "CM_USE_ALL_DEVICES"

/* own: UCX's own tags, which plain UCX programs use. They may come to any UCX worker of a context without shared
 * memory. */
static uint64_t ucx_features(const struct hws__context *c, bool own)
{
    uint64_t features = c->features;

    /* AM carries messages between two sides of Hawser; WAKEUP lets idle workers sleep. */
    return UCP_FEATURE_AM | UCP_FEATURE_WAKEUP |
           (own || hws__context_all_own(c) ? UCP_FEATURE_TAG : 0) |
           (features & HWS_FEATURE_STREAM ? UCP_FEATURE_STREAM : 0) |
           (c->ucx_rma && (features & HWS_FEATURE_RMA) ? UCP_FEATURE_RMA : 0) |
           (c->ucx_rma && (features & HWS_FEATURE_ATOMIC) ? UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64
                                                          : 0);
}

#define DESCRIPTORS 16

int32_t hws__context_room(void)
{
    if (!hws__fd_room(DESCRIPTORS)) {
        return hws__fail(HWS_E_NO_RESOURCE, 0, "fewer than %d descriptors are left for UCX",
                         DESCRIPTORS);
    }
    return HWS_OK;
}

/* Whether UCX passes bridges over, unless it is told to take them. */
static bool passes_bridges(const struct hws__context *c)
{
    return hws__ucx_at_least(1, 16) &&
           hws__ucx_config_user(BRIDGES, (const char *const *)c->config) == NULL;
}

/* more: pairs beside those of the profile, or null; ends with a null key. */
static int32_t init_ucx(struct hws__context *c, int profile, bool own, const struct hws__kv *more,
                        ucp_context_h *out)
{
    ucp_params_t p = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED |
                                    UCP_PARAM_FIELD_NAME,
                      .features = ucx_features(c, own),
                      .mt_workers_shared = 1,
                      .name = c->name};
    struct hws__words words;
    ucp_config_t *config;
    ucs_status_t s;
    int32_t r;

    if ((r = hws__context_room()) < 0 ||
        (r = hws__ucx_config(profile, (const char *const *)c->config, &config)) < 0) {
        return r;
    }
    for (; more != NULL && more->key != NULL; more++) {
        hws__ucx_config_set(config, more->key, more->value);
    }
    hws__ucx_begin();
    hws__words_begin(&words);
    s = hws__ucx.ucp_init_version(
        UCP_API_MAJOR,
        hws__ucx_at_least(UCP_API_MAJOR, UCP_API_MINOR) ? UCP_API_MINOR : (unsigned)hws__ucx.minor,
        &p, config, out);
    hws__words_end();
    hws__ucx.ucp_config_release(config);
    hws__ucx_end();
    if (s != UCS_OK) {
        return hws__fail_ucx(s, 0, "ucp_init: %s%s%s", hws__ucx.ucs_status_string(s),
                             HWS__WORDS(words));
    }
    return HWS_OK;
}

/* UCX's numbers of the kinds are the ABI's. */
static uint64_t memory_types(ucp_context_h ucx)
{
    ucp_context_attr_t a = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};

    return hws__ucx.ucp_context_query(ucx, &a) == UCS_OK ? a.memory_types
                                                         : UINT64_C(1) << HWS_MEMORY_HOST;
}

static void tcp_end(struct hws__tcp_context *t)
{
    hws__list_remove(&t->link);
    hws__ucx_begin();
    hws__ucx.ucp_cleanup(t->ucx);
    hws__ucx_end();
    free(t);
}

static struct hws__tcp_context *tcp_new(struct hws__context *c, bool own)
{
    struct hws__tcp_context *t = calloc(1, sizeof *t);
    bool bridges = atomic_load(&c->bridges);
    struct hws__kv more[3] = {{NULL, NULL}};
    int n = 0;

    if (t == NULL) {
        return NULL;
    }
    hws__list_init(&t->link);
    t->own = own;
    /* Before UCX does: what comes between is known to it alone. */
    hws__devices_read(&t->devices, bridges || !passes_bridges(c));
    if (bridges && passes_bridges(c)) {
        more[n++] = (struct hws__kv){BRIDGES, "y"};
    }
    if (hws__ucx_config_user(ALL_DEVICES, (const char *const *)c->config) == NULL) {
        more[n++] = (struct hws__kv){ALL_DEVICES, "n"};
    }
    if (init_ucx(c, HWS__PROFILE_TCP, own, more, &t->ucx) < 0) {
        free(t);
        return NULL;
    }
    return t;
}

static struct hws__tcp_context *tcp_first(struct hws__context *c, bool own)
{
    struct hws__list *all = &c->tcp[own];

    return hws__list_empty(all) ? NULL : hws__container(all->next, struct hws__tcp_context, link);
}

struct hws__tcp_context *hws__tcp_context_take(struct hws__context *c, bool own)
{
    struct hws__tcp_context *t, *last;

    pthread_mutex_lock(&c->lock);
    t = last = tcp_first(c, own);
    if (last == NULL || (atomic_load(&c->bridges) && !last->devices.bridges) ||
        hws__devices_more(&last->devices)) {
        t = tcp_new(c, own);
        if (t != NULL) {
            hws__list_push(&c->tcp[own], &t->link);
        }
        if (t != NULL && last != NULL && last->users == 0) {
            tcp_end(last);
        }
        t = t != NULL ? t : last;
    }
    if (t != NULL) {
        t->users++;
    }
    pthread_mutex_unlock(&c->lock);
    return t;
}

enum hws__device hws__context_device_towards(struct hws__context *c,
                                             const struct hws__devices *known,
                                             const struct sockaddr_storage *peer)
{
    enum hws__device device = hws__device_towards(known, peer);

    if (device != HWS__DEVICE_BRIDGE) {
        return device;
    }
    atomic_store(&c->bridges, true);
    return HWS__DEVICE_NEW;
}

void hws__tcp_context_leave(struct hws__context *c, struct hws__tcp_context *t)
{
    pthread_mutex_lock(&c->lock);
    if (--t->users == 0 && t != tcp_first(c, t->own)) {
        tcp_end(t);
    }
    pthread_mutex_unlock(&c->lock);
}

ucp_context_h hws__context_shm(struct hws__context *c)
{
    pthread_mutex_lock(&c->lock);
    if (c->shm == NULL &&
        (!c->upgrades || c->ucx_rma || init_ucx(c, HWS__PROFILE_SHM, false, NULL, &c->shm) < 0)) {
        c->shm = c->ucx; /* for good: keys of one are not for the other */
    }
    pthread_mutex_unlock(&c->lock);
    return c->shm;
}

ucp_context_h hws__context_own(struct hws__context *c)
{
    pthread_mutex_lock(&c->lock);
    if (c->own == NULL && hws__context_all_own(c)) {
        c->own = c->ucx;
    } else if (c->own == NULL) {
        (void)init_ucx(c, c->profile, true, NULL, &c->own);
    }
    pthread_mutex_unlock(&c->lock);
    return c->own;
}

int32_t hws__context_ucx_open(struct hws__context *c, int profile)
{
    int32_t r;

    /* Before UCX does: what comes between is known to it alone. */
    hws__devices_read(&c->devices, !passes_bridges(c));
    c->profile = profile;
    if ((r = init_ucx(c, profile, false, NULL, &c->ucx)) == HWS_OK) {
        c->memory_types = memory_types(c->ucx);
    }
    return r;
}

void hws__context_ucx_end(struct hws__context *c)
{
    if (atomic_load(&c->left)) {
        return;
    }
    hws__ucx_begin();
    for (int own = 0; own < 2; own++) {
        while (!hws__list_empty(&c->tcp[own])) {
            tcp_end(tcp_first(c, own));
        }
    }
    if (c->own != NULL && c->own != c->ucx) {
        hws__ucx.ucp_cleanup(c->own);
    }
    if (c->shm != NULL && c->shm != c->ucx) {
        hws__ucx.ucp_cleanup(c->shm);
    }
    hws__ucx.ucp_cleanup(c->ucx);
    hws__ucx_end();
}
