/* op/attention_amx: the AMX form with tiles in plain C, so that it is judged where the processor
 * has none: forward and gradients against sums in f64. */
#include "tiles.h"

#include "attentioncase.h"

#ifdef SPEC_TILES
#define mr_attention_amx_forward  forward_on_tiles_in_c
#define mr_attention_amx_backward backward_on_tiles_in_c
#include "op/attention_amx.c"

// scratch that holds no number until it is written
static void *scratch(const mr_call *c, bool backward)
{
    size_t bytes = (size_t)attention_pad(amx_scratch(c, backward).bytes, 64);
    return memset(aligned_alloc(64, bytes), 0xff, bytes);
}

static void run(set *s, int how, const int32_t *len, double scale)
{
    (void)how;
    attention_attr attr = {scale};
    mr_desc q = mr_desc_dense(s->dtype, 5, (int64_t[]){B, 1, s->N, H, D}),
            k = mr_desc_dense(s->dtype, 5, (int64_t[]){B, 1, s->M, H, D});
    mr_desc lse = mr_desc_dense(MR_F32, 4, (int64_t[]){B, 1, H, s->N}),
            lens = mr_desc_dense(MR_I32, 1, (int64_t[]){B});
    mr_view none = {.desc.rank = -1}, vl = len ? (mr_view){(void *)(uintptr_t)len, lens} : none;
    mr_call fwd = {.in = {{s->q, q}, {s->k, k}, {s->v, k}, vl},
                   .out = {{s->o, q}, {s->lse, lse}},
                   .attr = &attr};
    mr_call bwd = {
        .in = {{s->q, q}, {s->k, k}, {s->v, k}, vl, {s->o, q}, {s->lse, lse}, {s->dy, q}, none},
        .out = {{s->dq, q}, {s->dk, k}, {s->dv, k}},
        .attr = &attr};
    attention_job job = {.call = &fwd, .scale = (float)attention_scale(&fwd)};
    void *at = scratch(&fwd, false), *back = scratch(&bwd, true);
    for (int64_t u = 0; u < B * H; u++) {
        // the queries of a head may be cut anywhere
        int64_t half = s->N / 2;
        mr_attention_amx_forward(&job, u / H, 0, u % H, 0, half, at);
        mr_attention_amx_forward(&job, u / H, 0, u % H, half, s->N, at);
    }
    job.call = &bwd;
    for (int64_t u = 0; u < B * H; u++)
        mr_attention_amx_backward(&job, u / H, 0, u % H, back);
    free(at), free(back);
}

int main(void)
{
    if (tiles_usable())
        check_all_values(run, 0, "amx, tiles in C", MR_BF16);
    else
        printf("this processor has no AVX-512 BF16: nothing to run\n");
    return check_done();
}
#else
int main(void)
{
    printf("the kernels under test need AVX-512: nothing to run\n");
    return check_done();
}
#endif
