#include "ucx_refuse.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include "error.h"
#include "ucx_config.h"
#include "ucx_find.h"
#include "ucx_loader.h"
#include "ucx_tls.h"

#define MANAGERS "SOCKADDR_TLS_PRIORITY"
#define PROTOCOLS "PROTO_ENABLE"

/* Whether UCX finds a connection manager that works here. Those of RDMA are there without a device, too. */
static bool has_manager(const char *list)
{
    return list[0] != '^' && (hws__tls_names(list, "tcp") || hws__tls_names(list, "*") ||
                              (hws__rdma_present() && hws__tls_names(list, "rdmacm")));
}

/* As UCX reads its switches. */
static bool is_off(const char *value)
{
    return strcasecmp(value, "n") == 0 || strcasecmp(value, "no") == 0 ||
           strcasecmp(value, "off") == 0 || strcmp(value, "0") == 0;
}

int32_t hws__ucx_refuse(const char *const *pairs)
{
    const char *managers = hws__ucx_config_user(MANAGERS, pairs);
    const char *protocols = hws__ucx_config_user(PROTOCOLS, pairs);

    /* UCX asks a listener or an endpoint for its manager, and there is none. */
    if (managers != NULL && !has_manager(managers)) {
        return hws__fail(HWS_E_CONFIG, 0,
                         "UCX_" MANAGERS " '%s' leaves no way to connect: it needs tcp%s", managers,
                         hws__rdma_present() ? " or rdmacm"
                                             : ", since this machine has no RDMA device");
    }
    /* They are unfinished there: an endpoint that gets other lanes by its connection is an assertion. */
    if (protocols != NULL && !is_off(protocols) && !hws__ucx_at_least(1, 14) &&
        !hws__rdma_present()) {
        return hws__fail(HWS_E_CONFIG, 0,
                         "UCX_" PROTOCOLS " '%s': UCX %d.%d cannot connect by its newer protocols",
                         protocols, hws__ucx.major, hws__ucx.minor);
    }
    return HWS_OK;
}
