// Counts sectors of global memory and wavefronts of shared memory by request. A request is one
// access by the lanes of a warp: their i-th visits to the same place of the kernel.
#include "room.h"
#include <algorithm>

namespace emu
{

struct Lane {
    uintptr_t at;
    uint32_t bytes, number;
};
struct Request {
    bool shared;
    unsigned n;
    Lane lanes[32]; // only the first n are valid
};
// The requests of one warp at one place of the kernel. Lanes run one after another and each makes
// its visits in order, so the requests become complete in order too.
struct Row {
    uint32_t visits[32] = {0};       // number of visits, by lane
    uint32_t first = 0;              // visit number of requests[0]
    size_t closed = 0;               // requests that are counted and recycled
    std::vector<Request *> requests; // of visits first, first + 1, ...
};
struct Key {
    uintptr_t place;
    uint32_t warp;
    bool operator==(const Key &k) const
    {
        return place == k.place && warp == k.warp;
    }
};
struct KeyHash {
    size_t operator()(const Key &k) const
    {
        return (k.place * 31 + k.warp) * 0x9E3779B97F4A7C15u >> 32;
    }
};
struct Near {
    Key key;
    Row *row;
};
static std::unordered_map<Key, Row, KeyHash> rows_of[SEATS];
static Near near_of[SEATS][1024]; // cache of recently used rows, by hash

// requests to reuse: one lane can run far ahead of another, so a block may hold thousands
static std::vector<Request *> spare;

static Request *request_new(bool shared)
{
    Request *r;
    if (spare.empty()) {
        r = new Request;
    } else {
        r = spare.back();
        spare.pop_back();
    }
    r->shared = shared;
    r->n = 0;
    return r;
}

static Row &row_of(const Key &key)
{
    Near &near = near_of[seat][KeyHash()(key) % 1024];
    if (!near.row || !(near.key == key))
        near = {key, &rows_of[seat][key]};
    return *near.row;
}

// number of pieces of `size` bytes that a request touches; its lanes are sorted by address
template <size_t size> static uint64_t pieces(const Request &r)
{
    uint64_t touched = 0;
    uintptr_t next = 0; // the first piece that is not counted yet
    for (unsigned i = 0; i < r.n; i++) {
        const Lane &lane = r.lanes[i];
        uintptr_t from = std::max(next, lane.at / size), to = (lane.at + lane.bytes - 1) / size + 1;
        touched += to > from ? to - from : 0;
        next = std::max(next, to);
    }
    return touched;
}

/* The hardware serves lanes, in order, in groups that move 128 bytes: 8 lanes of 16 bytes, 16 of 8,
 * or 32 of fewer. Two different words of one bank in a group cost one more pass. */
static uint64_t wavefronts(const Request &r, size_t group)
{
    static std::vector<uintptr_t> words;
    uint64_t passes = 0;
    for (size_t first = 0; first < r.n; first += group) {
        unsigned in_bank[32] = {0}, most = 1;
        words.clear();
        for (size_t i = first; i < std::min(first + group, (size_t)r.n); i++)
            for (size_t b = 0; b < r.lanes[i].bytes; b += 4)
                words.push_back((r.lanes[i].at + b) / 4);
        std::sort(words.begin(), words.end());
        words.erase(std::unique(words.begin(), words.end()), words.end());
        for (uintptr_t word : words)
            most = std::max(most, ++in_bank[word % 32]);
        passes += most;
    }
    return passes;
}

// lanes are usually in order already
template <typename Less> static void sort(Request &r, Less less)
{
    if (!std::is_sorted(r.lanes, r.lanes + r.n, less))
        std::sort(r.lanes, r.lanes + r.n, less);
}

static void count_request(Request &r)
{
    if (r.shared) {
        sort(r, [](const Lane &a, const Lane &b) { return a.number < b.number; });
        size_t bytes = r.lanes[0].bytes, group = bytes >= 16 ? 8 : bytes == 8 ? 16 : 32;
        counts.wavefronts += wavefronts(r, group);
        counts.ideal_wavefronts += (r.n + group - 1) / group;
        return;
    }
    auto idle = [](const Lane &a) { return a.bytes == 0; };
    r.n = (unsigned)(std::remove_if(r.lanes, r.lanes + r.n, idle) - r.lanes);
    sort(r, [](const Lane &a, const Lane &b) { return a.at < b.at; });
    counts.requests++;
    counts.sectors += pieces<32>(r);
    counts.ideal_sectors += (pieces<1>(r) + 31) / 32;
}

static void close(Request *r)
{
    count_request(*r);
    spare.push_back(r);
}

void count_begin()
{
    // a deadlocked block may have left some requests
    for (auto &entry : rows_of[seat]) {
        auto &requests = entry.second.requests;
        spare.insert(spare.end(), requests.begin() + entry.second.closed, requests.end());
    }
    rows_of[seat].clear();
    memset(near_of[seat], 0, sizeof near_of[seat]);
}

void count(const Access &a, bool shared)
{
    Fiber *f = self();
    Row &row = row_of({a.place * 2 + a.write, f->warp});
    size_t i = row.visits[f->lane]++ - row.first;
    if (i == row.requests.size())
        row.requests.push_back(request_new(shared));
    Request *r = row.requests[i];
    r->lanes[r->n++] = {a.at, (uint32_t)a.bytes, f->lane};
    if (r->n < 32)
        return;
    close(r);
    if (++row.closed == row.requests.size()) {
        row.first += row.closed;
        row.closed = 0;
        row.requests.clear();
    }
}

// requests with fewer than 32 lanes are complete at the end of the block
void count_end()
{
    for (auto &entry : rows_of[seat]) {
        Row &row = entry.second;
        std::for_each(row.requests.begin() + row.closed, row.requests.end(), close);
        row.closed = row.requests.size();
    }
}

} // namespace emu
