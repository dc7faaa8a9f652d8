//! One object of each kind that an id can name, and ids of objects that are gone.

use hawser_sys::*;
use std::collections::HashMap;
use std::ffi::{c_void, CStr};
use std::ptr::{null, null_mut};

pub type Ids = HashMap<String, hws_id>;

const PATIENCE_NS: u64 = 20_000_000_000;

/// The last error of this thread: its code and its text.
pub fn last_error() -> (i32, String) {
    let mut last = hws_error::default();
    // SAFETY: a structure of the size that it says; the library ends its text with a NUL.
    unsafe {
        assert_eq!(hws_last_error(&mut last), 0);
        let text = CStr::from_ptr(last.text.as_ptr());
        (last.code, text.to_string_lossy().into_owned())
    }
}

#[track_caller]
pub fn check(code: i32) -> i32 {
    assert!(code >= 0, "{code}: {:?}", last_error());
    code
}

/// The id that a call fills in.
#[track_caller]
fn filled(call: impl FnOnce(*mut hws_id) -> i32) -> hws_id {
    let mut id = 0;
    check(call(&mut id));
    id
}

/// Events that were popped and not taken.
struct Events {
    queue: hws_id,
    seen: Vec<hws_event>,
}

impl Events {
    fn take(&mut self, kind: u32) -> hws_event {
        loop {
            if let Some(at) = self.seen.iter().position(|event| event.kind == kind) {
                return self.seen.remove(at);
            }
            let mut event = hws_event::default();
            // SAFETY: room for one event.
            let count = check(unsafe { hws_queue_pop(self.queue, &mut event, 1, PATIENCE_NS) });
            assert_eq!((count, event.status), (1, 0), "waiting for an event of kind {kind}");
            self.seen.push(event);
        }
    }
}

/// Two connected endpoints of one worker: the ids of what that took, and the client's endpoint.
///
/// # Safety
/// As for every function of the library: the structures that are given live during the call.
unsafe fn connected(queue: hws_id) -> (Ids, hws_id, Events) {
    let sink = hws_sink { queue, ..Default::default() };
    let context = hws_context_opts { features: 31, ..Default::default() };
    let context = filled(|out| hws_context_open(&context, out));
    let worker = hws_worker_opts { sink, ..Default::default() };
    let worker = filled(|out| hws_worker_open(context, &worker, out));
    let listener = hws_listener_opts { sink, endpoint_sink: sink, ..Default::default() };
    let listener = filled(|out| hws_listen(worker, c"127.0.0.1".as_ptr(), 0, &listener, out));
    let mut info = hws_listener_info::default();
    check(hws_listener_query(listener, &mut info));
    let told = hws_op_opts { queue, ..Default::default() };
    let port = info.port as u16;
    let client =
        filled(|out| hws_connect(worker, c"127.0.0.1".as_ptr(), port, null(), &told, out, null_mut()));
    let mut events = Events { queue, seen: Vec::new() };
    events.take(HWS_EVENT_CONNECT);
    let endpoint = events.take(HWS_EVENT_ACCEPTED).source;
    let ids = [("context", context), ("worker", worker), ("listener", listener), ("endpoint", endpoint)];
    (ids.map(|(kind, id)| (kind.to_owned(), id)).into(), client, events)
}

/// One living object of each kind.
pub fn open_each() -> Ids {
    // SAFETY: all memory that an operation goes on using, after the call, is static or leaked.
    unsafe {
        let (mut ids, client, mut events) = connected(filled(|out| hws_queue_open(null(), out)));
        let (context, worker, endpoint) = (ids["context"], ids["worker"], ids["endpoint"]);
        let sink = hws_sink { queue: events.queue, ..Default::default() };
        let detached = hws_op_opts { flags: HWS_OP_DETACHED, ..Default::default() };
        let room: *mut c_void = Box::leak(Box::new([0u8; 8])).as_mut_ptr().cast();
        let op = filled(|out| hws_tag_recv(endpoint, room, 8, 99, u64::MAX, null(), out));
        let text: *const c_void = c"message".as_ptr().cast();
        check(hws_tag_send(client, text, 8, 1, &detached, null_mut()));
        let mut message = 0;
        while hws_tag_probe(endpoint, 1, u64::MAX, null_mut(), &mut message) != 0 {
            check(hws_worker_progress(worker));
        }
        let handler = hws_am_opts { sink, ..Default::default() };
        check(hws_am_handler(worker, 1, &handler));
        check(hws_am_send(client, 1, text, 1, text, 4, &detached, null_mut()));
        let arrived = events.take(HWS_EVENT_AM).detail.cast::<hws_am_detail>();
        let memory = filled(|out| hws_mem_alloc(context, 4096, null(), out));
        let (mut packed, mut needed) = ([0u8; 4096], 0);
        check(hws_rkey_pack(memory, 0, packed.as_mut_ptr().cast(), 4096, &mut needed));
        let rkey = filled(|out| hws_rkey_unpack(endpoint, packed.as_ptr().cast(), needed, 0, out));
        let mut info = hws_mem_info::default();
        check(hws_mem_query(memory, &mut info));
        let nothing =
            hws_transfer { kind: HWS_EVENT_GET, rkey, address: info.base as u64, ..Default::default() };
        let plan = filled(|out| hws_plan_open(endpoint, &nothing, 1, out));
        let queue = filled(|out| hws_queue_open(null(), out));
        let buffer = (*arrived).buffer;
        for (kind, id) in [
            ("op", op),
            ("message", message),
            ("buffer", buffer),
            ("memory", memory),
            ("rkey", rkey),
            ("queue", queue),
            ("plan", plan),
        ] {
            ids.insert(kind.to_owned(), id);
        }
        ids
    }
}

/// Ends everything of a context.
pub fn close(context: hws_id) {
    // SAFETY: an id, whatever it names.
    check(unsafe { hws_close_wait(context, PATIENCE_NS) });
}

/// Living objects under the names of their kinds, those that are gone as "stale KIND", and ids that were never given.
pub fn open() -> Ids {
    let gone = open_each();
    // SAFETY: ids, and no place for the event.
    unsafe {
        check(hws_cancel(gone["op"]));
        assert_eq!(hws_wait(gone["op"], PATIENCE_NS, null_mut()), HWS_E_CANCELED);
        for kind in ["message", "buffer", "queue"] {
            check(hws_close(gone[kind]));
        }
    }
    close(gone["context"]);
    let mut ids = open_each();
    ids.extend(gone.into_iter().map(|(kind, id)| (format!("stale {kind}"), id)));
    ids.extend([("zero".to_owned(), 0), ("random".to_owned(), (1 << 53) - 1)]);
    ids
}
