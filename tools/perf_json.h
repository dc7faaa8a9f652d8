/*
 * Results of `hawser perf` as JSON objects.
 */
#ifndef HAWSER_PERF_JSON_H
#define HAWSER_PERF_JSON_H

#include "perf.h"

#include <jansson.h>

json_t *perf_json_result(const perf_options *o, const perf_result *r);
void perf_json_result_back(const json_t *run, perf_result *r);
void perf_json_dump(json_t *object);

#endif
