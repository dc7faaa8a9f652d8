/*
 * UCX's headers, and what the older ones (1.13) lack of the newer ones (to 1.22).
 *
 * One binary runs on every version, whichever headers it was built with. That is sound because each
 * UCX structure starts with a field mask: an older library reads no field whose bit it does not
 * know, a newer one reads no field whose bit is clear. It is NOT sound for flags (an older library
 * ignores an unknown flag without a word, see HWS__AM_SEND_COPY_HEADER) nor for out-structures
 * without a mask. So: a newer bit is set only under hws__ucx_at_least(), never under #if.
 */
#ifndef HWS_CORE_UCX_COMPAT_H
#define HWS_CORE_UCX_COMPAT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>

#include <ucp/api/ucp.h>
#include <ucs/debug/log_def.h>

/* UCP_AM_SEND_FLAG_COPY_HEADER. Only on 1.14 and later: 1.13 ignores it and reads the header after
 * the caller may have freed it. */
#define HWS__AM_SEND_COPY_HEADER (1u << 3)

/* UCP_EP_ATTR_FIELD_TRANSPORTS and the structure that carries it. Only on 1.14 and later. The first
 * four fields are ucp_ep_attr_t's of 1.13; UCX only appends, and reads by the mask. */
#define HWS__EP_ATTR_TRANSPORTS (UINT64_C(1) << 3)

struct hws__ucp_transport {
    const char *transport_name;
    const char *device_name;
};

struct hws__ucp_ep_attr {
    uint64_t field_mask;
    char name[UCP_ENTITY_NAME_MAX];
    struct sockaddr_storage local_sockaddr;
    struct sockaddr_storage remote_sockaddr;
    struct {
        struct hws__ucp_transport *entries;
        unsigned num_entries; /* in: room, out: filled */
        size_t entry_size;
    } transports;
    void *user_data;
};

/* What 1.13's headers do not declare, by its stable binary shape: parameter structures are passed
 * as pointers and given their type where they are used. */
typedef ucs_status_t (*hws__ucp_dt_query_fn)(ucp_datatype_t datatype, void *attr);
typedef ucs_status_t (*hws__ucp_memh_pack_fn)(ucp_mem_h memh, const void *params, void **buffer,
                                              size_t *size);
typedef void (*hws__ucp_memh_buffer_release_fn)(void *buffer, const void *params);
typedef ucs_status_t (*hws__ucp_rkey_compare_fn)(ucp_worker_h worker, ucp_rkey_h rkey1,
                                                 ucp_rkey_h rkey2, const void *params, int *result);
typedef ucs_status_t (*hws__ucp_worker_get_address_fn)(ucp_worker_h worker, ucp_address_t **address,
                                                       size_t *length);

/* Of libucs and libuct, whose headers are not part of UCX's stable interface. */
typedef void (*hws__ucs_log_pop_handler_fn)(void);
typedef ucs_status_t (*hws__ucs_global_opts_set_value_fn)(const char *name, const char *value);
typedef ucs_status_t (*hws__ucs_global_opts_get_value_fn)(const char *name, char *value,
                                                          size_t max);
typedef ucs_status_t (*hws__ucs_async_remove_handler_fn)(int id, int wait);
typedef ucs_status_t (*hws__ucs_async_modify_handler_fn)(int fd, int events);
typedef void (*hws__ucs_config_parser_print_all_opts_fn)(FILE *stream, const char *prefix,
                                                         int flags, void *config_list);
typedef ucs_status_t (*hws__ucs_str_to_memunits_fn)(const char *text, void *bytes);
typedef void *hws__ucs_data;
typedef ucs_status_t (*hws__uct_query_components_fn)(void **components, unsigned *count);
typedef void (*hws__uct_release_component_list_fn)(void *components);

#endif
