#include "lanes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "ucx_loader.h"

static const struct {
    const char *prefix;
    unsigned flag;
} transports[] = {
    {"posix", HWS__LANE_SHM}, {"sysv", HWS__LANE_SHM},      {"xpmem", HWS__LANE_SHM},
    {"cma", HWS__LANE_SHM},   {"knem", HWS__LANE_SHM},      {"tcp", HWS__LANE_TCP},
    {"self", HWS__LANE_SELF}, {"rc_", HWS__LANE_RDMA},      {"dc_", HWS__LANE_RDMA},
    {"ud_", HWS__LANE_RDMA},  {"rc", HWS__LANE_RDMA},       {"dc", HWS__LANE_RDMA},
    {"ud", HWS__LANE_RDMA},   {"srd", HWS__LANE_RDMA},      {"ugni", HWS__LANE_RDMA},
    {"cuda", HWS__LANE_CUDA}, {"gdr_copy", HWS__LANE_CUDA}, {"rocm", HWS__LANE_CUDA},
    {"gga", HWS__LANE_RDMA},  {"gdaki", HWS__LANE_RDMA},    {"ze_", HWS__LANE_CUDA},
};

static unsigned flag_of(const char *name)
{
    for (size_t i = 0; i < sizeof(transports) / sizeof(transports[0]); i++)
        if (strncmp(name, transports[i].prefix, strlen(transports[i].prefix)) == 0)
            return transports[i].flag;
    return HWS__LANE_OTHER;
}

struct lane_list {
    char *buf;
    size_t cap;
    size_t len; /* what is needed, may pass cap */
    unsigned flags;
};

/* Whether the list has the item already; a text that was cut is looked at as far as it goes. */
static int has_item(const struct lane_list *list, const char *item)
{
    const size_t len = strlen(item);
    const char *at = list->cap > 0 ? list->buf : "";

    while (*at != '\0') {
        const size_t n = strcspn(at, ",");
        if (n == len && strncmp(at, item, len) == 0)
            return 1;
        at += n + (at[n] == ',');
    }
    return 0;
}

static void add_item(struct lane_list *list, const char *item)
{
    if (has_item(list, item))
        return;
    const char *comma = list->len > 0 ? "," : "";
    const size_t room = list->len < list->cap ? list->cap - list->len : 0;
    const int n = snprintf(room > 0 ? list->buf + list->len : NULL, room, "%s%s", comma, item);
    list->len += n > 0 ? (size_t)n : 0;
}

/* Whether the uses that end a lane's line have the word, "am" but not "am_bw#0". */
static int has_use(const char *line, size_t len, const char *use)
{
    const size_t n = strlen(use);

    for (size_t i = 1; i + n <= len; i++)
        if (line[i - 1] == ' ' && strncmp(line + i, use, n) == 0 &&
            (i + n == len || line[i + n] == ' '))
            return 1;
    return 0;
}

/* "#  lane[1]:  3:posix/memory.0 md[2]   -> md[2]/posix/sysdev[255] amo#0 am keepalive": transport
 * and device stand between the first "NUMBER:" after the lane's colon and the path number. Lanes
 * of the connection manager ("cm tcp") have no number. */
static void parse_line(const char *line, size_t len, struct lane_list *list)
{
    char item[128], copy[512];
    unsigned lane, resource, path;
    int end = 0;

    snprintf(copy, sizeof(copy), "%.*s", (int)(len < sizeof(copy) ? len : sizeof(copy) - 1), line);
    const char *at = strstr(copy, "lane[");
    if (at == NULL || sscanf(at, "lane[%u]: %u:%100[^ ] %n", &lane, &resource, item, &end) != 3)
        return;
    char *dot = strrchr(item, '.');
    if (dot != NULL && sscanf(dot, ".%u", &path) == 1)
        *dot = '\0';
    const unsigned flag = flag_of(item);
    list->flags |= flag;
    if (flag == HWS__LANE_SHM && has_use(at, strlen(at), "am"))
        list->flags |= HWS__LANE_DATA_SHM;
    add_item(list, item);
}

int32_t hws__lanes_parse(const char *text, char *buf, size_t cap, unsigned *flags)
{
    struct lane_list list = {buf, cap, 0, 0};

    if (cap > 0)
        buf[0] = '\0';
    while (*text != '\0') {
        const size_t len = strcspn(text, "\n");

        parse_line(text, len, &list);
        text += len + (text[len] == '\n');
    }
    if (flags != NULL)
        *flags = list.flags;
    return (int32_t)list.len;
}

/* Since 1.14. A shared-memory lane that moves messages is a mapped one: cma and knem only copy. */
static int32_t lanes_by_query(ucp_ep_h ep, char *buf, size_t cap, unsigned *flags)
{
    struct hws__ucp_transport entries[32];
    struct hws__ucp_ep_attr attr = {.field_mask = HWS__EP_ATTR_TRANSPORTS};
    struct lane_list list = {buf, cap, 0, 0};

    attr.transports.entries = entries;
    attr.transports.num_entries = sizeof(entries) / sizeof(entries[0]);
    attr.transports.entry_size = sizeof(entries[0]);
    const ucs_status_t status = hws__ucx.ucp_ep_query(ep, (ucp_ep_attr_t *)(void *)&attr);
    if (status != UCS_OK)
        return hws__fail_ucx(status, 0, "cannot list an endpoint's transports");
    if (cap > 0)
        buf[0] = '\0';
    for (unsigned i = 0; i < attr.transports.num_entries; i++) {
        const char *name = entries[i].transport_name;
        char item[128];

        /* The connection manager's lane has no device. */
        if (name == NULL || entries[i].device_name == NULL || entries[i].device_name[0] == '\0')
            continue;
        snprintf(item, sizeof(item), "%s/%s", name, entries[i].device_name);
        add_item(&list, item);
        list.flags |= flag_of(name);
        if (strncmp(name, "posix", 5) == 0 || strncmp(name, "sysv", 4) == 0 ||
            strncmp(name, "xpmem", 5) == 0)
            list.flags |= HWS__LANE_DATA_SHM;
    }
    if (flags != NULL)
        *flags = list.flags;
    return (int32_t)list.len;
}

static int32_t lanes_by_print(ucp_ep_h ep, char *buf, size_t cap, unsigned *flags)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    if (f == NULL)
        return hws__fail(HWS_E_NO_MEMORY, 0, "no memory to list an endpoint's transports");
    hws__ucx.ucp_ep_print_info(ep, f);
    if (fclose(f) != 0 || text == NULL) {
        free(text);
        return hws__fail(HWS_E_NO_MEMORY, 0, "no memory to list an endpoint's transports");
    }
    const int32_t len = hws__lanes_parse(text, buf, cap, flags);
    free(text);
    return len;
}

int32_t hws__ucx_ep_lanes(ucp_ep_h ep, char *buf, size_t cap, unsigned *flags)
{
    return hws__ucx_at_least(1, 14) ? lanes_by_query(ep, buf, cap, flags)
                                    : lanes_by_print(ep, buf, cap, flags);
}
