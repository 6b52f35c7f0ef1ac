/* What the files of this room share. They are compiled without instrumentation. */
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

enum { MAX_THREADS = 1024, SHARED_MAX = 232448, SHARED_PLAIN = 48 << 10, WARP_GROUP = 128 };

// for each thread of a block, the last of its moments that is known to have passed
typedef std::vector<uint32_t> Clock;
typedef std::shared_ptr<Clock> ClockRef;
typedef std::function<void()> Action;

enum class State { ready, waiting, polling, done };

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
    std::unordered_map<uintptr_t, uint32_t> visits;       // how often it came by a place
};

extern std::vector<Fiber> fibers;
extern const char *kernel_name;
extern size_t shared_bytes;
extern uint32_t launch_number, block_number;

static inline Fiber *self()
{
    return (Fiber *)current;
}

// has what thread `who` did at its moment `when` happened before what `f` does now?
static inline bool ordered(const Fiber *f, unsigned who, uint32_t when)
{
    return who == f->linear || when <= (*f->known)[who];
}

// block.cpp: give the processor back until somebody sets the fiber ready
void wait_in(const char *where, State state);
/* The clock learns all that fiber f knows, and f steps on. Threads that left one barrier know the
 * same: *merged is what the clock learned last, nothing at first. */
void release_to(Clock &clock, Fiber *f, ClockRef *merged);
void learn(Fiber *f, const Clock &clock);

/* collective.cpp: the last of `full` threads that arrive runs `act` with everyone's argument, by
 * slot (NULL: not there). */
typedef void Meeting(void **args);
void meet_warp(unsigned mask, const char *what, void *arg, Meeting *act);
void meet_group(const char *what, void *arg, Meeting *act);
void collectives_begin();
void collectives_end();

// copy.cpp, product.cpp
void copies_begin();
void products_begin();
size_t in_flight();

// memory.cpp
void memory_begin(size_t shared);
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
