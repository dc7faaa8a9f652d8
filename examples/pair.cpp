/*
 * Two peers in one process with the C++ layer: tagged, multi-buffer and active messages, streams,
 * errors, and a connection by worker address.
 */
#include <hawser.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

using namespace std::chrono_literals;

/* What must be so. */
static void must(bool so, const char *what)
{
    if (!so) {
        std::fprintf(stderr, "not so: %s\n", what);
        std::exit(1);
    }
}

static void talk(hawser::Endpoint &left, hawser::Endpoint &right)
{
    std::string hello = "hello", in(5, '\0');
    auto received = right.tag_recv(in.data(), in.size(), 7);

    left.tag_send(hello.data(), hello.size(), 7).get(10s);
    must(received.get(10s).length == 5 && in == hello, "a tagged message");

    std::vector<char> big(3 << 20, 'x');
    auto message = right.multi_recv(8);
    auto sent = left.multi_send({{hello.data(), hello.size(), HWS_MEMORY_HOST, 0},
                                 {big.data(), big.size(), HWS_MEMORY_HOST, 0}},
                                8);
    auto segments = message.get(10s);
    must(segments->size() == 2 && (*segments)[1].length == big.size() &&
             static_cast<const char *>((*segments)[1].base)[12345] == 'x',
         "a multi-buffer message");
    sent.get(10s);

    auto bytes = right.stream_recv(in.data(), 3);
    left.stream_send("abc", 3).get(10s);
    must(bytes.get(10s).length == 3 && in.compare(0, 3, "abc") == 0, "a stream");
}

/* A receive that nothing matches: cancelled, late, and one whose future goes first. */
static void errors(hawser::Endpoint &right)
{
    char nothing[8];
    auto never = right.tag_recv(nothing, sizeof nothing, 99);

    must(!never.wait(1ms), "nothing has come");
    never.cancel();
    try {
        never.get(10s);
        must(false, "an exception");
    } catch (const hawser::Error &e) {
        must(e.code() == HWS_E_CANCELED && e.category() == "operation", "CANCELED");
    }
    (void)right.tag_recv(nothing, sizeof nothing, 99);
    try {
        hawser::Endpoint(right.id() ^ 1).info();
        must(false, "an exception");
    } catch (const hawser::Error &e) {
        must(e.category() == "usage", "an id that names nothing");
    }
}

int main()
{
    hawser::Context context;
    std::atomic<hws_id> accepted{0};
    std::atomic<int> heard{0};
    auto on_peer = [&](const hws_event &e) {
        if (e.kind == HWS_EVENT_ACCEPTED) {
            accepted = e.source;
        }
    };
    auto worker = context.worker(HWS_PROGRESS_THREAD, on_peer);
    auto listener = worker.listen("127.0.0.1", 0, on_peer);
    auto left = worker.connect("127.0.0.1", listener.port()).get(10s);

    while (accepted == 0) {}
    hawser::Endpoint right(accepted.exchange(0));
    talk(left, right);
    errors(right);

    worker.am_handler(5, [&](const hws_event &e) { heard += static_cast<int>(e.length); });
    left.am_send(5, nullptr, 0, "123", 3).get(10s);
    left.flush().get(10s);
    while (heard != 3) {}

    auto other = context.worker();
    auto by_address = other.connect_address(worker.address(HWS_ADDRESS_HELLO)).get(10s);
    while (accepted == 0) {}
    must(by_address.info().reason == HWS_REASON_ADDRESS, "reached by address");

    context.close_wait();
    std::printf("ok\n");
    return 0;
}
