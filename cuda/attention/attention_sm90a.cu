/* Launches the sm_90a kernels. Makes the tensor maps, which are kernel parameters, and chooses the
 * number of columns. Licence: Apache-2.0 */
#include "cuda/attention/backward_turns_sm90a.cuh"
#include "cuda/attention/backward_whole_sm90a.cuh"
#include "cuda/attention/forward_wide_sm90a.cuh"
#include "cuda/kernels/kernel_call.h"
#include "cuda/rt/driver.h"
#include <type_traits>

static mr_status map_of(const Heads &x, const uint64_t (&size)[5], int tokens, int columns,
                        mr_tensor_map *map)
{
    mr_cuda_tensor t = {
        x.data,
        {size[0], size[1], size[2], size[3], size[4]},
        {2, (uint64_t)x.h * 2, (uint64_t)x.n * 2, (uint64_t)x.g * 2, (uint64_t)x.b * 2},
        {(uint32_t)columns, 1, (uint32_t)tokens, 1, 1},
        columns * 2};
    // the step along a dimension of size 1 is arbitrary: pass one without overlap, as drivers may
    // demand
    for (int i = 1; i < 5; i++)
        if (t.size[i] == 1)
            t.step_bytes[i] = (t.step_bytes[i - 1] * t.size[i - 1] + 15) / 16 * 16;
    int error = mr_cuda.tensor_map(&t, map);
    return error ? mr_fail(MR_E_NODE, "a tensor map of heads: %s (CUDA error %d)",
                           mr_cuda.text(error), error)
                 : MR_OK;
}

// make maps with boxes of `tokens` tokens by 64 or 16 columns; the head has n tokens of `columns`
// columns
static mr_status maps_of(const Attention &p, const Heads &x, int n, int columns, int tokens,
                         HeadMaps *maps)
{
    const uint64_t size[5] = {(uint64_t)columns, (uint64_t)p.h, (uint64_t)n, (uint64_t)p.G,
                              (uint64_t)p.B};
    MR_TRY(map_of(x, size, tokens, 64, &maps->wide));
    return map_of(x, size, tokens, 16, &maps->rest);
}

// calls launch(padded number of columns) as a compile-time constant
template <class Launch> static void with_columns(const Attention &p, Launch launch)
{
    int columns = mr_attention_group_columns(p);
    if (columns == 64)
        launch(std::integral_constant<int, 64>());
    else if (columns == 80)
        launch(std::integral_constant<int, 80>());
    else
        launch(std::integral_constant<int, 128>());
}

static dim3 grid_of(const Attention &p, int rows, int tile)
{
    return dim3((unsigned)(p.B * p.G * p.h * mr_cuda_ceil(rows, tile)));
}

template <int D>
static mr_status backward(const Attention &p, const AttentionGradient &x, cudaStream_t stream)
{
    constexpr int WALK = GroupBackward<D>::WALK, SHARED = GroupBackward<D>::SHARED;
    HeadMaps q, k, v, dy;
    MR_TRY(maps_of(p, x.q, p.N, p.d, WALK, &q));
    MR_TRY(maps_of(p, x.k, p.M, p.d, GROUP_ROWS, &k));
    MR_TRY(maps_of(p, x.v, p.M, p.e, GROUP_ROWS, &v));
    MR_TRY(maps_of(p, x.dy, p.N, p.e, WALK, &dy));
    if (mr_attention_whole_fit(p)) {
        mr_cuda_shared(attention_whole_groups<D>, SHARED);
        MR_LAUNCH((attention_whole_groups<D>), dim3(GROUP_PROCESSORS), dim3(GROUP_THREADS), SHARED,
                  stream, q, k, v, dy, x.lse, x.dots, x.dlse, x.slices, x.dq, x.dk, x.dv, p);
        return MR_OK;
    }
    const AttentionTurns turns = {x.words, x.slices, mr_attention_turn_slots(p)};
    int64_t works = (int64_t)p.B * p.G * p.h * mr_cuda_ceil(p.M, GROUP_ROWS);
    int64_t blocks = works < GROUP_PROCESSORS ? works : (int64_t)GROUP_PROCESSORS;
    mr_cuda_shared(attention_turns_groups<D>, SHARED);
    MR_LAUNCH((attention_turns_groups<D>), dim3((unsigned)blocks), dim3(GROUP_THREADS), SHARED,
              stream, q, k, v, dy, x.lse, x.dots, x.dlse, turns, x.dq, x.dk, x.dv, p);
    return MR_OK;
}

mr_status mr_attention_forward_groups(const Attention &p, Heads q, Heads k, Heads v, Heads o,
                                      float *lse, cudaStream_t stream)
{
    HeadMaps maps_q, maps_k, maps_v;
    MR_TRY(maps_of(p, q, p.N, p.d, GROUP_ROWS, &maps_q));
    MR_TRY(maps_of(p, k, p.M, p.d, GROUP_ROWS, &maps_k));
    MR_TRY(maps_of(p, v, p.M, p.e, GROUP_ROWS, &maps_v));
    with_columns(p, [&](auto columns) {
        constexpr int D = decltype(columns)::value, SHARED = GroupForward<D>::SHARED;
        mr_cuda_shared(attention_forward_groups<D>, SHARED);
        MR_LAUNCH((attention_forward_groups<D>), grid_of(p, p.N, GROUP_ROWS), dim3(GROUP_THREADS),
                  SHARED, stream, maps_q, maps_k, maps_v, o, lse, p);
    });
    return MR_OK;
}

mr_status mr_attention_forward_wide(const Attention &p, Heads q, Heads k, Heads v, Heads o,
                                    float *lse, cudaStream_t stream)
{
    HeadMaps maps_q, maps_k, maps_v;
    MR_TRY(maps_of(p, q, p.N, p.d, GROUP_ROWS, &maps_q));
    MR_TRY(maps_of(p, k, p.M, p.d, WIDE_KEYS, &maps_k));
    MR_TRY(maps_of(p, v, p.M, p.e, WIDE_KEYS, &maps_v));
    dim3 grid = grid_of(p, p.N, GROUP_ROWS);
    grid.x *= (unsigned)mr_cuda_ceil(p.e, WIDE_HALF);
    mr_cuda_shared(attention_forward_wide, GroupWide::SHARED);
    MR_LAUNCH(attention_forward_wide, grid, dim3(GROUP_THREADS), GroupWide::SHARED, stream, maps_q,
              maps_k, maps_v, o, lse, p);
    return MR_OK;
}

mr_status mr_attention_backward_groups(const Attention &p, const AttentionGradient &x,
                                       cudaStream_t stream)
{
    mr_status st = MR_OK;
    with_columns(p, [&](auto columns) {
        constexpr int D = decltype(columns)::value;
        st = backward<D>(p, x, stream);
    });
    return st;
}
