/*
 * The conformance runner: it knows nothing of the functions that it calls but what abi.json says.
 */
#ifndef TESTS_ABI_CONFORMANCE_H
#define TESTS_ABI_CONFORMANCE_H

#include <hawser.h>
#include <jansson.h>

#define KINDS 16

/* One object of each kind, and ids of objects that are gone. */
typedef struct world {
    hws_id living[KINDS], stale[KINDS];
    hws_id context, queue, worker;
} world;

void world_open(world *w);
void world_close(world *w);

/* The description of the ABI, and a file of vectors beside it. */
json_t *load_abi(void);
json_t *load_vectors(const char *name);

/* The function of the library under that name. */
void *find_function(const char *name);

/* Calls a function of the description with the arguments of a vector. */
int32_t call_vector(const world *w, json_t *abi, json_t *vector);

/* The member of an array of objects with that "name". */
json_t *named(json_t *array, const char *name);

/* How often a callback was called that must not be. */
int stray_callbacks(void);

#endif
