/*
 * Tagged messages looked at, or taken, before they are received.
 */
#include "error.h"
#include "guard.h"
#include "options.h"
#include "post.h"
#include "progress.h"
#include "raw.h"
#include "tag.h"

int32_t hws_tag_probe(hws_id source, uint64_t tag, uint64_t mask, hws_message_info *info,
                      hws_id *message)
{
    struct hws__post p = {.source = source};
    struct hws__message *m;
    hws_message_info out = {0};
    bool nested;
    int32_t r;

    HWS__ENTER();
    if ((r = hws__post_source(&p)) < 0) {
        return r;
    }
    /* A wrong size is an error whether a message is there or not. */
    if (info != NULL && (r = hws__fill(info, &out, sizeof out, "message info")) < 0) {
        return r;
    }
    if ((r = hws__own_call(p.worker, source, &nested)) < 0) {
        return r;
    }
    hws__submissions_catch_up(p.worker);
    if (atomic_load(p.ep != NULL ? &p.ep->obj.id : &p.worker->obj.id) != source) {
        hws__disown(p.worker, nested);
        return hws__id_error(&hws__objects, source, 0);
    }
    if (p.ep != NULL && p.ep->raw) {
        m = hws__raw_probe(p.ep, tag, mask);
    } else {
        m = hws__match_find(p.ep != NULL ? &p.ep->scope : &p.worker->scope, p.ep == NULL, tag,
                            mask);
        if (m == NULL && p.ep == NULL && p.worker->raw_count != 0) {
            m = hws__raw_probe_all(p.worker, tag, mask);
        }
    }
    if (m != NULL && m->coming == NULL) {
        out = (hws_message_info){.flags = m->rndv ? HWS_EVENT_FLAG_RNDV : 0,
                                 .endpoint = m->ep_id,
                                 .length = m->length,
                                 .tag = m->tag};
        if (info != NULL) {
            r = hws__fill(info, &out, sizeof out, "message info");
        }
        if (message != NULL && r == HWS_OK) {
            hws__match_unwait(m);
            *message = hws__message_publish(m);
        }
    } else {
        r = hws__fail(HWS_E_NOT_FOUND, source, "no message with this tag is waiting");
    }
    hws__disown(p.worker, nested);
    return r;
}

static int32_t message_recv_run(struct hws__post *p)
{
    struct hws__message *m = hws__obj_find(&hws__objects, p->tag);

    if (m == NULL) {
        return hws__id_error(&hws__objects, p->tag, HWS_KIND_MESSAGE);
    }
    if (p->opts->flags & HWS_OP_TAKE) {
        return hws__fail(HWS_E_INVALID, p->tag, "the message is taken already");
    }
    p->source = m->ep_id;
    return hws__message_to(p, m);
}

int32_t hws_message_recv(hws_id message, void *buffer, uint64_t length, const hws_op_opts *opts,
                         hws_id *op)
{
    struct hws__message *m;
    int32_t r = HWS_OK;
    struct hws__post p;

    HWS__ENTER();
    if ((m = hws__obj_get(message, HWS_KIND_MESSAGE, &r)) == NULL) {
        return r;
    }
    hws__post_init(&p, message_recv_run, HWS_EVENT_TAG_RECV, 0, buffer, length);
    p.tag = message;
    p.worker = m->worker;
    return hws__post(&p, opts, op);
}
