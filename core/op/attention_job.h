/* attention_job: what the files of attention share: the call, the mask (which keys exist and which
 * of them a query sees), the bias, the scratch memory of a worker, and the kernels of each form.
 * Licence: Apache-2.0 */
#ifndef MR_ATTENTION_JOB_H
#define MR_ATTENTION_JOB_H

#include "cpu/rows.h"
#include "op/define.h"

typedef struct attention_attr {
    double scale;
    int64_t frame, text, before;
    bool part;
} attention_attr;

typedef enum attention_form { TILES, LANES, AMX, DOTS } attention_form;

typedef struct attention_job {
    const mr_call *call;
    attention_form form;
    const mr_view *bias; /* [h, N, M], can be absent */
    float scale;
    size_t worker_bytes;        /* scratch of one worker */
    int64_t splits, split_rows; /* forward: query ranges per head */
    /* backward: key ranges per head. If there are several, each writes its share of dq to `parts`,
     * [units, ranges, N, d rounded up to 16]. */
    int64_t ranges, range_keys;
    float *parts;
    float *dbias; /* [h, N, M], accumulated; or NULL */
} attention_job;

MR_OP_FN double attention_scale(const mr_call *c)
{
    const attention_attr *a = c->attr;
    return a->scale != 0 ? a->scale : 1 / sqrt((double)c->in[0].desc.dim[4]);
}

MR_OP_FN int64_t attention_pad(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* offset of one head in statistics [B, G, h, N] */
MR_OP_FN int64_t attention_stat(const mr_call *c, int64_t b, int64_t g, int64_t h)
{
    const int64_t *n = c->in[0].desc.dim;
    return ((b * n[1] + g) * n[3] + h) * n[2];
}

/* ---- keys ---- */

/* The existing keys of one sample, numbered without the missing ones. Key j is in row j if j <
 * first, else in row j + gap. A query sees the first keys up to some number, so a mask is a
 * count. */
typedef struct attention_keys {
    int64_t all, first, gap, frame;
} attention_keys;

MR_OP_FN attention_keys attention_keys_of(const mr_call *c, int64_t b)
{
    const attention_attr *a = c->attr;
    int64_t M = c->in[1].desc.dim[2], counted = a->text ? MR_MAX(a->text - a->before, 0) : M,
            len = counted;
    if (mr_given(&c->in[3]))
        len = MR_MAX(0, MR_MIN(((const int32_t *)c->in[3].data)[b] - a->before, counted));
    return (attention_keys){len + M - counted, len, counted - len, a->frame};
}

MR_OP_FN int64_t attention_row(const attention_keys *k, int64_t j)
{
    return j < k->first ? j : j + k->gap;
}

/* The number of keys that query i sees. */
MR_OP_FN int64_t attention_seen(const attention_keys *k, int64_t i)
{
    return k->frame ? MR_MIN(k->all, (i / k->frame + 1) * k->frame) : k->all;
}

/* The number of keys that query i sees among the m keys from j on. */
MR_OP_FN int64_t attention_seen_of(const attention_keys *k, int64_t i, int64_t j, int64_t m)
{
    return MR_MAX(0, MR_MIN(attention_seen(k, i) - j, m));
}

/* s[0 .. m) += times * the bias of head h for query i and the keys from j on. */
MR_OP_FN void attention_add_bias(const attention_job *jb, int64_t h, int64_t i,
                                 const attention_keys *k, int64_t j, int64_t m, float times,
                                 float *s)
{
    const int64_t *n = jb->bias->desc.dim, base = (h * n[1] + i) * n[2];
    for (int64_t e = 0, run; e < m; e += run) {
        run = MR_MIN(m - e, (int64_t)VF_LANES);
        if (j + e < k->first)
            run = MR_MIN(run, k->first - j - e);
        vf b = vf_ldx(jb->bias->data, base + attention_row(k, j + e), 1, run, jb->bias->desc.dtype);
        vf_storen(s + e, vf_fma(b, vf_set(times), vf_loadn(s + e, run)), run);
    }
}

/* dbias += ds[0 .. m) at the elements that attention_add_bias reads. */
MR_OP_FN void attention_add_dbias(const attention_job *jb, int64_t h, int64_t i,
                                  const attention_keys *k, int64_t j, int64_t m, const float *ds)
{
    const int64_t *n = jb->bias->desc.dim;
    float *to = jb->dbias + (h * n[1] + i) * n[2];
    for (int64_t e = 0; e < m; e++)
        to[attention_row(k, j + e)] += ds[e];
}

/* ---- forms: which calls they take, and their scratch memory ---- */

enum {
    LANES_ROWS = 32,
    QUERIES = 64,
    KEYS = 256, /* of a tile */
    SPAN = 512, /* queries that share a tile of keys in the forward pass */
    CHAIN = 64, /* keys whose values are summed one after another */
    AMX_ROWS = 64,
    AMX_KEYS = 256,
    AMX_LD = AMX_KEYS + 32
};

/* True if the lanes form takes the call: short sequences without len and bias. */
MR_OP_FN bool lanes_fit(const mr_call *c, const mr_view *bias)
{
    return !mr_given(&c->in[3]) && !mr_given(bias) && c->in[0].desc.dim[2] <= LANES_ROWS &&
           c->in[1].desc.dim[2] <= LANES_ROWS;
}
/* Floats of scratch per worker: q, k, v, the output or its gradient, and scores (twice in
 * backward), for the widest vectors. */
MR_OP_FN int64_t lanes_scratch(const mr_call *c, bool backward)
{
    int64_t N = c->in[0].desc.dim[2], M = c->in[1].desc.dim[2], d = c->in[0].desc.dim[4],
            dv = c->in[2].desc.dim[4];
    return 16 * ((N + M) * (d + dv) + N * (backward ? 2 * M + MR_MAX(d - dv, 0) : M));
}

/* Widths of the scratch areas, rounded for the widest instruction set, and floats of scratch per
 * worker. */
typedef struct tile_sizes {
    int64_t width, value, rows, span, tile, worker;
} tile_sizes;
MR_OP_FN tile_sizes tile_scratch(const mr_call *c, bool backward)
{
    int64_t N = attention_pad(c->in[0].desc.dim[2], 16);
    tile_sizes s = {.width = attention_pad(c->in[0].desc.dim[4], 16),
                    .value = attention_pad(c->in[2].desc.dim[4], 16),
                    .rows = MR_MIN(QUERIES, N),
                    .span = MR_MIN(SPAN, N),
                    .tile = MR_MIN(KEYS, attention_pad(c->in[1].desc.dim[2], 16))};
    int64_t both = s.width + s.value, tile = s.tile;
    s.worker = backward ? tile * (s.width + 2 * both) + s.rows * (both + s.value + 2 * tile) +
                              N * (s.width + 1)
                        : tile * (s.width + both) + s.span * (both + 2) + s.rows * tile;
    return s;
}

/* Sizes of a worker's scratch areas, in memory order, for at most `keys` keys. */
typedef struct amx_sizes {
    int64_t dk, dp, vk, vp, mp, gp, bytes; /* d and value width rounded to 32 and 16; keys;
                                            * transposed rows; bytes of all */
} amx_sizes;
MR_OP_FN amx_sizes amx_scratch(const mr_call *c, int64_t keys, bool backward)
{
    int64_t d = c->in[0].desc.dim[4], dv = c->in[2].desc.dim[4], R = AMX_ROWS;
    amx_sizes s = {.dk = attention_pad(d, 32),
                   .dp = attention_pad(d, 16),
                   .vk = attention_pad(dv, 32),
                   .vp = attention_pad(dv, 16),
                   .mp = attention_pad(keys, 32)};
    // rows of transposed gradients: with a power of two as step, the rows of a tile would share
    // cache sets
    s.gp = s.mp + 16;
    if (backward)
        s.bytes = 2 * s.mp * (s.dk + s.vk + s.dp) + 4 * (s.dp + s.vp) * s.gp +
                  2 * R * (s.dk + s.vk + s.dp + s.vp) + 4 * R * AMX_KEYS + 2 * R * AMX_LD +
                  4 * R * s.dp + 8 * 32 * 32 + 8 * R;
    else
        s.bytes = 2 * s.mp * (s.dk + s.vp) + 2 * R * s.dk + 6 * R * AMX_LD + 4 * R * s.vp + 8 * R;
    return s;
}

/* ---- attention_naive.c and attention_tasks.c, for the definitions in attention.c ---- */

mr_kernel_fn mr_attention_naive, mr_attention_grad_naive;
mr_status mr_attention_prepare(const mr_call *c, const mr_facts *facts, void **state);
mr_status mr_attention_grad_prepare(const mr_call *c, const mr_facts *facts, void **state);
size_t mr_attention_workspace(const mr_call *c, const mr_facts *facts);
size_t mr_attention_grad_workspace(const mr_call *c, const mr_facts *facts);
#define attention_forward  MR_CAT3(mr_attention_forward, _, MR_ISA)
#define attention_backward MR_CAT3(mr_attention_backward, _, MR_ISA)
void attention_forward(const mr_call *c);
void attention_backward(const mr_call *c);

/* ---- the forms, for attention_tasks.c ---- */

/* One file per form, compiled per instruction set. `at` is the scratch memory of a worker. */
#define lanes_forward  MR_CAT3(mr_attention_lanes_forward, _, MR_ISA)
#define lanes_backward MR_CAT3(mr_attention_lanes_backward, _, MR_ISA)
#define tile_forward   MR_CAT3(mr_attention_tile_forward, _, MR_ISA)
#define tile_backward  MR_CAT3(mr_attention_tile_backward, _, MR_ISA)

/* Heads unit .. unit + count of [B * G * h], count <= VF_LANES. */
void lanes_forward(const attention_job *jb, int64_t unit, int64_t count, float *at);
void lanes_backward(const attention_job *jb, int64_t unit, int64_t count, float *at);
/* Queries first .. last of one head, at most SPAN; one key range of one head. */
void tile_forward(const attention_job *jb, int64_t b, int64_t g, int64_t h, int64_t first,
                  int64_t last, float *at);
void tile_backward(const attention_job *jb, int64_t b, int64_t g, int64_t h, int64_t range,
                   float *at);
#if defined(MR_ISA_avx512) && defined(__AVX512F__) && defined(__x86_64__) && defined(__linux__)
#define ATTENTION_AMX 1
#endif
/* The same for any number of queries, if ATTENTION_AMX is defined. amx: on tiles, only after
 * mr_cpu_amx(). dots: by vectors of AVX-512 BF16. */
typedef void attention_amx_fn(const attention_job *jb, int64_t b, int64_t g, int64_t h,
                              int64_t first, int64_t last, void *at);
typedef void attention_amx_grad_fn(const attention_job *jb, int64_t b, int64_t g, int64_t h,
                                   int64_t range, void *at);
attention_amx_fn mr_attention_amx_forward, mr_attention_dots_forward;
attention_amx_grad_fn mr_attention_amx_backward, mr_attention_dots_backward;

/* The share of dq that key range `range` of one head computes, [N, d rounded up to 16]. */
MR_OP_FN float *attention_parts(const attention_job *jb, int64_t b, int64_t g, int64_t h,
                                int64_t range)
{
    const int64_t *n = jb->call->in[0].desc.dim;
    int64_t unit = (b * n[1] + g) * n[3] + h;
    return jb->parts + (unit * jb->ranges + range) * n[2] * attention_pad(n[4], 16);
}

#endif
