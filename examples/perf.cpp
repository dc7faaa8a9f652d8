/*
 * Latency and bandwidth between two processes, with the C++ layer.
 *
 *     ./perf -t tag_lat             the server, which prints its port (-p 0: any free one)
 *     ./perf -t tag_lat HOST        the client, which prints the figures
 *
 * Letters and defaults are those of ucxx_perftest. A test of latency is a ping-pong, and its figure half
 * a round trip; a test of bandwidth is one message after the other from the client. `hawser perf`
 * measures more.
 */
#include <hawser.hpp>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <unistd.h>

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

enum : uint32_t { SETTINGS, DATA }; /* tags; DATA is an active message's id, too */

struct Test {
    bool am, one_way;
};
static const std::map<std::string, Test> tests = {{"tag_lat", {false, false}},
                                                  {"tag_bw", {false, true}},
                                                  {"am_lat", {true, false}},
                                                  {"am_bw", {true, true}}};
static const std::map<std::string, uint32_t> modes = {
    {"polling", HWS_PROGRESS_MANUAL},
    {"blocking", HWS_PROGRESS_BLOCKING},
    {"wait", HWS_PROGRESS_BLOCKING},
    {"thread-blocking", HWS_PROGRESS_THREAD},
    {"thread-polling", HWS_PROGRESS_THREAD_POLLING}};

struct Settings : Test {
    std::string name, host;
    uint32_t mode;
    uint16_t port;
    uint64_t size, iterations, warmup;
    double rank;
    bool client, reuse, verify;

    /** What both sides must have been told. */
    std::string text() const
    {
        return "-t " + name + " -s " + std::to_string(size) + " -n " + std::to_string(iterations) +
               " -w " + std::to_string(warmup) + (verify ? " -v" : "");
    }
};

/** One side of the connection. */
class Peer
{
  public:
    explicit Peer(const Settings &settings)
        : s(settings), worker(context.worker(s.mode, [this](auto &e) { on_event(e); }))
    {
        worker.am_handler(DATA, [this](auto &e) {
            judge(static_cast<const hws_am_detail *>(e.detail)->data, e.length);
        });
    }
    /** The handlers name this object: it stays until nobody can call them. */
    ~Peer()
    {
        (void)hws_close_wait(context.release(), 10000000000);
    }
    /** Connect, and compare what the two sides were told. */
    void open()
    {
        std::string mine = s.text(), theirs(160, '\0');

        if (s.client) {
            endpoint = worker.connect(s.host, s.port).get();
        } else {
            accept();
        }
        wait(endpoint.tag_send(mine.data(), mine.size(), SETTINGS));
        theirs.resize(wait(endpoint.tag_recv(theirs.data(), theirs.size(), SETTINGS)).length);
        if (mine != theirs) {
            throw std::runtime_error("the other side was told " + theirs);
        }
    }
    /** Message `n`, and in a ping-pong its answer. */
    Seconds transfer(uint64_t n)
    {
        prepare(n);
        auto begin = Clock::now();
        if (s.client) {
            send();
        }
        if (!s.client || !s.one_way) {
            receive(n);
        }
        if (!s.client && !s.one_way) {
            send();
        }
        return Clock::now() - begin;
    }
    /** The client waits until all that it sent is there, the server until the client has gone. */
    Seconds finish()
    {
        auto begin = Clock::now();
        if (s.client) {
            wait(endpoint.flush());
        } else {
            until([this] { return gone.load(); });
        }
        return Clock::now() - begin;
    }
    uint64_t received() const
    {
        return arrived;
    }

  private:
    void accept()
    {
        listener.emplace(worker.listen(
            "0.0.0.0", s.port, [this](auto &e) { on_event(e); }, HWS_LISTENER_EXPLICIT));
        std::printf("port %u\n", listener->port());
        std::fflush(stdout);
        until([this] { return accepted != 0; });
        endpoint = hawser::Endpoint(accepted);
        std::printf("client %s\n", endpoint.info().peer_address);
    }
    /* One client only: all others are turned away. */
    void on_event(const hws_event &e)
    {
        if (e.kind == HWS_EVENT_REQUEST) {
            taken ? hws_reject(e.source) : hws_accept(e.source);
            taken = true;
        } else if (e.kind == HWS_EVENT_ACCEPTED) {
            accepted = e.source;
        } else if (e.kind == HWS_EVENT_DISCONNECTED) {
            gone = true;
        }
    }
    /* Wait for an operation; in all modes but `polling` get() does it. */
    hawser::Result wait(hawser::Operation operation)
    {
        while (s.mode == HWS_PROGRESS_MANUAL && !operation.ready()) {
            worker.progress();
        }
        return operation.get();
    }
    /* Wait for what a handler does. */
    template <class Done> void until(Done done)
    {
        /* Whether it is over is read first: what came before the end has then been handled. */
        for (bool over = gone; !done(); over = gone) {
            if (over) {
                throw std::runtime_error("the other side is gone");
            }
            if (s.mode == HWS_PROGRESS_MANUAL) {
                worker.progress();
            } else {
                /* Not for long where another thread may call the handler just now. */
                bool alone = s.mode == HWS_PROGRESS_BLOCKING;
                worker.wait(alone ? hawser::Nanoseconds::max() : 100us);
            }
        }
    }
    void send()
    {
        wait(s.am ? endpoint.am_send(DATA, nullptr, 0, out.data(), out.size())
                  : endpoint.tag_send(out.data(), out.size(), DATA));
    }
    void receive(uint64_t n)
    {
        if (s.am) {
            until([&] { return arrived > n; });
        } else {
            judge(in.data(), wait(endpoint.tag_recv(in.data(), in.size(), DATA)).length);
        }
        if (wrong) {
            throw std::runtime_error("a message is not what was sent");
        }
    }
    void prepare(uint64_t n)
    {
        if (!s.reuse || n == 0) {
            out = std::vector<unsigned char>(s.size);
            in = std::vector<unsigned char>(s.size);
        }
        for (size_t i = 0; s.verify && i < out.size(); i++) {
            out[i] = expected(n, i, s.client);
        }
    }
    /* Byte `i` of message `n`: directions, messages and blocks of 256 bytes differ. */
    static unsigned char expected(uint64_t n, size_t i, bool from_client)
    {
        return static_cast<unsigned char>(2 * n + (from_client ? 1 : 0) + i + 17 * (i >> 8));
    }
    void judge(const void *data, uint64_t length)
    {
        bool good = length == s.size;

        for (size_t i = 0; s.verify && good && i < length; i++) {
            good = static_cast<const unsigned char *>(data)[i] == expected(arrived, i, !s.client);
        }
        if (!good) {
            wrong = true;
        }
        arrived++;
    }

    const Settings &s;
    std::vector<unsigned char> in, out;
    std::atomic<uint64_t> arrived{0};
    std::atomic<hws_id> accepted{0};
    std::atomic<bool> gone{false}, wrong{false};
    bool taken = false; /* only the handler uses it */
    hawser::Context context;
    hawser::Worker worker;
    std::optional<hawser::Listener> listener;
    hawser::Endpoint endpoint;
};

static void print(const Settings &s, std::vector<Seconds> times, Seconds total)
{
    double messages = static_cast<double>(s.iterations) * (s.one_way ? 1 : 2);
    double each = s.one_way ? 1e6 : 1e6 / 2, rate = messages / total.count();
    auto at = static_cast<std::ptrdiff_t>(s.rank / 100 * static_cast<double>(times.size() - 1));

    std::nth_element(times.begin(), times.begin() + at, times.end());
    std::printf("%8s %12s %12s %8g%% us %12s %12s %12s\n", "test", "bytes", "iterations", s.rank,
                "average us", "MB/s", "messages/s");
    std::printf("%8s %12.0f %12zu %12.3f %12.3f %12.4f %12.0f\n", s.name.c_str(),
                static_cast<double>(s.size), times.size(), times.begin()[at].count() * each,
                1e6 / rate, static_cast<double>(s.size) * rate / 1e6, rate);
}

static void run(const Settings &s)
{
    std::vector<Seconds> times;
    Seconds total{};
    Peer peer(s);

    peer.open();
    for (uint64_t n = 0; n < s.warmup + s.iterations; n++) {
        auto took = peer.transfer(n);
        if (n >= s.warmup) {
            times.push_back(took);
            total += took;
        }
    }
    auto rest = peer.finish();
    if (s.one_way) {
        total += rest;
    }
    if (s.client) {
        print(s, std::move(times), total);
    }
    std::printf("%s %.0f\n", s.verify ? "verified" : "received",
                static_cast<double>(peer.received()));
}

/* ---- command line ---------------------------------------------------------------------------- */

static const char usage[] =
    "Usage: perf [OPTIONS]        the server\n"
    "       perf [OPTIONS] HOST   the client, which prints the figures\n"
    "  -t TEST   tag_lat tag_bw am_lat am_bw\n"
    "  -P MODE   polling blocking wait thread-blocking thread-polling; on each side its own\n"
    "  -p PORT   (12345)              -s BYTES  of a message (8)\n"
    "  -n COUNT  iterations (100)     -w COUNT  warm-up iterations (3)\n"
    "  -R RANK   percentile (50)      -L        new buffers for each iteration\n"
    "  -v        check each message, which the figures then contain\n"
    "  -e        error handling: always on here\n";

template <class Value>
static Value pick(const std::map<std::string, Value> &values, const std::string &name)
{
    auto found = values.find(name);

    return found != values.end() ? found->second : throw std::invalid_argument(name + "?");
}

static double number(const std::string &text, double least, double most)
{
    char *end;
    double value = std::strtod(text.c_str(), &end);

    /* Written so that what is no number is refused, too. */
    return end != text.c_str() && *end == '\0' && value >= least && value <= most
               ? value
               : throw std::invalid_argument(text + "?");
}

static Settings parse(int argc, char **argv)
{
    std::map<int, std::string> given;
    auto option = [&](int letter, const char *otherwise) {
        return given.count(letter) != 0 ? given[letter] : otherwise;
    };
    auto count = [&](int letter, const char *otherwise, double least, double most = 1e15) {
        return static_cast<uint64_t>(number(option(letter, otherwise), least, most));
    };

    for (int letter; (letter = getopt(argc, argv, "t:P:p:s:n:w:R:Lev")) != -1;) {
        given[letter] = optarg != nullptr ? optarg : "";
    }
    if (given.count('?') != 0) {
        throw std::invalid_argument("");
    }
    Settings s{};
    s.name = option('t', "tag_lat");
    static_cast<Test &>(s) = pick(tests, s.name);
    s.mode = pick(modes, option('P', "polling"));
    s.port = static_cast<uint16_t>(count('p', "12345", 0, 65535));
    s.size = count('s', "8", 1);
    s.iterations = count('n', "100", 1);
    s.warmup = count('w', "3", 0);
    s.rank = number(option('R', "50"), 0, 100);
    s.reuse = given.count('L') == 0;
    s.verify = given.count('v') != 0;
    s.client = optind < argc;
    s.host = s.client ? argv[optind] : "";
    return s;
}

int main(int argc, char **argv)
{
    try {
        run(parse(argc, argv));
        return 0;
    } catch (const std::invalid_argument &e) {
        std::fprintf(stderr, "%s\n%s", e.what(), usage);
        return 2;
    } catch (const std::exception &e) {
        std::fprintf(stderr, "perf: %s\n", e.what());
        return 1;
    }
}
