// Launches. Blocks run in seeded order. A block runs to its end unless it waits for a turn of
// another block or lets other blocks run.
#include "room.h"
#include <algorithm>
#include <stdio.h>

namespace emu
{

// this many polls at a barrier without progress in any thread are a deadlock
static const int PATIENCE = 1000;

// after this many polls for a turn without progress in any thread, the block yields; late copies
// may land meanwhile
static const int LOOKS = 4;

struct Seated {
    bool taken;
    unsigned number;
    uint64_t passed; // turns_passed when the block last waited for a turn
};
static Seated seated[SEATS];
static const uint64_t NEVER = UINT64_MAX;

// make the block in this seat the running one
static void sit(unsigned at)
{
    unsigned gx = grid_size.x, gy = grid_size.y;
    seat = at;
    block_number = seated[at].number;
    block_index = dim3(block_number % gx, block_number / gx % gy, block_number / gx / gy);
    memory_sit();
}

static void begin_block(unsigned at, unsigned number)
{
    seated[at] = {true, number, NEVER};
    sit(at);
    make_fibers(block_size.x * block_size.y * block_size.z);
    auto nothing = std::make_shared<Clock>(fibers().size(), 0);
    for (unsigned i = 0; i < fibers().size(); i++) {
        Fiber &f = fibers()[i];
        f.index = dim3(i % block_size.x, i / block_size.x % block_size.y,
                       i / block_size.x / block_size.y);
        f.linear = i;
        f.lane = i % 32;
        f.warp = i / 32;
        f.state = State::ready;
        f.where = "its first line";
        f.known = nothing;
        f.now = 1;
        f.fenced = 0;
        f.open_copies.clear();
        f.copies.clear();
        f.in_product.clear();
    }
    memory_begin(shared_bytes);
    collectives_begin();
    copies_begin();
    products_begin();
    count_begin();
}

static void report_deadlock()
{
    std::map<std::string, int> waiting;
    for (Fiber &f : fibers())
        waiting[f.state == State::done ? "the end" : f.where]++;
    std::string text;
    for (auto &place : waiting)
        text += (text.empty() ? "" : ", ") + std::to_string(place.second) + " threads in " +
                place.first;
    report("deadlock: %s; expected all threads to continue", text.c_str());
}

enum class Ran { done, left, waits, stuck };

// Run the threads of the block. stuck: they wait for each other.
static Ran run_block()
{
    unsigned n = fibers().size();
    int idle = 0;
    for (;;) {
        unsigned moved = 0, polled = 0, turning = 0, done = 0;
        unsigned first = options.seed ? roll(n) : 0, step = options.seed && roll(2) ? n - 1 : 1;
        for (unsigned k = 0, i = first; k < n; k++, i = (i + step) % n) {
            Fiber &f = fibers()[i];
            done += f.state == State::done;
            moved += f.state == State::ready;
            polled += f.state == State::polling;
            turning += f.state == State::turning;
            if (f.state == State::done || f.state == State::waiting)
                continue;
            f.state = State::ready;
            resume(&f);
            done += f.state == State::done;
            if (leaving) {
                leaving = false;
                return Ran::left;
            }
        }
        if (done == n)
            return Ran::done;
        idle = moved ? 0 : idle + 1;
        if (turning && idle > LOOKS)
            return Ran::waits;
        if ((!moved && !polled && !turning) || idle > PATIENCE)
            return Ran::stuck;
    }
}

static std::map<std::string, Launch> seen;

const std::map<std::string, Launch> &launches()
{
    return seen;
}

// the name "(attention_short<D>)" becomes attention_short
static void see(const std::string &kernel, unsigned threads, size_t bytes)
{
    size_t from = kernel.find_first_not_of('('), to = kernel.find_first_of("<)", from);
    Launch &most = seen[kernel.substr(from, to - from)];
    most.threads = std::max(most.threads, threads);
    most.shared = std::max(most.shared, bytes);
}

// limit of shared memory above SHARED_PLAIN, by kernel
static std::map<const void *, size_t> allowed;

void allow_shared(const void *entry, size_t bytes)
{
    allowed[entry] = bytes;
}

static void end_block()
{
    seated[seat].taken = false;
    collectives_end();
    if (size_t n = in_flight())
        report("%zu asynchronous copies or products in flight at the end of the block; expected a "
               "wait for each",
               n);
    count_end();
}

/* The seats that can run: those of blocks whose turn may have come, and one free seat if a block
 * can begin. */
static std::vector<unsigned> seats_to_go(unsigned seats, bool begin)
{
    std::vector<unsigned> go;
    for (unsigned i = 0; i < seats; i++) {
        bool free = !seated[i].taken;
        if (free ? begin : seated[i].passed != turns_passed)
            go.push_back(i);
        begin &= !free;
    }
    return go;
}

// Run blocks in this order. The seed chooses how many run at once, because a kernel cannot know
// this number.
static void run_blocks(const std::vector<unsigned> &order)
{
    unsigned seats = options.seed ? 1 + roll(SEATS) : 1;
    size_t begun = 0;
    for (Seated &s : seated)
        s.taken = false;
    for (;;) {
        std::vector<unsigned> go = seats_to_go(seats, begun < order.size());
        if (go.empty())
            break;
        unsigned at = go[go.size() > 1 ? roll((unsigned)go.size()) : 0];
        if (seated[at].taken)
            sit(at);
        else
            begin_block(at, order[begun++]);
        Ran ran = run_block();
        seated[at].passed = ran == Ran::waits ? turns_passed : NEVER;
        if (ran == Ran::stuck)
            return report_deadlock();
        if (ran == Ran::done)
            end_block();
    }
    for (unsigned i = 0; i < seats; i++)
        if (seated[i].taken) {
            sit(i);
            report_deadlock();
        }
}

static void launch_now(const char *kernel, size_t most, dim3 grid, dim3 block, size_t bytes,
                       const Action &kernel_body)
{
    unsigned threads = block.x * block.y * block.z;
    kernel_name = kernel;
    block_index = dim3(0, 0, 0);
    if (threads == 0 || threads > MAX_THREADS)
        return report("a block of %u threads, expected 1 to %d", threads, MAX_THREADS);
    if (bytes > SHARED_MAX)
        return report("%zu bytes of shared memory, expected at most %d", bytes, SHARED_MAX);
    if (bytes > most)
        return report("%zu bytes of shared memory, expected mr_cuda_shared to ask for more than "
                      "%zu before the launch",
                      bytes, most);
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535)
        return report("a grid of %u x %u x %u blocks, expected 1 to 65535 in y and z", grid.x,
                      grid.y, grid.z);
    see(kernel, threads, bytes);
    body = &kernel_body;
    shared_bytes = bytes;
    grid_size = grid;
    block_size = block;
    launch_number++;
    counts.launches++;
    dice = options.seed;
    turns_begin();

    std::vector<unsigned> order(grid.x * grid.y * grid.z);
    for (unsigned i = 0; i < order.size(); i++)
        order[i] = i;
    for (unsigned i = order.size(); options.seed && i > 1; i--)
        std::swap(order[i - 1], order[roll(i)]);
    run_blocks(order);
}

void launch(const char *kernel, const void *entry, dim3 grid, dim3 block, size_t bytes,
            cudaStream_t stream, const Action &kernel_body)
{
    size_t most = std::max((size_t)SHARED_PLAIN, allowed[entry]);
    if (!stream)
        return launch_now(kernel, most, grid, block, bytes, kernel_body);
    enqueue(stream, [=] { launch_now(kernel, most, grid, block, bytes, kernel_body); });
}

} // namespace emu
