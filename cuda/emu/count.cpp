// Sectors of global memory and wavefronts of shared memory, by request: the lanes of a warp that
// come by one place for the same time.
#include "room.h"
#include <algorithm>

namespace emu
{

struct Lane {
    uintptr_t at;
    size_t bytes;
    unsigned number;
};
struct Request {
    bool shared;
    unsigned n;
    Lane lanes[32];
};
// what lanes of a warp have in common that come by one place for the same time
struct Key {
    uintptr_t place;
    uint32_t warp, visit;
    bool operator==(const Key &k) const
    {
        return place == k.place && warp == k.warp && visit == k.visit;
    }
};
struct KeyHash {
    size_t operator()(const Key &k) const
    {
        return (k.place * 31 + k.warp) * 0x9E3779B97F4A7C15u ^ k.visit * 0xC2B2AE3D27D4EB4Fu;
    }
};
static std::unordered_map<Key, Request, KeyHash> open_requests[SEATS];

// how many pieces of `size` bytes a request touches; its lanes are sorted by address
static uint64_t pieces(const Request &r, size_t size)
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

/* Lanes, by number, are served in groups that move 128 bytes: 8 lanes of 16 bytes, 16 of 8, 32 of
 * fewer. Two words of one bank in a group cost one more pass. */
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

static void close(Request &r)
{
    if (r.shared) {
        std::sort(r.lanes, r.lanes + r.n,
                  [](const Lane &a, const Lane &b) { return a.number < b.number; });
        size_t bytes = r.lanes[0].bytes, group = bytes >= 16 ? 8 : bytes == 8 ? 16 : 32;
        counts.wavefronts += wavefronts(r, group);
        counts.ideal_wavefronts += (r.n + group - 1) / group;
        return;
    }
    auto idle = [](const Lane &a) { return a.bytes == 0; };
    r.n = (unsigned)(std::remove_if(r.lanes, r.lanes + r.n, idle) - r.lanes);
    std::sort(r.lanes, r.lanes + r.n, [](const Lane &a, const Lane &b) { return a.at < b.at; });
    counts.requests++;
    counts.sectors += pieces(r, 32);
    counts.ideal_sectors += (pieces(r, 1) + 31) / 32;
}

void count_begin()
{
    open_requests[seat].clear();
}

void count(const Access &a, bool shared)
{
    Fiber *f = self();
    uintptr_t place = a.place * 2 + a.write;
    auto at = open_requests[seat].try_emplace({place, f->warp, f->visits[place]++}).first;
    Request &r = at->second;
    r.shared = shared;
    r.lanes[r.n++] = {a.at, a.bytes, f->lane};
    if (r.n == 32) {
        close(r);
        open_requests[seat].erase(at);
    }
}

// requests of fewer than 32 lanes are complete when the block is
void count_end()
{
    for (auto &entry : open_requests[seat])
        close(entry.second);
    open_requests[seat].clear();
}

} // namespace emu
