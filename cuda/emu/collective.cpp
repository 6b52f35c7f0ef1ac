// Barriers of a block, and operations that the lanes of a warp or the threads of a warp group do
// together.
#include "room.h"
#include <algorithm>
#include <tuple>

namespace emu
{

struct Barrier {
    int expected = 0, arrived = 0;
    std::shared_ptr<Clock> clock;
    ClockRef merged;
    std::vector<Fiber *> waiting;
};

struct Meet {
    unsigned mask; // lanes of a warp that meet
    unsigned arrived = 0;
    const char *what = NULL;
    void *args[WARP_GROUP] = {};
    Fiber *who[WARP_GROUP];
};

// by seat
static std::map<int, Barrier> barriers[SEATS];
static std::deque<Meet> warp_meets[SEATS][MAX_THREADS / 32]; // by warp: one entry per mask
static Meet group_meets[SEATS][MAX_THREADS / WARP_GROUP];

// registers of a block: per thread of each warp group, and those that groups have released
struct Registers {
    std::vector<int> each;
    int spare = 0;
};
static Registers registers_of[SEATS];

/* At launch each thread gets as many registers as the compiler may use, a multiple of 8: all
 * registers of the multiprocessor if the block is alone there. */
static void registers_begin()
{
    enum { ALL = 65536, MOST = 256 };
    int threads = (int)fibers().size(), each = ALL / threads / 8 * 8;
    int groups = (threads + WARP_GROUP - 1) / WARP_GROUP;
    registers_of[seat].each.assign(groups, std::min<int>(each, MOST));
    registers_of[seat].spare = 0;
}

void collectives_begin()
{
    registers_begin();
    barriers[seat].clear();
    // a deadlocked block may have left lanes here
    for (auto &meets : warp_meets[seat])
        for (Meet &meet : meets)
            meet.arrived = 0;
    for (Meet &meet : group_meets[seat])
        meet.arrived = 0;
}

void collectives_end()
{
    for (auto &b : barriers[seat])
        if (b.second.arrived)
            report("barrier %d ends with %d of %d threads; expected all", b.first, b.second.arrived,
                   b.second.expected);
}

// ---- barriers ----

static void come_to(int id, int threads, bool wait)
{
    static const char *const names[] = {"__syncthreads", "bar.sync"};
    Barrier &b = barriers[seat][id];
    Fiber *f = self();
    if (b.arrived && b.expected != threads)
        report("barrier %d: %d threads requested, expected %d as in the first request", id, threads,
               b.expected);
    if (threads % 32 || threads > (int)((fibers().size() + 31) & ~(size_t)31))
        report("barrier %d: %d threads requested, expected a multiple of 32 in a block of %zu", id,
               threads, fibers().size());
    if (!b.clock)
        b.clock = std::make_shared<Clock>(fibers().size(), 0);
    b.expected = threads;
    b.arrived++;
    release_to(*b.clock, f, &b.merged);
    if (wait)
        b.waiting.push_back(f);
    if (b.arrived < std::min<int>(threads, fibers().size())) {
        if (wait)
            wait_in(names[id != 0], State::waiting);
        return;
    }
    for (Fiber *x : b.waiting) {
        x->known = b.clock;
        x->state = State::ready;
    }
    b.waiting.clear();
    b.arrived = 0;
    b.clock = b.merged = NULL;
}

void barrier_sync(int id, int threads)
{
    come_to(id, threads, true);
}

void barrier_arrive(int id, int threads)
{
    come_to(id, threads, false);
}

void sync_threads()
{
    come_to(0, (fibers().size() + 31) & ~(size_t)31, true);
}

// ---- meetings of a warp or a group ----

// all of them learn what any of them knew
static void order_all(Fiber *const *who, unsigned n)
{
    auto clock = std::make_shared<Clock>(*who[0]->known);
    ClockRef merged = who[0]->known;
    for (unsigned i = 0; i < n; i++)
        release_to(*clock, who[i], &merged);
    for (unsigned i = 0; i < n; i++)
        who[i]->known = clock;
}

static void come(Meet &m, unsigned full, unsigned slot, const char *what, void *arg, Meeting *act,
                 bool order)
{
    static int nothing;
    if (m.arrived && m.what != what && strcmp(m.what, what))
        report(
            "diverged: this thread is in %s, thread %u of the same warp or group in %s; expected "
            "all in one",
            what, m.who[0]->linear, m.what);
    m.what = what;
    m.args[slot] = arg ? arg : &nothing;
    m.who[m.arrived++] = self();
    if (m.arrived < full) {
        wait_in(what, State::waiting);
        return;
    }
    if (act)
        act(m.args);
    if (order)
        order_all(m.who, full);
    for (unsigned i = 0; i < full; i++)
        m.who[i]->state = State::ready;
    m.arrived = 0;
}

// slots of lanes outside the mask stay empty
static Meet &meet_of_warp(unsigned warp, unsigned mask)
{
    auto &meets = warp_meets[seat][warp];
    for (Meet &m : meets)
        if (m.mask == mask)
            return m;
    meets.emplace_back();
    meets.back().mask = mask;
    return meets.back();
}

static void come_to_warp(unsigned mask, const char *what, void *arg, Meeting *act, bool order)
{
    if (!(mask >> current->lane & 1)) {
        report("%s: lane %u is not in its own mask %08x", what, current->lane, mask);
        return;
    }
    come(meet_of_warp(current->warp, mask), __builtin_popcount(mask), current->lane, what, arg, act,
         order);
}

void meet_warp(unsigned mask, const char *what, void *arg, Meeting *act)
{
    come_to_warp(mask, what, arg, act, false);
}

void sync_warp(unsigned mask)
{
    come_to_warp(mask, "__syncwarp", NULL, NULL, true);
}

void meet_group(const char *what, void *arg, Meeting *act)
{
    unsigned group = current->linear / WARP_GROUP;
    come(group_meets[seat][group], WARP_GROUP, current->linear % WARP_GROUP, what, arg, act, false);
}

/* Ref: PTX manual, setmaxnreg: 24 to 256, a multiple of 8. Registers come from a pool of the block;
 * a group that asks for more than the pool has waits. */
void set_registers(int registers, bool more)
{
    const char *what = more ? "setmaxnreg.inc" : "setmaxnreg.dec";
    Registers &all = registers_of[seat];
    int &mine = all.each[current->linear / WARP_GROUP];
    if (registers < 24 || registers > 256 || registers % 8 ||
        (more ? registers < mine : registers > mine)) {
        report("%s from %d to %d registers; expected a multiple of 8 from 24 to 256, %s", what,
               mine, registers, more ? "more than before" : "fewer than before");
        return;
    }
    meet_group(what, NULL, NULL);
    while (mine != registers) {
        int needed = (registers - mine) * WARP_GROUP;
        if (needed <= all.spare) {
            all.spare -= needed;
            mine = registers;
        } else {
            wait_in(what, State::polling);
        }
    }
}

// ---- exchanges between lanes ----

struct Exchange {
    uint32_t in, out;
    unsigned from;
};

uint32_t shuffle(unsigned mask, uint32_t value, unsigned from_lane, const char *what)
{
    Exchange mine = {value, 0, from_lane};
    meet_warp(mask, what, &mine, [](void **args) {
        for (int lane = 0; lane < 32; lane++) {
            Exchange *e = (Exchange *)args[lane];
            if (!e)
                continue;
            Exchange *source = e->from < 32 ? (Exchange *)args[e->from] : NULL;
            if (!source)
                report("shuffle: lane %d reads lane %u, which does not take part; expected a lane "
                       "of the "
                       "mask",
                       lane, e->from);
            else
                e->out = source->in;
        }
    });
    return mine.out;
}

unsigned ballot(unsigned mask, bool vote)
{
    Exchange mine = {vote, 0, 0};
    meet_warp(mask, "vote.ballot", &mine, [](void **args) {
        uint32_t votes = 0;
        for (int lane = 0; lane < 32; lane++)
            if (args[lane] && ((Exchange *)args[lane])->in)
                votes |= 1u << lane;
        for (int lane = 0; lane < 32; lane++)
            if (args[lane])
                ((Exchange *)args[lane])->out = votes;
    });
    return mine.out;
}

} // namespace emu
