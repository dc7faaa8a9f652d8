#include "pool.h"
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, length) ((void)(at), (void)(length))
#define ASAN_UNPOISON_MEMORY_REGION(at, length) ((void)(at), (void)(length))
#endif

#define SMALLEST_BITS 10
#define HUGE_PAGE (UINT64_C(2) << 20)
#define PAGE UINT64_C(4096)

/* What a block of `length` bytes takes up, and the index of that size; past the last one it is not kept. */
static uint64_t size_of(uint64_t length, uint32_t *index)
{
    unsigned top, step;

    if (length <= UINT64_C(1) << SMALLEST_BITS) {
        *index = 0;
        return UINT64_C(1) << SMALLEST_BITS;
    }
    top = 63u - (unsigned)__builtin_clzll(length - 1);
    step = (unsigned)((length - 1) >> (top - 2)); /* 4 to 7 */
    *index = (top - SMALLEST_BITS) * 4 + step - 3;
    return (uint64_t)(step + 1) << (top - 2);
}

/* Aligned to a huge page: what lies before and after goes back at once. */
static void *map(uint64_t size)
{
    uint64_t whole = size + HUGE_PAGE - PAGE, before;
    char *at = whole < size
                   ? MAP_FAILED
                   : mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED) {
        return NULL;
    }
    before = -(uintptr_t)at & (HUGE_PAGE - 1);
    if (before != 0) {
        munmap(at, before);
    }
    if (whole - before - size != 0) {
        munmap(at + before + size, whole - before - size);
    }
    /* Without them it is memory all the same. */
    madvise(at + before, size, MADV_HUGEPAGE);
    return at + before;
}

static void *fresh(uint64_t size)
{
    return size < HUGE_PAGE ? aligned_alloc(HWS__POOL_ALIGN, size) : map(size);
}

static void give_back(void *block, uint64_t size)
{
    if (size < HUGE_PAGE) {
        free(block);
    } else {
        munmap(block, size);
    }
}

void hws__pool_init(struct hws__pool *p, uint64_t limit)
{
    *p = (struct hws__pool){.limit = limit};
    for (uint32_t i = 0; i < HWS__POOL_SIZES; i++) {
        hws__list_init(&p->sizes[i].free);
    }
}

/* A free block, usable again, or null. */
static void *reuse(struct hws__pool *p, struct hws__pool_size *s, uint64_t size, bool oldest)
{
    struct hws__list *n = oldest ? s->free.prev : s->free.next;

    if (n == &s->free) {
        return NULL;
    }
    hws__list_remove(n);
    s->count--;
    p->bytes -= size;
    ASAN_UNPOISON_MEMORY_REGION(n, size);
    return n;
}

void *hws__pool_take(struct hws__pool *p, uint64_t length)
{
    uint32_t index;
    uint64_t size = size_of(length, &index);
    void *block = NULL;

    if (length > UINT64_MAX / 2) {
        return NULL;
    }
    if (index < HWS__POOL_SIZES && (block = reuse(p, &p->sizes[index], size, false)) != NULL) {
        if (p->sizes[index].count < p->sizes[index].least) {
            p->sizes[index].least = p->sizes[index].count;
        }
        p->reused++;
        return block;
    }
    if ((block = fresh(size)) != NULL) {
        p->fresh++;
    }
    return block;
}

void hws__pool_give(struct hws__pool *p, void *block, uint64_t length)
{
    uint32_t index;
    uint64_t size = size_of(length, &index);
    struct hws__list *n = block;

    if (block == NULL) {
        return;
    }
    if (index >= HWS__POOL_SIZES || size > p->limit || p->bytes > p->limit - size) {
        give_back(block, size);
        return;
    }
    hws__list_push(&p->sizes[index].free, n);
    p->sizes[index].count++;
    p->bytes += size;
    ASAN_POISON_MEMORY_REGION(n + 1, size - sizeof *n);
}

/* Give `count` blocks back, those used longest ago. */
static void shrink(struct hws__pool *p, uint32_t index, uint32_t count)
{
    uint64_t size = index == 0
                        ? UINT64_C(1) << SMALLEST_BITS
                        : (UINT64_C(5) + (index - 1) % 4) << (SMALLEST_BITS - 2 + (index - 1) / 4);

    while (count-- != 0) {
        give_back(reuse(p, &p->sizes[index], size, true), size);
    }
}

void hws__pool_age(struct hws__pool *p, uint64_t now)
{
    if (p->bytes == 0 || now - p->aged_at < HWS__POOL_AGE_NS) {
        return;
    }
    p->aged_at = now;
    for (uint32_t i = 0; i < HWS__POOL_SIZES; i++) {
        shrink(p, i, (p->sizes[i].least + 1) / 2);
        p->sizes[i].least = p->sizes[i].count;
    }
}

void hws__pool_drain(struct hws__pool *p)
{
    for (uint32_t i = 0; p->bytes != 0 && i < HWS__POOL_SIZES; i++) {
        shrink(p, i, p->sizes[i].count);
    }
}
