/*
 * The C++ layer's sends with a CUDA stream, against a libcuda of the tests' own (support/stub_cuda.c): each
 * waits for the stream it was given, and for no other.
 */
#include <hawser.hpp>

#include "support/stub_cuda.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <string>

using namespace std::chrono_literals;

static const stub_cuda_control *cuda;

static void must(bool so, const char *what)
{
    if (!so) {
        std::fprintf(stderr, "not so: %s\n", what);
        std::exit(1);
    }
}

/** The stub's controls; it must be found before the library looks for libcuda. */
static const stub_cuda_control *stub()
{
    const char *path = std::getenv("HAWSER_STUB_CUDA");
    const stub_cuda_control *(*control)();
    void *library, *address;

    must(path != nullptr, "HAWSER_STUB_CUDA is set");
    setenv("UCX_TLS", "sysv,cma,self,tcp", 1); /* UCX's own CUDA must not meet it */
    setenv("HAWSER_CUDA", path, 1);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    must(library != nullptr, "the stub opens");
    address = dlsym(library, "stub_cuda");
    must(address != nullptr, "stub_cuda");
    std::memcpy(&control, &address, sizeof address);
    return control();
}

/** An operation that waits for the stream until that is let go. */
template <class Post> static void held(const char *what, Post &&post)
{
    static uintptr_t number = 0x100;
    void *stream = reinterpret_cast<void *>(number += 16);

    cuda->hold(1);
    auto sent = post(hawser::Options().stream(stream).timeout(60s));
    while (cuda->waiting() == 0) {}
    must(!sent.wait(5ms), what);
    cuda->hold(0);
    sent.get(60s);

    stub_call last{};
    for (int i = 0; i < cuda->calls(); i++) {
        stub_call call = cuda->call(i);
        if (std::string(call.name) == "cuStreamSynchronize") {
            last = call;
        }
    }
    must(last.argument == stream, what);
}

int main()
{
    cuda = stub();
    cuda->initialize();
    cuda->set_current(reinterpret_cast<void *>(0xc0de));

    hawser::Context context(
        {}, 0, HWS_FEATURE_TAG | HWS_FEATURE_STREAM | HWS_FEATURE_AM | HWS_FEATURE_RMA);
    std::atomic<hws_id> accepted{0};
    auto on_peer = [&](const hws_event &e) {
        if (e.kind == HWS_EVENT_ACCEPTED) {
            accepted = e.source;
        }
    };
    auto worker = context.worker(HWS_PROGRESS_THREAD, on_peer);
    auto listener = worker.listen("127.0.0.1", 0, on_peer);
    auto left = worker.connect("127.0.0.1", listener.port()).get(60s);
    while (accepted == 0) {}
    hawser::Endpoint right(accepted.exchange(0));

    auto memory = context.allocate(4096);
    auto key = left.unpack(memory.pack());
    auto plan = left.plan({{HWS_EVENT_PUT, HWS_MEMORY_HOST, key.id(), key.info().base,
                            const_cast<char *>("plan"), 4, 0}});
    char in[8];
    using O = const hawser::Options &;

    held("tag_send", [&](O o) { return left.tag_send("x", 1, 1, o); });
    auto matched = right.tag_recv(in, sizeof in, 2);
    held("tag_send_sync", [&](O o) { return left.tag_send_sync("x", 1, 2, o); });
    held("stream_send", [&](O o) { return left.stream_send("x", 1, o); });
    held("am_send", [&](O o) { return left.am_send(1, nullptr, 0, "x", 1, o); });
    held("multi_send", [&](O o) {
        return left.multi_send({{const_cast<char *>("m"), 1, HWS_MEMORY_HOST, 0}}, 3, o);
    });
    held("put", [&](O o) { return key.put("put", 3, 64, o); });
    held("put_notify", [&](O o) { return key.put_notify("note", 4, 7, 128, o); });
    held("plan", [&](O o) { return plan.post(o); });

    matched.get(60s);
    left.flush().get(60s);
    must(std::memcmp(memory.data(), "plan", 4) == 0 &&
             std::memcmp(static_cast<char *>(memory.data()) + 64, "put", 3) == 0 &&
             std::memcmp(static_cast<char *>(memory.data()) + 128, "note", 4) == 0,
         "what was put");
    try {
        right.tag_recv(in, sizeof in, 9, UINT64_MAX, hawser::Options().stream(nullptr));
        must(false, "an exception");
    } catch (const hawser::Error &e) {
        must(e.code() == HWS_E_INVALID, "a receive has no stream");
    }
    try {
        right.tag_recv(in, sizeof in, 9, UINT64_MAX, hawser::Options().timeout(1ms)).get(60s);
        must(false, "an exception");
    } catch (const hawser::Error &e) {
        must(e.code() == HWS_E_TIMED_OUT, "a deadline");
    }
    context.close_wait(60s);
    std::printf("ok\n");
    return 0;
}
