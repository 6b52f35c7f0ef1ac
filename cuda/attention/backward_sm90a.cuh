/* attention, backward, sm_90a: products of warp groups and tensor copies; formulas as in
 * backward.cuh.
 *
 * Two kernels behind attention_dots, as there: attention_dq_groups holds 128 queries and walks the
 * keys, attention_dkv_groups holds 128 keys and walks the queries. Seven products instead of five,
 * so that nobody adds to what another block wrote: no partial sums in memory, no turns to wait for.
 * For long problems and few; backward_whole_sm90a.cuh takes many short ones with five, and has the
 * figures. Sums run over tiles in order: the bits do not depend on the order of blocks.
 *
 * Group 0 of a block copies: what is held once, then tiles that are walked, STAGES of them ahead;
 * for attention_dkv_groups its first warp also writes what the gradient needs of each query. Groups
 * 1 and 2 work on 64 rows each. Scores of attention_dkv_groups are formed transposed, so that p and
 * ds are operands of the products that follow without leaving their registers; those products are
 * in flight while the next scores are formed. Ref: Shah et al. 2024, arXiv:2407.08608.
 *
 * As in forward_sm90a.cuh, operands are packed behind a wait and used at once, or ptxas serialises
 * the products; and a basic block ends in front of a wait that must stay behind exponentials.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_ATTENTION_BACKWARD_SM90A_CUH
#define MOONREEL_CUDA_ATTENTION_BACKWARD_SM90A_CUH

#include "cuda/attention/group_tile.cuh"

template <int D, int TILE> struct GroupBackward {
    static constexpr int WALK = TILE, STAGES = 3;
    static constexpr int HELD = GroupTile<D, GROUP_ROWS>::BYTES, WALKED = GroupTile<D, WALK>::BYTES;
    // two tiles that stay, two of each stage, three numbers for each row of a stage, barriers
    static constexpr int ROWS_AT = 2 * HELD + STAGES * 2 * WALKED,
                         BARRIERS_AT = ROWS_AT + STAGES * 3 * WALK * 4;
    static constexpr int SHARED = BARRIERS_AT + 72;
};

// barriers of a block: what is held, of each stage full and empty, what was held is read, a tile
// that is looked through has landed
template <int D, int TILE> struct GroupStages {
    typedef GroupBackward<D, TILE> F;
    unsigned char *memory;
    uint64_t *held, *full, *empty, *released, *landed;
    int turn; // of copies whose keys were looked through (group_copy_keys)

    // all threads; `arrivals` fill a stage
    MR_MEMBER void begin(unsigned char *at, int arrivals)
    {
        memory = at;
        held = (uint64_t *)(at + F::BARRIERS_AT);
        full = held + 1;
        empty = full + F::STAGES;
        released = empty + F::STAGES;
        landed = released + 1;
        turn = 0;
        if (threadIdx.x == 0) {
            mr_mbarrier_init(held, 1);
            mr_mbarrier_init(released, 256);
            mr_mbarrier_init(landed, 1);
            for (int i = 0; i < F::STAGES; i++) {
                mr_mbarrier_init(full + i, arrivals);
                mr_mbarrier_init(empty + i, 256);
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
    // one thread: two tiles from `row` on
    template <int ROWS>
    MR_MEMBER void copy(unsigned char *to, uint64_t *barrier, const HeadMaps &one,
                        const HeadMaps &two, const Place &at, int row) const
    {
        constexpr int BYTES = GroupTile<D, ROWS>::BYTES;
        mr_mbarrier_expect(barrier, 2 * BYTES);
        group_copy<D, ROWS>(to, one, barrier, at, row);
        group_copy<D, ROWS>(to + BYTES, two, barrier, at, row);
    }
    // one warp: the t-th tiles of q and do, and what the gradient needs of their queries
    MR_MEMBER void walk_queries(const HeadMaps &q, const HeadMaps &dy, const Attention &p,
                                const Place &at, int t, int row, const float *lse,
                                const float *dots, const float *dlse) const
    {
        wait_empty(t);
        if (threadIdx.x == 0)
            copy<F::WALK>(tile(t), full + t % F::STAGES, q, dy, at, row);
#pragma unroll 1
        for (int i = threadIdx.x; i < F::WALK; i += 32) {
            Statistics x = statistics(p, at, row + i, lse, dots, dlse);
            float *to = rows(t) + i;
            to[0] = x.log_sum;
            to[F::WALK] = x.dot;
            to[2 * F::WALK] = x.weight;
        }
        mr_mbarrier_arrive(full + t % F::STAGES);
    }
};

// keys of a tile that attention_dq_groups walks, queries of one of attention_dkv_groups: wide
// accumulators leave few registers for scores
enum { DQ_WALK = 64 };
template <int D> static constexpr int DKV_WALK = D > 80 ? 32 : 64;

template <int D>
__global__ void __launch_bounds__(GROUP_THREADS, 1)
    attention_dq_groups(const __grid_constant__ HeadMaps q, const __grid_constant__ HeadMaps k,
                        const __grid_constant__ HeadMaps v, const __grid_constant__ HeadMaps dy,
                        const float *lse, const float *dots, const float *dlse, Heads dq,
                        Attention p)
{
    typedef GroupBackward<D, DQ_WALK> F;
    MR_SHARED(memory);
    Place at = place_of(p, (p.N + GROUP_ROWS - 1) / GROUP_ROWS);
    int group = threadIdx.x / 128, first = at.tile * GROUP_ROWS;
    int tiles = (at.keys + F::WALK - 1) / F::WALK;
    GroupStages<D, DQ_WALK> stages;
    stages.begin(memory, 1);
    if (group == 0) {
        mr_registers_fewer<40>();
        if (threadIdx.x == 0)
            stages.template copy<GROUP_ROWS>(memory, stages.held, q, dy, at, first);
        for (int t = 0; t < tiles && threadIdx.x < 32; t++) {
            stages.wait_empty(t);
            group_copy_keys<D, F::WALK>(stages.tile(t), k, &v, stages.full + t % F::STAGES,
                                        stages.landed, stages.turn, p, at, t * F::WALK);
        }
        return;
    }

    mr_registers_more<232>();
    int me = group - 1, lane = threadIdx.x % 32;
    int query = first + me * 64 + threadIdx.x / 32 % 4 * 16 + lane / 4;
    const Statistics row[2] = {statistics(p, at, query, lse, dots, dlse),
                               statistics(p, at, query + 8, lse, dots, dlse)};
    uint32_t tile_q = mr_shared_address(memory), tile_dy = tile_q + F::HELD;
    float s[32], dp[32], scale2 = p.scale * LOG2E;
    uint32_t ds[16];
    GroupOutput<D> acc;
    acc.clear();
    mr_mbarrier_wait(stages.held, 0);
    if (tiles > 0)
        stages.wait_full(0);
#pragma unroll 1
    for (int t = 0; t < tiles; t++) {
        uint32_t tile_k = mr_shared_address(stages.tile(t)), tile_v = tile_k + F::WALKED;
        mr_group_fence();
        group_scores<D>(s, tile_q, me, tile_k);
        mr_group_commit();
        group_scores<D>(dp, tile_dy, me, tile_v);
        mr_group_commit();
        // the product with the last keys and the scores are there
        mr_group_wait<1>();
        if (t > 0)
            mr_mbarrier_arrive(stages.empty + (t - 1) % F::STAGES);
        int keep = at.keys - t * F::WALK - lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < 32; i++) {
            float x = mr_exp2(s[i] * scale2 - row[i / 2 % 2].log_sum);
            s[i] = i / 4 * 8 + i % 2 >= keep ? 0 : x;
        }
        // ends a basic block: the wait below stays behind the exponentials
        if (t + 1 < tiles)
            stages.wait_full(t + 1);
        mr_group_wait<0>();
#pragma unroll
        for (int i = 0; i < 32; i++)
            s[i] *= row[i / 2 % 2].weight * dp[i] - row[i / 2 % 2].dot;
        group_pack(ds, s);
        mr_group_fence();
        group_values<D>(acc, ds, tile_k);
        mr_group_commit();
    }
    mr_group_wait<0>();
    const float factor[2] = {p.scale, p.scale};
    group_store<D>(acc, factor, dq.of(at.b, at.g, at.h) + query * dq.n, dq.n, p.N - query, p.d);
}

/* 64 keys of a group and the gradients of theirs, the group's half `me` of the tiles that are held;
 * ds [64, WALK] of the last step, rows are keys. */
template <int D> struct GroupKeys {
    static constexpr int WALK = DKV_WALK<D>, N = WALK / 2;
    typedef GroupBackward<D, WALK> F;
    GroupOutput<D> dk, dv;
    uint32_t ds[N / 2];

    MR_MEMBER void clear()
    {
        dk.clear();
        dv.clear();
    }
    // the t-th queries that are walked; the product with q is in flight afterwards
    MR_MEMBER void step(const GroupStages<D, WALK> &stages, int t, int me, const bool (&exists)[2],
                        float scale2)
    {
        float s[N], dp[N];
        uint32_t weights[N / 2];
        stages.wait_full(t);
        uint32_t tile_k = mr_shared_address(stages.memory), tile_v = tile_k + F::HELD;
        uint32_t tile_q = mr_shared_address(stages.tile(t)), tile_dy = tile_q + F::WALKED;
        const float *log_sum = stages.rows(t) + threadIdx.x % 4 * 2, *dot = log_sum + WALK,
                    *weight = dot + WALK;
        // transposed: rows are keys, columns queries
        mr_group_fence();
        group_scores<D>(s, tile_k, me, tile_q);
        mr_group_commit();
        group_scores<D>(dp, tile_v, me, tile_dy);
        mr_group_commit();
        // the products with the last queries and the scores are there
        mr_group_wait<1>();
        if (t > 0)
            mr_mbarrier_arrive(stages.empty + (t - 1) % F::STAGES);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float x = mr_exp2(s[i] * scale2 - log_sum[i / 4 * 8 + i % 2]);
            s[i] = exists[i / 2 % 2] ? x : 0;
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
        mr_group_fence();
        group_values<D>(dk, ds, tile_q);
        mr_group_commit();
    }
};

template <int D>
__global__ void __launch_bounds__(GROUP_THREADS, 1)
    attention_dkv_groups(const __grid_constant__ HeadMaps q, const __grid_constant__ HeadMaps k,
                         const __grid_constant__ HeadMaps v, const __grid_constant__ HeadMaps dy,
                         const float *lse, const float *dots, const float *dlse, Heads dk, Heads dv,
                         Attention p)
{
    constexpr int WALK = DKV_WALK<D>;
    MR_SHARED(memory);
    Place at = place_of(p, (p.M + GROUP_ROWS - 1) / GROUP_ROWS);
    int group = threadIdx.x / 128, first = at.tile * GROUP_ROWS;
    // without keys there is nothing to walk
    int tiles = first < at.keys ? (p.N + WALK - 1) / WALK : 0;
    GroupStages<D, WALK> stages;
    stages.begin(memory, 1 + 32);
    if (group == 0) {
        mr_registers_fewer<40>();
        if (threadIdx.x < 32 && tiles > 0)
            group_copy_keys<D, GROUP_ROWS>(memory, k, &v, stages.held, stages.landed, stages.turn,
                                           p, at, first);
        for (int t = 0; t < tiles && threadIdx.x < 32; t++)
            stages.walk_queries(q, dy, p, at, t, t * WALK, lse, dots, dlse);
        return;
    }

    mr_registers_more<232>();
    int me = group - 1, lane = threadIdx.x % 32;
    int key = first + me * 64 + threadIdx.x / 32 % 4 * 16 + lane / 4;
    const bool exists[2] = {key < at.keys, key + 8 < at.keys};
    GroupKeys<D> keys;
    keys.clear();
    if (tiles > 0)
        mr_mbarrier_wait(stages.held, 0);
#pragma unroll 1
    for (int t = 0; t < tiles; t++)
        keys.step(stages, t, me, exists, p.scale * LOG2E);
    mr_group_wait<0>();
    const float ones[2] = {1, 1}, factor[2] = {p.scale, p.scale};
    group_store<D>(keys.dk, factor, dk.of(at.b, at.g, at.h) + key * dk.n, dk.n, p.M - key, p.d);
    group_store<D>(keys.dv, ones, dv.of(at.b, at.g, at.h) + key * dv.n, dv.n, p.M - key, p.e);
}

#endif
