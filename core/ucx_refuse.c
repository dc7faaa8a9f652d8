#include "ucx_refuse.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include "error.h"
#include "ucx_config.h"
#include "ucx_find.h"
#include "ucx_loader.h"

#define MANAGERS "SOCKADDR_TLS_PRIORITY"
#define PROTOCOLS "PROTO_ENABLE"

static bool among(const char *name, size_t length, const char *const *names)
{
    for (; *names != NULL; names++) {
        if (strlen(*names) == length && strncasecmp(name, *names, length) == 0) {
            return true;
        }
    }
    return false;
}

/* Whether UCX finds a connection manager that works here. Those of RDMA are there without a device, too. */
static bool has_manager(const char *list)
{
    const char *const with_rdma[] = {"tcp", "*", "all", "rdmacm", NULL};
    const char *const without[] = {"tcp", "*", "all", NULL};
    const char *const *usable = hws__rdma_present() ? with_rdma : without;

    for (const char *at = list; *at != '\0'; at += *at == ',') {
        size_t length = strcspn(at, ",");

        if (among(at, length, usable)) {
            return true;
        }
        at += length;
    }
    return false;
}

int32_t hws__ucx_refuse(const char *const *pairs)
{
    const char *const no[] = {"n", "no", "off", "0", NULL};
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
    if (protocols != NULL && !among(protocols, strlen(protocols), no) &&
        !hws__ucx_at_least(1, 14) && !hws__rdma_present()) {
        return hws__fail(HWS_E_CONFIG, 0,
                         "UCX_" PROTOCOLS " '%s': UCX %d.%d cannot connect by its newer protocols",
                         protocols, hws__ucx.major, hws__ucx.minor);
    }
    return HWS_OK;
}
