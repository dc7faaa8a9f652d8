/*
 * CALL(name, kinds of id it takes, expression): every public function that takes an id, called with
 * `id` and otherwise good arguments. Included several times; no include guard on purpose.
 */
CALL(close, ANY_KIND, hws_close(id))
CALL(close_wait, ANY_KIND, hws_close_wait(id, 0))
CALL(user_set, ANY_KIND, hws_user_set(id, 1))
CALL(user_get, ANY_KIND, hws_user_get(id, &(uint64_t){0}))
CALL(kind, ANY_KIND, hws_kind(id))
CALL(worker_open, KIND_BIT(HWS_KIND_CONTEXT), hws_worker_open(id, NULL, &(hws_id){0}))
CALL(worker_progress, KIND_BIT(HWS_KIND_WORKER), hws_worker_progress(id))
CALL(worker_fd, KIND_BIT(HWS_KIND_WORKER), hws_worker_fd(id, &(int32_t){0}))
CALL(worker_arm, KIND_BIT(HWS_KIND_WORKER), hws_worker_arm(id))
CALL(worker_wait, KIND_BIT(HWS_KIND_WORKER), hws_worker_wait(id, 0))
CALL(worker_signal, KIND_BIT(HWS_KIND_WORKER), hws_worker_signal(id))
CALL(listen, KIND_BIT(HWS_KIND_WORKER), hws_listen(id, "127.0.0.1", 0, NULL, &(hws_id){0}))
CALL(accept, KIND_BIT(HWS_KIND_ENDPOINT), hws_accept(id))
CALL(reject, KIND_BIT(HWS_KIND_ENDPOINT), hws_reject(id))
CALL(listener_query, KIND_BIT(HWS_KIND_LISTENER),
     hws_listener_query(id, &(hws_listener_info){.struct_size = sizeof(hws_listener_info)}))
CALL(connect, KIND_BIT(HWS_KIND_WORKER),
     hws_connect(id, "127.0.0.1", 1, NULL, NULL, &(hws_id){0}, &(hws_id){0}))
CALL(abort, KIND_BIT(HWS_KIND_ENDPOINT), hws_abort(id))
CALL(endpoint_query, KIND_BIT(HWS_KIND_ENDPOINT),
     hws_endpoint_query(id, &(hws_endpoint_info){.struct_size = sizeof(hws_endpoint_info)}))
CALL(cancel, KIND_BIT(HWS_KIND_OP), hws_cancel(id))
CALL(wait, KIND_BIT(HWS_KIND_OP), hws_wait(id, 0, NULL))
CALL(queue_fd, KIND_BIT(HWS_KIND_QUEUE), hws_queue_fd(id, &(int32_t){0}))
CALL(queue_pop, KIND_BIT(HWS_KIND_QUEUE), hws_queue_pop(id, &(hws_event){0}, 1, 0))
CALL(flush, KIND_BIT(HWS_KIND_WORKER) | KIND_BIT(HWS_KIND_ENDPOINT),
     hws_flush(id, NULL, &(hws_id){0}))
CALL(task, KIND_BIT(HWS_KIND_WORKER), hws_task(id, no_task, NULL, 0, NULL, &(hws_id){0}))
CALL(tag_send, KIND_BIT(HWS_KIND_ENDPOINT), hws_tag_send(id, buffer, 8, 1, NULL, &(hws_id){0}))
CALL(tag_send_sync, KIND_BIT(HWS_KIND_ENDPOINT),
     hws_tag_send_sync(id, buffer, 8, 1, NULL, &(hws_id){0}))
CALL(tag_recv, KIND_BIT(HWS_KIND_WORKER) | KIND_BIT(HWS_KIND_ENDPOINT),
     hws_tag_recv(id, buffer, 8, 1, UINT64_MAX, NULL, &(hws_id){0}))
CALL(tag_probe, KIND_BIT(HWS_KIND_WORKER) | KIND_BIT(HWS_KIND_ENDPOINT),
     hws_tag_probe(id, 1, UINT64_MAX, NULL, NULL))
CALL(message_recv, KIND_BIT(HWS_KIND_MESSAGE), hws_message_recv(id, buffer, 8, NULL, &(hws_id){0}))
CALL(message_return, KIND_BIT(HWS_KIND_MESSAGE), hws_message_return(id))
CALL(tag_return, KIND_BIT(HWS_KIND_WORKER) | KIND_BIT(HWS_KIND_ENDPOINT),
     hws_tag_return(id, buffer, 8, 1))
CALL(stream_return, KIND_BIT(HWS_KIND_ENDPOINT), hws_stream_return(id, buffer, 8))
CALL(multi_return, KIND_BIT(HWS_KIND_BUFFER), hws_multi_return(id))
CALL(segments_return, KIND_BIT(HWS_KIND_ENDPOINT),
     hws_segments_return(id, 1, &(hws_segment){.base = buffer, .length = 8}, 1))
CALL(stream_send, KIND_BIT(HWS_KIND_ENDPOINT), hws_stream_send(id, buffer, 8, NULL, &(hws_id){0}))
CALL(stream_recv, KIND_BIT(HWS_KIND_ENDPOINT), hws_stream_recv(id, buffer, 8, NULL, &(hws_id){0}))
CALL(worker_address, KIND_BIT(HWS_KIND_WORKER), hws_worker_address(id, 0, NULL, 0, NULL))
CALL(blob_pack, KIND_BIT(HWS_KIND_WORKER), hws_blob_pack(id, 0, NULL, 0, NULL, 0, NULL))
CALL(connect_address, KIND_BIT(HWS_KIND_WORKER),
     hws_connect_address(id, buffer, 8, NULL, NULL, &(hws_id){0}, &(hws_id){0}))
CALL(multi_send, KIND_BIT(HWS_KIND_ENDPOINT),
     hws_multi_send(id, 1, &(hws_segment){.base = buffer, .length = 8}, 1, NULL, NULL,
                    &(hws_id){0}))
CALL(multi_recv, KIND_BIT(HWS_KIND_WORKER) | KIND_BIT(HWS_KIND_ENDPOINT),
     hws_multi_recv(id, 1, UINT64_MAX, NULL, NULL, &(hws_id){0}))
CALL(multi_fetch, KIND_BIT(HWS_KIND_BUFFER),
     hws_multi_fetch(id, &(hws_segment){.base = buffer, .length = 8}, 1, NULL, &(hws_id){0}))
CALL(am_handler, KIND_BIT(HWS_KIND_WORKER),
     hws_am_handler(id, 1, &(hws_am_opts){.struct_size = sizeof(hws_am_opts)}))
CALL(am_send, KIND_BIT(HWS_KIND_ENDPOINT),
     hws_am_send(id, 1, NULL, 0, buffer, 8, NULL, &(hws_id){0}))
CALL(am_recv, KIND_BIT(HWS_KIND_BUFFER), hws_am_recv(id, buffer, 8, NULL, &(hws_id){0}))
CALL(am_header_max, KIND_BIT(HWS_KIND_WORKER), hws_am_header_max(id, &(uint64_t){0}))
CALL(buffer_taken, KIND_BIT(HWS_KIND_BUFFER), hws_buffer_taken(id))
CALL(buffer_data, KIND_BIT(HWS_KIND_BUFFER), hws_buffer_data(id, NULL, NULL))
CALL(describe, KIND_BIT(HWS_KIND_CONTEXT) | KIND_BIT(HWS_KIND_WORKER) | KIND_BIT(HWS_KIND_ENDPOINT),
     hws_describe(id, NULL, 0, NULL))
CALL(stats_get,
     KIND_BIT(HWS_KIND_CONTEXT) | KIND_BIT(HWS_KIND_WORKER) | KIND_BIT(HWS_KIND_ENDPOINT),
     hws_stats_get(id, &(hws_stats){.struct_size = sizeof(hws_stats)}))
CALL(latency_get, KIND_BIT(HWS_KIND_WORKER),
     hws_latency_get(id, HWS_EVENT_PUT, &(hws_latency){.struct_size = sizeof(hws_latency)}))
CALL(mem_register, KIND_BIT(HWS_KIND_CONTEXT), hws_mem_register(id, buffer, 8, NULL, &(hws_id){0}))
CALL(mem_alloc, KIND_BIT(HWS_KIND_CONTEXT), hws_mem_alloc(id, 8, NULL, &(hws_id){0}))
CALL(mem_query, KIND_BIT(HWS_KIND_MEMORY),
     hws_mem_query(id, &(hws_mem_info){.struct_size = sizeof(hws_mem_info)}))
CALL(mem_advise, KIND_BIT(HWS_KIND_MEMORY), hws_mem_advise(id, 0, 1, HWS_MEM_ADVISE_NORMAL))
CALL(rkey_pack, KIND_BIT(HWS_KIND_MEMORY), hws_rkey_pack(id, 0, NULL, 0, &(uint64_t){0}))
CALL(rkey_unpack, KIND_BIT(HWS_KIND_ENDPOINT), hws_rkey_unpack(id, buffer, 8, 0, &(hws_id){0}))
CALL(rkey_query, KIND_BIT(HWS_KIND_RKEY),
     hws_rkey_query(id, &(hws_rkey_info){.struct_size = sizeof(hws_rkey_info)}))
CALL(rkey_compare, KIND_BIT(HWS_KIND_RKEY), hws_rkey_compare(id, id, &(int32_t){0}))
CALL(rkey_ptr, KIND_BIT(HWS_KIND_RKEY), hws_rkey_ptr(id, 0, &(void *){0}))
CALL(put, KIND_BIT(HWS_KIND_RKEY), hws_put(id, 0, buffer, 8, NULL, &(hws_id){0}))
CALL(get, KIND_BIT(HWS_KIND_RKEY), hws_get(id, 0, buffer, 8, NULL, &(hws_id){0}))
CALL(atomic, KIND_BIT(HWS_KIND_RKEY),
     hws_atomic(id, 0, HWS_ATOMIC_ADD, 8, 1, 0, NULL, NULL, &(hws_id){0}))
CALL(fence, KIND_BIT(HWS_KIND_WORKER) | KIND_BIT(HWS_KIND_ENDPOINT), hws_fence(id))
CALL(put_notify, KIND_BIT(HWS_KIND_RKEY), hws_put_notify(id, 0, buffer, 8, 1, NULL, &(hws_id){0}))
CALL(plan_open, KIND_BIT(HWS_KIND_ENDPOINT),
     hws_plan_open(id, (hws_transfer[1]){{0}}, 1, &(hws_id){0}))
CALL(plan_post, KIND_BIT(HWS_KIND_PLAN), hws_plan_post(id, NULL, &(hws_id){0}))
