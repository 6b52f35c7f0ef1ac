/* attention, backward, sm_90a, for long problems. A block takes 128 keys of a head and loops over
 * all queries. Blocks of one head add to its dq in turns. Formulas are in backward.cuh, the steps
 * of a block in backward_sm90a.cuh.
 *
 * Turns. dq of a head is stored in f32 in a slice of global memory. One word per 64 queries says
 * which block may add to them. The block of the first keys stores, the next blocks add, and the
 * block of the last keys writes the final sum to dq. So sums run over keys in order, whenever
 * blocks run. Heads run in parallel slots; each slot has a slice and words, and processes its heads
 * one after another: turn i of a slot is tile i % n of its head i / n, for n tiles of keys.
 *
 * A block takes a ticket when it begins work. Ticket i is turn i / slots of slot i % slots. A block
 * waits only for the previous ticket of its slot. The block with that ticket has already started,
 * and the block with the lowest open ticket waits for no other. So no order of blocks and no number
 * of running blocks can deadlock. With one tile of keys there are no waits.
 *
 * The second and third warp of group 0 each manage the turns of one consumer group: they wait for a
 * turn, signal the group, wait until its sums are issued, and pass the turn on. Meanwhile the
 * groups compute the next products. Sums are vector reductions in the L2, which return nothing.
 *
 * Counts on an H100, for 128 queries by 128 keys, in cycles of a multiprocessor (2048 products a
 * cycle, of which 0.65 are reached, 25 bytes of the L2, 14.5 of the memory):
 *     columns                                         64      80     128
 *     five products; seven                          3940    4920    7880;   5510    6890   11030
 *     L2, in turns: q, do, sums of dq               2620    3280    5240
 *     memory, parts of dq: written, read again      4530    5670    9060
 * The same for 16 heads of S queries and keys, in us. "parts of dq" means one part per tile of
 * keys, S / 128 of them, 128 d S bytes a head; up to S = 1024 these stay in the L2, where they take
 * as long:
 *     S, 80 columns (head 72)    256    512   1024   2048   4096   8192   16384   32768
 *     five, in turns               9     16     32    102    375   1459    5780   23040
 *     seven, dq by itself         14     22     38    135    519   2041    8100   32280
 *     five, parts of dq           11     18     40    146    569   2254    8980   35860
 *     MB of slices; of parts  1.3; 3 3; 10  5; 42 10; 168 21; 671 42; 2684 84; 10737 168; 42950
 * 64 and 128 columns give the same ranking everywhere.
 *
 * Passing a turn takes about 2000 cycles (a fence, a store, a load). Blocks of a head that begin
 * together are delayed by this once, each after the one before. The number of slots lets 8 blocks
 * of a head run at once, fewer if the head has fewer words. With a single head, 132 blocks would
 * wait: 264000 cycles, as much as the saved products of 132 tiles of queries.
 *
 * Ref: Shah et al. 2024, arXiv:2407.08608; their deterministic gradient also uses turns, in the
 * order of blocks. Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_ATTENTION_BACKWARD_TURNS_SM90A_CUH
#define MOONREEL_CUDA_ATTENTION_BACKWARD_TURNS_SM90A_CUH

#include "cuda/attention/backward_sm90a.cuh"

// the work of a ticket
struct TurnWork : KeyWork {
    uint32_t turn, next; // value of the slot's words: for this work, and after it
};
static_assert(sizeof(TurnWork) <= 56, "shared memory has room for the work (WORK_AT)");

MR_DEVICE TurnWork turn_work(const Attention &p, int slots, uint32_t ticket)
{
    int heads = p.B * p.G * p.h, tiles = (p.M + GROUP_ROWS - 1) / GROUP_ROWS;
    uint32_t turn = ticket / slots;
    int slot = ticket % slots, round = turn / tiles, head = round * slots + slot;
    bool there = head < heads;
    TurnWork x;
    (KeyWork &)x = key_work(p, there ? head : 0, turn % tiles, slot);
    x.over = round * slots >= heads;
    if (!there) {
        x.first = p.M;
        x.some = x.begins = false;
    }
    // tiles without keys have no turn
    const KeyTiles keys = key_tiles(p, x.at);
    int behind = 1 + (x.at.tile + 1 == keys.before ? keys.gap : 0);
    x.turn = x.begins ? round * tiles : turn;
    x.next = x.ends ? (round + 1) * tiles : turn + behind;
    return x;
}

// the word of 64 queries; word 0 is the next ticket
MR_DEVICE uint32_t *turn_word(const AttentionTurns &turns, const Attention &p, int slot, int half)
{
    return turns.words + 1 + slot * ((p.N + 63) / 64) + half;
}

// one thread manages the turns of group `me` until no work follows
template <int D>
MR_DEVICE void keep_turns(const GroupStages<D> &stages, const TurnWork *work, const Attention &p,
                          const AttentionTurns &turns, int me)
{
    int halves = (p.N + 63) / 64, sums = 0;
    for (int i = 0;; i++) {
        mr_mbarrier_wait(stages.held, i % 2);
        const TurnWork &x = *work;
        if (x.over)
            return;
        // if no key exists, one block passes all turns of the head
        bool passes = p.M > GROUP_ROWS && (x.some || x.begins);
        for (int half = me; half < halves && passes; half += 2) {
            uint32_t *word = turn_word(turns, p, x.slot, half);
            mr_turn_wait(word, x.turn);
            if (x.some) {
                mr_mbarrier_arrive(stages.turn + me);
                mr_mbarrier_wait(stages.added + me, sums++ % 2);
            }
            mr_turn_pass(word, x.next);
        }
        mr_mbarrier_arrive(stages.released);
    }
}

template <int D>
__global__ void __launch_bounds__(GROUP_THREADS, 1)
    attention_turns_groups(const __grid_constant__ HeadMaps q, const __grid_constant__ HeadMaps k,
                           const __grid_constant__ HeadMaps v, const __grid_constant__ HeadMaps dy,
                           const float *lse, const float *dots, const float *dlse,
                           AttentionTurns turns, Heads dq, Heads dk, Heads dv, Attention p)
{
    typedef GroupBackward<D> F;
    MR_SHARED(memory);
    // calls with frames never use this kernel (mr_attention_groups_fit); this removes code for them
    p.frame = 0;
    int group = mr_group_number();
    TurnWork *work = (TurnWork *)(memory + F::WORK_AT);
    GroupStages<D> stages;
    stages.begin(memory, 256 + 2);
    if (group > 0) {
        mr_registers_more<F::WORKING>();
        group_gradients<D, true>(stages, work, turns.slices, dq, dk, dv, p, group - 1);
        return;
    }
    mr_registers_fewer<F::COPYING>();
    int warp = threadIdx.x / 32, t = 0;
    if (warp > 0 && warp < 3 && threadIdx.x % 32 == 0)
        keep_turns(stages, work, p, turns, warp - 1);
    for (int i = 0; warp == 0; i++) {
        mr_mbarrier_wait(stages.released, i % 2 ^ 1);
        __syncwarp();
        if (threadIdx.x == 0)
            *work = turn_work(p, turns.slots, mr_take_ticket(turns.words));
        __syncwarp();
        stages.copy_work(*work, q, k, v, dy, p, lse, dots, dlse, t);
        if (work->over)
            return;
    }
}

#endif
