#include "support/tag.h"

hws_id t_tag_send(hws_id endpoint, const void *buffer, uint64_t length, uint64_t tag)
{
    hws_id op = 0;

    CHECK_OK(hws_tag_send(endpoint, buffer, length, tag, NULL, &op));
    CHECK(op != 0);
    return op;
}

hws_id t_tag_recv(hws_id source, void *buffer, uint64_t length, uint64_t tag, uint64_t mask)
{
    hws_id op = 0;

    CHECK_OK(hws_tag_recv(source, buffer, length, tag, mask, NULL, &op));
    CHECK(op != 0);
    return op;
}

void t_tag_arrived(t_pair *pair, hws_id source, uint64_t tag)
{
    UNTIL(pair, hws_tag_probe(source, tag, UINT64_MAX, NULL, NULL) == HWS_OK);
}

void t_tag_send_number(t_pair *pair, hws_id from, uint64_t tag, uint64_t value)
{
    hws_id op = t_tag_send(from, &value, 8, tag);

    WAIT_OK(pair, op);
}

uint64_t t_tag_take_number(t_pair *pair, hws_id source, uint64_t tag, uint64_t mask)
{
    uint64_t value = UINT64_MAX;

    CHECK_EQ(WAIT_OK(pair, t_tag_recv(source, &value, 8, tag, mask)).length, 8);
    return value;
}
