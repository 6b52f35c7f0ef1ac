// Launches: blocks in seeded order, the threads of a block as fibers that give way only where they
// wait.
#include "room.h"
#include <algorithm>
#include <stdio.h>
#include <sys/mman.h>

namespace emu
{

Options options;
Counts counts;
Thread *current;
dim3 block_index, block_size, grid_size;
std::vector<Fiber> fibers;
const char *kernel_name;
size_t shared_bytes;
uint32_t launch_number, block_number;

static const size_t STACK_BYTES = 256 << 10;
// a thread may look in vain at a barrier this often while nobody else moves
static const int PATIENCE = 1000;

static jmp_buf scheduler;
static const Action *body;
static unsigned dice;

static unsigned roll(unsigned below)
{
    dice = dice * 1664525u + 1013904223u;
    return (dice >> 8) % below;
}

static void back_to_scheduler(Fiber *f)
{
    counts.switches++;
    if (!_setjmp(f->at))
        _longjmp(scheduler, 1);
}

// a fiber runs the bodies of one launch after the other
static void live()
{
    for (;;) {
        Fiber *f = self();
        (*body)();
        f->state = State::done;
        f->fresh = false;
        back_to_scheduler(f);
    }
}

static void resume(Fiber *f)
{
    current = f;
    if (_setjmp(scheduler) == 0) {
        if (f->fresh) {
            f->fresh = false;
            setcontext(&f->start);
        }
        _longjmp(f->at, 1);
    }
    current = NULL;
}

void wait_in(const char *where, State state)
{
    Fiber *f = self();
    f->where = where;
    f->state = state;
    back_to_scheduler(f);
}

void learn(Fiber *f, const Clock &clock)
{
    auto known = std::make_shared<Clock>(*f->known);
    for (size_t i = 0; i < known->size(); i++)
        (*known)[i] = std::max((*known)[i], clock[i]);
    f->known = known;
}

void release_to(Clock &clock, Fiber *f, ClockRef *merged)
{
    if (*merged != f->known)
        for (size_t i = 0; i < clock.size(); i++)
            clock[i] = std::max(clock[i], (*f->known)[i]);
    *merged = f->known;
    clock[f->linear] = std::max(clock[f->linear], f->now);
    f->now++;
}

static void make_fibers(unsigned n)
{
    static char *stacks;
    if (!stacks) {
        // stacks lie at fixed places, so that a suspended one stays valid from launch to launch
        stacks = (char *)mmap(NULL, STACK_BYTES * MAX_THREADS, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stacks == MAP_FAILED)
            abort();
        fibers.reserve(MAX_THREADS);
    }
    fibers.resize(n);
    for (unsigned i = 0; i < n; i++) {
        Fiber &f = fibers[i];
        if (!f.fresh && f.state == State::done)
            continue; // at the end of its last body
        f.fresh = true;
        getcontext(&f.start);
        f.start.uc_stack.ss_sp = stacks + STACK_BYTES * i;
        f.start.uc_stack.ss_size = STACK_BYTES;
        f.start.uc_link = NULL;
        makecontext(&f.start, live, 0);
    }
}

static void begin_block(unsigned number)
{
    unsigned gx = grid_size.x, gy = grid_size.y;
    block_number = number;
    block_index = dim3(number % gx, number / gx % gy, number / gx / gy);
    auto nothing = std::make_shared<Clock>(fibers.size(), 0);
    for (unsigned i = 0; i < fibers.size(); i++) {
        Fiber &f = fibers[i];
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
        f.visits.clear();
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
    for (Fiber &f : fibers)
        waiting[f.state == State::done ? "the end" : f.where]++;
    std::string text;
    for (auto &place : waiting)
        text += (text.empty() ? "" : ", ") + std::to_string(place.second) + " threads in " +
                place.first;
    report("deadlock: %s; expected all threads to go on", text.c_str());
}

// Run the threads of the block until all are done. False: they wait for each other.
static bool run_block()
{
    unsigned n = fibers.size(), done = 0;
    int idle = 0;
    while (done < n) {
        unsigned moved = 0, polled = 0;
        unsigned first = options.seed ? roll(n) : 0, step = options.seed && roll(2) ? n - 1 : 1;
        for (unsigned k = 0, i = first; k < n; k++, i = (i + step) % n) {
            Fiber &f = fibers[i];
            if (f.state == State::polling) {
                f.state = State::ready;
                polled++;
            } else if (f.state == State::ready) {
                moved++;
            }
            if (f.state != State::ready)
                continue;
            resume(&f);
            done += f.state == State::done;
        }
        idle = moved ? 0 : idle + 1;
        if ((!moved && !polled) || idle > PATIENCE) {
            report_deadlock();
            return false;
        }
    }
    return true;
}

static std::map<std::string, Launch> seen;

const std::map<std::string, Launch> &launches()
{
    return seen;
}

// "(attention_short<D>)" is attention_short
static void see(const std::string &kernel, unsigned threads, size_t bytes)
{
    size_t from = kernel.find_first_not_of('('), to = kernel.find_first_of("<)", from);
    Launch &most = seen[kernel.substr(from, to - from)];
    most.threads = std::max(most.threads, threads);
    most.shared = std::max(most.shared, bytes);
}

// more shared memory than SHARED_PLAIN, by the kernel that asked for it
static std::map<const void *, size_t> allowed;

void allow_shared(const void *entry, size_t bytes)
{
    allowed[entry] = bytes;
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
    make_fibers(threads);

    std::vector<unsigned> order(grid.x * grid.y * grid.z);
    for (unsigned i = 0; i < order.size(); i++)
        order[i] = i;
    for (unsigned i = order.size(); options.seed && i > 1; i--)
        std::swap(order[i - 1], order[roll(i)]);
    for (unsigned number : order) {
        begin_block(number);
        if (!run_block())
            return;
        collectives_end();
        if (size_t n = in_flight())
            report(
                "%zu asynchronous copies or products in flight at the end of the block; expected a "
                "wait for each",
                n);
        count_end();
    }
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
