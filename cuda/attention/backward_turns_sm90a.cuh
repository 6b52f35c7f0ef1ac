/* attention, backward, sm_90a, of long problems: a block takes 128 keys of a head and walks all
 * queries; blocks of one head add to its dq in turns. Formulas as in backward.cuh, steps of a block
 * as in backward_sm90a.cuh.
 *
 * Turns. dq of a head lies in f32 in a slice of memory; a word for each 64 queries says whose turn
 * it is to add to them. The block of the first keys stores, those that follow add, the one of the
 * last keys stores the sum to dq: sums run over keys in order, whatever runs when. Heads go side by
 * side, each in a slot that has a slice and words, and one after the other in a slot: turn i of a
 * slot is tile i % n of its head i / n, for n tiles of keys. A block takes a ticket when it begins
 * work: ticket i is turn i / slots of slot i % slots. It waits for the ticket before its own in the
 * slot alone: somebody took that one earlier and works on it, and the lowest ticket at work waits
 * for no other. So no order of blocks, and no number of them that run at once, can stop all. With
 * one tile of keys there is nothing to wait for.
 *
 * The second and third warp of group 0 keep the turns of a group each: they wait for a turn, tell
 * the group, wait until its sums are on their way, and pass the turn on, while the groups form the
 * next products. Sums are vector additions in the L2: nothing comes back.
 *
 * Counted on an H100, for 128 queries by 128 keys, in cycles of a processor (2048 products a cycle,
 * of which 0.65 are reached, 25 bytes of the L2, 14.5 of the memory):
 *     columns                                         64      80     128
 *     five products; seven                          3940    4920    7880;   5510    6890   11030
 *     L2, in turns: q, do, sums of dq               2620    3280    5240
 *     memory, parts of dq: written, read again      4530    5670    9060
 * and of 16 heads of S queries and keys, in us; S / 128 parts of dq, 128 d S bytes a head, stay in
 * the L2 to S = 1024, where they take as long:
 *     S, 80 columns (head 72)    256    512   1024   2048   4096   8192   16384   32768
 *     five, in turns               9     16     32    102    375   1459    5780   23040
 *     seven, dq by itself         14     22     38    135    519   2041    8100   32280
 *     five, parts of dq           11     18     40    146    569   2254    8980   35860
 *     MB of slices; of parts  1.3; 3 3; 10  5; 42 10; 168 21; 671 42; 2684 84; 10737 168; 42950
 * with 64 and 128 columns in the same order throughout. A turn passes in some 2000 cycles (a fence,
 * a store, a load): blocks of a head that begin at once add so far apart, once. Slots are many
 * enough for 8 of them, fewer where a head has fewer words. One head alone has 132: 264000 cycles,
 * what the products of 132 tiles of queries save.
 *
 * Ref: Shah et al. 2024, arXiv:2407.08608; their deterministic gradient takes turns as well, by the
 * order of blocks. Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_ATTENTION_BACKWARD_TURNS_SM90A_CUH
#define MOONREEL_CUDA_ATTENTION_BACKWARD_TURNS_SM90A_CUH

#include "cuda/attention/backward_sm90a.cuh"

// what a ticket stands for
struct TurnWork : KeyWork {
    uint32_t turn, next; // of the slot's words: for this work, and after it
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

// the word of 64 queries; before all of them stands the next ticket
MR_DEVICE uint32_t *turn_word(const AttentionTurns &turns, const Attention &p, int slot, int half)
{
    return turns.words + 1 + slot * ((p.N + 63) / 64) + half;
}

// one thread: the turns of group `me`, until there is no work
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
        // without keys one block passes on all turns of the head
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
    // nothing else comes here (mr_attention_groups_fit)
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
