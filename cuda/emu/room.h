/* Shared declarations of the files of this room. They are compiled without instrumentation. */
#ifndef MOONREEL_CUDA_EMU_ROOM_H
#define MOONREEL_CUDA_EMU_ROOM_H

#include "emu.h"
#include <deque>
#include <map>
#include <memory>
#include <setjmp.h>
#include <ucontext.h>
#include <unordered_map>

namespace emu
{

enum {
    MAX_THREADS = 1024,
    SHARED_MAX = 232448,
    SHARED_PLAIN = 48 << 10,
    WARP_GROUP = 128,
    SEATS = 3 // blocks that are there at once, at most
};

// moments of the threads of other blocks, by block, as turns reported them
typedef std::map<uint32_t, std::vector<uint32_t>> Others;
typedef std::shared_ptr<const Others> OthersRef;
// for each thread of a block, the last of its moments that is known to have passed
struct Clock : std::vector<uint32_t> {
    using std::vector<uint32_t>::vector;
    OthersRef others;
};
typedef std::shared_ptr<Clock> ClockRef;
typedef std::function<void()> Action;

enum class State { ready, waiting, polling, turning, done };

struct Fiber : Thread {
    ucontext_t start;
    jmp_buf at;
    bool fresh = true; // its stack holds no suspended call
    State state = State::done;
    const char *where; // what it waits in
    ClockRef known;    // of the others
    uint32_t now;      // of itself
    uint32_t fenced;   // moment of its last fence.proxy.async
    std::vector<Action> open_copies;
    std::deque<std::vector<Action>> copies;               // committed groups of cp.async
    std::vector<std::pair<uintptr_t, size_t>> in_product; // accumulators of products in flight
};

/* Where the running block sits. What a file keeps of a block it keeps by seat: blocks that wait for
 * turns of others stay while others run. */
extern unsigned seat;
extern const char *kernel_name;
extern size_t shared_bytes;
extern uint32_t launch_number, block_number;

std::vector<Fiber> &fibers();

static inline Fiber *self()
{
    return (Fiber *)current;
}

// has what thread `who` did at its moment `when` happened before what `f` does now?
static inline bool ordered(const Fiber *f, unsigned who, uint32_t when)
{
    return who == f->linear || when <= (*f->known)[who];
}

// the last moment of that thread of another block that f knows of, or 0
static inline uint32_t heard_of(const Fiber *f, uint32_t block, unsigned who)
{
    if (!f->known->others)
        return 0;
    auto at = f->known->others->find(block);
    return at == f->known->others->end() ? 0 : at->second[who];
}

/* fiber.cpp, for block.cpp: what is launched; a draw of the seed below a number; turns passed in
 * the launch; the running block lets others run. */
extern const Action *body;
extern unsigned dice;
extern uint64_t turns_passed;
extern bool leaving;
unsigned roll(unsigned below);
void make_fibers(unsigned n);
// run a fiber until it gives the processor back
void resume(Fiber *f);

// fiber.cpp: give the processor back until somebody sets the fiber ready
void wait_in(const char *where, State state);
// other blocks may run here, as the seed draws
void let_others();
// a turn was passed on: blocks that wait for one may look again
void turn_passed();
/* The clock learns all that fiber f knows, and f steps on. Threads that left one barrier know the
 * same: *merged is what the clock learned last, nothing at first. */
void release_to(Clock &clock, Fiber *f, ClockRef *merged);
void learn(Fiber *f, const Clock &clock);
void learn_others(OthersRef &to, const OthersRef &from);

/* collective.cpp: the last of `full` threads that arrive runs `act` with everyone's argument, by
 * slot (NULL: not there). */
typedef void Meeting(void **args);
void meet_warp(unsigned mask, const char *what, void *arg, Meeting *act);
void meet_group(const char *what, void *arg, Meeting *act);
void collectives_begin();
void collectives_end();

// turn.cpp
void turns_begin();

// copy.cpp, product.cpp
void copies_begin();
void products_begin();
size_t in_flight();

// memory.cpp
void memory_begin(size_t shared);
void memory_sit();
// a word that blocks speak by, or NULL and a report
uint32_t *word_of_blocks(const void *p, bool write);
struct Access {
    uintptr_t place; // return address in the kernel
    uintptr_t at;
    size_t bytes;
    bool write;
    bool proxy; // by the copy engine or a product, not by an ordinary load or store
};
void watch(const Access &a);
void set_landing(void *shared, size_t bytes, bool landing);

// count.cpp
void count_begin();
void count(const Access &a, bool shared);
void count_end();

// report.cpp: a report with the place in the kernel, once per place and words
void report_place(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

} // namespace emu
#endif
