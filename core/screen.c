/*
 * What may reach UCX's sockets that listen or dial. UCX's connection manager takes a message's length from its
 * first 16 bytes, and aborts the process over what it does not expect: on 1.13.1 more bytes than that
 * (tcp_sockcm_ep.c:825), or none as an answer (wireup_cm.c:241); on all versions an unknown version of what
 * follows. So one segment of garbage would end a server, or whoever dials a wrong port. The kernel drops such
 * segments: whoever sent them is silent from then on (strangers.c; a dial has a deadline).
 */
#include "sockets.h"
#include <linux/filter.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

/* Bytes of UCX's header: the length of what follows in 8, little endian, then the status: 0, or a UCX error, which
 * is below 0, of somebody who refuses and sends no more. */
#define HEADER 16
#define STATUS 8
/* What follows: the peer's number of the endpoint in 8 bytes, then the version, 0 or 1, in the upper three bits. */
#define VERSION (HEADER + 8)
#define VERSION_TOO_HIGH 0xc0
#define SHORTEST 9

#define ACCEPT 0xffffffffu

/* Where a test goes on: jumps count instructions from the next one. */
enum { EMPTY = 29, WELL = 35, DROP = 36 };
#define TO(at, where) (uint8_t)((where) - (at)-1)
#define TEST(at, op, k, yes, no) [at] = BPF_JUMP(BPF_JMP | (op) | BPF_K, k, yes, no)
#define DO(at, code, k) [at] = BPF_STMT(code, k)

/* Scratch memory: where the data starts, its bytes, and the length that it announces. */
enum { START, BYTES, LENGTH };

/* On a TCP segment. UCX's messages, of 50 to some hundred bytes, travel in one. */
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
    TEST(8, BPF_JGE, HEADER, 0, TO(8, WELL)),
    /* A length has no high bytes: one near 2^64 becomes small when UCX adds its header's. */
    DO(9, BPF_LD | BPF_W | BPF_IND, 4),
    TEST(10, BPF_JEQ, 0, 0, TO(10, DROP)),
    DO(11, BPF_LD | BPF_H | BPF_IND, 2),
    TEST(12, BPF_JEQ, 0, 0, TO(12, DROP)),
    DO(13, BPF_LD | BPF_B | BPF_IND, 1),
    DO(14, BPF_ALU | BPF_LSH | BPF_K, 8),
    DO(15, BPF_ST, LENGTH),
    DO(16, BPF_LD | BPF_B | BPF_IND, 0),
    DO(17, BPF_LDX | BPF_MEM, LENGTH),
    DO(18, BPF_ALU | BPF_ADD | BPF_X, 0),
    DO(19, BPF_ST, LENGTH),
    /* More than announced. */
    DO(20, BPF_ALU | BPF_ADD | BPF_K, HEADER),
    DO(21, BPF_MISC | BPF_TAX, 0),
    DO(22, BPF_LD | BPF_MEM, BYTES),
    [23] = BPF_JUMP(BPF_JMP | BPF_JGT | BPF_X, 0, TO(23, DROP), 0),
    /* A refusal, or a length that can be. */
    DO(24, BPF_LDX | BPF_MEM, START),
    DO(25, BPF_LD | BPF_B | BPF_IND, STATUS),
    TEST(26, BPF_JSET, 0x80, TO(26, WELL), 0),
    TEST(27, BPF_JEQ, 0, 0, TO(27, DROP)),
    DO(28, BPF_LD | BPF_MEM, LENGTH),
    /* Who has dialled says by an empty message that it is connected: the last one of theirs. */
    TEST(EMPTY, BPF_JEQ, 0, TO(EMPTY, WELL), 0),
    TEST(30, BPF_JGE, SHORTEST, 0, TO(30, DROP)),
    /* The version, if it has come. */
    DO(31, BPF_LD | BPF_MEM, BYTES),
    TEST(32, BPF_JGT, VERSION, 0, TO(32, WELL)),
    DO(33, BPF_LD | BPF_B | BPF_IND, VERSION),
    TEST(34, BPF_JSET, VERSION_TOO_HIGH, TO(34, DROP), TO(34, WELL)),
    DO(WELL, BPF_RET | BPF_K, ACCEPT),
    DO(DROP, BPF_RET | BPF_K, 0),
};

void hws__sockets_screen_one(int fd, bool dialled)
{
    struct sock_filter own[sizeof program / sizeof *program];
    const struct sock_fprog filter = {.len = sizeof program / sizeof *program, .filter = own};

    memcpy(own, program, sizeof own);
    own[EMPTY].jt = dialled ? TO(EMPTY, DROP) : TO(EMPTY, WELL);
    /* A kernel that refuses leaves things as they were. */
    setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter);
}

static bool screen(int fd, void *arg)
{
    if (hws__sockets_listens(fd, *(const uint16_t *)arg)) {
        hws__sockets_close_on_exec(fd);
        hws__sockets_screen_one(fd, false); /* accepted connections inherit it */
    }
    return false;
}

void hws__sockets_screen(uint16_t port)
{
    hws__sockets_each(screen, &port);
}
