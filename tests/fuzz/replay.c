#include "fuzz/fuzz.h"
#include "support/check.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE_MAX_FILE 65536u
#define CHANGED 50000 /* variants of each file */

uint64_t fuzz_checksum(const unsigned char *data, size_t size)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < size; i++) {
        h = (h ^ data[i]) * UINT64_C(0x100000001b3);
    }
    return h;
}

/* In memory of its own, so that a sanitizer sees a read behind its end. */
static void one(const unsigned char *data, size_t size)
{
    unsigned char *copy = malloc(size != 0 ? size : 1);

    CHECK(copy != NULL);
    memcpy(copy, data, size);
    fuzz_one(copy, size);
    free(copy);
}

/* Cut, longer, and with bytes that are other ones, above all such as lengths have. */
static void changed(const unsigned char *data, size_t size, uint64_t *state)
{
    static const unsigned char likely[] = {0, 1, 7, 8, 0x7f, 0x80, 0xfe, 0xff};
    static unsigned char other[SIZE_MAX_FILE + 64];
    size_t length = size;

    memcpy(other, data, size);
    if (t_random(state) % 4 == 0) {
        length = t_random(state) % (size + 64);
        if (length > size) {
            memset(other + size, (int)t_random(state), length - size);
        }
    }
    for (uint64_t n = t_random(state) % 4; n > 0 && length != 0; n--) {
        uint64_t r = t_random(state);

        other[(r >> 8) % length] = r % 2 ? likely[r / 2 % sizeof likely] : (unsigned char)(r / 2);
    }
    one(other, length);
}

static size_t load(const char *path, unsigned char *to)
{
    FILE *f = fopen(path, "rb");
    size_t size;

    CHECK(f != NULL);
    size = fread(to, 1, SIZE_MAX_FILE, f);
    CHECK(feof(f) || size < SIZE_MAX_FILE);
    fclose(f);
    return size;
}

int fuzz_replay(const char *name)
{
    static unsigned char data[SIZE_MAX_FILE];
    const char *root = getenv("HAWSER_SOURCE_DIR");
    char folder[1024], path[2048];
    const struct dirent *entry;
    uint64_t state = 1;
    int files = 0;
    DIR *d;

    snprintf(folder, sizeof folder, "%s/tests/fuzz/corpus/%s", root != NULL ? root : ".", name);
    CHECK((d = opendir(folder)) != NULL);
    while ((entry = readdir(d)) != NULL) {
        size_t size;

        if (entry->d_name[0] == '.') {
            continue;
        }
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        size = load(path, data);
        one(data, size);
        for (size_t n = 0; n < size; n++) {
            one(data, n);
        }
        for (int i = 0; i < CHANGED; i++) {
            changed(data, size, &state);
        }
        files++;
    }
    closedir(d);
    CHECK(files >= 5);
    printf("%d files, each cut everywhere and changed in %d ways\n", files, CHANGED);
    return 0;
}
