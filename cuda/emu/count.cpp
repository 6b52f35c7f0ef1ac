// Sectors of global memory and wavefronts of shared memory, by request: the lanes of a warp that
// come by one place for the same time.
#include "room.h"
#include <algorithm>
#include <set>
#include <tuple>

namespace emu
{

struct Lane {
    uintptr_t at;
    size_t bytes;
    unsigned number;
};
struct Request {
    bool shared;
    std::vector<Lane> lanes;
};
typedef std::tuple<unsigned, uintptr_t, bool, uint32_t> Key; // warp, place, write, visit
static std::map<Key, Request> open_requests;

// how many pieces of `size` bytes a request touches; its lanes are sorted by address
static uint64_t pieces(const Request &r, size_t size)
{
    uint64_t touched = 0;
    uintptr_t next = 0; // the first piece that is not counted yet
    for (auto &lane : r.lanes) {
        uintptr_t from = std::max(next, lane.at / size), to = (lane.at + lane.bytes - 1) / size + 1;
        touched += to > from ? to - from : 0;
        next = std::max(next, to);
    }
    return touched;
}

/* Lanes, by number, are served in groups that move 128 bytes: 8 lanes of 16 bytes, 16 of 8, 32 of
 * fewer. Two words of one bank in a group cost one more pass. */
static uint64_t wavefronts(const Request &r)
{
    size_t bytes = r.lanes[0].bytes, group = bytes >= 16 ? 8 : bytes == 8 ? 16 : 32;
    uint64_t passes = 0;
    for (size_t first = 0; first < r.lanes.size(); first += group) {
        std::set<uintptr_t> words[32];
        size_t most = 1;
        for (size_t i = first; i < std::min(first + group, r.lanes.size()); i++)
            for (size_t b = 0; b < bytes; b += 4) {
                uintptr_t word = (r.lanes[i].at + b) / 4;
                words[word % 32].insert(word);
                most = std::max(most, words[word % 32].size());
            }
        passes += most;
    }
    return passes;
}

static void close(Request &r)
{
    if (r.shared) {
        std::sort(r.lanes.begin(), r.lanes.end(),
                  [](const Lane &a, const Lane &b) { return a.number < b.number; });
        size_t bytes = r.lanes[0].bytes, group = bytes >= 16 ? 8 : bytes == 8 ? 16 : 32;
        counts.wavefronts += wavefronts(r);
        counts.ideal_wavefronts += (r.lanes.size() + group - 1) / group;
        return;
    }
    auto idle = [](const Lane &a) { return a.bytes == 0; };
    r.lanes.erase(std::remove_if(r.lanes.begin(), r.lanes.end(), idle), r.lanes.end());
    std::sort(r.lanes.begin(), r.lanes.end(),
              [](const Lane &a, const Lane &b) { return a.at < b.at; });
    counts.requests++;
    counts.sectors += pieces(r, 32);
    counts.ideal_sectors += (pieces(r, 1) + 31) / 32;
}

void count_begin()
{
    open_requests.clear();
}

void count(const Access &a, bool shared)
{
    Fiber *f = self();
    uint32_t visit = f->visits[a.place * 2 + a.write]++;
    Key key(f->warp, a.place, a.write, visit);
    Request &r = open_requests[key];
    r.shared = shared;
    r.lanes.push_back({a.at, a.bytes, f->lane});
    if (r.lanes.size() == 32) {
        close(r);
        open_requests.erase(key);
    }
}

// requests of fewer than 32 lanes are complete when the block is
void count_end()
{
    for (auto &entry : open_requests)
        close(entry.second);
    open_requests.clear();
}

} // namespace emu
