/*
 * Hawser for C++17: owning ids, exceptions and futures over hawser.h, which is the manual: each
 * function here says which of the C ABI it stands on by its name.
 *
 * OWNERSHIP. Context, Worker, Listener, Endpoint, Buffer, Memory, RemoteKey and Plan own an id and
 * close it when they go; they move and do not copy. Closing is asynchronous: close_wait() where the end matters.
 *
 * FUTURES. An operation gives a Future. get() waits (making progress) and throws what went wrong;
 * ready() looks. Memory handed to an operation must outlive it. A Future that goes before its
 * operation cancels it and waits for the end, so that no memory is used after that.
 *
 * EVENTS. Handlers are std::function objects, called on the thread that makes progress. An exception
 * must not leave them: std::terminate().
 */
#ifndef HAWSER_HPP
#define HAWSER_HPP

#include <hawser.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace hawser
{

/** A failed call or operation. */
class Error : public std::runtime_error
{
  public:
    Error(int32_t code, const std::string &text) : std::runtime_error(text), code_(code)
    {
    }

    int32_t code() const noexcept
    {
        return code_;
    }
    /** "TIMED_OUT" */
    const char *name() const noexcept
    {
        return hws_error_name(code_);
    }
    /** "usage", "state", "peer", "resource", "operation" or "system" */
    std::string category() const
    {
        return hws_error_category(code_);
    }

  private:
    int32_t code_;
};

/** Throw if a call failed, with its details; else give its result. */
inline int32_t check(int32_t code)
{
    if (code >= 0) {
        return code;
    }
    hws_error e{};
    e.struct_size = sizeof e;
    hws_last_error(&e);
    throw Error(code, e.code == code && e.text[0] != '\0' ? e.text : hws_error_text(code));
}

using Nanoseconds = std::chrono::nanoseconds;

constexpr uint64_t forever = HWS_FOREVER;

namespace detail
{

template <class Opts> Opts opts()
{
    Opts o;
    std::memset(&o, 0, sizeof o);
    o.struct_size = sizeof o;
    return o;
}

/** A time that is over is none to wait. */
inline uint64_t nanoseconds(Nanoseconds t)
{
    if (t == Nanoseconds::max()) {
        return forever;
    }
    return t.count() < 0 ? 0 : static_cast<uint64_t>(t.count());
}

/** The same where 0 is no deadline. */
inline uint64_t deadline(Nanoseconds t)
{
    if (t == Nanoseconds::max()) {
        return 0;
    }
    return t.count() < 1 ? 1 : static_cast<uint64_t>(t.count());
}

/** What fill(bytes, size, &needed) writes: asked first how long it is. */
template <class Fill> std::vector<unsigned char> packed(Fill &&fill)
{
    uint64_t needed = 0;
    int32_t code = fill(nullptr, 0, &needed);

    if (code != HWS_E_TOO_BIG) {
        check(code);
    }
    std::vector<unsigned char> bytes(needed);
    check(fill(bytes.data(), bytes.size(), &needed));
    return bytes;
}

} // namespace detail

/** An id that is closed when its owner goes. */
class Handle
{
  public:
    Handle() = default;
    explicit Handle(hws_id id) noexcept : id_(id)
    {
    }
    Handle(Handle &&other) noexcept : id_(std::exchange(other.id_, 0))
    {
    }
    Handle &operator=(Handle &&other) noexcept
    {
        if (this != &other) {
            close();
            id_ = std::exchange(other.id_, 0);
        }
        return *this;
    }
    Handle(const Handle &) = delete;
    Handle &operator=(const Handle &) = delete;
    ~Handle()
    {
        close();
    }

    hws_id id() const noexcept
    {
        return id_;
    }
    explicit operator bool() const noexcept
    {
        return id_ != 0;
    }
    /** Give the id up without closing it. */
    hws_id release() noexcept
    {
        return std::exchange(id_, 0);
    }
    /** Begin to close: does not wait and does not fail. */
    void close() noexcept
    {
        if (id_ != 0) {
            (void)hws_close(std::exchange(id_, 0));
        }
    }
    /** Close and wait for the end. */
    void close_wait(Nanoseconds timeout = std::chrono::seconds(10))
    {
        int32_t code = hws_close_wait(id_, detail::nanoseconds(timeout));

        if (code != HWS_E_STALE) {
            check(code);
        }
        id_ = 0;
    }

  private:
    hws_id id_ = 0;
};

/** How an operation is to be done; see hws_op_opts. */
class Options
{
  public:
    /** Of the buffer: HWS_MEMORY_* */
    Options &memory_kind(uint32_t kind) noexcept
    {
        opts_.memory_kind = kind;
        return *this;
    }
    /** It ends with TIMED_OUT after this time. */
    Options &timeout(Nanoseconds t) noexcept
    {
        opts_.timeout_ns = detail::deadline(t);
        return *this;
    }
    /** What is sent is there when the work of this CUstream or cudaStream_t is done. */
    Options &stream(void *cuda_stream) noexcept
    {
        opts_.stream = cuda_stream;
        return flags(HWS_OP_STREAM);
    }
    /** HWS_OP_IOV, HWS_OP_EAGER, HWS_OP_RNDV, HWS_OP_DEADLINE_ABORT, HWS_OP_WAIT_ALL */
    Options &flags(uint32_t more) noexcept
    {
        opts_.flags |= more;
        return *this;
    }
    const hws_op_opts &get() const noexcept
    {
        return opts_;
    }

  private:
    hws_op_opts opts_ = detail::opts<hws_op_opts>();
};

/** The final event of an operation, without its detail. */
struct Result {
    uint64_t length = 0;
    uint64_t tag = 0; /* of an atomic operation that fetches: what was there before */
    uint32_t flags = 0;
};

/** Memory of the library: an arrived message. */
class Buffer : public Handle
{
  public:
    using Handle::Handle;

    void *data() const
    {
        void *data = nullptr;

        check(hws_buffer_data(id(), &data, nullptr));
        return data;
    }
    /** Bytes. */
    uint64_t size() const
    {
        uint64_t length = 0;

        check(hws_buffer_data(id(), nullptr, &length));
        return length;
    }
};

/** A received multi-buffer message; the segments live as long as it does. */
class MultiMessage
{
  public:
    explicit MultiMessage(const hws_event &event)
    {
        const auto *d = static_cast<const hws_multi_detail *>(event.detail);

        buffer_ = Buffer(d->buffer);
        segments_ = d->segments;
        count_ = d->count;
        total_ = d->total;
        tag_ = event.tag;
        endpoint_ = d->endpoint;
    }
    size_t size() const noexcept
    {
        return count_;
    }
    const hws_segment &operator[](size_t i) const
    {
        return segments_[i];
    }
    const hws_segment *begin() const noexcept
    {
        return segments_;
    }
    const hws_segment *end() const noexcept
    {
        return segments_ + count_;
    }
    uint64_t total() const noexcept
    {
        return total_;
    }
    uint64_t tag() const noexcept
    {
        return tag_;
    }
    /** Where it came from. */
    hws_id endpoint() const noexcept
    {
        return endpoint_;
    }

  private:
    Buffer buffer_;
    const hws_segment *segments_ = nullptr;
    size_t count_ = 0;
    uint64_t total_ = 0, tag_ = 0;
    hws_id endpoint_ = 0;
};

/** How the event of an operation becomes the value of its future. */
inline void convert(const hws_event &event, Result &out)
{
    out = Result{event.length, event.tag, event.flags};
}

inline void convert(const hws_event &event, std::optional<MultiMessage> &out)
{
    out.emplace(event);
}

/** An operation under way. `Slot` holds its value: Result, or an optional of something. */
template <class Slot> class Future
{
  public:
    /** post(opts, &op) posts the operation. */
    template <class Post> static Future make(Post &&post, const Options &options = {})
    {
        Future f;
        hws_event event;
        hws_op_opts opts = options.get();

        std::memset(&event, 0, sizeof event);
        opts.flags |= HWS_OP_INLINE;
        opts.result = &event;
        if (check(post(&opts, &f.op_)) == HWS_DONE) {
            f.op_ = 0;
            f.settle(event);
        }
        return f;
    }
    /** Post with call(args..., opts, &op), a function of the C ABI. */
    template <class Call, class... Args>
    static Future posted(const Options &options, Call call, const Args &...args)
    {
        return make([&](const hws_op_opts *o, hws_id *op) { return call(args..., o, op); },
                    options);
    }
    Future(Future &&other) noexcept
        : op_(std::exchange(other.op_, 0)), status_(other.status_), text_(std::move(other.text_)),
          value_(std::move(other.value_))
    {
    }
    Future &operator=(Future &&other) noexcept
    {
        if (this != &other) {
            abandon();
            op_ = std::exchange(other.op_, 0);
            status_ = other.status_;
            text_ = std::move(other.text_);
            value_ = std::move(other.value_);
        }
        return *this;
    }
    ~Future()
    {
        abandon();
    }

    hws_id id() const noexcept
    {
        return op_;
    }
    /** Look, making progress once. */
    bool ready()
    {
        return wait(Nanoseconds::zero());
    }
    /** Wait, making progress; false if the time is over first. */
    bool wait(Nanoseconds timeout = Nanoseconds::max())
    {
        hws_event event;
        int32_t code;

        if (op_ == 0) {
            return true;
        }
        code = hws_wait(op_, detail::nanoseconds(timeout), &event);
        if (code == HWS_E_TIMED_OUT) {
            return false;
        }
        check(code);
        op_ = 0;
        settle(event);
        return true;
    }
    /** Wait and take the value; throws what the operation ended with. */
    Slot get(Nanoseconds timeout = Nanoseconds::max())
    {
        if (!wait(timeout)) {
            throw Error(HWS_E_TIMED_OUT, "the operation goes on");
        }
        if (status_ < 0) {
            throw Error(status_, text_);
        }
        return std::move(value_);
    }
    /** Ask for the end: get() then throws CANCELED, unless the operation was faster. */
    void cancel() noexcept
    {
        if (op_ != 0) {
            (void)hws_cancel(op_);
        }
    }

  private:
    Future() = default;

    void settle(const hws_event &event)
    {
        status_ = event.status;
        if (status_ < 0) {
            text_ = event.detail != nullptr ? static_cast<const char *>(event.detail)
                                            : hws_error_text(status_);
        } else {
            convert(event, value_);
        }
    }
    void abandon() noexcept
    {
        if (op_ != 0) {
            (void)hws_cancel(op_);
            (void)hws_wait(std::exchange(op_, 0), forever, nullptr);
        }
    }

    hws_id op_ = 0;
    int32_t status_ = 0;
    std::string text_;
    Slot value_{};
};

using Operation = Future<Result>;
using MultiReceive = Future<std::optional<MultiMessage>>;

using EventHandler = std::function<void(const hws_event &)>;

namespace detail
{

inline void call(void *arg, const hws_event *event) noexcept
{
    (*static_cast<EventHandler *>(arg))(*event);
}

/** A sink that calls a handler, which its owner keeps. Empty handlers give an empty sink. */
inline hws_sink sink(EventHandler *handler)
{
    hws_sink s;

    std::memset(&s, 0, sizeof s);
    if (handler != nullptr && *handler) {
        s.callback = call;
        s.callback_arg = handler;
    }
    return s;
}

} // namespace detail

/** Receives of a worker and of an endpoint are alike. */
template <class Self> class Source
{
  public:
    Operation tag_recv(void *buffer, uint64_t length, uint64_t tag, uint64_t mask = UINT64_MAX,
                       const Options &options = {})
    {
        return Operation::posted(options, hws_tag_recv, self(), buffer, length, tag, mask);
    }
    MultiReceive multi_recv(uint64_t tag, uint64_t mask = UINT64_MAX,
                            const hws_multi_recv_opts *recv = nullptr, const Options &options = {})
    {
        return MultiReceive::posted(options, hws_multi_recv, self(), tag, mask, recv);
    }
    /** A message that has arrived and was not received. */
    std::optional<hws_message_info> tag_probe(uint64_t tag, uint64_t mask = UINT64_MAX)
    {
        auto info = detail::opts<hws_message_info>();
        int32_t code = hws_tag_probe(self(), tag, mask, &info, nullptr);

        if (code == HWS_E_NOT_FOUND) {
            return std::nullopt;
        }
        check(code);
        return info;
    }
    Operation flush(const Options &options = {})
    {
        return Operation::posted(options, hws_flush, self());
    }
    /** Operations on remote memory posted later take effect after those posted before. */
    void fence()
    {
        check(hws_fence(self()));
    }

  private:
    hws_id self() const
    {
        return static_cast<const Self *>(this)->id();
    }
};

/** Memory that peers reach by its key. Get one by Context::memory() or Context::allocate(). */
class Memory : public Handle
{
  public:
    using Handle::Handle;

    hws_mem_info info() const
    {
        auto i = detail::opts<hws_mem_info>();

        check(hws_mem_query(id(), &i));
        return i;
    }
    void *data() const
    {
        return info().base;
    }
    /** Bytes. */
    uint64_t size() const
    {
        return info().length;
    }
    /** Its key: send it to the peer by any means. */
    std::vector<unsigned char> pack(uint32_t flags = 0) const
    {
        return detail::packed([&](void *bytes, uint64_t size, uint64_t *needed) {
            return hws_rkey_pack(id(), flags, bytes, size, needed);
        });
    }
};

/** What reaches a peer's memory. Get one by Endpoint::unpack(). Offsets are in bytes from the
 * beginning of that memory; of a raw key, which knows none, they are addresses. */
class RemoteKey : public Handle
{
  public:
    RemoteKey() = default;
    explicit RemoteKey(hws_id rkey) : Handle(rkey)
    {
        base_ = info().base;
    }
    hws_rkey_info info() const
    {
        auto i = detail::opts<hws_rkey_info>();

        check(hws_rkey_query(id(), &i));
        return i;
    }
    Operation put(const void *buffer, uint64_t length, uint64_t offset = 0,
                  const Options &options = {})
    {
        return Operation::posted(options, hws_put, id(), base_ + offset, buffer, length);
    }
    /** The peer's handler is told `value` by HWS_EVENT_NOTIFY when the data is there. */
    Operation put_notify(const void *buffer, uint64_t length, uint64_t value, uint64_t offset = 0,
                         const Options &options = {})
    {
        return Operation::posted(options, hws_put_notify, id(), base_ + offset, buffer, length,
                                 value);
    }
    Operation get(void *buffer, uint64_t length, uint64_t offset = 0, const Options &options = {})
    {
        return Operation::posted(options, hws_get, id(), base_ + offset, buffer, length);
    }
    /** `action`: HWS_ATOMIC_*, perhaps | HWS_ATOMIC_FETCH; what was there before is Result::tag. */
    template <class Number>
    Operation atomic(uint32_t action, Number value, uint64_t offset = 0, Number compare = 0,
                     const Options &options = {})
    {
        static_assert(std::is_unsigned<Number>::value && (sizeof value == 4 || sizeof value == 8),
                      "uint32_t or uint64_t");
        return Operation::posted(options, hws_atomic, id(), base_ + offset, action,
                                 uint32_t{sizeof value}, value, compare, nullptr);
    }
    /** The peer's memory itself; throws UNREACHABLE if it is not shared with this process. */
    void *ptr(uint64_t offset = 0) const
    {
        void *here = nullptr;

        check(hws_rkey_ptr(id(), base_ + offset, &here));
        return here;
    }

  private:
    uint64_t base_ = 0;
};

/** Puts and gets that are prepared once and posted often. Get one by Endpoint::plan(). */
class Plan : public Handle
{
  public:
    using Handle::Handle;

    Operation post(const Options &options = {})
    {
        return Operation::posted(options, hws_plan_post, id());
    }
};

class Endpoint : public Handle, public Source<Endpoint>
{
  public:
    using Handle::Handle;

    Operation tag_send(const void *buffer, uint64_t length, uint64_t tag,
                       const Options &options = {})
    {
        return Operation::posted(options, hws_tag_send, id(), buffer, length, tag);
    }
    Operation tag_send_sync(const void *buffer, uint64_t length, uint64_t tag,
                            const Options &options = {})
    {
        return Operation::posted(options, hws_tag_send_sync, id(), buffer, length, tag);
    }
    Operation stream_send(const void *buffer, uint64_t length, const Options &options = {})
    {
        return Operation::posted(options, hws_stream_send, id(), buffer, length);
    }
    /** Exactly `length` bytes. */
    Operation stream_recv(void *buffer, uint64_t length, Options options = {})
    {
        return Operation::posted(options.flags(HWS_OP_WAIT_ALL), hws_stream_recv, id(), buffer,
                                 length);
    }
    Operation am_send(uint32_t am_id, const void *header, uint64_t header_length,
                      const void *buffer, uint64_t length, const Options &options = {})
    {
        return Operation::posted(options, hws_am_send, id(), am_id, header, header_length, buffer,
                                 length);
    }
    Operation multi_send(const std::vector<hws_segment> &segments, uint64_t tag,
                         const Options &options = {})
    {
        return Operation::posted(options, hws_multi_send, id(), tag, segments.data(),
                                 segments.size(), nullptr);
    }
    /** Make a key of this peer's memory usable. */
    RemoteKey unpack(const std::vector<unsigned char> &packed, uint32_t flags = 0)
    {
        hws_id rkey = 0;

        check(hws_rkey_unpack(id(), packed.data(), packed.size(), flags, &rkey));
        return RemoteKey(rkey);
    }
    Plan plan(const std::vector<hws_transfer> &transfers)
    {
        hws_id plan = 0;

        check(hws_plan_open(id(), transfers.data(), transfers.size(), &plan));
        return Plan(plan);
    }
    hws_endpoint_info info() const
    {
        auto i = detail::opts<hws_endpoint_info>();

        check(hws_endpoint_query(id(), &i));
        return i;
    }
    void abort()
    {
        check(hws_abort(id()));
    }
};

/** A listener; the handler is told of REQUEST and ACCEPTED, and of its endpoints' ends. */
class Listener : public Handle
{
  public:
    /** The handler must live as long as the worker makes progress: Worker::listen() sees to it. */
    Listener(hws_id worker, const char *host, uint16_t port, EventHandler *handler,
             uint32_t flags = 0)
    {
        auto o = detail::opts<hws_listener_opts>();
        hws_id listener = 0;

        o.flags = flags;
        o.sink = o.endpoint_sink = detail::sink(handler);
        check(hws_listen(worker, host, port, &o, &listener));
        static_cast<Handle &>(*this) = Handle(listener);
    }
    uint16_t port() const
    {
        auto i = detail::opts<hws_listener_info>();

        check(hws_listener_query(id(), &i));
        return static_cast<uint16_t>(i.port);
    }
};

/** Connecting: the future's value is the endpoint. */
class Connecting
{
  public:
    Connecting(Endpoint endpoint, Operation operation)
        : endpoint_(std::move(endpoint)), operation_(std::move(operation))
    {
    }
    Endpoint get(Nanoseconds timeout = Nanoseconds::max())
    {
        operation_.get(timeout);
        return std::move(endpoint_);
    }

  private:
    Endpoint endpoint_;
    Operation operation_;
};

/** A worker. Its handlers must live as long as it makes progress: close_wait() before they go. */
class Worker : public Handle, public Source<Worker>
{
  public:
    explicit Worker(hws_id context, uint32_t mode = HWS_PROGRESS_MANUAL, EventHandler handler = {})
        : handlers_(std::make_unique<Handlers>())
    {
        auto o = detail::opts<hws_worker_opts>();
        hws_id worker = 0;

        handlers_->own = std::move(handler);
        o.mode = mode;
        o.sink = detail::sink(&handlers_->own);
        check(hws_worker_open(context, &o, &worker));
        static_cast<Handle &>(*this) = Handle(worker);
    }
    /** Memory of its pool to receive into: keep it until that has ended, and the worker until then. */
    Buffer buffer(uint64_t length)
    {
        hws_id buffer = 0;

        check(hws_buffer_alloc(id(), length, nullptr, &buffer));
        return Buffer(buffer);
    }
    /** How much was done. */
    int32_t progress()
    {
        return check(hws_worker_progress(id()));
    }
    /** Make progress until something was done; sleeps meanwhile. How much was done, 0 at the timeout. */
    int32_t wait(Nanoseconds timeout = Nanoseconds::max())
    {
        return check(hws_worker_wait(id(), detail::nanoseconds(timeout)));
    }
    Connecting connect(const std::string &host, uint16_t port)
    {
        hws_id endpoint = 0;
        auto op = Operation::make([&](const hws_op_opts *o, hws_id *out) {
            return hws_connect(id(), host.c_str(), port, nullptr, o, &endpoint, out);
        });

        return Connecting(Endpoint(endpoint), std::move(op));
    }
    Connecting connect_address(const std::vector<unsigned char> &address)
    {
        hws_id endpoint = 0;
        auto op = Operation::make([&](const hws_op_opts *o, hws_id *out) {
            return hws_connect_address(id(), address.data(), address.size(), nullptr, o, &endpoint,
                                       out);
        });

        return Connecting(Endpoint(endpoint), std::move(op));
    }
    std::vector<unsigned char> address(uint32_t flags = 0)
    {
        return detail::packed([&](void *bytes, uint64_t size, uint64_t *needed) {
            return hws_worker_address(id(), flags, bytes, size, needed);
        });
    }
    /** Set the handler of an active-message id: called with HWS_EVENT_AM events. */
    void am_handler(uint32_t am_id, EventHandler handler)
    {
        auto o = detail::opts<hws_am_opts>();
        auto kept = std::make_unique<EventHandler>(std::move(handler));

        o.sink = detail::sink(kept.get());
        check(hws_am_handler(id(), am_id, &o));
        handlers_->messages.push_back(std::move(kept));
    }
    Listener listen(const char *host, uint16_t port, EventHandler handler, uint32_t flags = 0)
    {
        /* The listener's endpoints name it, too, and may live longer. */
        auto &kept = handlers_->listeners;

        kept.push_back(std::make_unique<EventHandler>(std::move(handler)));
        return Listener(id(), host, port, kept.back().get(), flags);
    }

  private:
    /** Memory that stays where it is when the worker's owner moves. */
    struct Handlers {
        EventHandler own;
        std::vector<std::unique_ptr<EventHandler>> messages, listeners;
    };
    std::unique_ptr<Handlers> handlers_;
};

class Context : public Handle
{
  public:
    /** Settings of UCX as key, value pairs; `features`: HWS_FEATURE_*, 0 for all kinds of messages. */
    explicit Context(const std::vector<std::pair<std::string, std::string>> &config = {},
                     uint32_t flags = 0, uint64_t features = 0)
    {
        auto o = detail::opts<hws_context_opts>();
        std::vector<const char *> pairs;
        hws_id context = 0;

        for (const auto &[key, value] : config) {
            pairs.push_back(key.c_str());
            pairs.push_back(value.c_str());
        }
        pairs.push_back(nullptr);
        o.config = pairs.data();
        o.flags = flags;
        o.features = features;
        check(hws_context_open(&o, &context));
        static_cast<Handle &>(*this) = Handle(context);
    }
    Worker worker(uint32_t mode = HWS_PROGRESS_MANUAL, EventHandler handler = {}) const
    {
        return Worker(id(), mode, std::move(handler));
    }
    /** Register memory that lives until the Memory is closed. */
    Memory memory(void *base, uint64_t length, uint32_t kind = HWS_MEMORY_HOST) const
    {
        auto o = detail::opts<hws_mem_opts>();
        hws_id memory = 0;

        o.memory_kind = kind;
        check(hws_mem_register(id(), base, length, &o, &memory));
        return Memory(memory);
    }
    /** Memory that a peer on the same machine reaches without a copy. */
    Memory allocate(uint64_t length, uint32_t kind = HWS_MEMORY_HOST) const
    {
        auto o = detail::opts<hws_mem_opts>();
        hws_id memory = 0;

        o.memory_kind = kind;
        check(hws_mem_alloc(id(), length, &o, &memory));
        return Memory(memory);
    }
};

} // namespace hawser

#endif
