// Streams, events and captured graphs. Tasks run in any order that events allow, and only when a
// caller waits for them.
#include "room.h"
#include <algorithm>
#include <memory>
#include <set>

// one item of a stream: a task, a task by attempts, a record of an event, or a wait for an event
struct Item {
    emu::Task task;
    emu::Attempt attempt;
    emu::Event *record, *wait;
    uint64_t number; // number of the record, or of the record that the wait waits for
    bool begun;      // tasks by attempts: the first attempt was made
};

struct CUstream_st {
    std::deque<Item> items;
};

namespace emu
{

struct Event {
    uint64_t recorded, reached; // numbers of the last record: enqueued and completed
    uint64_t turn;
};

// items of several streams in the order of enqueuing
struct Graph {
    std::vector<std::pair<cudaStream_t, Item>> items;
    // during the capture: the first stream, all streams that joined, records made in the capture
    cudaStream_t origin;
    std::set<cudaStream_t> inside;
    std::set<std::pair<Event *, uint64_t>> records;
    const char *why;
};

static std::vector<cudaStream_t> streams;
static Graph *captured; // the graph being captured
static unsigned draws, favour;
static uint64_t turns; // number of tasks that have run
static bool (*watch_before)();
static void (*watch_after)();

void stream_watch(bool (*before)(), void (*after)())
{
    watch_before = before;
    watch_after = after;
}

void stream_order(unsigned seed)
{
    draws = seed;
    favour = seed % 3;
}

static unsigned draw(unsigned below)
{
    draws = draws * 1664525u + 1013904223u;
    return (draws >> 8) % below;
}

cudaStream_t stream_new()
{
    streams.push_back(new CUstream_st());
    return streams.back();
}

void stream_free(cudaStream_t stream)
{
    streams.erase(std::find(streams.begin(), streams.end(), stream));
    delete stream;
}

Event *event_new()
{
    return new Event();
}

void event_free(Event *event)
{
    delete event;
}

uint64_t event_turn(const Event *event)
{
    return event->turn;
}

// ---- running ----

static bool ready(const CUstream_st *s)
{
    return !s->items.empty() &&
           (!s->items.front().wait || s->items.front().wait->reached >= s->items.front().number);
}

enum class Went { nowhere, waits, on };

// run the first item of a ready stream; waits: the item has started and must be tried again
static Went go_on(cudaStream_t s)
{
    Item &first = s->items.front();
    if (first.attempt) {
        turns += !first.begun;
        bool runs = first.begun || !watch_before || watch_before();
        first.begun = true;
        if (runs && !first.attempt())
            return Went::waits;
        s->items.pop_front();
        if (watch_after)
            watch_after();
        return Went::on;
    }
    Item item = s->items.front();
    s->items.pop_front();
    if (item.record) {
        item.record->reached = std::max(item.record->reached, item.number);
        item.record->turn = turns;
    }
    turns += item.task != nullptr;
    if (item.task && (!watch_before || watch_before()))
        item.task();
    if (item.task && watch_after)
        watch_after();
    return Went::on;
}

/* Run one item of any of these streams. By the seed: take the first stream that can continue, so
 * that the last idles as long as possible; or the last; or any. */
static Went step(const std::vector<cudaStream_t> &of)
{
    std::vector<cudaStream_t> can;
    bool waits = false;
    for (cudaStream_t s : of)
        if (ready(s))
            can.push_back(s);
    while (!can.empty()) {
        size_t i = favour == 0 ? 0 : favour == 1 ? can.size() - 1 : draw((unsigned)can.size());
        if (go_on(can[i]) == Went::on)
            return Went::on;
        waits = true;
        can.erase(can.begin() + (long)i);
    }
    return waits ? Went::waits : Went::nowhere;
}

bool stream_sync(cudaStream_t stream)
{
    while (!stream->items.empty())
        if (step(streams) == Went::nowhere)
            return false;
    return true;
}

bool event_reached(const Event *event, bool block)
{
    do {
        if (event->reached >= event->recorded)
            return true;
    } while (step(streams) != Went::nowhere && block);
    return event->reached >= event->recorded;
}

// ---- enqueuing ----

static void append(cudaStream_t stream, const Item &item)
{
    if (!captured) {
        stream->items.push_back(item);
        return;
    }
    if (captured->inside.count(stream))
        captured->items.push_back({stream, item});
    else
        captured->why = "work was enqueued on a stream that does not take part in the capture";
}

void enqueue(cudaStream_t stream, const Task &task)
{
    append(stream, {task, nullptr, NULL, NULL, 0, false});
}

void enqueue_attempts(cudaStream_t stream, const Attempt &attempt)
{
    append(stream, {nullptr, attempt, NULL, NULL, 0, false});
}

void event_record(Event *event, cudaStream_t stream)
{
    append(stream, {nullptr, nullptr, event, NULL, ++event->recorded, false});
    if (captured && captured->inside.count(stream))
        captured->records.insert({event, event->recorded});
}

void event_wait(Event *event, cudaStream_t stream)
{
    // a stream enters a capture when it waits for an event recorded inside
    if (captured && captured->records.count({event, event->recorded}))
        captured->inside.insert(stream);
    append(stream, {nullptr, nullptr, NULL, event, event->recorded, false});
}

// ---- captures ----

bool capturing()
{
    return captured != NULL;
}

void capture_begin(cudaStream_t stream)
{
    captured = new Graph();
    captured->origin = stream;
    captured->inside.insert(stream);
}

// has the first stream waited for all work of the other streams?
static bool joined(const Graph *g)
{
    std::map<cudaStream_t, size_t> open; // stream -> its last item
    std::map<std::pair<Event *, uint64_t>, std::pair<cudaStream_t, size_t>> records;
    std::map<cudaStream_t, std::map<cudaStream_t, size_t>> knows;
    for (size_t i = 0; i < g->items.size(); i++) {
        cudaStream_t s = g->items[i].first;
        const Item &item = g->items[i].second;
        auto hit = records.find({item.wait, item.number});
        if (item.wait && hit != records.end()) {
            // this stream now knows all that the recording stream knew
            knows[s][hit->second.first] =
                std::max(knows[s][hit->second.first], hit->second.second + 1);
            for (auto &k : knows[hit->second.first])
                knows[s][k.first] = std::max(knows[s][k.first], k.second);
        }
        if (item.record)
            records[{item.record, item.number}] = {s, i};
        else if (item.task || item.attempt)
            open[s] = i;
    }
    for (auto &o : open)
        if (o.first != g->origin && knows[g->origin][o.first] <= o.second)
            return false;
    return true;
}

Graph *capture_end(cudaStream_t stream, const char **why)
{
    Graph *g = captured;
    captured = NULL;
    if (!g->why && stream != g->origin)
        g->why = "another stream began the capture";
    if (!g->why && !joined(g))
        g->why = "a stream that took part was not joined to the one that began";
    *why = g->why;
    if (!g->why)
        return g;
    delete g;
    return NULL;
}

// a graph that runs, with its own events and streams
struct Running {
    std::map<std::pair<Event *, uint64_t>, Event> events;
    std::vector<cudaStream_t> order;
    ~Running()
    {
        for (cudaStream_t s : order)
            delete s;
    }
};

static std::shared_ptr<Running> begin_graph(const Graph *g)
{
    auto run = std::make_shared<Running>();
    std::map<cudaStream_t, cudaStream_t> own;
    for (auto &i : g->items) {
        cudaStream_t &s = own[i.first];
        if (!s) {
            s = new CUstream_st();
            run->order.push_back(s);
        }
        Item item = i.second;
        if (item.record) {
            item.record = &run->events[{item.record, item.number}];
            item.number = 1;
        } else if (item.wait) {
            auto e = run->events.find({item.wait, item.number});
            if (e == run->events.end())
                continue; // events outside the graph completed before the capture began
            item.wait = &e->second;
            item.number = 1;
        }
        s->items.push_back(item);
    }
    return run;
}

// run one item of the graph at a time, so that items of other streams can run in between
void graph_run(Graph *graph, cudaStream_t stream)
{
    auto run = std::make_shared<std::shared_ptr<Running>>();
    enqueue_attempts(stream, [graph, run] {
        if (!*run)
            *run = begin_graph(graph);
        if (step((*run)->order) != Went::nowhere)
            return false;
        run->reset();
        return true;
    });
}

void graph_free(Graph *graph)
{
    delete graph;
}

} // namespace emu
