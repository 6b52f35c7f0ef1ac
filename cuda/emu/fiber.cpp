// The threads of a block as fibers, which yield only where they wait, and the clocks that say what
// each thread knows of the others.
#include "room.h"
#include <algorithm>
#include <sys/mman.h>

namespace emu
{

Options options;
Counts counts;
Thread *current;
dim3 block_index, block_size, grid_size;
unsigned seat;
const char *kernel_name;
size_t shared_bytes;
uint32_t launch_number, block_number;

// not a power of two: otherwise the tops of the stacks would map to the same cache lines
static const size_t STACK_BYTES = (256 << 10) + 17 * 64;
static std::vector<Fiber> fibers_of[SEATS];
uint64_t turns_passed;
bool leaving;

static jmp_buf scheduler;
const Action *body;
unsigned dice;

unsigned roll(unsigned below)
{
    dice = dice * 1664525u + 1013904223u;
    return (dice >> 8) % below;
}

std::vector<Fiber> &fibers()
{
    return fibers_of[seat];
}

static void back_to_scheduler(Fiber *f)
{
    counts.switches++;
    if (!_setjmp(f->at))
        _longjmp(scheduler, 1);
}

// a fiber runs its thread of one launch after another
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

void resume(Fiber *f)
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

void let_others()
{
    if (!options.seed || roll(2))
        return;
    leaving = true;
    wait_in("its next line", State::ready);
}

void turn_passed()
{
    turns_passed++;
}

void learn_others(OthersRef &to, const OthersRef &from)
{
    if (!from || to == from)
        return;
    auto all = std::make_shared<Others>(*from);
    if (to)
        for (auto &block : *to) {
            std::vector<uint32_t> &when = (*all)[block.first];
            when.resize(block.second.size());
            for (size_t i = 0; i < when.size(); i++)
                when[i] = std::max(when[i], block.second[i]);
        }
    to = all;
}

void learn(Fiber *f, const Clock &clock)
{
    auto known = std::make_shared<Clock>(*f->known);
    for (size_t i = 0; i < known->size(); i++)
        (*known)[i] = std::max((*known)[i], clock[i]);
    learn_others(known->others, clock.others);
    f->known = known;
}

void release_to(Clock &clock, Fiber *f, ClockRef *merged)
{
    if (*merged != f->known) {
        for (size_t i = 0; i < clock.size(); i++)
            clock[i] = std::max(clock[i], (*f->known)[i]);
        learn_others(clock.others, f->known->others);
    }
    *merged = f->known;
    clock[f->linear] = std::max(clock[f->linear], f->now);
    f->now++;
}

void make_fibers(unsigned n)
{
    static char *stacks_of[SEATS];
    char *&stacks = stacks_of[seat];
    if (!stacks) {
        // stacks have fixed addresses, so that a suspended one stays valid in later launches
        stacks = (char *)mmap(NULL, STACK_BYTES * MAX_THREADS, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stacks == MAP_FAILED)
            abort();
        fibers().reserve(MAX_THREADS);
    }
    fibers().resize(n);
    for (unsigned i = 0; i < n; i++) {
        Fiber &f = fibers()[i];
        if (!f.fresh && f.state == State::done)
            continue; // it is suspended after its last kernel
        f.fresh = true;
        getcontext(&f.start);
        f.start.uc_stack.ss_sp = stacks + STACK_BYTES * i;
        f.start.uc_stack.ss_size = STACK_BYTES;
        f.start.uc_link = NULL;
        makecontext(&f.start, live, 0);
    }
}

} // namespace emu
