/* op/attention_amx: the AMX form with tiles in plain C, so that it is tested on processors without
 * AMX: forward and gradients compared with sums in f64. */
#include "tiles.h"

#include "attentioncase.h"

#ifdef SPEC_TILES
#define mr_attention_amx_forward  forward_on_tiles_in_c
#define mr_attention_amx_backward backward_on_tiles_in_c
#include "op/attention_amx.c"

// scratch that is nan until it is written
static void *scratch(const mr_call *c, int64_t keys, bool backward)
{
    size_t bytes = (size_t)attention_pad(amx_scratch(c, keys, backward).bytes, 64);
    return memset(aligned_alloc(64, bytes), 0xff, bytes);
}

static void run(set *s, int isa, const how_case *how)
{
    (void)isa;
    attention_attr attr = {.scale = how->scale, .frame = how->frame, .text = how->text};
    mr_call fwd, bwd;
    calls_of(s, how, &attr, &fwd, &bwd);
    attention_job job = {.call = &fwd, .bias = &fwd.in[4], .scale = (float)attention_scale(&fwd)};
    void *at = scratch(&fwd, s->M, false);
    for (int64_t u = 0; u < B * H; u++) {
        // the queries of a head may be divided anywhere
        int64_t half = s->N / 2;
        mr_attention_amx_forward(&job, u / H, 0, u % H, 0, half, at);
        mr_attention_amx_forward(&job, u / H, 0, u % H, half, s->N, at);
    }
    free(at);
    // two key ranges if there are as many tiles: their shares of dq are added up here
    job.call = &bwd, job.bias = &bwd.in[8];
    job.range_keys = s->M > AMX_KEYS ? attention_pad(s->M / 2, AMX_KEYS) : s->M;
    job.ranges = (s->M + job.range_keys - 1) / job.range_keys;
    int64_t width = attention_pad(D, 16), part = s->N * width;
    job.parts = room(B * H * job.ranges * part, MR_F32, 0);
    at = scratch(&bwd, job.range_keys, true);
    for (int64_t t = 0; t < B * H * job.ranges; t++)
        mr_attention_amx_backward(&job, t / job.ranges / H, 0, t / job.ranges % H, t % job.ranges,
                                  at);
    for (int64_t e = 0; job.ranges > 1 && e < B * s->N * H * D; e++) {
        int64_t h = e / D % H, i = e / D / H % s->N, b = e / D / H / s->N;
        const float *first = job.parts + (b * H + h) * job.ranges * part + i * width + e % D;
        put(s->dq, e, first[0] + first[part], s->dtype);
    }
    free(at), free(job.parts);
}

int main(void)
{
    if (tiles_usable())
        check_all_values(run, 0, "amx, tiles in C", MR_BF16, false);
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
