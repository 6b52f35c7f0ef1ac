/* comm/torus: in two hops each rank gets its chunk, by its number, and all chunks are gathered
 * again; sums within a host are f32. */
#include "rankcase.h"

static float value(int rank, int64_t i)
{
    return (float)(rank % 7) + (float)(i % 11) * 0.25f; // exact in any order
}

static mr_status two_hops(rank_case *c)
{
    const int local = *(const int *)c->user, nodes = c->size / local;
    const int64_t chunk = c->size > 100 ? 3 : 700, total = chunk * c->size;
    mr_torus *t;
    MR_TRY(mr_torus_new(c->world, local, &t));
    const int mine = c->rank % local * nodes + c->rank / local;
    float *x = malloc((size_t)total * sizeof *x), *own = malloc((size_t)chunk * sizeof *own);
    for (int64_t i = 0; i < total; i++)
        x[i] = value(c->rank, i);
    mr_comm_count_reset(c->world);
    mr_status st = mr_torus_chunk(t) == mine
                       ? mr_torus_reduce_scatter(t, MR_COMM_SUM, MR_F32, x, chunk, MR_F32, own)
                       : mr_fail(MR_E_FAIL, "owns chunk %d, expected %d", mr_torus_chunk(t), mine);
    // within the host all but one part of `local`, then of that all but one of `nodes`
    int64_t bytes = mr_comm_counted(c->world, MR_COMM_REDUCE_SCATTER).bytes;
    int64_t want = total / local * (local - 1) * 4 + total / c->size * (nodes - 1) * 4;
    if (st == MR_OK && bytes != want)
        st = mr_fail(MR_E_FAIL, "%lld bytes, expected %lld", (long long)bytes, (long long)want);
    for (int64_t i = 0; st == MR_OK && i < chunk; i++) {
        float sum = 0;
        for (int r = 0; r < c->size; r++)
            sum += value(r, mine * chunk + i);
        if (own[i] != sum)
            st = mr_fail(MR_E_FAIL, "element %d of chunk %d: %g, expected %g", (int)i, mine, own[i],
                         sum);
        own[i] = (float)(mine * chunk + i);
    }
    if (st == MR_OK)
        st = mr_torus_all_gather(t, MR_F32, own, chunk, x);
    for (int64_t i = 0; st == MR_OK && i < total; i++)
        if (x[i] != (float)i)
            st = mr_fail(MR_E_FAIL, "gathered %g at %d", x[i], (int)i);
    mr_torus_free(t);
    free(x), free(own);
    return st;
}

static mr_status rounds_once(rank_case *c)
{
    // 1 + 3/256 over four ranks: bf16 between the hops would lose it
    mr_torus *t;
    uint16_t x[4], own;
    MR_TRY(mr_torus_new(c->world, 2, &t));
    for (int i = 0; i < 4; i++)
        x[i] = mr_f32_to_bf16(c->rank ? 0.00390625f : 1);
    mr_status st = mr_torus_reduce_scatter(t, MR_COMM_SUM, MR_BF16, x, 1, MR_BF16, &own);
    if (st == MR_OK && mr_bf16_to_f32(own) != 1.015625f)
        st = mr_fail(MR_E_FAIL, "%.9g, expected 1.015625", mr_bf16_to_f32(own));
    mr_torus_free(t);
    return st;
}

static mr_status no_divisor(rank_case *c)
{
    mr_torus *t;
    return mr_torus_new(c->world, 2, &t);
}

int main(void)
{
    static const int meshes[][2] = {{1, 1}, {2, 1}, {2, 2}, {6, 2}, {6, 3}, {8, 4}, {256, 16}};
    for (size_t i = 0; i < MR_COUNT(meshes); i++)
        ranks_succeed(meshes[i][0], two_hops, (void *)(uintptr_t)&meshes[i][1]);
    ranks_succeed(4, rounds_once, NULL);
    rank_case *cases = ranks_run(3, no_divisor, NULL, NULL);
    CHECK_INT(cases[0].st, MR_E_USAGE);
    CHECK(strstr(cases[0].text, "3 ranks, 2 per node: expected a divisor of 3") != NULL);
    free(cases);
    return check_done();
}
