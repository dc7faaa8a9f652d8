#include "ucx_config.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "log.h"
#include "ucx_loader.h"
#include "ucx_refuse.h"
#include "ucx_tls.h"

enum { KEY_MAX = 128, TLS_MAX = 256 };

#define TX_SEGMENT "TCP_TX_SEG_SIZE"
#define RX_SEGMENT "TCP_RX_SEG_SIZE"
#define SEGMENT "64k"

static const char *bare(const char *key)
{
    return strncmp(key, "UCX_", 4) == 0 ? key + 4 : key;
}

/* ---- Hawser's own pairs ---- */

/* A silent peer is noticed by the kernel in 5 s, and sooner by lost.h; a restarted server gets its port
 * back; and shared memory stays in use under peer error handling (without this UCX drops it for
 * TCP, ten times slower: that is safe only because each such peer has a UCX worker of its own). */
static const struct hws__kv tcp_pairs[] = {
    {"TCP_CM_REUSEADDR", "y"},
    {"TCP_KEEPIDLE", "1s"},
    {"TCP_KEEPINTVL", "1s"},
    {"TCP_KEEPCNT", "4"},
    /* As much as every peer takes in one piece by default. The 8 KiB that UCX sends at once without zero copy
     * cost two thirds of the bandwidth. */
    {TX_SEGMENT, SEGMENT},
};

static const struct hws__kv no_net_pairs[] = {
    {"NET_DEVICES", "all"},
    /* The line beside such a connection tells of the peer's end, see upgrade.h. UCX 1.22 sends its question
     * through the queue, and while that is full reads /proc/PID/stat at each progress instead. */
    {"KEEPALIVE_INTERVAL", "inf"},
};

static const struct hws__kv common_pairs[] = {{"MAX_EAGER_RAILS", "1"}};

/* The second is for those who choose the transports themselves. */
static const struct hws__kv shm_pairs[] = {
    {"SYSV_ERROR_HANDLING", "y"},
    {"POSIX_ERROR_HANDLING", "y"},
};

/* Below this many free bytes newer versions stop using /dev/shm and then crash for want of memory
 * that can be shared: the cap on isolated workers looks after the room. */
static const struct hws__kv shm_room_pairs[] = {{"POSIX_SHM_MIN_SIZE", "1mb"}};

/* Both ends must choose the same lanes, also a TCP-only one and one with everything. */
static const struct hws__kv rdma_pairs[] = {{"MAX_RNDV_RAILS", "1"}};

/* Without RDMA nothing is won by lanes for rendezvous (no zero copy under peer error handling), and
 * much is lost: a TCP lane beside shared memory makes each empty progress call the kernel. The
 * newer protocol layer costs 0.8 MB and tens of milliseconds for each connection. */
static const struct hws__kv plain_pairs[] = {
    {"MAX_RNDV_RAILS", "0"},
    {"PROTO_ENABLE", "n"},
    /* A TCP connection that is cut completes its zero-copy sends twice (1.13). */
    {"ZCOPY_THRESH", "inf"},
};

/* cuda_ipc, by which memory goes from GPU to GPU within a machine, is such a lane. Where there is no TCP beside it. */
static const struct hws__kv gpu_pairs[] = {{"MAX_RNDV_RAILS", "1"}};

/* One UCX worker per connection: the receive FIFO and the pool behind it are its price. The pool's
 * first chunk must hold the FIFO and a few more, or every chunk costs a descriptor and a map. */
static const struct hws__kv local_pairs[] = {
    {"SYSV_FIFO_SIZE", "64"},
    {"SYSV_RX_BUFS_GROW", "80"},
    {"POSIX_FIFO_SIZE", "64"},
    {"POSIX_RX_BUFS_GROW", "80"},
};

struct pair_list {
    struct hws__kv *out;
    size_t cap;
    size_t count;
};

static void add_pairs(struct pair_list *list, const struct hws__kv *pairs, size_t n)
{
    for (size_t i = 0; i < n; i++, list->count++)
        if (list->count < list->cap)
            list->out[list->count] = pairs[i];
}

#define ADD(list, pairs) add_pairs(list, pairs, sizeof(pairs) / sizeof((pairs)[0]))

size_t hws__ucx_config_defaults(int profile, struct hws__kv *out, size_t cap)
{
    struct pair_list list = {out, cap, 0};
    struct hws__kv tls = {"TLS", NULL};

    if (profile == HWS__PROFILE_NONE)
        return 0;
    if (profile == HWS__PROFILE_MAIN && !hws__rdma_present())
        profile = HWS__PROFILE_LOCAL;
    /* Never posix: its segments are found by the number of a descriptor, which another file has
     * once the peer has closed them, and a sender would write into that. */
    if (profile == HWS__PROFILE_MAIN)
        tls.value = "^posix";
    /* GPU memory needs its transports even where the bytes travel by others. */
    else if (profile == HWS__PROFILE_TCP)
        tls.value = hws__cuda_present() ? "tcp,self,cuda_copy" : "tcp,self";
    else if (profile == HWS__PROFILE_SHM)
        tls.value = hws__cuda_present() ? "sysv,cma,self,cuda" : "sysv,cma,self";
    else
        tls.value = hws__cuda_present() ? "sysv,cma,self,tcp,cuda" : "sysv,cma,self,tcp";
    add_pairs(&list, &tls, 1);
    if (profile == HWS__PROFILE_SHM)
        ADD(&list, no_net_pairs);
    else
        ADD(&list, tcp_pairs);
    ADD(&list, common_pairs);
    if (hws__rdma_present())
        ADD(&list, rdma_pairs);
    else
        ADD(&list, plain_pairs);
    if (profile == HWS__PROFILE_SHM && hws__cuda_present())
        ADD(&list, gpu_pairs);
    if (profile != HWS__PROFILE_TCP)
        ADD(&list, shm_pairs);
    if (profile != HWS__PROFILE_TCP && hws__ucx_at_least(1, 14))
        ADD(&list, shm_room_pairs);
    if (profile == HWS__PROFILE_LOCAL || profile == HWS__PROFILE_SHM)
        ADD(&list, local_pairs);
    return list.count;
}

/* ---- the names that UCX 1.13 knows ---- */

/* Two texts of NAME=value lines with documentation. UCX 1.13 prints every option of the modules it
 * has loaded, and the general names (UCX_MM_..) only in the comment "# inherits:" of the special
 * ones (UCX_POSIX_..). Newer versions refuse unknown keys themselves and hide that function. */
static struct {
    pthread_once_t once;
    char *all;
    char *ucp;
} names = {PTHREAD_ONCE_INIT, NULL, NULL};

/* Transports are plug-ins, and their options are known once they are loaded. */
static void load_transports(void)
{
    void *components = NULL;
    unsigned count = 0;

    if (hws__ucx.uct_query_components == NULL || hws__ucx.uct_release_component_list == NULL)
        return;
    if (hws__ucx.uct_query_components(&components, &count) == UCS_OK)
        hws__ucx.uct_release_component_list(components);
}

static void read_names(void)
{
    const int flags = UCS_CONFIG_PRINT_CONFIG | UCS_CONFIG_PRINT_DOC | UCS_CONFIG_PRINT_HIDDEN;
    ucp_config_t *config = NULL;
    size_t size;
    FILE *f = open_memstream(&names.all, &size);

    load_transports();
    if (f != NULL) {
        if (hws__ucx.ucs_config_parser_print_all_opts != NULL &&
            hws__ucx.ucs_config_global_list != NULL)
            hws__ucx.ucs_config_parser_print_all_opts(f, "UCX_", flags,
                                                      hws__ucx.ucs_config_global_list);
        fclose(f);
    }
    f = open_memstream(&names.ucp, &size);
    if (f == NULL)
        return;
    if (hws__ucx.ucp_config_read(NULL, NULL, &config) == UCS_OK) {
        hws__ucx.ucp_config_print(config, f, NULL, UCS_CONFIG_PRINT_CONFIG);
        hws__ucx.ucp_config_release(config);
    }
    fclose(f);
}

/* Whether `text` has the word UCX_<key>: as an option's name or in an "inherits" comment. */
static int has_name(const char *text, const char *key)
{
    char word[KEY_MAX + 8];
    const size_t len = (size_t)snprintf(word, sizeof(word), "UCX_%s", key);

    if (text == NULL || len >= sizeof(word) || key[0] == '\0')
        return 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at += len) {
        const char before = at == text ? '\n' : at[-1];
        const char after = at[len];

        if (before == '\n' && (after == '=' || after == ' '))
            return 1; /* "UCX_TLS=all", "UCX_X (deprecated)" */
        if ((before == ' ' || before == ',') && (after == ',' || after == '\n'))
            return 1; /* "# inherits:  UCX_MM_BW, UCX_SM_BW" */
    }
    return 0;
}

/* ---- one pair on UCX 1.13 ---- */

static int starts(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

struct rename_rule {
    const char *prefix; /* of the key, cut off */
    const char *name;   /* put in its place */
};

/* UCX 1.13 matches a key with the fields of each transport's table, without the table's prefix but
 * with the one of the inner table a field comes from. A name that no field has is dropped without
 * a word, so a key may be given by all its candidates. */
static const struct rename_rule rename_rules[] = {
    {"POSIX_", "MM_"},    {"SYSV_", "MM_"},     {"XPMEM_", "MM_"},    {"POSIX_", ""},
    {"SYSV_", ""},        {"XPMEM_", ""},       {"TCP_", ""},         {"SELF_", ""},
    {"CMA_", ""},         {"KNEM_", ""},        {"CUDA_COPY_", ""},   {"CUDA_IPC_", ""},
    {"GDR_COPY_", ""},    {"RDMA_CM_", "CM_"},  {"RDMA_CM_", ""},     {"RC_VERBS_", ""},
    {"RC_VERBS_", "RC_"}, {"RC_VERBS_", "IB_"}, {"RC_MLX5_", ""},     {"RC_MLX5_", "RC_"},
    {"RC_MLX5_", "IB_"},  {"DC_MLX5_", ""},     {"DC_MLX5_", "DC_"},  {"DC_MLX5_", "RC_"},
    {"DC_MLX5_", "IB_"},  {"UD_VERBS_", ""},    {"UD_VERBS_", "UD_"}, {"UD_VERBS_", "IB_"},
    {"UD_MLX5_", ""},     {"UD_MLX5_", "UD_"},  {"UD_MLX5_", "IB_"},  {"SM_", "SM_"},
};

/* The mm tables inherit nearly everything; only these are a shared-memory transport's own. With
 * the others the bare name would hit a field of TCP (RX_BUFS_GROW). */
static int is_own_field(const char *prefix, const char *rest)
{
    static const char *const own[] = {"DIR", "USE_PROC_LINK"};

    if (strcmp(prefix, "POSIX_") != 0 && strcmp(prefix, "SYSV_") != 0 &&
        strcmp(prefix, "XPMEM_") != 0)
        return 1;
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        if (strcmp(rest, own[i]) == 0)
            return 1;
    return 0;
}

static ucs_status_t set_1_13(ucp_config_t *config, const char *key, const char *value)
{
    ucs_status_t status;
    int renamed = 0;

    pthread_once(&names.once, read_names);
    if (has_name(names.ucp, key))
        return hws__ucx.ucp_config_modify(config, key, value);
    if (!has_name(names.all, key))
        return UCS_ERR_NO_ELEM;
    for (size_t i = 0; i < sizeof(rename_rules) / sizeof(rename_rules[0]); i++) {
        const struct rename_rule *rule = &rename_rules[i];
        char name[KEY_MAX];

        if (!starts(key, rule->prefix))
            continue;
        const char *rest = key + strlen(rule->prefix);
        renamed = 1;
        snprintf(name, sizeof(name), "%s%s", rule->name, rest);
        if ((rule->name[0] == '\0' && !is_own_field(rule->prefix, rest)) ||
            has_name(names.ucp, name))
            continue;
        status = hws__ucx.ucp_config_modify(config, name, value);
        if (status != UCS_OK)
            return status;
    }
    return renamed ? UCS_OK : hws__ucx.ucp_config_modify(config, key, value);
}

/* ---- all versions ---- */

static ucs_status_t set_pair(ucp_config_t *config, const char *key, const char *value)
{
    if (strlen(key) >= KEY_MAX - 8)
        return UCS_ERR_NO_ELEM;
    if (hws__ucx_at_least(1, 14))
        return hws__ucx.ucp_config_modify(config, key, value);
    return set_1_13(config, key, value);
}

int32_t hws__ucx_config_set(ucp_config_t *config, const char *key, const char *value)
{
    const ucs_status_t status = set_pair(config, bare(key), value);

    if (status == UCS_OK)
        return 0;
    if (status == UCS_ERR_NO_MEMORY)
        return hws__fail_ucx(status, 0, "configuration %s", key);
    return hws__fail(HWS_E_CONFIG, 0, "UCX %d.%d: %s '%s' (value '%s')", hws__ucx.major,
                     hws__ucx.minor,
                     status == UCS_ERR_NO_ELEM ? "unknown configuration key"
                                               : "unknown configuration key or bad value of",
                     key, value);
}

const char *hws__ucx_config_user(const char *key, const char *const *pairs)
{
    const char *value = NULL;
    char variable[KEY_MAX];

    /* UCX is given them in this order. */
    for (size_t i = 0; pairs != NULL && pairs[i] != NULL && pairs[i + 1] != NULL; i += 2)
        if (strcmp(bare(pairs[i]), key) == 0)
            value = pairs[i + 1];
    if (value != NULL)
        return value;
    snprintf(variable, sizeof(variable), "UCX_%s", key);
    return getenv(variable);
}

bool hws__ucx_config_no_network(const char *const *pairs)
{
    const char *tls = hws__ucx_config_user("TLS", pairs);
    char list[TLS_MAX];

    return tls != NULL && hws__tls_with_tcp(tls, list, sizeof(list));
}

bool hws__ucx_config_has_shm(const char *const *pairs)
{
    const char *tls = hws__ucx_config_user("TLS", pairs);
    char left[TLS_MAX];

    return tls == NULL || hws__tls_without_network(tls, left, sizeof(left));
}

/* What keeps a refused shared-memory peer off the main worker; and what no transport there takes, of
 * which UCX warns. */
static bool is_fixed(int profile, const char *key)
{
    return (profile == HWS__PROFILE_TCP && strcmp(key, "TLS") == 0) ||
           (profile == HWS__PROFILE_SHM &&
            (strcmp(key, "TLS") == 0 || strcmp(key, "NET_DEVICES") == 0 || starts(key, "TCP_")));
}

/* A default that this version does not have costs its benefit, not the context. */
static void set_default(ucp_config_t *config, const struct hws__kv *pair)
{
    const ucs_status_t status = set_pair(config, pair->key, pair->value);

    if (status != UCS_OK)
        hws__log(HWS_LOG_WARN, "UCX %d.%d does not take %s=%s: %s", hws__ucx.major, hws__ucx.minor,
                 pair->key, pair->value, hws__ucx.ucs_status_string(status));
}

/* The user's choice of transports without those of networks. */
static void set_chosen_shm(ucp_config_t *config, const char *const *pairs)
{
    const char *tls = hws__ucx_config_user("TLS", pairs);
    char left[TLS_MAX];

    if (tls != NULL && hws__tls_without_network(tls, left, sizeof(left)))
        set_default(config, &(struct hws__kv){"TLS", left});
}

/* Connections are made by TCP, whatever travels by them. */
static void add_tcp(ucp_config_t *config, const char *const *pairs)
{
    const char *tls = hws__ucx_config_user("TLS", pairs);
    char list[TLS_MAX];

    if (tls != NULL && hws__tls_with_tcp(tls, list, sizeof(list)))
        set_default(config, &(struct hws__kv){"TLS", list});
}

/* Whether memory of a GPU may come: there is one, or the user has named its transports. */
static bool with_cuda(const char *tls)
{
    bool named = tls != NULL && tls[0] != '^' && strcmp(tls, "all") != 0;

    return hws__cuda_present() ||
           (named && (hws__tls_names(tls, "cuda") || hws__tls_names(tls, "cuda_copy")));
}

/*
 * What goes beside TCP follows the user's list. A remote key names the memory domains by their numbers in the UCX
 * context that packs it, and a raw peer that has come by address meets this one: TCP has the same number in both if
 * `self`, which is before it, is in both or none.
 */
static void follow_user(ucp_config_t *config, const char *const *pairs)
{
    const char *tls = hws__ucx_config_user("TLS", pairs);
    bool self = tls == NULL || hws__tls_names(tls, "self");

    set_default(config, &(struct hws__kv){"TLS", with_cuda(tls)
                                                     ? self ? "tcp,self,cuda_copy" : "tcp,cuda_copy"
                                                 : self ? "tcp,self"
                                                        : "tcp"});
}

static int32_t set_user_pairs(ucp_config_t *config, int profile, const char *const *pairs)
{
    for (size_t i = 0; pairs != NULL && pairs[i] != NULL; i += 2) {
        if (pairs[i + 1] == NULL)
            return hws__fail(HWS_E_CONFIG, 0, "configuration key '%s' has no value", pairs[i]);
        if (is_fixed(profile, bare(pairs[i])))
            continue;
        const int32_t rc = hws__ucx_config_set(config, pairs[i], pairs[i + 1]);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* The bytes that UCX reads a size as, which is "16k", "1mb" or a number; `other` if it is none. */
static size_t size_of(const char *text, size_t other)
{
    size_t bytes;

    return text != NULL && hws__ucx.ucs_str_to_memunits != NULL &&
                   hws__ucx.ucs_str_to_memunits(text, &bytes) == UCS_OK
               ? bytes
               : other;
}

/* UCX ends a process that is sent a larger piece than it takes: it takes what peers send, and this one, at least. */
static void take_whole_segments(ucp_config_t *config, int profile, const char *const *pairs)
{
    const size_t usual = size_of(SEGMENT, 0);
    const char *tx = hws__ucx_config_user(TX_SEGMENT, pairs);
    const char *least = size_of(tx, 0) > usual ? tx : SEGMENT;

    if (size_of(hws__ucx_config_user(RX_SEGMENT, pairs), usual) >= size_of(least, 0))
        return;
    if (profile == HWS__PROFILE_MAIN)
        hws__log(HWS_LOG_WARN, "%s is raised to %s: peers may send as much at once", RX_SEGMENT,
                 least);
    set_default(config, &(struct hws__kv){RX_SEGMENT, least});
}

/* UCX's own words name the variable. */
static int32_t read_environment(ucp_config_t **out)
{
    struct hws__words words;
    ucs_status_t status;

    hws__words_begin(&words);
    status = hws__ucx.ucp_config_read(NULL, NULL, out);
    hws__words_end();
    if (status == UCS_ERR_INVALID_PARAM)
        return hws__fail(HWS_E_CONFIG, 0, "UCX cannot read its variables of the environment%s%s",
                         HWS__WORDS(words));
    return status == UCS_OK
               ? HWS_OK
               : hws__fail_ucx(status, 0, "cannot read UCX's configuration%s%s", HWS__WORDS(words));
}

int32_t hws__ucx_config(int profile, const char *const *pairs, ucp_config_t **out)
{
    struct hws__kv ours[HWS__PROFILE_PAIRS_MAX];
    const size_t n = hws__ucx_config_defaults(profile, ours, HWS__PROFILE_PAIRS_MAX);
    ucp_config_t *config;
    int32_t rc = hws__ucx_refuse(pairs);

    if (rc < 0 || (rc = read_environment(&config)) < 0)
        return rc;
    for (size_t i = 0; i < n; i++) {
        if (is_fixed(profile, ours[i].key) || hws__ucx_config_user(ours[i].key, pairs) == NULL)
            set_default(config, &ours[i]);
    }
    if (profile == HWS__PROFILE_SHM)
        set_chosen_shm(config, pairs);
    if (profile == HWS__PROFILE_TCP)
        follow_user(config, pairs);
    rc = set_user_pairs(config, profile, pairs);
    if (rc != 0) {
        hws__ucx.ucp_config_release(config);
        return rc;
    }
    if (profile == HWS__PROFILE_MAIN)
        add_tcp(config, pairs);
    if (profile != HWS__PROFILE_NONE && profile != HWS__PROFILE_SHM)
        take_whole_segments(config, profile, pairs);
    *out = config;
    return 0;
}
