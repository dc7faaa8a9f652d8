/* UCX: both */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "hawser.h"
#include "lanes.h"
#include "support/guide.h"
#include "ucx_config.h"
#include "ucx_find.h"
#include "ucx_loader.h"

static const char *error_text(void)
{
    static hws_error error;

    error.struct_size = sizeof(error);
    hws_last_error(&error);
    return error.text;
}

static void load(void)
{
    cr_assert_eq(hws__ucx_load(NULL), 0, "%s", error_text());
}

static int32_t try_pairs(const char *const *pairs)
{
    ucp_config_t *config = NULL;
    const int32_t rc = hws__ucx_config(HWS__PROFILE_NONE, pairs, &config);

    if (rc == 0)
        hws__ucx.ucp_config_release(config);
    return rc;
}

#define PAIRS(...) ((const char *const[]){__VA_ARGS__, NULL})

Test(ucx_config, known_keys_are_taken_in_both_spellings, .init = load)
{
    static const char *const keys[][2] = {
        {"TLS", "tcp"},
        {"UCX_TLS", "tcp"},
        {"POSIX_FIFO_SIZE", "64"},
        {"MM_FIFO_SIZE", "64"},
        {"UCX_MM_SEG_SIZE", "4096"},
        {"TCP_KEEPIDLE", "1s"},
        {"TCP_CM_REUSEADDR", "y"},
        {"CM_REUSEADDR", "y"},
        {"CMA_MEMORY_INVALIDATE", "y"},
        {"SELF_DEVICES", "all"},
        {"RNDV_THRESH", "8k"},
        {"POSIX_USE_PROC_LINK", "n"},
        {"POSIX_RX_BUFS_GROW", "64"},
    };

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        cr_expect_eq(try_pairs(PAIRS(keys[i][0], keys[i][1])), 0, "%s", error_text());
}

Test(ucx_config, an_unknown_key_is_refused_by_name, .init = load)
{
    static const char *const keys[] = {
        "TSL",    "UCX_TSL", "POSIX_FIFO_SIZ", "TCP_BOGUS", "FIFO_SIZE", "KEEPIDLE", "",
        "POSIX_", "tls",     "RX_BUFS_GRO",    "UCX_",      "#"};

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        cr_expect_eq(try_pairs(PAIRS(keys[i], "1")), HWS_E_CONFIG, "%s", keys[i]);
        cr_expect_not_null(strstr(error_text(), keys[i]), "%s", error_text());
    }
}

Test(ucx_config, a_very_long_key_is_refused, .init = load)
{
    char key[5000];

    memset(key, 'A', sizeof(key));
    key[sizeof(key) - 1] = '\0';
    cr_assert_eq(try_pairs(PAIRS(key, "1")), HWS_E_CONFIG);
}

Test(ucx_config, a_bad_value_and_a_key_without_value_are_refused, .init = load)
{
    cr_assert_eq(try_pairs(PAIRS("RNDV_THRESH", "nonsense")), HWS_E_CONFIG);
    cr_assert_not_null(strstr(error_text(), "RNDV_THRESH"), "%s", error_text());
    cr_assert_eq(try_pairs(PAIRS("TLS")), HWS_E_CONFIG);
}

Test(ucx_config, what_would_end_the_process_is_refused, .init = load)
{
    const bool rdma = hws__rdma_present() != 0;

    cr_expect_eq(try_pairs(PAIRS("SOCKADDR_TLS_PRIORITY", "bogus")), HWS_E_CONFIG);
    cr_expect_eq(try_pairs(PAIRS("UCX_SOCKADDR_TLS_PRIORITY", "rdmacm")), rdma ? 0 : HWS_E_CONFIG);
    if (!rdma)
        cr_expect(strstr(error_text(), "SOCKADDR_TLS_PRIORITY 'rdmacm'") != NULL, "%s",
                  error_text());
    cr_expect_eq(try_pairs(PAIRS("SOCKADDR_TLS_PRIORITY", "rdmacm,tcp")), 0, "%s", error_text());
    cr_expect_eq(try_pairs(PAIRS("SOCKADDR_TLS_PRIORITY", "*")), 0, "%s", error_text());
    cr_expect_eq(try_pairs(PAIRS("PROTO_ENABLE", "n")), 0, "%s", error_text());
    cr_expect_eq(try_pairs(PAIRS("PROTO_ENABLE", "y")),
                 rdma || hws__ucx_at_least(1, 14) ? 0 : HWS_E_CONFIG);
    setenv("UCX_SOCKADDR_TLS_PRIORITY", "sockcm", 1);
    cr_expect_eq(try_pairs(NULL), HWS_E_CONFIG);
    unsetenv("UCX_SOCKADDR_TLS_PRIORITY");
}

Test(ucx_config, profiles_have_what_they_promise)
{
    struct hws__kv pairs[HWS__PROFILE_PAIRS_MAX];
    const size_t n = hws__ucx_config_defaults(HWS__PROFILE_TCP, pairs, HWS__PROFILE_PAIRS_MAX);

    cr_assert_gt(n, 3);
    cr_assert_leq(n, HWS__PROFILE_PAIRS_MAX);
    cr_assert_str_eq(pairs[0].key, "TLS");
    cr_assert_null(strstr(pairs[0].value, "sysv"));
    cr_assert_eq(hws__ucx_config_defaults(HWS__PROFILE_NONE, pairs, 1), 0);
    cr_assert_eq(hws__ucx_config_defaults(HWS__PROFILE_TCP, NULL, 0), n);
    cr_assert_leq(hws__ucx_config_defaults(HWS__PROFILE_LOCAL, NULL, 0), HWS__PROFILE_PAIRS_MAX);
    cr_assert_gt(hws__ucx_config_defaults(HWS__PROFILE_SHM, pairs, HWS__PROFILE_PAIRS_MAX), 3);
    cr_assert_null(strstr(pairs[0].value, "posix")); /* a sender could write into another file */
}

static void config_text(int profile, const char *const *pairs, char *text, size_t cap)
{
    ucp_config_t *config;
    FILE *f = fmemopen(text, cap, "w");

    cr_assert_eq(hws__ucx_config(profile, pairs, &config), 0, "%s", error_text());
    hws__ucx.ucp_config_print(config, f, NULL, UCS_CONFIG_PRINT_CONFIG);
    fclose(f);
    hws__ucx.ucp_config_release(config);
}

Test(ucx_config, the_user_wins_over_a_profile, .init = load)
{
    static char text[64 << 10];

    config_text(HWS__PROFILE_LOCAL, PAIRS("UCX_TLS", "tcp"), text, sizeof(text));
    cr_assert_not_null(strstr(text, "UCX_TLS=tcp\n"));
    setenv("UCX_TLS", "posix,tcp", 1);
    config_text(HWS__PROFILE_LOCAL, NULL, text, sizeof(text));
    cr_assert_not_null(strstr(text, "UCX_TLS=posix,tcp\n"));
}

Test(ucx_config, nobody_wins_over_tcp_only, .init = load)
{
    static char text[64 << 10];

    setenv("UCX_TLS", "posix,tcp", 1);
    config_text(HWS__PROFILE_TCP, PAIRS("TLS", "all"), text, sizeof(text));
    cr_assert_not_null(strstr(text, "UCX_TLS=tcp,self"));
}

Test(ucx_config, shared_memory_alone_knows_no_network, .init = load)
{
    static char text[64 << 10];

    setenv("UCX_NET_DEVICES", "absent0", 1);
    config_text(HWS__PROFILE_SHM, PAIRS("NET_DEVICES", "absent1", "UCX_TCP_KEEPINTVL", "2s"), text,
                sizeof(text));
    cr_assert_not_null(strstr(text, "UCX_TLS=sysv,cma,self"));
    cr_assert_not_null(strstr(text, "UCX_NET_DEVICES=all\n"));
    cr_assert_not_null(strstr(text, "UCX_KEEPALIVE_INTERVAL=inf\n"));
    cr_assert_null(hws__ucx_config_user("TLS", NULL));
    cr_assert_str_eq(hws__ucx_config_user("NET_DEVICES", NULL), "absent0");
    config_text(HWS__PROFILE_SHM, PAIRS("TLS", "tcp,sm,self"), text, sizeof(text));
    cr_assert_not_null(strstr(text, "UCX_TLS=sm,self\n"));
    cr_assert(hws__ucx_config_has_shm(NULL));
    cr_assert_not(hws__ucx_config_has_shm(PAIRS("TLS", "tcp,self")));
    cr_assert_str_eq(hws__ucx_config_user("TLS", PAIRS("UCX_TLS", "tcp")), "tcp");
}

/* ---- a connection in one process, to see what arrived ---- */

struct side {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h ep;
};

static struct side server, client;

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)arg;
    (void)ep;
    (void)status;
}

static void on_request(ucp_conn_request_h request, void *arg)
{
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .conn_request = request,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {on_error, NULL},
    };

    (void)arg;
    cr_assert_eq(hws__ucx.ucp_ep_create(server.worker, &params, &server.ep), UCS_OK);
}

static void open_side(struct side *side, int profile, uint64_t features, const char *const *pairs)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                           .features = features | UCP_FEATURE_WAKEUP};
    ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_config_t *config;

    cr_assert_eq(hws__ucx_config(profile, pairs, &config), 0, "%s", error_text());
    cr_assert_eq(hws__ucx.ucp_init_version(1, 13, &params, config, &side->context), UCS_OK);
    hws__ucx.ucp_config_release(config);
    cr_assert_eq(hws__ucx.ucp_worker_create(side->context, &worker, &side->worker), UCS_OK);
}

static void finish(void *request)
{
    if (request == NULL)
        return;
    cr_assert_not(UCS_PTR_IS_ERR(request));
    while (hws__ucx.ucp_request_check_status(request) == UCS_INPROGRESS) {
        hws__ucx.ucp_worker_progress(server.worker);
        hws__ucx.ucp_worker_progress(client.worker);
    }
    hws__ucx.ucp_request_free(request);
}

static uint16_t listen_any(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ucp_listener_params_t params = {
        .field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
        .sockaddr = {(const struct sockaddr *)&address, sizeof(address)},
        .conn_handler = {on_request, NULL},
    };
    ucp_listener_attr_t attr = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    ucp_listener_h listener;

    cr_assert_eq(hws__ucx.ucp_listener_create(server.worker, &params, &listener), UCS_OK);
    cr_assert_eq(hws__ucx.ucp_listener_query(listener, &attr), UCS_OK);
    return ((struct sockaddr_in *)&attr.sockaddr)->sin_port;
}

static void connect_pair(int profile, const char *const *pairs)
{
    static char buffer[8];
    ucp_request_param_t none = {0};

    open_side(&server, profile, UCP_FEATURE_TAG, pairs);
    open_side(&client, profile, UCP_FEATURE_TAG, pairs);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = listen_any(), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_FLAGS |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .sockaddr = {(const struct sockaddr *)&address, sizeof(address)},
        .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {on_error, NULL},
    };
    cr_assert_eq(hws__ucx.ucp_ep_create(client.worker, &params, &client.ep), UCS_OK);
    void *send = hws__ucx.ucp_tag_send_nbx(client.ep, buffer, 8, 1, &none);
    finish(hws__ucx.ucp_tag_recv_nbx(server.worker, buffer, 8, 0, 0, &none));
    finish(send);
}

static void lanes(char *text, size_t cap, unsigned *flags)
{
    cr_assert_gt(hws__ucx_ep_lanes(client.ep, text, cap, flags), 0, "%s", error_text());
}

Test(ucx_config, shared_memory_stays_under_error_handling, .init = load, .timeout = 60)
{
    char text[256];
    unsigned flags;

    connect_pair(HWS__PROFILE_LOCAL, NULL);
    lanes(text, sizeof(text), &flags);
    cr_assert(flags & HWS__LANE_SHM, "%s", text);
    cr_assert(flags & HWS__LANE_DATA_SHM, "%s", text);
    cr_assert_not_null(strstr(text, "sysv/memory"), "%s", text);
}

Test(ucx_config, without_the_option_it_is_dropped, .init = load, .timeout = 60)
{
    char text[256];
    unsigned flags;

    connect_pair(HWS__PROFILE_LOCAL, PAIRS("SYSV_ERROR_HANDLING", "n"));
    lanes(text, sizeof(text), &flags);
    cr_assert_not(flags & HWS__LANE_DATA_SHM, "%s", text);
    cr_assert(flags & HWS__LANE_TCP, "%s", text);
}

Test(ucx_config, tcp_only_is_tcp_only, .init = load, .timeout = 60)
{
    char text[256];
    unsigned flags;

    setenv("UCX_TLS", "posix,tcp", 1);
    connect_pair(HWS__PROFILE_TCP, PAIRS("TLS", "all"));
    lanes(text, sizeof(text), &flags);
    cr_assert_eq(flags, HWS__LANE_TCP, "%s", text);
}

static int option(int fd, int level, int name)
{
    int value = -1;
    socklen_t size = sizeof(value);

    return getsockopt(fd, level, name, &value, &size) == 0 ? value : -1;
}

/* UCX counts time in ticks and cuts it to whole seconds, so "3s" can arrive as 2. */
static int kept_sockets(int interval)
{
    int kept = 0;

    for (int fd = 3; fd < 256; fd++)
        kept += option(fd, SOL_SOCKET, SO_KEEPALIVE) == 1 &&
                option(fd, IPPROTO_TCP, TCP_KEEPIDLE) == 1 &&
                option(fd, IPPROTO_TCP, TCP_KEEPINTVL) == interval &&
                option(fd, IPPROTO_TCP, TCP_KEEPCNT) == 4;
    return kept;
}

Test(ucx_config, keepalive_and_reuseaddr_reach_the_sockets, .init = load, .timeout = 60)
{
    int reused = 0;

    connect_pair(HWS__PROFILE_TCP, PAIRS("TCP_KEEPINTVL", "3.5s"));
    for (int fd = 3; fd < 256; fd++)
        reused +=
            option(fd, SOL_SOCKET, SO_ACCEPTCONN) == 1 && option(fd, SOL_SOCKET, SO_REUSEADDR) == 1;
    cr_assert_geq(reused, 1);
    cr_assert_geq(kept_sockets(3), 1);
}

/* What TCP sends in one piece without zero copy: the header of an active message must fit it. */
static size_t tcp_piece(const char *key, const char *value)
{
    const char *pairs[] = {"TLS", "tcp", key, value, NULL};
    ucp_worker_attr_t attr = {.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER};
    struct side side;

    open_side(&side, HWS__PROFILE_LOCAL, UCP_FEATURE_AM, pairs);
    cr_assert_eq(hws__ucx.ucp_worker_query(side.worker, &attr), UCS_OK);
    hws__ucx.ucp_worker_destroy(side.worker);
    hws__ucx.ucp_cleanup(side.context);
    return attr.max_am_header;
}

Test(ucx_config, tcp_sends_as_much_at_once_as_every_peer_takes, .init = load, .timeout = 60)
{
    const size_t usual = 8 << 10, ours = tcp_piece(NULL, NULL);

    cr_expect_gt(ours, 63 << 10);
    cr_expect_lt(ours, 64 << 10);
    cr_expect_lt(tcp_piece("TCP_TX_SEG_SIZE", "8k"), usual);
    cr_expect_eq(tcp_piece("UCX_TCP_RX_SEG_SIZE", "32k"), ours);
    cr_expect_eq(tcp_piece("UCX_TCP_RX_SEG_SIZE", "1m"), ours);
}

/* ---- what the guide says ---- */

static void in_the_guide(const char *guide, const char *key, const char *value)
{
    char row[256];

    /* Which transports there are depends on the machine. */
    if (strcmp(key, "TLS") == 0) {
        snprintf(row, sizeof row, "| `UCX_TLS` | by the use | ");
    } else {
        snprintf(row, sizeof row, "| `UCX_%s` | `%s` | ", key, value);
    }
    cr_expect_gt(t_guide_says(guide, row), 5, "%s", row);
}

Test(ucx_config, every_default_is_in_the_guide, .init = load)
{
    char *guide = t_guide("ucx-settings.md");

    if (guide == NULL) {
        cr_skip_test("run by ctest, which tells where the sources are");
    }
    for (int profile = HWS__PROFILE_MAIN; profile <= HWS__PROFILE_TCP; profile++) {
        struct hws__kv pairs[HWS__PROFILE_PAIRS_MAX];
        const size_t n = hws__ucx_config_defaults(profile, pairs, HWS__PROFILE_PAIRS_MAX);

        for (size_t i = 0; i < n; i++)
            in_the_guide(guide, pairs[i].key, pairs[i].value);
    }
    free(guide);
}
