/*
 * What may reach UCX's sockets that listen or dial. UCX's connection manager takes a message's length from its
 * first 16 bytes, and aborts the process over what it does not expect: on 1.13.1 more bytes than that
 * (tcp_sockcm_ep.c:825), or none as a question or an answer (wireup_cm.c:241); on all versions an unknown version of
 * what follows, or of the address in it. So one segment of garbage would end a server, or whoever dials a wrong port.
 * The kernel drops such segments: whoever sent them is silent from then on (strangers.c; a dial has a deadline).
 */
#include "sockets.h"
#include <linux/filter.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <ucs/type/status.h>

/* Bytes of UCX's header: the length of what follows in 8, little endian, then the status: 0, or UCX's error of
 * somebody who refuses. */
#define HEADER 16
#define STATUS 8
/* What follows: the peer's number of the endpoint in 8 bytes, then a version, 0 or 1, in the upper three bits; by
 * that version, where the worker's address begins, with a version of its own, 0 or 1, in the lower four. */
#define VERSION (HEADER + 8)
#define VERSION_TOO_HIGH 0xc0
#define VERSION_1 0x20
#define ADDRESS_OF_0 (VERSION + 3)
#define ADDRESS_OF_1 (VERSION + 1)
#define ADDRESS_VERSION 0x0f

#define ACCEPT 0xffffffffu

/* Where a test goes on: jumps count instructions from the next one. */
enum { REFUSED = 25, EMPTY = 28, OF_1 = 34, ADDRESS = 35, WELL = 37, DROP = 38 };
#define TO(at, where) (uint8_t)((where) - (at)-1)
#define TEST(at, op, k, yes, no) [at] = BPF_JUMP(BPF_JMP | (op), k, yes, no)
#define DO(at, code, k) [at] = BPF_STMT(code, k)

/* Scratch memory: where the data starts, its bytes, and the length that it announces. */
enum { START, BYTES, LENGTH };

/* On a TCP segment. UCX's messages, of 50 to some hundred bytes, travel in one. A load from behind its end drops it. */
static const struct sock_filter program[] = {
    /* The TCP header's own length, in words, in the high half. */
    DO(0, BPF_LD | BPF_B | BPF_ABS, 12),
    DO(1, BPF_ALU | BPF_AND | BPF_K, 0xf0),
    DO(2, BPF_ALU | BPF_RSH | BPF_K, 2),
    DO(3, BPF_MISC | BPF_TAX, 0),
    DO(4, BPF_STX, START),
    DO(5, BPF_LD | BPF_W | BPF_LEN, 0),
    DO(6, BPF_ALU | BPF_SUB | BPF_X, 0),
    DO(7, BPF_ST, BYTES),
    TEST(8, BPF_JEQ | BPF_K, 0, TO(8, WELL), 0),
    /* A length has no high bytes: one near 2^64 becomes small when UCX adds its header's. */
    DO(9, BPF_LD | BPF_W | BPF_IND, 4),
    TEST(10, BPF_JEQ | BPF_K, 0, 0, TO(10, DROP)),
    DO(11, BPF_LD | BPF_H | BPF_IND, 2),
    TEST(12, BPF_JEQ | BPF_K, 0, 0, TO(12, DROP)),
    DO(13, BPF_LD | BPF_B | BPF_IND, 1),
    DO(14, BPF_ALU | BPF_LSH | BPF_K, 8),
    DO(15, BPF_ST, LENGTH),
    DO(16, BPF_LD | BPF_B | BPF_IND, 0),
    DO(17, BPF_LDX | BPF_MEM, LENGTH),
    DO(18, BPF_ALU | BPF_ADD | BPF_X, 0),
    DO(19, BPF_ST, LENGTH),
    /* No more than announced, and no less. */
    DO(20, BPF_ALU | BPF_ADD | BPF_K, HEADER),
    DO(21, BPF_LDX | BPF_MEM, BYTES),
    TEST(22, BPF_JEQ | BPF_X, 0, 0, TO(22, DROP)),
    DO(23, BPF_LDX | BPF_MEM, START),
    DO(24, BPF_LD | BPF_B | BPF_IND, STATUS),
    TEST(REFUSED, BPF_JEQ | BPF_K, (uint8_t)UCS_ERR_REJECTED, TO(REFUSED, WELL), 0),
    TEST(26, BPF_JEQ | BPF_K, 0, 0, TO(26, DROP)),
    DO(27, BPF_LD | BPF_MEM, LENGTH),
    /* Who has dialled says by an empty message that it is connected: the last one of theirs. */
    TEST(EMPTY, BPF_JEQ | BPF_K, 0, TO(EMPTY, DROP), 0),
    DO(29, BPF_LD | BPF_B | BPF_IND, VERSION),
    TEST(30, BPF_JSET | BPF_K, VERSION_TOO_HIGH, TO(30, DROP), 0),
    TEST(31, BPF_JSET | BPF_K, VERSION_1, TO(31, OF_1), 0),
    DO(32, BPF_LD | BPF_B | BPF_IND, ADDRESS_OF_0),
    TEST(33, BPF_JA, TO(33, ADDRESS), 0, 0),
    DO(OF_1, BPF_LD | BPF_B | BPF_IND, ADDRESS_OF_1),
    DO(ADDRESS, BPF_ALU | BPF_AND | BPF_K, ADDRESS_VERSION),
    TEST(36, BPF_JGT | BPF_K, 1, TO(36, DROP), TO(36, WELL)),
    DO(WELL, BPF_RET | BPF_K, ACCEPT),
    DO(DROP, BPF_RET | BPF_K, 0),
};

void hws__sockets_screen_one(int fd, enum hws__screened who)
{
    struct sock_filter own[sizeof program / sizeof *program];
    const struct sock_fprog filter = {.len = sizeof program / sizeof *program, .filter = own};

    memcpy(own, program, sizeof own);
    own[REFUSED].jt = who == HWS__DIALLED ? TO(REFUSED, WELL) : TO(REFUSED, DROP);
    own[EMPTY].jt = who == HWS__TAKEN_IN ? TO(EMPTY, WELL) : TO(EMPTY, DROP);
    /* A kernel that refuses leaves things as they were. */
    setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter);
}

static bool screen(int fd, void *arg)
{
    if (hws__sockets_listens(fd, *(const uint16_t *)arg)) {
        hws__sockets_close_on_exec(fd);
        hws__sockets_screen_one(fd, HWS__LISTENS); /* connections inherit it */
    }
    return false;
}

void hws__sockets_screen(uint16_t port)
{
    hws__sockets_each(screen, &port);
}
