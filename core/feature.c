#include "auth.h"
#include "error.h"
#include "guard.h"
#include "ucx_loader.h"

/* Since which UCX. */
static const struct {
    const char *what;
    int major, minor;
} features[] = {
    [HWS_CAN_COPY_HEADER] = {"copying an active message's header", 1, 14},
    [HWS_CAN_IPV6] = {"IPv6", 1, 14},
    [HWS_CAN_EXPORTED_MEMORY] = {"exported memory", 1, 14},
    [HWS_CAN_RKEY_COMPARE] = {"comparing remote keys", 1, 16},
    [HWS_CAN_FAILOVER] = {"the error mode FAILOVER", 1, 21},
    [HWS_CAN_SGL_PUT] = {"a put with a list of addresses", 1, 22},
};

#define FEATURES (sizeof features / sizeof *features)

int32_t hws_query_feature(uint32_t feature)
{
    int32_t r;

    HWS__ENTER();
    if (feature == HWS_CAN_PSK) {
        return hws__auth_available() ? HWS_OK
                                     : hws__fail(HWS_E_UNSUPPORTED, 0, "built without libsodium");
    }
    if (feature == 0 || feature >= FEATURES) {
        return hws__fail(HWS_E_INVALID, 0, "feature %u", feature);
    }
    if ((r = hws__ucx_load(NULL)) < 0) {
        return r;
    }
    return hws__ucx_at_least(features[feature].major, features[feature].minor)
               ? HWS_OK
               : hws__fail(HWS_E_UNSUPPORTED, 0,
                           "not supported by this UCX: %s needs %d.%d, this is %d.%d.%d",
                           features[feature].what, features[feature].major, features[feature].minor,
                           hws__ucx.major, hws__ucx.minor, hws__ucx.release);
}
