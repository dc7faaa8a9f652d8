/*
 * What a fuzz target and its replay share. A target is fuzz_one(); by itself the program gives it each file
 * of tests/fuzz/corpus/NAME, and each of them changed in many ways, always the same. scripts/fuzz.sh builds
 * the target with libFuzzer instead (HWS_FUZZER), and starts from the same corpus.
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/** One input; it lies in memory of exactly this size. Whatever is wrong ends the process. */
void fuzz_one(const unsigned char *data, size_t size);

/** FNV-1a, as the packed forms have it: an input gets past the checksum when the target repairs it. */
uint64_t fuzz_checksum(const unsigned char *data, size_t size);

/** Replay the corpus of this name; the process's exit code. */
int fuzz_replay(const char *name);

#if defined(HWS_FUZZER)
#define FUZZ_MAIN(name)                                           \
    int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); \
    int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)  \
    {                                                             \
        fuzz_one(data, size);                                     \
        return 0;                                                 \
    }
#else
#define FUZZ_MAIN(name)           \
    int main(void)                \
    {                             \
        return fuzz_replay(name); \
    }
#endif

#endif
