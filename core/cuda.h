/*
 * CUDA, through the driver's library (libcuda), opened when something first asks for it: nothing needs a
 * GPU package, and a program without a GPU pays one look at `hws__cuda_used` for each sweep.
 *
 * Three things are asked of it: what kind of memory a pointer is, which CUDA context UCX's transports
 * for GPUs work in, and when the work that writes a send's data is done (cuda_wait.c).
 *
 * The CUDA context is the one that was current on the thread that registered the memory, or posted on
 * it. It is current on whatever thread makes progress on a worker of the same context, for as long as
 * one sweep; that thread's own is restored afterwards.
 */
#ifndef HWS_CORE_CUDA_H
#define HWS_CORE_CUDA_H

#include <hawser.h>
#include <stdatomic.h>
#include <stdbool.h>

struct hws__context;
struct hws__endpoint;
struct hws__post;

/** Some context has memory of CUDA's, or had. */
extern _Atomic bool hws__cuda_used;

/** Open libcuda, once; 0, or HWS_E_CUDA with the reason why it cannot be used. */
int32_t hws__cuda_open(hws_id id);

/**
 * Find out what HWS_MEMORY_UNKNOWN is. It stays unknown where there is no libcuda; where nobody
 * has initialised CUDA it is the host's.
 * @param[out] known  CUDA knows the pointer: also memory of the host that was allocated through it
 * @return 0, HWS_E_CUDA
 */
int32_t hws__cuda_kind(hws_id id, const void *pointer, uint32_t *kind, bool *known);

/** Whether the context's UCX can handle this kind of memory, as far as it is known. */
bool hws__cuda_can(const struct hws__context *c, uint32_t kind);
/** The same: 0 or HWS_E_BUFFER_KIND. */
int32_t hws__cuda_usable(const struct hws__context *c, hws_id id, uint32_t kind);
/** Both, for a buffer: `*kind` is found out if it is unknown. */
int32_t hws__cuda_check(const struct hws__context *c, hws_id id, const void *buffer,
                        uint32_t *kind);

/** The thread's current CUDA context; null: none, or no CUDA. */
void *hws__cuda_current(void);
/** Make a CUDA context that of `c`, unless it has one and `replace` is false. Null does nothing. */
void hws__cuda_adopt(struct hws__context *c, void *cuda, bool replace);

/** Make a CUDA context current; false: it is already, there is none, or CUDA refuses. */
bool hws__cuda_push(void *cuda);
/** Take it back, if hws__cuda_push() said true. */
void hws__cuda_pop(bool pushed);
/** The same for the context that UCX's transports of `c` need. Forgets one that CUDA refuses. */
bool hws__cuda_enter(struct hws__context *c);

/** Whether only the driver copies from or to such memory: the processor cannot, or a GPU may be using it. */
static inline bool hws__cuda_is(uint32_t kind)
{
    return kind == HWS_MEMORY_CUDA || kind == HWS_MEMORY_CUDA_MANAGED;
}
/** Copy from or to memory of a GPU. 0, or HWS_E_CUDA. */
int32_t hws__cuda_copy(struct hws__context *c, void *to, const void *from, uint64_t length);

/** Wait for all work of a stream. 0, or HWS_E_CUDA with `*text` set to a text that stays. */
int32_t hws__cuda_synchronize(void *cuda, void *stream, const char **text);

/** Whether a posting may wait for a stream: 0, HWS_E_INVALID, HWS_E_CUDA. */
int32_t hws__cuda_wait_check(const struct hws__post *p);
/** hws__post.run of such a posting: wait, then do what it was posted for. */
int32_t hws__cuda_wait_run(struct hws__post *p);
/** The connection is over: so are the sends that wait for a stream. Owner only. */
void hws__cuda_wait_end(struct hws__endpoint *ep, int32_t status);

#endif
