// Communication between the blocks of a launch: tickets, turns, and sums in memory.
#include "room.h"
#include <float.h>

namespace emu
{

// by word: the moments of all blocks that its last writer knew
static std::map<const uint32_t *, OthersRef> reported_by;

void turns_begin()
{
    reported_by.clear();
}

// a ticket is only a number: it orders no accesses between blocks
uint32_t take_ticket(uint32_t *next)
{
    uint32_t *word = word_of_blocks(next, false);
    uint32_t ticket = word ? (*word)++ : 0;
    let_others();
    return ticket;
}

void turn_wait(const uint32_t *at, uint32_t turn)
{
    const uint32_t *word = word_of_blocks(at, false);
    while (word && *word != turn)
        wait_in("a turn of another block", State::turning);
    Fiber *f = self();
    auto known = std::make_shared<Clock>(*f->known);
    learn_others(known->others, reported_by[at]);
    f->known = known;
}

void turn_pass(uint32_t *at, uint32_t turn)
{
    Fiber *f = self();
    auto all = std::make_shared<Others>();
    if (f->known->others)
        *all = *f->known->others;
    std::vector<uint32_t> &own = (*all)[block_number] = *f->known;
    own[f->linear] = f->now++;
    reported_by[at] = all;
    if (uint32_t *word = word_of_blocks(at, true))
        *word = turn;
    turn_passed();
    let_others();
}

// red.add of f32 in global memory flushes denormal inputs and results to zero
static float flushed(float x)
{
    return fabsf(x) < FLT_MIN ? copysignf(0, x) : x;
}

void add_four(float *to, const float *x)
{
    uintptr_t place = (uintptr_t)__builtin_return_address(0);
    watch({place, (uintptr_t)to, 16, false, false});
    watch({place, (uintptr_t)to, 16, true, false});
    if (word_of_blocks(to, true))
        for (int i = 0; i < 4; i++)
            to[i] = flushed(flushed(to[i]) + flushed(x[i]));
}

} // namespace emu
