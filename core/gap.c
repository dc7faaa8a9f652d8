#include "gap.h"
#include "credit_wire.h"
#include "error.h"
#include "ucx_loader.h"

void hws__gap_tell(struct hws__endpoint *ep)
{
    ep->gap.untold = false;
    hws__credit_tell(ep, HWS__SAY_LONG, 0, ep->gap.sent, 0);
}

void hws__gap_told(struct hws__endpoint *ep, uint64_t count)
{
    if (count != ep->gap.received) {
        (void)hws__gap_ends(ep);
    }
}

bool hws__gap_ends(struct hws__endpoint *ep)
{
    if (ep->ucx_status == UCS_OK) {
        return false;
    }
    ep->hello_done = false;
    hws__endpoint_gone(ep);
    return true;
}
