/*
 * Two peers in one process with the C++ layer: tagged, multi-buffer and active messages, streams,
 * remote memory, plans, errors, a second client that is turned away, and a connection by worker address.
 *
 *     ./pair [polling | blocking | wait | thread-blocking | thread-polling]
 *
 * The words are UCXX's progress modes. One thread is enough for any: whoever waits makes progress.
 */
#include <hawser.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
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

/* Wait for what a handler does. */
template <class Done> static void until(hawser::Worker &worker, Done done)
{
    /* A moment only: in the modes with a thread it may be that one which calls the handler. */
    while (!done()) {
        worker.wait(1ms);
    }
}

/* Messages under way both ways at once, of three sizes, received in another order than they are sent. */
static void several(hawser::Endpoint &left, hawser::Endpoint &right)
{
    const std::vector<size_t> sizes{5, 500, 50000};
    std::vector<std::vector<int>> out, in;
    std::vector<hawser::Operation> operations;

    for (size_t size : sizes) {
        out.emplace_back(size);
        in.emplace_back(size, -1);
        for (size_t i = 0; i < size; i++) {
            out.back()[i] = static_cast<int>(size + i);
        }
    }
    auto send = [&](hawser::Endpoint &from, size_t k) {
        operations.push_back(from.tag_send(out[k].data(), sizes[k] * sizeof(int), k));
    };
    auto receive = [&](hawser::Endpoint &at, size_t k) {
        operations.push_back(at.tag_recv(in[k].data(), sizes[k] * sizeof(int), k));
    };
    send(right, 0);
    receive(right, 1);
    send(right, 2);
    receive(left, 2);
    send(left, 1);
    receive(left, 0);
    for (auto &operation : operations) {
        operation.get(10s);
    }
    must(in == out, "messages both ways");
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

/* The right side's memory, read and written from the left. `told`: what the right side was notified of. */
static void remote(hawser::Context &context, hawser::Worker &worker, hawser::Endpoint &left,
                   std::atomic<uint64_t> &told)
{
    auto memory = context.allocate(1 << 20);
    auto *there = static_cast<char *>(memory.data());
    auto key = left.unpack(memory.pack());
    std::string out = "written from afar", in(out.size(), '\0');

    key.put(out.data(), out.size(), 64).get(10s);
    left.fence();
    key.get(in.data(), in.size(), 64).get(10s);
    left.flush().get(10s);
    must(in == out && out.compare(0, out.size(), there + 64, out.size()) == 0, "put and get");

    must(key.atomic<uint64_t>(HWS_ATOMIC_ADD | HWS_ATOMIC_FETCH, 5).get(10s).tag == 0 &&
             key.atomic<uint64_t>(HWS_ATOMIC_CSWAP, 9, 0, 5).get(10s).tag == 5 &&
             key.atomic<uint32_t>(HWS_ATOMIC_SWAP, 1, 8).get(10s).tag == 0,
         "atomics");
    key.put_notify("x", 1, 77, 128).get(10s);
    until(worker, [&] { return told == 77; });
    must(there[128] == 'x' && there[0] == 9 && there[8] == 1, "what the peer sees");

    auto plan = left.plan(
        {{HWS_EVENT_PUT, HWS_MEMORY_HOST, key.id(), key.info().base + 256, out.data(), out.size(),
          0},
         {HWS_EVENT_GET, HWS_MEMORY_HOST, key.id(), key.info().base + 128, in.data(), 1, 0}});
    for (int i = 0; i < 3; i++) {
        must(plan.post().get(10s).length == out.size() + 1, "a plan");
    }
    must(in[0] == 'x' && there[256] == 'w', "what it moved");
    if (key.info().direct != 0) {
        must(*static_cast<char *>(key.ptr(128)) == 'x', "the memory itself");
    }
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

static uint32_t mode(const std::string &name)
{
    const std::map<std::string, uint32_t> modes = {
        {"polling", HWS_PROGRESS_MANUAL},
        {"blocking", HWS_PROGRESS_BLOCKING},
        {"wait", HWS_PROGRESS_BLOCKING},
        {"thread-blocking", HWS_PROGRESS_THREAD},
        {"thread-polling", HWS_PROGRESS_THREAD_POLLING},
    };

    must(modes.count(name) != 0, "a progress mode");
    return modes.at(name);
}

/* The listener has its one client. */
static void turned_away(hawser::Worker &worker, uint16_t port)
{
    try {
        worker.connect("127.0.0.1", port).get(10s);
        must(false, "an exception");
    } catch (const hawser::Error &e) {
        must(e.code() == HWS_E_REJECTED, "REJECTED");
    }
}

int main(int argc, char **argv)
{
    hawser::Context context({}, 0,
                            HWS_FEATURE_TAG | HWS_FEATURE_STREAM | HWS_FEATURE_AM |
                                HWS_FEATURE_RMA | HWS_FEATURE_ATOMIC);
    std::atomic<hws_id> accepted{0};
    std::atomic<uint64_t> told{0};
    std::atomic<int> heard{0}, requests{0};
    auto on_peer = [&](const hws_event &e) {
        if (e.kind == HWS_EVENT_REQUEST) {
            requests++ == 0 ? hws_accept(e.source) : hws_reject(e.source);
        } else if (e.kind == HWS_EVENT_ACCEPTED) {
            accepted = e.source;
        } else if (e.kind == HWS_EVENT_NOTIFY) {
            told = e.tag;
        }
    };
    auto worker = context.worker(mode(argc > 1 ? argv[1] : "thread-blocking"), on_peer);
    auto listener = worker.listen("127.0.0.1", 0, on_peer, HWS_LISTENER_EXPLICIT);
    auto left = worker.connect("127.0.0.1", listener.port()).get(10s);

    until(worker, [&] { return accepted != 0; });
    hawser::Endpoint right(accepted.exchange(0));
    std::printf("a client from %s\n", right.info().peer_address);
    several(left, right);
    talk(left, right);
    turned_away(worker, listener.port());
    remote(context, worker, left, told);
    errors(right);

    worker.am_handler(5, [&](const hws_event &e) { heard += static_cast<int>(e.length); });
    left.am_send(5, nullptr, 0, "123", 3).get(10s);
    left.flush().get(10s);
    until(worker, [&] { return heard == 3; });

    auto other = context.worker(HWS_PROGRESS_THREAD);
    auto connecting = other.connect_address(worker.address(HWS_ADDRESS_HELLO));
    until(worker, [&] { return accepted != 0; });
    auto by_address = connecting.get(10s);
    must(by_address.info().reason == HWS_REASON_ADDRESS, "reached by address");

    context.close_wait();
    std::printf("ok\n");
    return 0;
}
