/*
 * Unit tests of hello.c: what a peer may send before it is trusted. The endpoints have no UCX
 * endpoint, so what they would answer goes nowhere; the state they end in is what is looked at.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "auth.h"
#include "hello.h"
#include "host.h"
#include "listener.h"
#include "support/check.h"
#include "ucx_loader.h"

#define MAGIC 0x31525748u
#define SIZE 128

enum { HELLO = 1, CHALLENGE, PROOF, WELCOME, REFUSED, GOODBYE, GOODBYE_ACK, FLUSH, FLUSH_ACK };

static struct hws__context context;
static struct hws__worker *worker;
static struct hws__listener *listener;
static struct hws__uworker uworker;
static struct hws__endpoint *ep;
static unsigned char key[32] = "thirty-two bytes of a shared key";

static void setup(void)
{
    hws_id any;

    CHECK_OK(hws_queue_open(NULL, &any)); /* makes the table of the process */
    cr_assert_neq(worker = calloc(1, sizeof *worker), NULL);
    worker->context = &context;
    hws__list_init(&worker->attention);
    hws__list_init(&worker->ready);
    hws__list_init(&worker->free_notices);
    hws__list_init(&worker->hot);
    listener = (struct hws__listener *)(void *)hws__obj_alloc(&hws__objects, HWS_KIND_LISTENER,
                                                              sizeof *listener, 0);
    listener->worker = worker;
    listener->flags = HWS_LISTENER_EXPLICIT; /* a peer that is let in waits for the application */
    hws__obj_publish(&hws__objects, &listener->obj);
    uworker = (struct hws__uworker){
        .worker = worker, .context = &context, .role = HWS__ISOLATED, .hot = true};
    context.host = 5;
    context.network = 7;
}

TestSuite(hello, .init = setup);

/* A new endpoint that waits for the peer's first message. */
static void wait_hello(bool server, bool with_key)
{
    ep = hws__endpoint_new(worker);
    hws__obj_publish(&hws__objects, &ep->obj);
    ep->uworker = &uworker;
    ep->server = server;
    ep->listener = server ? listener->obj.id : 0;
    ep->phase = HWS__PHASE_HELLO;
    uworker.only = ep;
    context.psk = with_key ? key : NULL;
    context.psk_length = with_key ? sizeof key : 0;
}

static void drop(void)
{
    hws__list_init(&worker->attention);
    ep->in_attention = false;
    hws__endpoint_forget(ep);
}

static void receive(const void *data, size_t length)
{
    ucp_am_recv_param_t param = {.recv_attr = 0};
    /* Exactly so long, for the sanitizer's eyes. */
    void *copy = malloc(length != 0 ? length : 1);

    memcpy(copy, data, length);
    cr_assert_eq(hws__control_cb(&uworker, NULL, 0, copy, length, &param), UCS_OK);
    free(copy);
}

/* A message of the right form. */
static void make(unsigned char *m, int type, int flags)
{
    const uint32_t magic = MAGIC;

    memset(m, 0, SIZE);
    memcpy(m, &magic, sizeof magic);
    m[4] = (unsigned char)type;
    m[5] = HWS__PROTOCOL;
    m[6] = (unsigned char)flags;
}

static void check_stranger(uint64_t strangers)
{
    cr_assert(ep->failed);
    cr_assert_eq(ep->status, HWS_E_PROTOCOL);
    cr_assert_eq(listener->strangers, strangers);
    cr_assert_not(ep->hello_done);
    cr_assert_not(ep->open);
}

/* A peer on this machine, but in another network: nothing of it can wake this side. */
Test(hello, a_peer_of_another_network_namespace_cannot_wake)
{
    const struct {
        uint64_t host;
        uint32_t network;
        bool deaf;
    } peers[] = {{5, 7, false}, {5, 8, true}, {6, 7, false}, {6, 8, false}};

    for (size_t i = 0; i < sizeof peers / sizeof *peers; i++) {
        unsigned char m[SIZE];

        wait_hello(true, false);
        make(m, HELLO, 0);
        memcpy(m + 16, &peers[i].host, sizeof peers[i].host);
        memcpy(m + SIZE - 12, &peers[i].network, sizeof peers[i].network);
        receive(m, sizeof m);
        cr_assert_eq(uworker.deaf, peers[i].deaf);
        cr_assert_eq(worker->deaf_count, peers[i].deaf);
        drop();
    }
}

Test(hello, a_hello_is_let_in)
{
    unsigned char m[SIZE];

    wait_hello(true, false);
    make(m, HELLO, 0);
    receive(m, sizeof m);
    cr_assert_eq(ep->phase, HWS__PHASE_REQUEST);
    cr_assert_not(ep->failed);
    drop();
}

Test(hello, every_length_but_the_right_one_is_refused)
{
    unsigned char m[2 * SIZE] = {0};
    uint64_t strangers = 0;

    make(m, HELLO, 0);
    for (size_t length = 0; length < sizeof m; length++) {
        if (length == SIZE) {
            continue;
        }
        wait_hello(true, false);
        receive(m, length);
        check_stranger(++strangers);
        drop();
    }
}

Test(hello, another_magic_or_protocol_is_refused)
{
    unsigned char m[SIZE];
    uint64_t strangers = 0;

    for (int bit = 0; bit < 48; bit++) {
        if (bit / 8 == 4) {
            continue; /* the type */
        }
        wait_hello(true, false);
        make(m, HELLO, 0);
        m[bit / 8] ^= (unsigned char)(1 << bit % 8);
        receive(m, sizeof m);
        check_stranger(++strangers);
        drop();
    }
}

Test(hello, garbage_is_refused)
{
    unsigned char m[SIZE];
    uint64_t state = 1, strangers = 0;

    for (int round = 0; round < 20000; round++) {
        size_t length = round % 2 ? SIZE : t_random(&state) % SIZE;

        for (size_t i = 0; i < length; i++) {
            m[i] = (unsigned char)t_random(&state);
        }
        wait_hello(true, round % 3 == 0);
        receive(m, length);
        check_stranger(++strangers);
        drop();
    }
}

/* The right head, then anything: never open, never a crash. */
Test(hello, random_messages_of_every_type_never_open_an_endpoint)
{
    unsigned char m[SIZE];
    uint64_t state = 2;

    for (int round = 0; round < 100000; round++) {
        bool server = t_random(&state) % 2;

        wait_hello(server, true);
        for (int n = 0; n < 4; n++) {
            for (size_t i = 8; i < sizeof m; i++) {
                m[i] = (unsigned char)t_random(&state);
            }
            m[4] = (unsigned char)(t_random(&state) % 16);
            m[6] = (unsigned char)t_random(&state);
            memcpy(m, &(uint32_t){MAGIC}, 4);
            m[5] = HWS__PROTOCOL;
            receive(m, sizeof m);
            cr_assert_not(ep->open);
            cr_assert_not(ep->hello_done);
            cr_assert_neq(ep->phase, HWS__PHASE_REQUEST);
        }
        cr_assert_eq(strlen(ep->text) < sizeof ep->text, true);
        drop();
    }
}

Test(hello, a_flipped_bit_of_a_hello_lets_nobody_in_who_has_no_key)
{
    unsigned char m[SIZE];

    for (int bit = 0; bit < 8 * SIZE; bit++) {
        wait_hello(true, true);
        make(m, HELLO, 2);
        m[bit / 8] ^= (unsigned char)(1 << bit % 8);
        receive(m, sizeof m);
        cr_assert_neq(ep->phase, HWS__PHASE_REQUEST);
        cr_assert_not(ep->open);
        drop();
    }
}

Test(hello, a_second_hello_ends_the_connection)
{
    unsigned char m[SIZE];

    wait_hello(true, true);
    make(m, HELLO, 2);
    receive(m, sizeof m);
    cr_assert_not(ep->failed);
    receive(m, sizeof m);
    cr_assert(ep->failed && ep->status == HWS_E_PROTOCOL);
    drop();
}

/* Messages that belong to the other side, or to a later step. */
Test(hello, a_message_out_of_turn)
{
    const int of_server[] = {PROOF, WELCOME, CHALLENGE}, of_client[] = {HELLO, PROOF};
    unsigned char m[SIZE];

    for (size_t i = 0; i < 3; i++) {
        wait_hello(true, true);
        make(m, of_server[i], 2);
        receive(m, sizeof m);
        cr_assert(ep->failed, "type %d", of_server[i]);
        drop();
    }
    for (size_t i = 0; i < 2; i++) {
        wait_hello(false, true);
        make(m, of_client[i], 2);
        receive(m, sizeof m);
        cr_assert(ep->failed, "type %d", of_client[i]);
        drop();
    }
    wait_hello(true, false);
    make(m, GOODBYE, 0);
    receive(m, sizeof m);
    make(m, FLUSH, 0);
    receive(m, sizeof m);
    make(m, FLUSH_ACK, 0);
    receive(m, sizeof m);
    cr_assert_not(ep->peer_closed, "a stranger cannot say goodbye");
    drop();
}

Test(hello, what_a_failed_endpoint_hears_is_nothing)
{
    unsigned char m[SIZE];

    wait_hello(true, false);
    make(m, 99, 0);
    receive(m, sizeof m);
    cr_assert(ep->failed);
    make(m, HELLO, 0);
    receive(m, sizeof m);
    cr_assert_eq(ep->phase, HWS__PHASE_HELLO);
    drop();
}

Test(hello, a_key_on_one_side_only)
{
    unsigned char m[SIZE];

    wait_hello(true, true);
    make(m, HELLO, 0);
    receive(m, sizeof m);
    cr_assert_eq(listener->bad_auth, 1);
    cr_assert(ep->refused);
    drop();
    wait_hello(true, false);
    make(m, HELLO, 2);
    receive(m, sizeof m);
    cr_assert_eq(listener->bad_auth, 2);
    cr_assert(ep->refused);
    drop();
    wait_hello(false, false);
    make(m, CHALLENGE, 2);
    receive(m, sizeof m);
    cr_assert(ep->failed && ep->status == HWS_E_AUTH);
    drop();
}

/* The whole exchange, with the proof as it must be and with each bit of it flipped. */
Test(hello, only_the_right_proof_is_let_in)
{
    unsigned char m[SIZE], proof[HWS__PROOF];

    if (!hws__auth_available()) {
        cr_skip_test("this build has no libsodium");
    }
    for (int bit = -1; bit < 8 * HWS__PROOF; bit++) {
        wait_hello(true, true);
        make(m, HELLO, 2);
        t_fill(m + 40, HWS__NONCE, 5);
        receive(m, sizeof m);
        cr_assert_not(ep->failed);
        hws__auth_prove(key, sizeof key, 'c', m + 40, ep->nonce, proof);
        make(m, PROOF, 2);
        memcpy(m + 72, proof, sizeof proof);
        if (bit >= 0) {
            m[72 + bit / 8] ^= (unsigned char)(1 << bit % 8);
        }
        receive(m, sizeof m);
        cr_assert_eq(ep->phase == HWS__PHASE_REQUEST, bit < 0);
        cr_assert_eq(ep->refused, bit >= 0);
        drop();
    }
    cr_assert_eq(listener->bad_auth, 8 * HWS__PROOF);
}

/* A listener that does not know the key, or plays the client's own proof back. */
Test(hello, a_listener_must_prove_itself)
{
    unsigned char m[SIZE], proof[HWS__PROOF];

    if (!hws__auth_available()) {
        cr_skip_test("this build has no libsodium");
    }
    wait_hello(false, true);
    make(m, WELCOME, 2);
    receive(m, sizeof m);
    cr_assert(ep->failed && ep->status == HWS_E_AUTH, "a welcome without a challenge");
    drop();

    wait_hello(false, true);
    hws__auth_nonce(ep->nonce);
    make(m, CHALLENGE, 2);
    t_fill(m + 40, HWS__NONCE, 5);
    receive(m, sizeof m);
    cr_assert_not(ep->failed);
    hws__auth_prove(key, sizeof key, 'c', ep->nonce, m + 40, proof);
    make(m, WELCOME, 2);
    memcpy(m + 72, proof, sizeof proof);
    receive(m, sizeof m);
    cr_assert(ep->failed && ep->status == HWS_E_AUTH, "the client's own proof");
    drop();
}

/* What a listener says about itself must not become any code of the caller's. */
Test(hello, a_refusal_carries_only_codes_that_a_peer_can_mean)
{
    static const struct {
        int32_t sent, becomes;
    } codes[] = {{HWS_E_AUTH, HWS_E_AUTH},
                 {HWS_E_REJECTED, HWS_E_REJECTED},
                 {HWS_E_PEER_VERSION, HWS_E_PEER_VERSION},
                 {HWS_E_DEADLOCK, HWS_E_REJECTED},
                 {HWS_E_FORKED, HWS_E_REJECTED},
                 {0, HWS_E_REJECTED},
                 {1, HWS_E_REJECTED},
                 {-9999, HWS_E_REJECTED},
                 {INT32_MIN, HWS_E_REJECTED}};

    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        unsigned char m[SIZE];

        wait_hello(false, false);
        make(m, REFUSED, 0);
        memcpy(m + 8, &codes[i].sent, 4);
        receive(m, sizeof m);
        cr_assert(ep->failed);
        cr_assert_eq(ep->status, codes[i].becomes, "%d", codes[i].sent);
        drop();
    }
}

/* ---- The client id of a connection request -------------------------------------------------- */

Test(hello, the_client_id_says_what_it_says)
{
    struct hws__client c = hws__client_parse(hws__client_id(false));

    cr_assert(c.known && c.same_protocol && c.same_ucx && c.same_host && !c.tcp_only);
    c = hws__client_parse(hws__client_id(true));
    cr_assert(c.known && c.same_protocol && c.same_ucx && c.same_host && c.tcp_only);
}

Test(hello, each_part_of_the_client_id_is_its_own)
{
    for (int bit = 0; bit < 64; bit++) {
        struct hws__client c = hws__client_parse(hws__client_id(false) ^ UINT64_C(1) << bit);

        cr_assert_eq(c.known, bit < 48, "bit %d", bit);
        cr_assert_eq(c.same_protocol, bit < 44 || bit > 47, "bit %d", bit);
        cr_assert_eq(c.tcp_only, bit == 40, "bit %d", bit);
        cr_assert_eq(c.same_ucx, bit < 32 || bit > 39, "bit %d", bit);
        cr_assert_eq(c.same_host, bit > 31, "bit %d", bit);
    }
}

Test(hello, random_client_ids_are_strangers)
{
    uint64_t state = 3;

    for (int i = 0; i < 1000000; i++) {
        uint64_t id = t_random(&state);

        cr_assert_eq(hws__client_parse(id).known, id >> 48 == HWS__CLIENT_MAGIC);
    }
    cr_assert_not(hws__client_parse(0).known, "a plain UCX program");
}
