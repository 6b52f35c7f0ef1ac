/* cuda/emu: streams run late, in an order that the seed selects and that only events restrict. A
 * captured graph runs as often as requested. An incomplete capture is refused. Covers:
 * cuda/emu/stream.cpp */
#include "check.h"
#include "cuda/emu/emu.h"
#include <set>
#include <string>

static std::string order;

static emu::Task says(char c)
{
    return [c] { order += c; };
}

// two streams with three tasks and two tasks; with `edge` the second waits for "b" of the first
static std::string two_streams(unsigned seed, bool edge)
{
    cudaStream_t s = emu::stream_new(), t = emu::stream_new();
    emu::Event *e = emu::event_new();
    order.clear();
    emu::stream_order(seed);
    for (char c : {'a', 'b'})
        emu::enqueue(s, says(c));
    emu::event_record(e, s);
    emu::enqueue(s, says('c'));
    if (edge)
        emu::event_wait(e, t);
    for (char c : {'x', 'y'})
        emu::enqueue(t, says(c));
    CHECK(order.empty());
    CHECK(emu::stream_sync(s));
    CHECK(emu::stream_sync(t));
    emu::stream_free(s);
    emu::stream_free(t);
    emu::event_free(e);
    return order;
}

static bool before(const std::string &text, char first, char second)
{
    return text.find(first) < text.find(second);
}

static void orders(void)
{
    std::set<std::string> free_orders;
    for (unsigned seed = 0; seed < 20; seed++) {
        std::string o = two_streams(seed, false), e = two_streams(seed, true);
        free_orders.insert(o);
        CHECK_INT((long long)o.size(), 5);
        CHECK(before(o, 'a', 'b') && before(o, 'b', 'c') && before(o, 'x', 'y'));
        CHECK(before(e, 'b', 'x'));
        CHECK(two_streams(seed, false) == o);
    }
    // a missing wait shows: x runs before a in some order, and after c in another
    CHECK(free_orders.size() >= 4);
}

static void waits(void)
{
    cudaStream_t s = emu::stream_new(), t = emu::stream_new();
    emu::Event *e = emu::event_new();
    // an event that was never recorded orders nothing; a recorded event delays the wait
    emu::event_wait(e, s);
    CHECK(emu::stream_sync(s));
    emu::event_record(e, t);
    emu::event_wait(e, s);
    emu::event_record(e, t);
    CHECK(emu::stream_sync(s));
    // a wait refers to the newest record at the time of its enqueuing
    for (unsigned seed = 0; seed < 6; seed++) {
        order.clear();
        emu::stream_order(seed);
        emu::enqueue(t, says('a'));
        emu::event_record(e, t);
        emu::enqueue(t, says('b'));
        emu::event_record(e, t);
        emu::event_wait(e, s);
        emu::enqueue(s, says('x'));
        CHECK(emu::stream_sync(s));
        check_str(order.c_str(), "abx", "a second record", __FILE__, __LINE__);
    }
    emu::stream_free(t);
    emu::event_free(e);
    emu::stream_free(s);
}

static const char *refusal(bool join, bool aside)
{
    cudaStream_t s = emu::stream_new(), t = emu::stream_new();
    emu::Event *fork = emu::event_new(), *back = emu::event_new();
    const char *why = NULL;
    order.clear();
    emu::capture_begin(s);
    emu::enqueue(s, says('a'));
    if (!aside) {
        emu::event_record(fork, s);
        emu::event_wait(fork, t);
    }
    emu::enqueue(t, says('x'));
    emu::event_record(back, t);
    if (join)
        emu::event_wait(back, s);
    emu::enqueue(s, says('b'));
    emu::Graph *g = emu::capture_end(s, &why);
    CHECK(order.empty());
    if (g) {
        emu::graph_run(g, s);
        emu::graph_run(g, s);
        CHECK(emu::stream_sync(s));
        check_str(order.c_str(), "axbaxb", "two runs of a graph", __FILE__, __LINE__);
        emu::graph_free(g);
    }
    emu::stream_free(s);
    emu::stream_free(t);
    emu::event_free(fork);
    emu::event_free(back);
    return why ? why : "";
}

int main(void)
{
    orders();
    waits();
    check_str(refusal(true, false), "", "a whole capture", __FILE__, __LINE__);
    CHECK(strstr(refusal(false, false), "was not joined"));
    CHECK(strstr(refusal(true, true), "does not take part"));
    return check_done();
}
