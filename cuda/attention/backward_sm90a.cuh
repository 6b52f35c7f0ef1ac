/* attention, backward, sm_90a: shared by the warp-group kernels. Formulas are in backward.cuh;
 * attention_dots computes D of each query beforehand.
 *
 * A block keeps 128 keys and loops over the queries. There are five products: s, dp, dv, dk and dq.
 * Warp group 0 is the producer. It copies keys and values once, then the queries, STAGES tiles
 * ahead. Its first warp also writes the row statistics that the gradient needs. Groups 1 and 2
 * process 64 keys each. Scores are computed transposed, so p and ds become operands of the next
 * products without leaving registers. Those products are in flight while the next scores are
 * computed. Reads of shared memory by products limit the loop, so keys and values stay in registers
 * too, as far as registers suffice. ds of 128 queries goes through one of two shared-memory
 * buffers; each group computes dq of 64 queries over the keys of both groups. The two kernels
 * differ in how they sum dq over tiles of keys. Ref: Shah et al. 2024, arXiv:2407.08608.
 *
 * As in forward_sm90a.cuh, operands are packed after a wait and used at once, otherwise ptxas
 * serialises the products; and a basic block ends before each wait that must stay after
 * exponentials. Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_ATTENTION_BACKWARD_SM90A_CUH
#define MOONREEL_CUDA_ATTENTION_BACKWARD_SM90A_CUH

#include "cuda/attention/group_tile.cuh"
#include "cuda/kernels/pieces.cuh"

template <int D> struct GroupBackward {
    // queries per streamed tile, and tiles per 64 queries; with wide accumulators few registers
    // remain for scores
    static constexpr int WALK = D > 80 ? 32 : 64, STAGES = 3, STEPS = 64 / WALK;
    static constexpr int HELD = GroupTile<D, GROUP_ROWS>::BYTES, WALKED = GroupTile<D, WALK>::BYTES;
    // two resident tiles, two tiles per stage, three floats per row of a stage, barriers
    static constexpr int ROWS_AT = 2 * HELD + STAGES * 2 * WALKED,
                         BARRIERS_AT = ROWS_AT + STAGES * 3 * WALK * 4;
    // ds of 128 keys by 128 queries, in two blocks of 64 queries; two buffers
    static constexpr int BLOCK = GROUP_ROWS * 128, BUFFER = 2 * BLOCK;
    static constexpr int WORK_AT = BARRIERS_AT + 13 * 8; // a KeyWork or a TurnWork
    static constexpr int DS_AT = (WORK_AT + 56 + 1023) / 1024 * 1024;
    static constexpr int SHARED = DS_AT + 2 * BUFFER;
    static constexpr int SLICE = 64 * GroupTile<D, 64>::COLUMNS; // floats for 64 queries
    // k and v: number of 16-column parts that a group keeps in registers, as many as fit. Products
    // would otherwise read them from shared memory, which limits the loop (`make cuda` counts
    // this).
    static constexpr int KEPT_K = D > 80 ? 7 : D / 16, KEPT_V = D > 80 ? 0 : D > 64 ? 1 : D / 16;
    // columns of dq computed at a time, limited by free registers
    static constexpr int COLUMNS = D > 80 ? 64 : D;
    // registers of producer and consumer groups; three groups have 168 each, 504 in total
    static constexpr int COPYING = 40, WORKING = 232;
};

/* The work of a block: 128 keys of a head. It is in shared memory, to save registers. Group 0
 * writes it before barrier `held` completes; the other groups read it until they arrive at
 * `released`. */
struct KeyWork {
    Place at;
    int first; // the first key; past all keys if there is no work
    int slot;  // the slice in which dq is summed
    bool some; // does any of the keys exist?
    // Is this the first or last tile of the head with keys? If no key exists, tile 0 begins and
    // every tile ends.
    bool begins, ends;
    bool over; // no work follows
};

MR_DEVICE KeyWork key_work(const Attention &p, int head, int tile, int slot)
{
    const Place at = place_at(p, head, tile);
    const KeyTiles keys = key_tiles(p, at);
    bool begins = tile == (keys.count > 0 ? keys.at(0) : 0),
         ends = keys.count == 0 || tile == keys.at(keys.count - 1);
    return {at, tile * GROUP_ROWS, slot, keys.has(tile), begins, ends, false};
}

/* Barriers of a block. held: keys are loaded. full, empty: per stage. released: the keys were read.
 * landed: a tile that must be cleared has arrived. Per group, for backward_turns_sm90a.cuh: turn:
 * its turn has come; added: its sums were issued. */
template <int D> struct GroupStages {
    typedef GroupBackward<D> F;
    unsigned char *memory;
    uint64_t *held, *full, *empty, *released, *landed, *turn, *added;
    int looked; // tiles that were cleared (group_copy_keys)

    // all threads call this; `readers` arrivals release the keys
    MR_MEMBER void begin(unsigned char *at, int readers)
    {
        memory = at;
        held = (uint64_t *)(at + F::BARRIERS_AT);
        full = held + 1;
        empty = full + F::STAGES;
        released = empty + F::STAGES;
        landed = released + 1;
        turn = landed + 1;
        added = turn + 2;
        looked = 0;
        if (threadIdx.x == 0) {
            mr_mbarrier_init(held, 1);
            mr_mbarrier_init(released, readers);
            mr_mbarrier_init(landed, 1);
            for (int i = 0; i < F::STAGES; i++) {
                mr_mbarrier_init(full + i, 1 + 32);
                mr_mbarrier_init(empty + i, 256);
            }
            for (int i = 0; i < 2; i++) {
                mr_mbarrier_init(turn + i, 1);
                mr_mbarrier_init(added + i, 128);
            }
            mr_proxy_fence();
        }
        __syncthreads();
    }
    MR_MEMBER unsigned char *tile(int t) const
    {
        return memory + 2 * F::HELD + t % F::STAGES * 2 * F::WALKED;
    }
    MR_MEMBER float *rows(int t) const
    {
        return (float *)(memory + F::ROWS_AT) + t % F::STAGES * 3 * F::WALK;
    }
    MR_MEMBER void wait_full(int t) const
    {
        mr_mbarrier_wait(full + t % F::STAGES, t / F::STAGES % 2);
    }
    MR_MEMBER void wait_empty(int t) const
    {
        mr_mbarrier_wait(empty + t % F::STAGES, t / F::STAGES % 2 ^ 1);
    }
    // One warp copies the keys and values of the work. `held` completes when they have arrived, or
    // at once if no key exists.
    MR_MEMBER void hold(const KeyWork &x, const HeadMaps &k, const HeadMaps &v, const Attention &p)
    {
        if (x.some)
            group_copy_keys<D, GROUP_ROWS>(memory, k, &v, held, landed, looked, p, x.at, x.first);
        else if (threadIdx.x == 0)
            mr_mbarrier_arrive(held);
    }
    // One warp copies the t-th tiles of q and do, and writes the statistics of each query.
    MR_MEMBER void walk_queries(const HeadMaps &q, const HeadMaps &dy, const Attention &p,
                                const Place &at, int t, int row, const float *lse,
                                const float *dots, const float *dlse) const
    {
        uint64_t *barrier = full + t % F::STAGES;
        wait_empty(t);
        if (threadIdx.x == 0) {
            mr_mbarrier_expect(barrier, 2 * F::WALKED);
            group_copy<D, F::WALK>(tile(t), q, barrier, at, row);
            group_copy<D, F::WALK>(tile(t) + F::WALKED, dy, barrier, at, row);
        }
#pragma unroll 1
        for (int i = threadIdx.x; i < F::WALK; i += 32) {
            Statistics x = statistics(p, at, row + i, lse, dots, dlse);
            float *to = rows(t) + i;
            to[0] = x.log_sum;
            to[F::WALK] = x.dot;
            to[2 * F::WALK] = x.weight;
        }
        mr_mbarrier_arrive(barrier);
    }
    // One warp copies all data of the work: its keys, then all queries. t counts tiles of queries.
    MR_MEMBER void copy_work(const KeyWork &x, const HeadMaps &q, const HeadMaps &k,
                             const HeadMaps &v, const HeadMaps &dy, const Attention &p,
                             const float *lse, const float *dots, const float *dlse, int &t)
    {
        int steps = (p.N + 63) / 64 * F::STEPS;
        hold(x, k, v, p);
        for (int step = 0; step < steps && x.some; step++, t++)
            walk_queries(q, dy, p, x.at, t, step * F::WALK, lse, dots, dlse);
    }
};

// which of the thread's two keys exist: bit 0 for `key`, bit 1 for `key` + 8
MR_DEVICE unsigned group_seen(const Attention &p, const Place &at, int key)
{
    return (unsigned)key_exists(p, at, key) | (unsigned)key_exists(p, at, key + 8) << 1;
}

/* 64 keys of a group, half `me` of the resident tiles, with their gradients. ds [64, WALK] is that
 * of the last step; rows are keys. */
template <int D> struct GroupKeys {
    typedef GroupBackward<D> F;
    static constexpr int WALK = F::WALK, N = WALK / 2;
    GroupOutput<D> dk, dv;
    GroupKept<D, F::KEPT_K> k;
    GroupKept<D, F::KEPT_V> v;
    uint32_t ds[N / 2];

    MR_MEMBER void clear()
    {
        dk.clear();
        dv.clear();
    }
    MR_MEMBER void load(const unsigned char *memory, int me)
    {
        k.load(memory, me);
        v.load(memory + F::HELD, me);
    }
    /* Process the t-th tile of queries, the nth whose ds goes to `buffer`. The product with q is
     * still in flight on return. Bit r of `seen`: the thread's key r exists. */
    MR_MEMBER void step(const GroupStages<D> &stages, int t, unsigned char *buffer, int nth, int me,
                        unsigned seen, float scale2)
    {
        float s[N], dp[N];
        uint32_t weights[N / 2];
        stages.wait_full(t);
        uint32_t tile_k = mr_shared_address(stages.memory), tile_v = tile_k + F::HELD;
        uint32_t tile_q = mr_shared_address(stages.tile(t)), tile_dy = tile_q + F::WALKED;
        const float *log_sum = stages.rows(t) + threadIdx.x % 4 * 2, *dot = log_sum + WALK,
                    *weight = dot + WALK;
        // transposed: rows are keys, columns are queries
        mr_group_fence();
        group_scores<D>(s, k, tile_k, me, tile_q);
        mr_group_commit();
        group_scores<D>(dp, v, tile_v, me, tile_dy);
        mr_group_commit();
        // the products with the previous queries and the scores are complete
        mr_group_wait<1>();
        if (t > 0)
            mr_mbarrier_arrive(stages.empty + (t - 1) % F::STAGES);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float x = mr_exp2(s[i] * scale2 - log_sum[i / 4 * 8 + i % 2]);
            s[i] = seen >> i / 2 % 2 & 1 ? x : 0;
        }
        group_pack(weights, s);
        mr_group_fence();
        group_values<D>(dv, weights, tile_dy);
        mr_group_commit();
        mr_group_wait<1>();
#pragma unroll
        for (int i = 0; i < N; i++) {
            int column = i / 4 * 8 + i % 2;
            s[i] *= weight[column] * dp[i] - dot[column];
        }
        group_pack(ds, s);
        // store ds before the product: no thread may access registers that a product in flight
        // reads
        store(buffer, me, nth);
        mr_group_fence();
        group_values<D>(dk, ds, tile_q);
        mr_group_commit();
    }
    // store ds of the step as rows of keys
    MR_MEMBER void store(unsigned char *buffer, int me, int step) const
    {
        int lane = threadIdx.x % 32, key = me * 64 + threadIdx.x / 32 % 4 * 16 + lane / 4;
        unsigned char *to = buffer + step / F::STEPS * F::BLOCK + key * 128 + lane % 4 * 4;
#pragma unroll
        for (int n = 0; n < F::WALK / 8; n++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                int piece = (step % F::STEPS * (F::WALK / 8) + n) ^ lane / 4;
                *(uint32_t *)(to + r * 8 * 128 + piece * 16) = ds[2 * n + r];
            }
    }
    /* Process the queries of this half of a 128-query tile and of the next half, if it exists,
     * starting with tile t. Returns the buffer with ds of both groups; no thread reads the other
     * buffer any more. */
    MR_MEMBER unsigned char *walk(const GroupStages<D> &stages, int &t, int half, int halves,
                                  int me, unsigned seen, float scale2)
    {
        unsigned char *buffer = stages.memory + F::DS_AT + half / 2 % 2 * F::BUFFER;
        int steps = (half + 1 < halves ? 2 : 1) * F::STEPS;
#pragma unroll 1
        for (int i = 0; i < steps; i++, t++) {
            step(stages, t, buffer, i, me, seen, scale2);
        }
        mr_group_wait<0>();
        mr_proxy_fence();
        mr_barrier_sync(1, 256);
        return buffer;
    }
};

// call visit(four accumulators of the thread, index) for each such piece
template <int D, class Visit> MR_DEVICE void group_pieces(GroupOutput<D> &acc, Visit visit)
{
#pragma unroll
    for (int i = 0; i < 8 * (D / 64); i++)
        visit(&acc.wide[4 * i], i);
#pragma unroll
    for (int i = 0; i < D % 64 / 8; i++)
        visit(&acc.rest[4 * i], 8 * (D / 64) + i);
}

/* acc = ds of half `me` of the queries, transposed, times COLUMNS columns of the resident keys from
 * `column` on. The product is complete on return. */
template <int D>
MR_DEVICE void group_queries(GroupOutput<GroupBackward<D>::COLUMNS> &acc,
                             const unsigned char *memory, const unsigned char *buffer, int me,
                             int column)
{
    typedef GroupBackward<D> F;
    typedef GroupTile<D, GROUP_ROWS> T;
    uint32_t keys = mr_shared_address(memory) + column * GROUP_ROWS * 2;
    uint64_t slopes = mr_operand<MR_SWIZZLE_128>(mr_shared_address(buffer) + me * F::BLOCK,
                                                 F::BLOCK, 1024),
             wide = mr_operand<MR_SWIZZLE_128>(keys, T::BLOCK, 1024),
             rest = mr_operand<MR_SWIZZLE_32>(keys + T::WIDE * T::BLOCK, 16, 256);
    mr_group_fence();
#pragma unroll
    for (int i = 0; i < GROUP_ROWS / 16; i++) {
        uint64_t ds = mr_operand_behind(slopes, i * 2048);
        mr_group_product<1, 1>(acc.wide, ds, mr_operand_behind(wide, i * 2048), i > 0);
        if constexpr (T::REST > 0)
            mr_group_product<1, 1>(acc.rest, ds, mr_operand_behind(rest, i * 512), i > 0);
    }
    mr_group_commit();
    mr_group_wait<0>();
}

/* Main loop of a consumer group: process the tiles of keys in `work`, one after another, until no
 * work follows. slices: dq of each slot in f32, 64 queries after 64 queries; within these, piece
 * after piece of all threads of a group. The group adds to a slice by vector reductions in the L2,
 * and reads it back only for the last tile. With TURNS other blocks add to the same slice, each in
 * its turn (backward_turns_sm90a.cuh). */
template <int D, bool TURNS>
MR_DEVICE void group_gradients(const GroupStages<D> &stages, const KeyWork *work, float *slices,
                               const Heads &dq, const Heads &dk, const Heads &dv,
                               const Attention &p, int me)
{
    typedef GroupBackward<D> F;
    int row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4, halves = (p.N + 63) / 64;
    int t = 0, sums = 0;
    const float ones[2] = {1, 1}, factor[2] = {p.scale, p.scale};
    for (int i = 0;; i++) {
        mr_mbarrier_wait(stages.held, i % 2);
        const KeyWork &x = *work;
        if (x.over)
            return;
        GroupOutput<F::COLUMNS> sum;
        GroupKeys<D> keys;
        const unsigned seen = group_seen(p, x.at, x.first + me * 64 + row);
        keys.clear();
        if (x.some)
            keys.load(stages.memory, me);
        for (int half = 0; half < halves && x.some; half += 2) {
            unsigned char *buffer = keys.walk(stages, t, half, halves, me, seen, p.scale * LOG2E);
            if (half + me >= halves)
                continue;
            int query = (half + me) * 64 + row;
            mr_bf16 *out = dq.of(x.at.b, x.at.g, x.at.h) + query * dq.n;
            float *slice =
                slices + ((int64_t)x.slot * halves + half + me) * F::SLICE + threadIdx.x % 128 * 4;
#pragma unroll 1
            for (int column = 0; column < D; column += F::COLUMNS) {
                group_queries<D>(sum, stages.memory, buffer, me, column);
                if (TURNS && column == 0 && p.M > GROUP_ROWS)
                    mr_mbarrier_wait(stages.turn + me, sums % 2);
                const bool first = x.begins, last = x.ends;
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
            if (TURNS && p.M > GROUP_ROWS)
                mr_mbarrier_arrive(stages.added + me);
            sums++;
        }
        // Copy all values out of `work` that are needed below, because group 0 may overwrite it
        // next. If no key of the head exists, its queries get zero gradients, stored below.
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
