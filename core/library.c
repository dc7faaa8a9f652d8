#include "auth.h"
#include "error.h"
#include "exit.h"
#include "guard.h"
#include "handle.h"
#include "op.h"
#include "options.h"
#include "ucx_loader.h"
#include <stdio.h>
#include <string.h>

_Atomic int hws__library_state;

/* LOCK: outermost. Nobody is in start() while the process forks, but for the very first time. */
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static bool fork_watched;

uint32_t hws_version(void)
{
    return HWS_VERSION_MAJOR << 16 | HWS_VERSION_MINOR << 8 | HWS_VERSION_PATCH;
}

uint32_t hws_abi_version(void)
{
    return HWS_ABI_VERSION;
}

/* Nothing was ever opened, and no other thread of the parent was about to: a child begins as its parent did. */
static bool never_used(void)
{
    bool unused = false;

    if (pthread_mutex_trylock(&hws__objects.lock) == 0) {
        unused = atomic_load(&hws__objects.used) == 0 && hws__ucx_load_settled();
        pthread_mutex_unlock(&hws__objects.lock);
    }
    return unused;
}

static void fork_begins(void)
{
    pthread_mutex_lock(&starting);
    hws__fork_begin();
}

static void fork_ends(void)
{
    hws__fork_end();
    pthread_mutex_unlock(&starting);
}

/* The child of a fork shares UCX's memory and descriptors but not its threads: touch nothing. */
static void forked(void)
{
    fork_ends();
    if (!never_used()) {
        atomic_store(&hws__library_state, HWS__FORKED);
    }
}

/* What fails is tried again by the next call. */
static int32_t start(void)
{
    int32_t r = HWS_OK;

    pthread_mutex_lock(&starting);
    if (atomic_load(&hws__library_state) == HWS__NEW) {
        fork_watched = fork_watched || pthread_atfork(fork_begins, fork_ends, forked) == 0;
        r = fork_watched ? hws__table_init(&hws__objects, HWS__GENERATION_BITS, HWS__SLOT_BITS)
                         : HWS_E_NO_MEMORY;
        if (r == HWS_OK) {
            atomic_store(&hws__library_state, HWS__READY);
        }
    }
    pthread_mutex_unlock(&starting);
    return r;
}

int32_t hws__library_enter(void)
{
    if (atomic_load(&hws__library_state) == HWS__FORKED) {
        return hws__fail(HWS_E_FORKED, 0, "the library was used before fork");
    }
    if (hws__library_ending()) {
        return hws__fail(HWS_E_CLOSING, 0, "the process is ending");
    }
    if (start() < 0) {
        return hws__fail(HWS_E_NO_MEMORY, 0, "no memory for the table of objects");
    }
    return atomic_load(&hws__library_state) == HWS__READY ? HWS_OK : HWS_E_FORKED;
}

int32_t hws_library_open(const char *ucx, hws_library_info *out)
{
    hws_library_info info = {0};
    int32_t r;

    HWS__ENTER();
    if ((r = hws__ucx_load(ucx)) < 0 || out == NULL) {
        return r;
    }
    info.version = hws_version();
    info.ucx_major = (uint32_t)hws__ucx.major;
    info.ucx_minor = (uint32_t)hws__ucx.minor;
    info.ucx_release = (uint32_t)hws__ucx.release;
    info.has_sodium = (uint32_t)hws__auth_available();
    snprintf(info.ucx_path, sizeof info.ucx_path, "%.*s", (int)sizeof info.ucx_path - 1,
             hws__ucx.lib_dir);
    snprintf(info.ucx_reason, sizeof info.ucx_reason, "%.255s", hws__ucx.reason);
    return hws__fill(out, &info, sizeof info, "library info");
}
