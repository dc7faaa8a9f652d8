#include "credit.h"
#include "error.h"
#include "guard.h"
#include "message.h"
#include "progress.h"
#include "worker.h"

/* Memory of the pool, as a buffer of the user. Owner only. */
static struct hws__message *from_pool(struct hws__worker *w, uint64_t length)
{
    struct hws__message *m = hws__message_take(w, HWS_KIND_BUFFER);

    if (m == NULL) {
        return NULL;
    }
    if ((m->memory = hws__pool_take(&w->pool, length)) == NULL) {
        hws__message_release(m);
        return NULL;
    }
    m->data = m->memory;
    m->length = m->stored = length;
    return m;
}

int32_t hws_buffer_alloc(hws_id worker, uint64_t length, void **data, hws_id *out)
{
    struct hws__message *m = NULL;
    struct hws__worker *w;
    int32_t r = HWS_OK;
    bool nested, closed;

    HWS__ENTER();
    if ((w = hws__worker_find(worker, &r)) == NULL) {
        return r;
    }
    if (out == NULL) {
        return hws__fail(HWS_E_INVALID, worker, "out is null");
    }
    if ((r = hws__own_call(w, worker, &nested)) < 0) {
        return r;
    }
    closed = atomic_load(&w->obj.id) != worker || w->closing;
    if (!closed && (m = from_pool(w, length)) != NULL) {
        *out = hws__message_publish(m);
        if (data != NULL) {
            *data = m->memory;
        }
    }
    hws__disown(w, nested);
    if (closed) {
        return hws__fail(HWS_E_CLOSING, worker, "the worker is closing");
    }
    return m != NULL ? HWS_OK
                     : hws__fail(HWS_E_NO_MEMORY, worker, "a buffer of %llu bytes",
                                 (unsigned long long)length);
}

int32_t hws_buffer_data(hws_id buffer, void **data, uint64_t *length)
{
    struct hws__message *m;
    int32_t r = HWS_OK;
    uint64_t bytes;
    void *at;

    HWS__ENTER();
    if ((m = hws__obj_get(buffer, HWS_KIND_BUFFER, &r)) == NULL) {
        return r;
    }
    at = (void *)(uintptr_t)m->data;
    bytes = m->length;
    if (!hws__obj_is_still(&m->obj, buffer)) {
        return hws__id_error(&hws__objects, buffer, HWS_KIND_BUFFER);
    }
    if (data != NULL) {
        *data = at;
    }
    if (length != NULL) {
        *length = bytes;
    }
    return HWS_OK;
}

int32_t hws_buffer_taken(hws_id buffer)
{
    struct hws__message *m;
    int32_t r = HWS_OK;

    HWS__ENTER();
    if ((m = hws__obj_get(buffer, HWS_KIND_BUFFER, &r)) == NULL) {
        return r;
    }
    hws__credit_buffer_taken(m);
    return HWS_OK;
}
