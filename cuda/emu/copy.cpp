// Asynchronous copies: cp.async groups, mbarriers, TMA copies.
#include "room.h"

namespace emu
{

struct MBarrier {
    int arrivals = 0, missing = 0, parity = 0;
    long bytes_missing = 0;
    unsigned maker = 0; // thread that initialised it, and the moment of that thread
    uint32_t made_at = 0;
    Clock clock;
    ClockRef merged;
    std::vector<Action> late; // copies that complete on it and have not landed yet
};

static std::map<void *, MBarrier> mbarriers[SEATS];

void copies_begin()
{
    mbarriers[seat].clear();
}

uint32_t shared_address(const void *p)
{
    return (uint32_t)((uintptr_t)p - (uintptr_t)shared_memory);
}

static bool in_shared(const void *p, size_t bytes)
{
    return (uintptr_t)p >= (uintptr_t)shared_memory && shared_address(p) + bytes <= shared_bytes;
}

static uintptr_t here()
{
    return (uintptr_t)__builtin_return_address(0);
}

// ---- cp.async ----

void copy16_async(void *shared, const void *global, int bytes)
{
    uintptr_t place = here();
    if ((uintptr_t)shared % 16 || (bytes && (uintptr_t)global % 16)) {
        report_place("cp.async from %p to shared memory %u; expected both at multiples of 16",
                     global, shared_address(shared));
        return;
    }
    if (bytes < 0 || bytes > 16) {
        report_place("cp.async of %d bytes; expected 0 to 16", bytes);
        return;
    }
    if (bytes)
        watch({place, (uintptr_t)global, (size_t)bytes, false, false});
    else
        count({place, (uintptr_t)global, 0, false, false}, false); // counts as an inactive lane
    watch({place, (uintptr_t)shared, 16, true, false});
    if (!in_shared(shared, 16))
        return;
    Action land = [=] {
        memcpy(shared, global, bytes);
        memset((char *)shared + bytes, 0, 16 - bytes);
    };
    if (options.async == Async::eager)
        return land();
    memset(shared, 0xFF, 16);
    set_landing(shared, 16, true);
    self()->open_copies.push_back([=] {
        set_landing(shared, 16, false);
        land();
        watch({place, (uintptr_t)shared, 16, true, true});
    });
}

void copy_commit()
{
    Fiber *f = self();
    f->copies.push_back(std::move(f->open_copies));
    f->open_copies.clear();
}

void copy_wait(int pending)
{
    auto &groups = self()->copies;
    while ((int)groups.size() > pending) {
        for (Action &land : groups.front())
            land();
        groups.pop_front();
    }
}

// ---- mbarriers ----

void proxy_fence()
{
    // later stores have a moment after the fence
    self()->fenced = self()->now++;
}

void mbarrier_init(void *barrier, int arrivals)
{
    if (!in_shared(barrier, 8) || (uintptr_t)barrier % 8) {
        report_place("mbarrier.init at %u; expected shared memory at a multiple of 8",
                     shared_address(barrier));
        return;
    }
    MBarrier &m = mbarriers[seat][barrier] = MBarrier();
    m.arrivals = m.missing = arrivals;
    m.maker = self()->linear, m.made_at = self()->now;
    m.clock.assign(fibers().size(), 0);
}

// the barrier; if it was never initialised, one that never completes
static MBarrier &find(void *barrier)
{
    auto it = mbarriers[seat].find(barrier);
    if (it != mbarriers[seat].end())
        return it->second;
    report_place("mbarrier at shared memory %u; expected mbarrier.init before",
                 shared_address(barrier));
    MBarrier &m = mbarriers[seat][barrier];
    m.arrivals = m.missing = MAX_THREADS;
    m.clock.assign(fibers().size(), 0);
    return m;
}

static void complete(MBarrier &m)
{
    if (m.missing == 0 && m.bytes_missing == 0) {
        m.parity ^= 1;
        m.missing = m.arrivals;
    }
}

static void arrive(void *barrier, long bytes)
{
    MBarrier &m = find(barrier);
    release_to(m.clock, self(), &m.merged);
    m.bytes_missing += bytes;
    if (m.missing == 0) {
        report_place("mbarrier at shared memory %u: one more arrival in a phase of %d",
                     shared_address(barrier), m.arrivals);
        return;
    }
    m.missing--;
    complete(m);
}

void mbarrier_arrive(void *barrier)
{
    arrive(barrier, 0);
}

void mbarrier_expect(void *barrier, int bytes)
{
    arrive(barrier, bytes);
}

void mbarrier_wait(void *barrier, int parity)
{
    MBarrier &m = find(barrier);
    for (int looks = 0; m.parity == parity; looks++) {
        // in late mode copies land only after a thread has polled in vain
        if (!m.late.empty() && looks % 2) {
            std::vector<Action> late;
            std::swap(late, m.late);
            for (Action &land : late)
                land();
            continue;
        }
        wait_in("mbarrier.try_wait", State::polling);
    }
    learn(self(), m.clock);
}

// ---- TMA copies ----

// copy one row of the box; `at` is the coordinate of its first element, dimension 0 innermost
static void land_row(const TensorMap &t, const long *at, size_t shared_offset)
{
    bool inside = true;
    const char *row = (const char *)t.base;
    for (int d = 1; d < t.rank; d++) {
        inside &= at[d] >= 0 && at[d] < (long)t.size[d];
        row += at[d] * (long)t.stride[d];
    }
    for (uint32_t e = 0; e < t.box[0]; e++) {
        uintptr_t to = shared_offset + e * t.element_bytes;
        if (t.swizzle)
            to ^= (to >> 7 & (t.swizzle / 16 - 1)) << 4;
        long x = at[0] + e;
        unsigned char *out = shared_memory + to;
        if (inside && x >= 0 && x < (long)t.size[0])
            memcpy(out, row + x * t.element_bytes, t.element_bytes);
        else
            memset(out, 0, t.element_bytes);
    }
}

static void land_box(const TensorMap &t, const std::vector<int> &first, size_t shared_offset)
{
    size_t rows = 1, row_bytes = (size_t)t.box[0] * t.element_bytes;
    for (int d = 1; d < t.rank; d++)
        rows *= t.box[d];
    for (size_t row = 0; row < rows; row++) {
        long at[5] = {first[0]};
        size_t rest = row;
        for (int d = 1; d < t.rank; d++) {
            at[d] = first[d] + (long)(rest % t.box[d]);
            rest /= t.box[d];
        }
        land_row(t, at, shared_offset + row * row_bytes);
    }
}

void tensor_copy(void *shared, const TensorMap *map, void *barrier, const int *at)
{
    TensorMap t = *map;
    std::vector<int> first(at, at + t.rank);
    size_t bytes = t.element_bytes;
    for (int d = 0; d < t.rank; d++)
        bytes *= t.box[d];
    size_t align = t.swizzle ? t.swizzle * 8 : 128;
    if (shared_address(shared) % align) {
        report_place("TMA copy to shared memory %u; expected a multiple of %zu for a swizzle of %d",
                     shared_address(shared), align, t.swizzle);
        return;
    }
    if (t.swizzle && t.box[0] * t.element_bytes > (unsigned)t.swizzle) {
        report_place("TMA copy with rows of %u bytes; expected at most its swizzle of %d",
                     t.box[0] * t.element_bytes, t.swizzle);
        return;
    }
    watch({here(), (uintptr_t)shared, bytes, true, true});
    if (!in_shared(shared, bytes))
        return;
    MBarrier &m = find(barrier);
    // the async proxy sees the initialisation of the barrier only after a fence
    if (fibers()[m.maker].fenced < m.made_at)
        report_place(
            "TMA copy on the mbarrier at shared memory %u, initialised by thread %u; expected "
            "fence.proxy.async in that thread after mbarrier.init",
            shared_address(barrier), m.maker);
    release_to(m.clock, self(), &m.merged);
    size_t offset = shared_address(shared);
    Action land = [=] {
        set_landing(shared, bytes, false);
        land_box(t, first, offset);
        MBarrier &m = find(barrier);
        m.bytes_missing -= (long)bytes;
        complete(m);
    };
    if (options.async == Async::eager)
        return land();
    memset(shared, 0xFF, bytes);
    set_landing(shared, bytes, true);
    find(barrier).late.push_back(land);
}

size_t in_flight()
{
    size_t n = 0;
    for (Fiber &f : fibers()) {
        n += f.open_copies.size();
        for (auto &group : f.copies)
            n += group.size();
        n += f.in_product.size();
    }
    for (auto &m : mbarriers[seat])
        n += m.second.late.size();
    return n;
}

} // namespace emu
