#include "context.h"
#include "auth.h"
#include "error.h"
#include "exit.h"
#include "guard.h"
#include "host.h"
#include "log.h"
#include "memory.h"
#include "options.h"
#include "quiet_thread.h"
#include "shm_orphans.h"
#include "stats.h"
#include "time.h"
#include "ucx_config.h"
#include "ucx_find.h"
#include "ucx_loader.h"
#include "worker.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* What a context must find free in /dev/shm, if it may use it, before its first connection. */
#define SHM_FLOOR (UINT64_C(4) << 20)
/* UCX's option to take network devices that are bridges. */
#define BRIDGES "TCP_BRIDGE_ENABLE"
/* UCX's option by which it looks for lanes once more when a connection stands, among all devices. It takes the one of
 * the best speed then, though the peer may not be behind it. */
#define ALL_DEVICES "CM_USE_ALL_DEVICES"
/* How long a look at the machine's resources is good for. */
#define CAP_AGE_NS 50000000u

struct hws__context *hws__context_find(hws_id id, int32_t *error)
{
    return hws__obj_get(id, HWS_KIND_CONTEXT, error);
}

static uint64_t ucx_features(const struct hws__context *c)
{
    uint64_t features = c->features;

    /* TAG is for raw endpoints; AM carries everything else; WAKEUP lets idle workers sleep. */
    return UCP_FEATURE_AM | UCP_FEATURE_WAKEUP | UCP_FEATURE_TAG |
           (features & HWS_FEATURE_STREAM ? UCP_FEATURE_STREAM : 0) |
           (c->ucx_rma && (features & HWS_FEATURE_RMA) ? UCP_FEATURE_RMA : 0) |
           (c->ucx_rma && (features & HWS_FEATURE_ATOMIC) ? UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64
                                                          : 0);
}

/* For UCX's libraries and its own thread: it aborts where the thread finds none. */
#define DESCRIPTORS 16

static int32_t find_room(void)
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
static int32_t init_ucx(struct hws__context *c, int profile, const struct hws__kv *more,
                        ucp_context_h *out)
{
    ucp_params_t p = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED |
                                    UCP_PARAM_FIELD_NAME,
                      .features = ucx_features(c),
                      .mt_workers_shared = 1,
                      .name = c->name};
    struct hws__words words;
    ucp_config_t *config;
    ucs_status_t s;
    int32_t r;

    if ((r = find_room()) < 0 ||
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

static struct hws__tcp_context *tcp_new(struct hws__context *c)
{
    struct hws__tcp_context *t = calloc(1, sizeof *t);
    bool bridges = atomic_load(&c->bridges);
    struct hws__kv more[3] = {{NULL, NULL}};
    int n = 0;

    if (t == NULL) {
        return NULL;
    }
    hws__list_init(&t->link);
    /* Before UCX does: what comes between is known to it alone. */
    hws__devices_read(&t->devices, bridges || !passes_bridges(c));
    if (bridges && passes_bridges(c)) {
        more[n++] = (struct hws__kv){BRIDGES, "y"};
    }
    if (hws__ucx_config_user(ALL_DEVICES, (const char *const *)c->config) == NULL) {
        more[n++] = (struct hws__kv){ALL_DEVICES, "n"};
    }
    if (init_ucx(c, HWS__PROFILE_TCP, more, &t->ucx) < 0) {
        free(t);
        return NULL;
    }
    return t;
}

static struct hws__tcp_context *tcp_first(struct hws__context *c)
{
    return hws__list_empty(&c->tcp) ? NULL
                                    : hws__container(c->tcp.next, struct hws__tcp_context, link);
}

struct hws__tcp_context *hws__tcp_context_take(struct hws__context *c)
{
    struct hws__tcp_context *t, *last;

    pthread_mutex_lock(&c->lock);
    t = last = tcp_first(c);
    if (last == NULL || (atomic_load(&c->bridges) && !last->devices.bridges) ||
        hws__devices_more(&last->devices)) {
        t = tcp_new(c);
        if (t != NULL) {
            hws__list_push(&c->tcp, &t->link);
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
    if (--t->users == 0 && t != tcp_first(c)) {
        tcp_end(t);
    }
    pthread_mutex_unlock(&c->lock);
}

ucp_context_h hws__context_shm(struct hws__context *c)
{
    pthread_mutex_lock(&c->lock);
    if (c->shm == NULL &&
        (!c->upgrades || c->ucx_rma || init_ucx(c, HWS__PROFILE_SHM, NULL, &c->shm) < 0)) {
        c->shm = c->ucx; /* for good: keys of one are not for the other */
    }
    pthread_mutex_unlock(&c->lock);
    return c->shm;
}

bool hws__isolated_reserve(struct hws__context *c)
{
    uint32_t now_used = atomic_load(&c->isolated), cap;
    uint64_t now = hws__now();
    const char *why = "";

    pthread_mutex_lock(&c->lock);
    if (now - c->cap_time > CAP_AGE_NS) {
        c->cap_time = now;
        c->cap_further = hws__isolated_cap(c->dev_shm, &why);
        c->cap_base = now_used;
    }
    cap = c->cap_base + (uint32_t)(c->cap_further > 0 ? c->cap_further : 0);
    if (c->isolated_max != 0 && c->isolated_max < cap) {
        cap = c->isolated_max;
    }
    atomic_store(&c->isolated_cap, cap);
    if (now_used >= cap) {
        pthread_mutex_unlock(&c->lock);
        hws__log(HWS_LOG_INFO, "no isolated worker: %u in use, bounded by %s", now_used,
                 c->isolated_max != 0 && now_used >= c->isolated_max ? "the option" : why);
        return false;
    }
    atomic_fetch_add(&c->isolated, 1);
    pthread_mutex_unlock(&c->lock);
    return true;
}

void hws__isolated_unreserve(struct hws__context *c)
{
    atomic_fetch_sub(&c->isolated, 1);
}

static void free_config(char **config)
{
    for (size_t i = 0; config != NULL && config[i] != NULL; i++) {
        free(config[i]);
    }
    free(config);
}

static int32_t copy_config(struct hws__context *c, const char *const *pairs)
{
    size_t n = 0;

    while (pairs != NULL && pairs[n] != NULL) {
        n++;
    }
    if (n % 2 != 0) {
        return hws__fail(HWS_E_CONFIG, 0, "the key \"%s\" has no value", pairs[n - 1]);
    }
    if ((c->config = calloc(n + 1, sizeof(char *))) == NULL) {
        return hws__fail(HWS_E_NO_MEMORY, 0, "configuration");
    }
    for (size_t i = 0; i < n; i++) {
        if ((c->config[i] = strdup(pairs[i])) == NULL) {
            return hws__fail(HWS_E_NO_MEMORY, 0, "configuration");
        }
    }
    return HWS_OK;
}

/* The last one that is set wins, as in UCX: the pairs, else the environment. */
static bool wants_ipv6(const struct hws__context *c)
{
    const char *value = getenv("UCX_TCP_AF_PRIO");

    for (size_t i = 0; c->config[i] != NULL; i += 2) {
        const char *key = strncmp(c->config[i], "UCX_", 4) == 0 ? c->config[i] + 4 : c->config[i];

        if (strcmp(key, "TCP_AF_PRIO") == 0) {
            value = c->config[i + 1];
        }
    }
    return value != NULL && strncmp(value, "inet6", 5) == 0;
}

bool hws__context_family(const struct hws__context *c, int family)
{
    return family == AF_INET6 ? c->ipv6 && hws__ucx_at_least(1, 14) : true;
}

static int32_t copy_psk(struct hws__context *c, const hws_context_opts *o)
{
    if (o->psk == NULL && o->psk_length == 0) {
        return HWS_OK;
    }
    /* A length alone is a key that was meant to be there: to go on without one would open the door. */
    if (o->psk == NULL) {
        return hws__fail(HWS_E_INVALID, 0, "psk is null, but psk_length is %llu",
                         (unsigned long long)o->psk_length);
    }
    if (o->psk_length < 16 || o->psk_length > 1024) {
        return hws__fail(HWS_E_INVALID, 0, "a pre-shared key has 16 to 1024 bytes");
    }
    if (!hws__auth_available()) {
        return hws__fail(HWS_E_NO_SODIUM, 0, "this build has no libsodium");
    }
    if ((c->psk = malloc(o->psk_length)) == NULL) {
        return hws__fail(HWS_E_NO_MEMORY, 0, "key");
    }
    memcpy(c->psk, o->psk, o->psk_length);
    c->psk_length = o->psk_length;
    return HWS_OK;
}

static void free_parts(struct hws__context *c)
{
    free_config(c->config);
    if (c->psk != NULL) {
        explicit_bzero(c->psk, c->psk_length);
        free(c->psk);
    }
    c->config = NULL;
    c->psk = NULL;
}

static bool has_shared_memory(const struct hws__context *c)
{
    if (c->dev_shm) {
        hws__shm_orphans_remove("/dev/shm");
    }
    if (c->dev_shm && hws__dev_shm_free() < SHM_FLOOR) {
        hws__log(HWS_LOG_WARN, "/dev/shm is nearly full: no shared memory in this context");
        return false;
    }
    if (!c->dev_shm && !hws__segments_possible()) {
        hws__log(HWS_LOG_WARN, "no System V segments (%s): no shared memory in this context",
                 strerror(errno));
        return false;
    }
    return true;
}

static int32_t fill(struct hws__context *c, const hws_context_opts *o)
{
    int profile = o->flags & HWS_CONTEXT_UCX_CONFIG_ONLY    ? HWS__PROFILE_NONE
                  : o->flags & HWS_CONTEXT_NO_SHARED_MEMORY ? HWS__PROFILE_TCP
                                                            : HWS__PROFILE_MAIN;
    int32_t r;

    c->dev_shm = hws__ucx_config_user("TLS", (const char *const *)o->config) != NULL;
    if (profile == HWS__PROFILE_MAIN && !has_shared_memory(c)) {
        profile = HWS__PROFILE_TCP;
        c->no_shm = true;
    }
    if (o->flags & ~(uint32_t)(HWS_CONTEXT_NO_SHARED_MEMORY | HWS_CONTEXT_UCX_CONFIG_ONLY)) {
        return hws__fail(HWS_E_INVALID, 0, "unknown flags %#x", o->flags);
    }
    if (o->reserved != 0) {
        return hws__fail(HWS_E_NEWER, 0, "context options: `reserved` is set");
    }
    if (o->features >> 6 != 0) {
        return hws__fail(HWS_E_INVALID, 0, "unknown features %#llx",
                         (unsigned long long)o->features);
    }
    c->flags = o->flags | (c->no_shm ? HWS_CONTEXT_NO_SHARED_MEMORY : 0);
    c->features =
        o->features != 0 ? o->features : HWS_FEATURE_TAG | HWS_FEATURE_STREAM | HWS_FEATURE_AM;
    /* Where UCX serves remote access by messages it obeys every peer, so it does so only where it
     * has hardware for it or the user asks. Elsewhere Hawser does it, see rma.h. */
    c->ucx_rma = hws__rdma_present() || (c->features & HWS_FEATURE_UCX_RMA) != 0;
    c->isolated_max = o->isolated_max;
    snprintf(c->name, sizeof c->name, "%s", o->name != NULL ? o->name : "hawser");
    if ((r = copy_config(c, o->config)) < 0 || (r = copy_psk(c, o)) < 0) {
        return r;
    }
    c->silence = hws__silence_of((const char *const *)c->config);
    c->no_network = hws__ucx_config_no_network((const char *const *)c->config);
    c->ipv6 = wants_ipv6(c);
    c->upgrades = profile == HWS__PROFILE_MAIN && hws__ucx_at_least(1, 14) && !hws__rdma_present();
    if (c->upgrades && !hws__ucx_config_has_shm((const char *const *)c->config)) {
        /* Nothing to go on by. An isolated worker offered all the same would know TCP, and keep for good the
         * connection that the peer tries there, since it makes no progress before it is used. */
        c->flags |= HWS_CONTEXT_NO_SHARED_MEMORY;
        c->upgrades = false;
    }
    hws__devices_read(&c->devices, !passes_bridges(c));
    if ((r = init_ucx(c, profile, NULL, &c->ucx)) == HWS_OK) {
        c->memory_types = memory_types(c->ucx);
    }
    return r;
}

int32_t hws_context_open(const hws_context_opts *opts, hws_id *out)
{
    struct hws__context *c;
    hws_context_opts o;
    int32_t r;

    HWS__ENTER();
    if (out == NULL) {
        return hws__fail(HWS_E_INVALID, 0, "out is null");
    }
    hws__fd_limit_raise();
    if ((r = hws__options(&o, sizeof o, opts, "context")) < 0 || (r = find_room()) < 0 ||
        (r = hws__thread_room(0)) < 0 || (r = hws__ucx_load(o.ucx)) < 0) {
        return r;
    }
    c = (struct hws__context *)(void *)hws__obj_alloc(&hws__objects, HWS_KIND_CONTEXT, sizeof *c,
                                                      HWS__KEEP(struct hws__context, ucx));
    if (c == NULL) {
        return hws__fail(hws__obj_missing(&hws__objects), 0, "no context is free");
    }
    hws__list_init(&c->memories);
    hws__list_init(&c->tcp);
    c->host = hws__host_hash();
    c->network = hws__host_network();
    if ((r = fill(c, &o)) < 0) {
        free_parts(c);
        hws__obj_free(&hws__objects, &c->obj);
        return r;
    }
    hws__background_init(&c->background);
    hws__background_init(&c->streams);
    *out = hws__obj_publish(&hws__objects, &c->obj);
    return HWS_OK;
}

/* Nothing uses the context any more. Not on its background thread. */
static void finish(struct hws__context *c)
{
    hws__stats_context_ended(&c->gone);
    hws__background_stop(&c->background);
    hws__background_stop(&c->streams);
    hws__ucx_begin();
    hws__memory_end(c);
    atomic_store(&c->cuda, NULL); /* of postings on memory that nobody registered */
    while (!hws__list_empty(&c->tcp)) {
        tcp_end(tcp_first(c));
    }
    if (c->shm != NULL && c->shm != c->ucx) {
        hws__ucx.ucp_cleanup(c->shm);
    }
    hws__ucx.ucp_cleanup(c->ucx);
    hws__ucx_end();
    free_parts(c);
    hws__obj_free(&hws__objects, &c->obj);
}

int32_t hws__context_close(hws_id id)
{
    struct hws__context *c;
    hws_id workers[HWS__WORKERS];
    uint32_t n;
    int32_t r = HWS_OK;
    bool opening;

    if ((c = hws__context_find(id, &r)) == NULL) {
        return r;
    }
    pthread_mutex_lock(&c->lock);
    if (atomic_load(&c->obj.id) != id) {
        pthread_mutex_unlock(&c->lock);
        return hws__id_error(&hws__objects, id, HWS_KIND_CONTEXT);
    }
    if (atomic_exchange(&c->closing, 1) != 0) {
        pthread_mutex_unlock(&c->lock);
        return HWS_OK;
    }
    n = c->worker_count;
    opening = c->opening + c->holds != 0;
    memcpy(workers, c->workers, n * sizeof *workers);
    pthread_mutex_unlock(&c->lock);
    if (n == 0 && !opening) {
        finish(c);
        return HWS_OK;
    }
    for (uint32_t i = 0; i < n; i++) {
        hws__worker_close(workers[i]);
    }
    return HWS_OK;
}

int32_t hws__context_enter(struct hws__context *c, hws_id id)
{
    int32_t r = HWS_OK;

    pthread_mutex_lock(&c->lock);
    if (atomic_load(&c->obj.id) != id) {
        r = hws__id_error(&hws__objects, id, HWS_KIND_CONTEXT);
    } else if (c->closing) {
        r = hws__fail(HWS_E_CLOSING, id, "the context is closing");
    } else if (c->worker_count + c->opening == HWS__WORKERS) {
        r = hws__fail(HWS_E_TOO_MANY, id, "a context has at most %u workers", HWS__WORKERS);
    } else {
        c->opening++;
    }
    pthread_mutex_unlock(&c->lock);
    return r;
}

bool hws__context_worker_add(struct hws__context *c, hws_id worker)
{
    bool ok;

    pthread_mutex_lock(&c->lock);
    ok = !c->closing;
    if (ok) {
        c->opening--;
        c->workers[c->worker_count++] = worker;
    }
    pthread_mutex_unlock(&c->lock);
    return ok;
}

/* Whether a context that was closed has nothing left. With the lock. */
static bool is_over(const struct hws__context *c)
{
    return c->closing && c->worker_count + c->opening + c->holds == 0;
}

bool hws__context_hold(struct hws__context *c)
{
    bool ok;

    pthread_mutex_lock(&c->lock);
    ok = !c->closing;
    c->holds += ok;
    pthread_mutex_unlock(&c->lock);
    return ok;
}

void hws__context_let_go(struct hws__context *c)
{
    bool last;

    pthread_mutex_lock(&c->lock);
    c->holds--;
    last = is_over(c);
    pthread_mutex_unlock(&c->lock);
    if (last) {
        finish(c);
    }
}

void hws__context_worker_gone(struct hws__context *c, hws_id worker)
{
    bool last;

    pthread_mutex_lock(&c->lock);
    c->opening -= worker == 0;
    for (uint32_t i = 0; worker != 0 && i < c->worker_count; i++) {
        if (c->workers[i] == worker) {
            c->workers[i] = c->workers[--c->worker_count];
            break;
        }
    }
    last = is_over(c);
    pthread_mutex_unlock(&c->lock);
    if (last) {
        finish(c);
    }
}
