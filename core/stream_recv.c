#include "endpoint.h"
#include "error.h"
#include "guard.h"
#include "post.h"
#include "progress.h"
#include "room.h"
#include "stream.h"
#include "ucx_loader.h"
#include <stdlib.h>

static struct hws__room room_of(const struct hws__op *op)
{
    return (struct hws__room){op->buffer, op->length, op->flags, op->memory_kind};
}

static uint64_t room_bytes(const struct hws__room *r)
{
    return hws__bytes(r->buffer, r->length, r->flags);
}

void hws__stream_init(struct hws__stream *s)
{
    hws__list_init(&s->waiting);
    hws__list_init(&s->link);
}

/* hws__room_copy(). False: CUDA failed. */
static bool move(struct hws__endpoint *ep, const struct hws__room *r, uint64_t at, char *bytes,
                 uint64_t count, bool out)
{
    if (hws__room_copy(ep->worker->context, *r, at, bytes, count, out) < 0) {
        hws__endpoint_fail(ep, HWS_E_CUDA, "the bytes of a stream could not be copied");
        return false;
    }
    return true;
}

/* ---- Credit ---- */

/* The peer may send what receives wait for in full, whatever else it has sent. */
static void tell_ahead(struct hws__endpoint *ep)
{
    struct hws__stream *s = &ep->stream;
    int64_t missing = (int64_t)s->owed - s->ahead;

    if (missing > 0) {
        s->ahead += missing;
        hws__credit_took_bytes(ep, (uint64_t)missing);
    }
}

/* Bytes were taken from UCX; `owed`: by a receive that waits for all of its. */
static void took(struct hws__endpoint *ep, uint64_t bytes, bool owed)
{
    struct hws__stream *s = &ep->stream;

    ep->traffic.in[HWS_TRAFFIC_STREAM].bytes += bytes;
    s->ahead -= (int64_t)bytes;
    s->owed -= owed ? bytes : 0;
    tell_ahead(ep);
}

/* ---- Pieces ---- */

static void release_piece(struct hws__endpoint *ep)
{
    struct hws__stream *s = &ep->stream;

    if (s->piece == NULL) {
        return;
    }
    if (s->returned) {
        free(s->piece);
    } else {
        hws__ucx.ucp_stream_data_release(ep->ucx, s->piece);
    }
    s->piece = NULL;
}

static bool next_piece(struct hws__endpoint *ep)
{
    struct hws__stream *s = &ep->stream;
    ucs_status_ptr_t p;
    size_t length = 0;

    if (s->piece != NULL) {
        return true;
    }
    p = ep->ucx == NULL ? NULL : hws__ucx.ucp_stream_recv_data_nb(ep->ucx, &length);
    if (p == NULL || UCS_PTR_IS_ERR(p)) {
        return false;
    }
    s->piece = p;
    s->length = length;
    s->taken = 0;
    s->returned = false;
    return true;
}

/* Fill the buffer from its byte `at` on, as far as there are bytes: where it is filled to. */
static uint64_t fill(struct hws__endpoint *ep, const struct hws__room *r, uint64_t at, bool owed)
{
    struct hws__stream *s = &ep->stream;
    uint64_t end = room_bytes(r);

    while (at < end && next_piece(ep)) {
        uint64_t left = s->length - s->taken, n = end - at < left ? end - at : left;
        bool returned = s->returned;

        if (!move(ep, r, at, s->piece + s->taken, n, false)) {
            break;
        }
        at += n;
        s->taken += n;
        if (s->taken == s->length) {
            release_piece(ep);
        }
        if (!returned) {
            took(ep, n, owed);
        } else if (owed) {
            s->owed -= n;
        }
    }
    return at;
}

/* The first `count` bytes of the buffer come next again. There is no piece: they were all there was. */
static void give_back(struct hws__endpoint *ep, const struct hws__room *r, uint64_t count)
{
    struct hws__stream *s = &ep->stream;

    if (count == 0) {
        return;
    }
    if ((s->piece = malloc(count)) == NULL) {
        hws__endpoint_fail(ep, HWS_E_NO_MEMORY, "no memory for bytes that a receive gives back");
        return;
    }
    s->length = count;
    s->taken = 0;
    s->returned = true;
    move(ep, r, 0, s->piece, count, true);
}

/* With an error of the connection, which follows as the peer leaves, UCX drops what nobody has taken. */
void hws__stream_keep(struct hws__endpoint *ep)
{
    struct hws__stream *s = &ep->stream;
    uint64_t length = 0;
    char *kept = NULL;

    if ((ep->worker->context->features & HWS_FEATURE_STREAM) == 0) {
        return;
    }
    while (next_piece(ep)) {
        uint64_t left = s->length - s->taken;
        char *more = realloc(kept, length + left);

        if (more == NULL) {
            free(kept);
            hws__endpoint_fail(ep, HWS_E_NO_MEMORY, "no memory for the rest of a stream");
            return;
        }
        kept = more;
        memcpy(kept + length, s->piece + s->taken, left);
        length += left;
        ep->traffic.in[HWS_TRAFFIC_STREAM].bytes += s->returned ? 0 : left;
        release_piece(ep);
    }
    s->piece = kept;
    s->length = length;
    s->taken = 0;
    s->returned = true;
}

void hws__stream_detach(struct hws__endpoint *ep)
{
    if (!ep->stream.returned) {
        release_piece(ep);
    }
    hws__list_remove(&ep->stream.link);
}

void hws__stream_forget(struct hws__endpoint *ep)
{
    release_piece(ep);
}

/* ---- Receives that wait ---- */

static bool waits_for_all(const struct hws__op *op)
{
    return (atomic_load_explicit(&op->flags, memory_order_relaxed) & HWS_OP_WAIT_ALL) != 0;
}

static void wait_for_bytes(struct hws__endpoint *ep, struct hws__op *op, uint64_t have)
{
    struct hws__stream *s = &ep->stream;
    struct hws__room r = room_of(op);

    op->done_length = have;
    op->done_tag = 0;
    op->stage = HWS__STAGE_READING;
    if (hws__list_empty(&s->waiting)) {
        hws__list_append(&ep->uworker->readers, &s->link);
    }
    hws__list_append(&s->waiting, &op->match);
    if (waits_for_all(op)) {
        s->owed += room_bytes(&r) - have;
        tell_ahead(ep);
    }
    hws__uworker_heat(ep->uworker);
}

void hws__stream_unwait(struct hws__op *op)
{
    struct hws__stream *s = &op->ep->stream;
    struct hws__room r = room_of(op);

    hws__list_remove(&op->match);
    if (hws__list_empty(&s->waiting)) {
        hws__list_remove(&s->link);
    }
    if (waits_for_all(op)) {
        s->owed -= room_bytes(&r) - op->done_length;
    }
}

void hws__stream_read(struct hws__endpoint *ep)
{
    struct hws__stream *s = &ep->stream;

    while (!hws__list_empty(&s->waiting)) {
        struct hws__op *op = hws__container(s->waiting.next, struct hws__op, match);
        struct hws__room r = room_of(op);
        bool all = waits_for_all(op);

        op->done_length = fill(ep, &r, op->done_length, all);
        if (all ? op->done_length < room_bytes(&r) : op->done_length == 0) {
            return;
        }
        ep->traffic.in[HWS_TRAFFIC_STREAM].count++;
        hws__op_finish(op, HWS_OK);
    }
}

void hws__streams_read(struct hws__uworker *u)
{
    ucp_stream_poll_ep_t ready[32];
    ssize_t n;

    if (u->only != NULL) {
        hws__stream_read(u->only);
        return;
    }
    do {
        n = hws__ucx.ucp_stream_worker_poll(u->ucx, ready, 32, 0);
        for (ssize_t i = 0; i < n; i++) {
            struct hws__endpoint *ep = hws__uworker_ep_lookup(u, ready[i].ep);

            if (ep != NULL) {
                hws__stream_read(ep);
            }
        }
    } while (n == 32);
}

/* Its bytes are the next one's. */
static void end_without(struct hws__op *op, int32_t code)
{
    struct hws__room r = room_of(op);
    uint64_t have = op->done_length;

    op->stage = HWS__STAGE_OWN;
    hws__stream_unwait(op);
    op->done_length = 0;
    give_back(op->ep, &r, have);
    hws__op_finish(op, code);
}

void hws__stream_end_early(struct hws__op *op, int32_t code)
{
    struct hws__endpoint *ep = op->ep;

    end_without(op, code);
    hws__stream_read(ep);
}

void hws__stream_end_all(struct hws__endpoint *ep, int32_t code)
{
    struct hws__list *waiting = &ep->stream.waiting;

    if (ep->peer_closed) {
        hws__stream_read(ep); /* the last bytes may have come with the goodbye */
    }
    while (!hws__list_empty(waiting)) {
        end_without(hws__container(waiting->next, struct hws__op, match), code);
    }
}

/* ---- Returning ---- */

/* What a receive that waits has so far. False: CUDA failed. */
static bool take_back(struct hws__endpoint *ep, struct hws__op *op, char *to)
{
    struct hws__room r = room_of(op);

    if (op->done_length != 0 && !move(ep, &r, 0, to, op->done_length, true)) {
        return false;
    }
    ep->stream.owed += waits_for_all(op) ? op->done_length : 0;
    op->done_length = 0;
    return true;
}

/* Behind the returned bytes come those that the first receive has, or, if none waits, the rest of the piece. */
int32_t hws__stream_return(struct hws__endpoint *ep, const void *bytes, uint64_t length)
{
    struct hws__stream *s = &ep->stream;
    struct hws__op *op = hws__list_empty(&s->waiting)
                             ? NULL
                             : hws__container(s->waiting.next, struct hws__op, match);
    uint64_t left = s->piece != NULL ? s->length - s->taken : 0;
    uint64_t more = op != NULL ? op->done_length : left;
    char *piece = malloc(length + more);

    if (piece == NULL) {
        return hws__fail(HWS_E_NO_MEMORY, ep->obj.id, "no memory for bytes that are given back");
    }
    memcpy(piece, bytes, length);
    if (op != NULL && !take_back(ep, op, piece + length)) {
        free(piece);
        return hws__fail(HWS_E_CUDA, ep->obj.id, "the bytes of a stream could not be copied");
    }
    if (left != 0) {
        memcpy(piece + length, s->piece + s->taken, left);
        if (!s->returned) {
            took(ep, left, false);
        }
    }
    release_piece(ep);
    s->piece = piece;
    s->length = length + more;
    s->taken = 0;
    s->returned = true;
    hws__stream_read(ep);
    return HWS_OK;
}

/* ---- Posting ---- */

bool hws__stream_readable(const struct hws__endpoint *ep)
{
    return ep->open || (ep->peer_closed && !ep->failed && !ep->closing);
}

static int32_t recv_run(struct hws__post *p)
{
    struct hws__endpoint *ep = p->ep;
    struct hws__room r = {p->buffer, p->length, p->opts->flags, p->opts->memory_kind};
    uint64_t bytes = room_bytes(&r), have = 0;
    struct hws__op *op;

    if (!hws__stream_readable(ep)) {
        return hws__endpoint_refuse(ep, p->source);
    }
    if (bytes == 0) {
        return HWS_DONE;
    }
    if (hws__op_next(p) == NULL) {
        return HWS_E_TOO_MANY;
    }
    if (hws__list_empty(&ep->stream.waiting)) {
        have = fill(ep, &r, 0, false);
    }
    if (p->opts->flags & HWS_OP_WAIT_ALL ? have == bytes : have != 0) {
        ep->traffic.in[HWS_TRAFFIC_STREAM].count++;
        p->done_length = have;
        return HWS_DONE;
    }
    if (!ep->open) {
        give_back(ep, &r, have); /* nothing more will come: a shorter receive may have them */
        return hws__endpoint_refuse(ep, p->source);
    }
    op = hws__op_take(p);
    op->buffer = hws__op_buffer(p, op);
    op->memory_kind = p->opts->memory_kind;
    wait_for_bytes(ep, op, have);
    return HWS_OK;
}

int32_t hws_stream_recv(hws_id endpoint, void *buffer, uint64_t length, const hws_op_opts *opts,
                        hws_id *op)
{
    struct hws__post p;
    int32_t r;

    HWS__ENTER();
    hws__post_init(&p, recv_run, HWS_EVENT_STREAM_RECV, endpoint, buffer, length);
    if ((r = hws__post_endpoint(&p)) < 0) {
        return r;
    }
    return hws__post(&p, opts, op);
}
