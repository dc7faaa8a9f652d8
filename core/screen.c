/*
 * What may reach UCX's sockets that listen or dial. UCX's connection manager takes a message's length from its
 * first 16 bytes; on 1.13.1 a message longer than that aborts the process (tcp_sockcm_ep.c:825), so
 * one segment of garbage would end a server, or whoever dials a wrong port. The kernel drops such
 * segments: whoever sent them is silent from then on (strangers.c; a dial has a deadline).
 */
#include "sockets.h"
#include <linux/filter.h>
#include <stdbool.h>
#include <sys/socket.h>

/* Bytes of UCX's header; the first 8 are the length of what follows, little endian. */
#define HEADER 16

#define ACCEPT 0xffffffffu
/* Jumps count instructions from the next one. */
#define SKIP_UNLESS_ZERO(n) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, n)

/* On a TCP segment. A segment that goes on with a long message starts with anything: it is dropped
 * only if its first bytes look like a header, of a message shorter than the segment. */
static struct sock_filter program[] = {
    BPF_STMT(BPF_LD | BPF_B | BPF_ABS,
             12), /* the TCP header's own length, in words, in the high half */
    BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xf0),
    BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 2),
    BPF_STMT(BPF_MISC | BPF_TAX, 0), /* X: where the data starts */
    BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
    BPF_STMT(BPF_ALU | BPF_SUB | BPF_X, 0),
    BPF_STMT(BPF_ST, 0), /* M[0]: bytes of data */
    BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, HEADER, 0, 13),
    BPF_STMT(BPF_LD | BPF_W | BPF_IND, 4), /* the length's high word: a length has none */
    SKIP_UNLESS_ZERO(11),
    BPF_STMT(BPF_LD | BPF_H | BPF_IND, 2),
    SKIP_UNLESS_ZERO(9),
    BPF_STMT(BPF_LD | BPF_B | BPF_IND, 1),
    BPF_STMT(BPF_ALU | BPF_LSH | BPF_K, 8),
    BPF_STMT(BPF_ST, 1),
    BPF_STMT(BPF_LD | BPF_B | BPF_IND, 0),
    BPF_STMT(BPF_LDX | BPF_MEM, 1),
    BPF_STMT(BPF_ALU | BPF_ADD | BPF_X, 0), /* A: the length */
    BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, HEADER),
    BPF_STMT(BPF_MISC | BPF_TAX, 0),
    BPF_STMT(BPF_LD | BPF_MEM, 0),
    BPF_JUMP(BPF_JMP | BPF_JGT | BPF_X, 0, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, ACCEPT),
    BPF_STMT(BPF_RET | BPF_K, 0),
};

void hws__sockets_screen_one(int fd)
{
    const struct sock_fprog filter = {.len = sizeof program / sizeof *program, .filter = program};

    /* A kernel that refuses leaves things as they were. */
    setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter);
}

static bool screen(int fd, void *arg)
{
    if (hws__sockets_listens(fd, *(const uint16_t *)arg)) {
        hws__sockets_close_on_exec(fd);
        hws__sockets_screen_one(fd); /* accepted connections inherit it */
    }
    return false;
}

void hws__sockets_screen(uint16_t port)
{
    hws__sockets_each(screen, &port);
}
