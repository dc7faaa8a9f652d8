/*
 * Child processes: this same program started again with arguments, spoken to by lines of text over
 * its standard input and output. A child dies with its parent.
 */
#ifndef TESTS_SUPPORT_SPAWN_H
#define TESTS_SUPPORT_SPAWN_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct t_child {
    pid_t pid;  /* 0: not running */
    int in;     /* to the child */
    int out;    /* from the child */
    int status; /* exit code, or 256 + signal, once it has ended */
    char buffer[16384];
    size_t filled;
} t_child;

/* Starts /proc/self/exe with the arguments (without argv[0]), null at the end. */
void t_spawn(t_child *child, const char *const *args);
/* What a child calls first: it is killed when its parent ends. */
void t_child_begin(void);

/* One line to the other side. In a child, `child` is null: its parent. */
void t_say(t_child *child, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The next line of the other side, without the newline; fails after t_patience() or at its end. */
void t_hear(t_child *child, char *line, size_t size);
/* The same within a time; 0 when nothing came, -1 at the end. */
int t_hear_for(t_child *child, char *line, size_t size, uint64_t timeout_ns);
/* The next line must be this. */
#define HEAR(child, expected) t_hear_exactly(__FILE__, __LINE__, (child), (expected))
void t_hear_exactly(const char *file, int line, t_child *child, const char *expected);

void t_kill(t_child *child, int signal_number);
/* Waits for its end and gives the exit code, or 256 + the signal. */
int t_join(t_child *child);

#endif
