/*
 * A process whose libcuda is the tests' own (stub_cuda.c), for tests of CUDA without a GPU.
 */
#ifndef TESTS_SUPPORT_CUDA_H
#define TESTS_SUPPORT_CUDA_H

#include "support/stub_cuda.h"

#include <hawser.h>

#define T_CUDA_APP ((void *)0xc0de)    /* the application's CUDA context */
#define T_CUDA_OTHER ((void *)0x07e4)  /* another one */
#define T_CUDA_STREAM ((void *)0x57e4) /* a stream of it */

enum { T_CUDA_ILLEGAL_ADDRESS = 700, T_CUDA_UNKNOWN_ERROR = 999 };

/* Takes the library that the variable names for libcuda; its controls, if it is the stub. */
const stub_cuda_control *t_cuda_use(const char *variable);

/* The usual stub. */
const stub_cuda_control *t_cuda_stub(void);

/* Options of an operation that waits for T_CUDA_STREAM. */
hws_op_opts t_cuda_on_stream(void);

#endif
