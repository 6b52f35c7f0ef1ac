/* Declarations that the files of this room share. These files are compiled without instrumentation.
 */
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
    SEATS = 3 // most blocks that run at once
};

// for each other block, the newest moment of each of its threads that turns have passed on
typedef std::map<uint32_t, std::vector<uint32_t>> Others;
typedef std::shared_ptr<const Others> OthersRef;
// vector clock: for each thread of a block, its newest moment (logical time) that is known to have
// passed
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
    bool fresh = true; // its stack has no suspended call
    State state = State::done;
    const char *where; // the call in which it waits
    ClockRef known;    // moments of other threads
    uint32_t now;      // its own moment
    uint32_t fenced;   // its moment at the last fence.proxy.async
    std::vector<Action> open_copies;
    std::deque<std::vector<Action>> copies;               // committed groups of cp.async
    std::vector<std::pair<uintptr_t, size_t>> in_product; // accumulators of products in flight
};

/* The running block has this seat. Files keep the state of a block by seat, because a block that
 * waits for another block's turn stays while others run. */
extern unsigned seat;
extern const char *kernel_name;
extern size_t shared_bytes;
extern uint32_t launch_number, block_number;

std::vector<Fiber> &fibers();

static inline Fiber *self()
{
    return (Fiber *)current;
}

// did the action of thread `who` at its moment `when` happen before the current action of `f`?
static inline bool ordered(const Fiber *f, unsigned who, uint32_t when)
{
    return who == f->linear || when <= (*f->known)[who];
}

// newest moment of thread `who` of another block that f knows, or 0
static inline uint32_t heard_of(const Fiber *f, uint32_t block, unsigned who)
{
    if (!f->known->others)
        return 0;
    auto at = f->known->others->find(block);
    return at == f->known->others->end() ? 0 : at->second[who];
}

/* fiber.cpp, for block.cpp. body: the launched kernel. dice: state of the random draws.
 * turns_passed: in this launch. leaving: the running block lets other blocks run. roll: a random
 * number below `below`. */
extern const Action *body;
extern unsigned dice;
extern uint64_t turns_passed;
extern bool leaving;
unsigned roll(unsigned below);
void make_fibers(unsigned n);
// run a fiber until it yields
void resume(Fiber *f);

// fiber.cpp: yield until another thread makes this fiber ready
void wait_in(const char *where, State state);
// let other blocks run here, if the seed says so
void let_others();
// a turn was passed: blocks that wait for a turn may check again
void turn_passed();
/* Add all that fiber f knows to the clock, and advance f's moment. Threads that leave one barrier
 * share a clock: *merged is the clock added last (NULL at first), which need not be added again. */
void release_to(Clock &clock, Fiber *f, ClockRef *merged);
void learn(Fiber *f, const Clock &clock);
void learn_others(OthersRef &to, const OthersRef &from);

/* collective.cpp: the last of `full` threads to arrive calls `act` with the arguments of all, by
 * slot (NULL: the slot is empty). */
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
// a word that blocks use to communicate; NULL after a reported error
uint32_t *word_of_blocks(const void *p, bool write);
struct Access {
    uintptr_t place; // return address in the kernel
    uintptr_t at;
    size_t bytes;
    bool write;
    bool proxy; // by TMA or wgmma, not by an ordinary load or store
};
void watch(const Access &a);
void set_landing(void *shared, size_t bytes, bool landing);

// count.cpp
void count_begin();
void count(const Access &a, bool shared);
void count_end();

// report.cpp: report an error at this place of the kernel; each place and format is reported once
void report_place(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

} // namespace emu
#endif
