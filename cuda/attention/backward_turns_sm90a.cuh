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
 * for nobody. So no order of blocks, and no number of them that run at once, can stop all. With one
 * tile of keys there is nothing to wait for.
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

// what a ticket stands for; it lies in shared memory
struct TurnWork {
    Place at;
    int slot, first;     // the first key; past all where the slot has no head any more
    uint32_t turn, next; // of the slot's words: for this work, and after it
    bool over;           // no ticket from here on is work
};
static_assert(sizeof(TurnWork) <= 56, "shared memory has room for the work (WORK_AT)");

MR_DEVICE TurnWork turn_work(const Attention &p, int slots, uint32_t ticket)
{
    TurnWork x;
    int heads = p.B * p.G * p.h, tiles = (p.M + GROUP_ROWS - 1) / GROUP_ROWS;
    x.turn = ticket / slots;
    x.slot = ticket % slots;
    int round = x.turn / tiles, head = round * slots + x.slot;
    x.over = round * slots >= heads;
    x.first = head < heads ? x.turn % tiles * GROUP_ROWS : p.M;
    x.at = place_at(p, head < heads ? head : 0, x.turn % tiles);
    // tiles without keys have no turn
    x.next = x.first + GROUP_ROWS >= x.at.keys ? (round + 1) * tiles : x.turn + 1;
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
        bool some = p.M > GROUP_ROWS && (x.first == 0 || x.first < x.at.keys);
        for (int half = me; half < halves && some; half += 2) {
            uint32_t *word = turn_word(turns, p, x.slot, half);
            mr_turn_wait(word, x.turn);
            if (x.at.keys > 0) {
                mr_mbarrier_arrive(stages.turn + me);
                mr_mbarrier_wait(stages.added + me, sums++ % 2);
            }
            mr_turn_pass(word, x.next);
        }
        mr_mbarrier_arrive(stages.released);
    }
}

/* slices: of each slot, for 64 queries after the other, piece by piece those of all threads of a
 * group */
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
    p.counted = p.M;
    int group = mr_group_number(), t = 0;
    TurnWork *work = (TurnWork *)(memory + F::WORK_AT);
    GroupStages<D> stages;
    stages.begin(memory, 256 + 2);
    if (group == 0) {
        mr_registers_fewer<F::COPYING>();
        int warp = threadIdx.x / 32, halves = (p.N + 63) / 64;
        if (warp > 0 && warp < 3 && threadIdx.x % 32 == 0)
            keep_turns(stages, work, p, turns, warp - 1);
        for (int i = 0; warp == 0; i++) {
            mr_mbarrier_wait(stages.released, i % 2 ^ 1);
            __syncwarp();
            if (threadIdx.x == 0)
                *work = turn_work(p, turns.slots, mr_take_ticket(turns.words));
            __syncwarp();
            const TurnWork &x = *work;
            bool some = x.first < x.at.keys;
            if (some)
                stages.hold_keys(k, v, p, x.at, x.first);
            else if (threadIdx.x == 0)
                mr_mbarrier_arrive(stages.held);
            if (x.over)
                return;
            for (int tile = 0; tile < halves * F::STEPS && some; tile++, t++)
                stages.walk_queries(q, dy, p, x.at, t, tile * F::WALK, lse, dots, dlse);
        }
        return;
    }

    mr_registers_more<F::WORKING>();
    int me = group - 1, row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4, sums = 0;
    int halves = (p.N + 63) / 64;
    const float ones[2] = {1, 1}, factor[2] = {p.scale, p.scale};
    for (int i = 0;; i++) {
        mr_mbarrier_wait(stages.held, i % 2);
        const TurnWork &x = *work;
        if (x.over)
            return;
        GroupOutput<F::COLUMNS> sum;
        GroupKeys<D> keys;
        const int seen = x.at.keys - x.first - me * 64 - row;
        keys.clear();
        for (int half = 0; half < halves && x.first < x.at.keys; half += 2) {
            unsigned char *buffer = keys.walk(stages, t, half, halves, me, seen, p.scale * LOG2E);
            if (half + me >= halves)
                continue;
            int query = (half + me) * 64 + row;
            mr_bf16 *out = dq.of(x.at.b, x.at.g, x.at.h) + query * dq.n;
            float *slice = turns.slices + ((int64_t)x.slot * halves + half + me) * F::SLICE +
                           threadIdx.x % 128 * 4;
#pragma unroll 1
            for (int column = 0; column < D; column += F::COLUMNS) {
                group_queries<D>(sum, memory, buffer, me, column);
                if (column == 0 && p.M > GROUP_ROWS)
                    mr_mbarrier_wait(stages.turn + me, sums % 2);
                bool first = x.first == 0, last = x.first + GROUP_ROWS >= x.at.keys;
                if (last && !first)
                    group_pieces(sum, [&](float *x, int i) {
                        float before[4];
                        mr_load(slice + column * 64 + i * 512, before);
                        for (int e = 0; e < 4; e++)
                            x[e] += before[e];
                    });
                if (last)
                    group_store<F::COLUMNS>(sum, factor, out + column, dq.n, p.N - query,
                                            p.d - column);
                else
                    group_pieces(sum, [&](float *x, int i) {
                        const float now[4] = {x[0], x[1], x[2], x[3]};
                        if (first)
                            mr_store(slice + column * 64 + i * 512, now);
                        else
                            mr_add_four(slice + column * 64 + i * 512, now);
                    });
            }
            if (p.M > GROUP_ROWS)
                mr_mbarrier_arrive(stages.added + me);
            sums++;
        }
        // the work is read no more; who sees no key has no gradient
        const Place at = x.at;
        const int key = x.first + me * 64 + row;
        bool unseen = x.first == 0 && at.keys == 0;
        mr_mbarrier_arrive(stages.released);
        group_store<D>(keys.dk, factor, dk.of(at.b, at.g, at.h) + key * dk.n, dk.n, p.M - key, p.d);
        group_store<D>(keys.dv, ones, dv.of(at.b, at.g, at.h) + key * dv.n, dv.n, p.M - key, p.e);
        for (int query = me * 64 + row; query < p.N && unseen; query += 128) {
            keys.dk.clear();
            group_store<D>(keys.dk, factor, dq.of(at.b, at.g, at.h) + query * dq.n, dq.n,
                           p.N - query, p.d);
        }
    }
}

#endif
