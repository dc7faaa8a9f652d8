#include "support/am.h"

#include <string.h>

hws_id t_am_send(hws_id endpoint, uint32_t am_id, const void *header, uint64_t header_length,
                 const void *data, uint64_t length, uint32_t op_flags)
{
    hws_op_opts opts = {.struct_size = sizeof(opts), .flags = op_flags};
    hws_id op = 0;

    CHECK_OK(hws_am_send(endpoint, am_id, header, header_length, data, length, &opts, &op));
    CHECK(op != 0);
    return op;
}

void t_am_note(void *arg, const hws_event *event)
{
    t_am_seen *seen = arg;
    const hws_am_detail *detail = event->detail;

    if (event->kind != HWS_EVENT_AM) {
        return;
    }
    seen->count++;
    seen->flags = event->flags;
    seen->am_id = (uint32_t)event->tag;
    seen->status = event->status;
    seen->user = event->user;
    if (event->status < 0) {
        CHECK(event->detail != NULL && *(const char *)event->detail != '\0');
        return;
    }
    seen->source = event->source;
    seen->endpoint = detail->endpoint;
    seen->length = detail->data_length;
    seen->header_length = detail->header_length;
    seen->header_sum = t_checksum(detail->header, detail->header_length);
    seen->buffer = detail->buffer;
    CHECK_EQ(event->length, detail->data_length);
    if (event->flags & HWS_EVENT_FLAG_RNDV) {
        CHECK(detail->data == NULL);
        seen->sum = 0;
    } else {
        CHECK(detail->data != NULL || detail->data_length == 0);
        seen->sum = t_checksum(detail->data, detail->data_length);
    }
    CHECK_EQ(detail->buffer != 0, (event->flags & HWS_EVENT_FLAG_BUFFER) != 0);
}

void t_am_handle(hws_id worker, uint32_t am_id, uint32_t am_flags, t_am_seen *seen)
{
    hws_am_opts opts = {.struct_size = sizeof(opts),
                        .flags = am_flags,
                        .sink = {.callback = t_am_note, .callback_arg = seen, .user = 90 + am_id}};

    memset(seen, 0, sizeof(*seen));
    CHECK_OK(hws_am_handler(worker, am_id, &opts));
}
