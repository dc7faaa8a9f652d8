#include "ucx_loader.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "error.h"
#include "exit.h"
#include "log.h"

enum { MIN_MAJOR = 1, MIN_MINOR = 13 };

struct hws__ucx hws__ucx;

/* LOCK: guards everything below and the filling of hws__ucx. Never held while user code runs. */
static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static int loaded;
static int log_level_ours; /* the user has not set UCX_LOG_LEVEL */

/* ---- the environment that UCX reads when it is opened ---- */

/* UCX 1.13 counts a worker's connections among its events and takes 1024 of these; room for one costs each UCX worker
 * 8 bytes. There can be no more connections than descriptors. */
static void prepare_events(void)
{
    enum { UCX_OWN = 1024, MOST = 16384 };
    struct rlimit limit;
    unsigned events = UCX_OWN;
    char text[16];

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        while (events < limit.rlim_cur && events < MOST) {
            events *= 2;
        }
    }
    if (events > UCX_OWN) {
        snprintf(text, sizeof(text), "%u", events);
        setenv("UCX_ASYNC_MAX_EVENTS", text, 0);
    }
}

/* UCX parses these in its constructors, so no call can set them later. A variable the user has set
 * is left alone: `setenv(.., 0)`. */
static void prepare_environment(void)
{
    static const struct {
        const char *name, *value;
    } variables[] = {
        /* A library must not take a host's signals; 1.13 does so when it is opened. */
        {"UCX_HANDLE_ERRORS", "none"},
        {"UCX_ERROR_SIGNALS", ""},
        {"UCX_DEBUG_SIGNO", "0"},
        /* No thread that serves UCX's state over FUSE. */
        {"UCX_VFS_ENABLE", "n"},
        /* Variables meant for other programs of the user are not our business to complain about. */
        {"UCX_WARN_UNUSED_ENV_VARS", "n"},
        /* Lines of this level reach our handler, which drops what HAWSER_LOG does not ask for; it
         * is raised once the handler is there. */
        {"UCX_LOG_LEVEL", "warn"},
        /* Some tables go past the handler of lines; standard output belongs to the program. */
        {"UCX_LOG_FILE", "stderr"},
        /* From 1 KiB on UCX would copy by the processor's string instruction, which waits for what was
         * written just before, as messages are; the C library uses it where it pays. */
        {"UCX_BUILTIN_MEMCPY_MIN", "8k"},
    };

    /* A second try finds what the first one set. */
    log_level_ours |= getenv("UCX_LOG_LEVEL") == NULL;
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
        setenv(variables[i].name, variables[i].value, 0);
    prepare_events();
    /* The memory hooks' own log knows no handler and writes to stderr. */
    setenv("UCX_MEM_LOG_LEVEL", hws__log_level_now() >= HWS_LOG_WARN ? "warn" : "fatal", 0);
    /* The hooks patch mmap and its like in the whole process, which costs 1.22 0.4 s at the start.
     * They serve the caches of registered memory, and shared memory and TCP register none. */
    if (!hws__rdma_present() && !hws__cuda_present())
        setenv("UCX_MEM_EVENTS", "n", 0);
}

/* ---- one copy only ---- */

/* What is mapped must be of one folder, once each: anything else is two copies, or a mixed one. */
static int32_t check_one_copy(const struct hws__ucx_mapped *mapped)
{
    for (int i = 0; i < HWS__UCX_LIBS; i++)
        if (mapped->count[i] > 1)
            return hws__fail(HWS_E_UCX_CONFLICT, 0, "two copies of UCX in this process: %s and %s",
                             mapped->path[i], mapped->other);
    if (mapped->other[0] != '\0')
        return hws__fail(HWS_E_UCX_CONFLICT, 0, "a mixed copy of UCX in this process: %s and %s",
                         mapped->dir, mapped->other);
    return 0;
}

/* After opening: all four, once, and where they were meant to come from. */
static int32_t check_opened(const char *dir)
{
    struct hws__ucx_mapped mapped;

    hws__ucx_scan(&mapped);
    const int32_t rc = check_one_copy(&mapped);
    if (rc != 0)
        return rc;
    for (int i = 0; i < HWS__UCX_LIBS; i++)
        if (mapped.count[i] != 1)
            return hws__fail(HWS_E_UCX_CONFLICT, 0, "UCX in %s has no %s of its own", dir,
                             hws__ucx_lib_names[i]);
    if (strcmp(mapped.dir, dir) != 0)
        return hws__fail(HWS_E_UCX_CONFLICT, 0, "UCX was meant to come from %s but is %s", dir,
                         mapped.dir);
    return 0;
}

/* ---- opening ---- */

struct handles {
    void *lib[HWS__UCX_LIBS];
};

static int32_t lib_path(const struct hws__ucx_mapped *mapped, const char *dir, int i, char *path)
{
    if (mapped->count[i] != 0) {
        memcpy(path, mapped->path[i], PATH_MAX);
        return 0;
    }
    if (snprintf(path, PATH_MAX, "%s/%s.so.0", dir, hws__ucx_lib_names[i]) >= PATH_MAX)
        return hws__fail(HWS_E_NO_UCX, 0, "the path of UCX is too long: %s", dir);
    /* A partial copy in memory whose folder has not the rest can only be completed by mixing. */
    if (access(path, R_OK) != 0)
        return hws__fail(mapped->dir[0] != '\0' ? HWS_E_UCX_CONFLICT : HWS_E_NO_UCX, 0,
                         "the copy of UCX in %s is not whole: no %s", dir, path);
    return 0;
}

/* Lowest library first, each by its absolute path: the loader then satisfies what the higher ones
 * need by name from these, whatever LD_LIBRARY_PATH or a run path says. libucm calls back into
 * libucs, which needs it: it can only be opened lazily, and where immediate binding is forced, not
 * at all; then libucs brings it along and check_opened says whether it was the right one. */
static int32_t open_libs(const struct hws__ucx_mapped *mapped, const char *dir, struct handles *out)
{
    char path[HWS__UCX_LIBS][PATH_MAX];

    for (int i = 0; i < HWS__UCX_LIBS; i++) {
        const int32_t rc = lib_path(mapped, dir, i, path[i]);
        if (rc != 0)
            return rc;
    }
    for (int i = 0; i < HWS__UCX_LIBS; i++) {
        const int when = i == HWS__UCM ? RTLD_LAZY : RTLD_NOW;

        out->lib[i] = dlopen(path[i], when | RTLD_LOCAL);
        if (out->lib[i] == NULL && i != HWS__UCM)
            return hws__fail(HWS_E_NO_UCX, 0, "cannot open UCX: %s", dlerror());
    }
    return 0;
}

struct symbol {
    const char *name;
    size_t offset;
    int lib;
    int required;
};

#define LIB_ucp HWS__UCP
#define LIB_uct HWS__UCT
#define LIB_ucs HWS__UCS
#define SYMBOL(library, name, required) \
    {#name, offsetof(struct hws__ucx, name), LIB_##library, required},

static const struct symbol symbols[] = {
#define HWS_UCX_REQUIRED(library, name) SYMBOL(library, name, 1)
#define HWS_UCX_INTERNAL(library, name, type) SYMBOL(library, name, 1)
#define HWS_UCX_OPTIONAL(library, name, type) SYMBOL(library, name, 0)
#include "ucx_symbols.def"
#undef HWS_UCX_REQUIRED
#undef HWS_UCX_INTERNAL
#undef HWS_UCX_OPTIONAL
};

/* The search of a handle goes on in the libraries it needs, so asking one library is asking the
 * copy. POSIX lets a function's address travel in a void pointer; ISO C has no cast for it. */
static int32_t resolve(const struct handles *handles, const char *dir, struct hws__ucx *table)
{
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *address = dlsym(handles->lib[symbols[i].lib], symbols[i].name);

        if (address == NULL && symbols[i].required)
            return hws__fail(HWS_E_UCX_VERSION, 0, "UCX in %s has no function %s", dir,
                             symbols[i].name);
        memcpy((char *)table + symbols[i].offset, &address, sizeof(address));
    }
    return 0;
}

static int32_t check_version(const struct handles *handles, const char *dir, struct hws__ucx *table)
{
    void (*query)(unsigned *, unsigned *, unsigned *);
    void *address = dlsym(handles->lib[HWS__UCP], "ucp_get_version");
    unsigned major = 0, minor = 0, release = 0;

    if (address == NULL)
        return hws__fail(HWS_E_UCX_VERSION, 0, "UCX in %s has no function ucp_get_version", dir);
    memcpy(&query, &address, sizeof(query));
    query(&major, &minor, &release);
    if (major != MIN_MAJOR || minor < MIN_MINOR)
        return hws__fail(HWS_E_UCX_VERSION, 0, "UCX %u.%u.%u in %s: %d.%d to %d.x is needed", major,
                         minor, release, dir, MIN_MAJOR, MIN_MINOR, MIN_MAJOR);
    table->major = (int)major;
    table->minor = (int)minor;
    table->release = (int)release;
    table->version = major << 24 | minor << 16 | release;
    return 0;
}

/* ---- the choice ---- */

/* Something of UCX is in the process: it is the only copy that can be used. An explicit choice of
 * another one is an error; a machine-wide one gives way. */
static int32_t choose_mapped(const char *choice, const struct hws__ucx_mapped *mapped,
                             struct hws__ucx_found *found)
{
    const char *env = getenv("HAWSER_UCX");
    const int is_explicit =
        (choice != NULL && choice[0] != '\0') || (env != NULL && env[0] != '\0');
    int32_t rc = check_one_copy(mapped);

    if (rc == 0 && is_explicit) {
        rc = hws__ucx_find(choice, found);
        if (rc == 0 && strcmp(found->dir, mapped->dir) != 0)
            rc = hws__fail(HWS_E_UCX_CONFLICT, 0, "UCX of %s is wanted but %s is already loaded",
                           found->dir, mapped->dir);
    }
    if (rc != 0)
        return rc;
    memcpy(found->dir, mapped->dir, sizeof(found->dir));
    found->origin = HWS__UCX_MAPPED;
    snprintf(found->why, sizeof(found->why), "it was loaded in this process already");
    return 0;
}

static int32_t load_first(const char *choice)
{
    static struct hws__ucx_mapped mapped; /* big; under the lock */
    static struct hws__ucx_found found;
    static struct hws__ucx table;
    struct handles handles;
    int32_t rc;

    memset(&found, 0, sizeof(found));
    memset(&table, 0, sizeof(table));
    rc = hws__ucx_scan(&mapped) > 0 ? choose_mapped(choice, &mapped, &found)
                                    : hws__ucx_find(choice, &found);
    if (rc != 0)
        return rc;
    prepare_environment();
    if ((rc = open_libs(&mapped, found.dir, &handles)) != 0 ||
        (rc = check_opened(found.dir)) != 0 ||
        (rc = check_version(&handles, found.dir, &table)) != 0 ||
        (rc = resolve(&handles, found.dir, &table)) != 0)
        return rc;
    table.origin = found.origin;
    memcpy(table.lib_dir, found.dir, sizeof(table.lib_dir));
    snprintf(table.reason, sizeof(table.reason), "%s", found.why);
    hws__ucx = table;
    hws__log_attach_ucx(log_level_ours);
    if (found.origin == HWS__UCX_MAPPED)
        hws__exit_before_libraries();
    loaded = 1;
    return 0;
}

/* A second call may only mean the copy that is there. */
static int32_t load_again(const char *choice)
{
    struct hws__ucx_found found;

    if (choice == NULL || choice[0] == '\0')
        return 0;
    const int32_t rc = hws__ucx_find(choice, &found);
    if (rc != 0)
        return rc;
    if (strcmp(found.dir, hws__ucx.lib_dir) != 0)
        return hws__fail(HWS_E_UCX_CONFLICT, 0, "UCX of %s is wanted but %s is already loaded",
                         found.dir, hws__ucx.lib_dir);
    return 0;
}

int32_t hws__ucx_load(const char *choice)
{
    pthread_mutex_lock(&load_lock);
    const int32_t rc = loaded ? load_again(choice) : load_first(choice);
    pthread_mutex_unlock(&load_lock);
    return rc;
}

bool hws__ucx_load_settled(void)
{
    if (pthread_mutex_trylock(&load_lock) != 0)
        return false;
    pthread_mutex_unlock(&load_lock);
    return true;
}

const char *hws__ucx_text(char *buf, size_t cap)
{
    pthread_mutex_lock(&load_lock);
    if (loaded)
        snprintf(buf, cap, "UCX %d.%d.%d in %s: %s", hws__ucx.major, hws__ucx.minor,
                 hws__ucx.release, hws__ucx.lib_dir, hws__ucx.reason);
    else
        snprintf(buf, cap, "UCX is not loaded");
    pthread_mutex_unlock(&load_lock);
    return buf;
}

int hws__ucx_at_least(int major, int minor)
{
    return hws__ucx.version >= ((unsigned)major << 24 | (unsigned)minor << 16);
}
