/*
 * What a context's options and its environment say: checked and copied.
 */
#include "context_parts.h"
#include "auth.h"
#include "error.h"
#include "host.h"
#include "log.h"
#include "shm_orphans.h"
#include "ucx_config.h"
#include "ucx_find.h"
#include "ucx_loader.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* What a context must find free in /dev/shm, if it may use it, before its first connection. */
#define SHM_FLOOR (UINT64_C(4) << 20)

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

static bool wants_ipv6(const struct hws__context *c)
{
    const char *value = hws__ucx_config_user("TCP_AF_PRIO", (const char *const *)c->config);

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

void hws__context_options_free(struct hws__context *c)
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

static int32_t check(const hws_context_opts *o)
{
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
    return HWS_OK;
}

/* The options ask for it, or this machine has no shared memory for it now. */
static int choose_profile(struct hws__context *c, const hws_context_opts *o)
{
    if (o->flags & HWS_CONTEXT_UCX_CONFIG_ONLY) {
        return HWS__PROFILE_NONE;
    }
    if (o->flags & HWS_CONTEXT_NO_SHARED_MEMORY) {
        return HWS__PROFILE_TCP;
    }
    c->no_shm = !has_shared_memory(c);
    return c->no_shm ? HWS__PROFILE_TCP : HWS__PROFILE_MAIN;
}

/* Whether connections begin by TCP and go on by shared memory. */
static void choose_upgrades(struct hws__context *c, int profile)
{
    c->upgrades = profile == HWS__PROFILE_MAIN && hws__ucx_at_least(1, 14) && !hws__rdma_present();
    if (c->upgrades && !hws__ucx_config_has_shm((const char *const *)c->config)) {
        /* Nothing to go on by. An isolated worker offered all the same would know TCP, and keep for good the
         * connection that the peer tries there, since it makes no progress before it is used. */
        c->flags |= HWS_CONTEXT_NO_SHARED_MEMORY;
        c->upgrades = false;
    }
}

int32_t hws__context_options_read(struct hws__context *c, const hws_context_opts *o, int *profile)
{
    int32_t r;

    if ((r = check(o)) < 0 || (r = copy_config(c, o->config)) < 0 || (r = copy_psk(c, o)) < 0) {
        return r;
    }
    c->dev_shm = hws__ucx_config_user("TLS", (const char *const *)c->config) != NULL;
    *profile = choose_profile(c, o);
    c->flags = o->flags | (c->no_shm ? HWS_CONTEXT_NO_SHARED_MEMORY : 0);
    c->features =
        o->features != 0 ? o->features : HWS_FEATURE_TAG | HWS_FEATURE_STREAM | HWS_FEATURE_AM;
    /* Where UCX serves remote access by messages it obeys every peer, so it does so only where it
     * has hardware for it or the user asks. Elsewhere Hawser does it, see rma.h. */
    c->ucx_rma = hws__rdma_present() || (c->features & HWS_FEATURE_UCX_RMA) != 0;
    c->isolated_max = o->isolated_max;
    snprintf(c->name, sizeof c->name, "%s", o->name != NULL ? o->name : "hawser");
    c->silence = hws__silence_of((const char *const *)c->config);
    c->no_network = hws__ucx_config_no_network((const char *const *)c->config);
    c->ipv6 = wants_ipv6(c);
    choose_upgrades(c, *profile);
    return HWS_OK;
}
