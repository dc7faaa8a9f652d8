/*
 * Test cases, each in a process of its own, forked before anything of the library ran: a crash or a
 * hang of one does not hide the others. (Criterion does the same, but not under ThreadSanitizer.)
 *
 *   CASE(name) { ... }     in the order of the file
 *   CASES_MAIN             at its end; CASES_MAIN_AT_ONCE(n) where cases mostly wait: n of them run at a time
 *
 * The program runs all cases, or those whose names contain one of its arguments.
 */
#ifndef TESTS_SUPPORT_CASES_H
#define TESTS_SUPPORT_CASES_H

typedef struct t_case {
    const char *name;
    void (*run)(void);
    struct t_case *next;
} t_case;

void t_case_add(t_case *entry);
int t_cases_run(int argc, char **argv, int at_once);

#define CASE(case_name)                                            \
    static void case_name(void);                                   \
    __attribute__((constructor)) static void case_name##_add(void) \
    {                                                              \
        static t_case entry = {#case_name, case_name, NULL};       \
        t_case_add(&entry);                                        \
    }                                                              \
    static void case_name(void)

/* The same case over shared memory and over TCP: `flags` is for the client's endpoint. */
#define CASE_BOTH(case_name)               \
    static void case_name(uint32_t flags); \
    CASE(case_name##_shm)                  \
    {                                      \
        case_name(0);                      \
    }                                      \
    CASE(case_name##_tcp)                  \
    {                                      \
        case_name(HWS_ENDPOINT_TCP_ONLY);  \
    }                                      \
    static void case_name(uint32_t flags)

#define CASES_MAIN CASES_MAIN_AT_ONCE(1)
#define CASES_MAIN_AT_ONCE(n)              \
    int main(int argc, char **argv)        \
    {                                      \
        return t_cases_run(argc, argv, n); \
    }

#endif
