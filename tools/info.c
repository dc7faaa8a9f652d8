/*
 * `hawser info`: which UCX is used and why, how it was built, and what it can talk over.
 */
#include "info.h"
#include "tool.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: hawser info [--json]\n\n"
    "Prints the versions, which UCX is used and why, how it was built, transports and devices.\n"
    "HAWSER_UCX chooses the UCX: system, wheel or a folder.\n";

/* The description of a context, to be freed. */
static char *describe(hws_id context)
{
    uint64_t needed = 0;
    char *text = NULL;

    hws_describe(context, NULL, 0, &needed);
    if (needed != 0 && (text = malloc(needed)) != NULL &&
        hws_describe(context, text, needed, NULL) < 0) {
        free(text);
        text = NULL;
    }
    return text;
}

static int collect(info_facts *facts)
{
    hws_id context;
    char *text;
    int32_t r;

    facts->library.struct_size = sizeof facts->library;
    if ((r = hws_library_open(NULL, &facts->library)) < 0) {
        return tool_failed(r, "loading UCX");
    }
    info_flags(facts);
    if ((r = hws_context_open(NULL, &context)) < 0) {
        return tool_failed(r, "opening a context");
    }
    text = describe(context);
    if (text == NULL) {
        return tool_failed(HWS_E_NO_MEMORY, "asking for the transports");
    }
    info_transports(facts, text);
    free(text);
    hws_close_wait(context, UINT64_C(5000000000));
    return TOOL_OK;
}

static void version_text(char *text, size_t size, uint32_t major, uint32_t minor, uint32_t patch)
{
    snprintf(text, size, "%u.%u.%u", major, minor, patch);
}

static void print_text(const info_facts *f)
{
    const hws_library_info *l = &f->library;

    printf("Hawser     %u.%u.%u (ABI %u)\n", l->version >> 16, l->version >> 8 & 0xff,
           l->version & 0xff, hws_abi_version());
    printf("UCX        %u.%u.%u in %s\n", l->ucx_major, l->ucx_minor, l->ucx_release, l->ucx_path);
    printf("           %s\n", l->ucx_reason);
    if (!f->flags_known) {
        puts("Built with unknown: there is no ucx_info beside this UCX");
    }
    for (int i = 0; i < INFO_FLAGS && f->flags_known; i++) {
        printf("%-10s %-16s %-3s  %s\n", i == 0 ? "Built with" : "", f->flags[i].name,
               f->flags[i].on ? "yes" : "no", f->flags[i].meaning);
    }
    printf("Keys       %s\n", l->has_sodium ? "available (libsodium)"
                                            : "not available: built "
                                              "without libsodium");
    for (uint32_t i = 0; i < f->transport_count; i++) {
        printf("%-10s %-16s %s\n", i == 0 ? "Transports" : "", f->transports[i].name,
               f->transports[i].devices);
    }
}

static json_t *flags_json(const info_facts *f)
{
    json_t *flags = f->flags_known ? json_object() : json_null();

    for (int i = 0; i < INFO_FLAGS && f->flags_known; i++) {
        json_object_set_new(flags, f->flags[i].name, json_boolean(f->flags[i].on));
    }
    return flags;
}

static json_t *transports_json(const info_facts *f)
{
    json_t *transports = json_object();

    for (uint32_t i = 0; i < f->transport_count; i++) {
        json_t *devices = json_array();
        char list[sizeof f->transports[i].devices], *rest = list, *word;

        memcpy(list, f->transports[i].devices, sizeof list);
        while ((word = strsep(&rest, ", ")) != NULL) {
            if (*word != '\0') {
                json_array_append_new(devices, json_string(word));
            }
        }
        json_object_set_new(transports, f->transports[i].name, devices);
    }
    return transports;
}

static int print_json(const info_facts *f)
{
    const hws_library_info *l = &f->library;
    char hawser[32], ucx[32];
    json_t *all;

    version_text(hawser, sizeof hawser, l->version >> 16, l->version >> 8 & 0xff,
                 l->version & 0xff);
    version_text(ucx, sizeof ucx, l->ucx_major, l->ucx_minor, l->ucx_release);
    all = json_pack("{s:s, s:i, s:b, s:{s:s, s:s, s:s, s:o}, s:o}", "hawser", hawser, "abi",
                    (int)hws_abi_version(), "keys", l->has_sodium != 0, "ucx", "version", ucx,
                    "path", l->ucx_path, "reason", l->ucx_reason, "built_with", flags_json(f),
                    "transports", transports_json(f));
    if (all == NULL) {
        tool_error("info: the JSON could not be made");
        return TOOL_FAILED;
    }
    json_dumpf(all, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    putchar('\n');
    json_decref(all);
    return TOOL_OK;
}

int tool_info(int argc, char **argv)
{
    info_facts facts = {0};
    bool json = argc == 2 && strcmp(argv[1], "--json") == 0;
    int code;

    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(help, stdout);
        return TOOL_OK;
    }
    if (argc > 1 && !json) {
        tool_error("info: unknown option %s; see `hawser info --help`",
                   argv[argc > 2 && strcmp(argv[1], "--json") == 0 ? 2 : 1]);
        return TOOL_USAGE;
    }
    code = collect(&facts);
    if (code != TOOL_OK) {
        return code;
    }
    if (json) {
        return print_json(&facts);
    }
    print_text(&facts);
    return TOOL_OK;
}
