#include "guide.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { GUIDE_MAX = 1 << 18 };

char *t_guide(const char *name)
{
    const char *sources = getenv("HAWSER_SOURCE_DIR");
    char path[512], *text;
    size_t n;
    FILE *f;

    if (sources == NULL) {
        return NULL;
    }
    snprintf(path, sizeof path, "%s/docs/guide/%s", sources, name);
    text = calloc(1, GUIDE_MAX);
    CHECK(text != NULL);
    f = fopen(path, "r");
    CHECK(f != NULL);
    n = fread(text, 1, GUIDE_MAX - 1, f);
    fclose(f);
    CHECK(n > 0 && n < GUIDE_MAX - 1);
    return text;
}

size_t t_guide_says(const char *guide, const char *start)
{
    const char *row = strstr(guide, start);

    return row == NULL ? 0 : strcspn(row + strlen(start), "|\n");
}
