/*
 * The C++ layer's times: one that is over is waited for no more, and a deadline in the past ends an operation at once.
 */
#include <hawser.hpp>

#include <cstdio>
#include <cstdlib>

using namespace std::chrono_literals;

static void must(bool so, const char *what)
{
    if (!so) {
        std::fprintf(stderr, "not so: %s\n", what);
        std::exit(1);
    }
}

template <class Get> static void times_out(Get &&get, const char *what)
{
    try {
        get();
    } catch (const hawser::Error &e) {
        must(e.code() == HWS_E_TIMED_OUT, what);
        return;
    }
    must(false, what);
}

int main()
{
    hawser::Context context;
    hawser::Worker worker = context.worker(HWS_PROGRESS_MANUAL);
    char bytes[8];

    for (auto time : {-1ms, 0ms, 1ms}) {
        auto received = worker.tag_recv(bytes, sizeof bytes, 1);

        must(!received.wait(time), "nobody sends");
        times_out([&] { received.get(time); }, "get() of a time that is over");
        received.cancel();
    }
    for (auto time : {-1ms, 0ms, 1ms}) {
        auto received =
            worker.tag_recv(bytes, sizeof bytes, 1, UINT64_MAX, hawser::Options().timeout(time));

        times_out([&] { received.get(60s); }, "a deadline that is over");
    }
    return 0;
}
