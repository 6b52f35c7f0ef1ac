/* attention_job: what the forms of the attention kernels share: the call, its scale and key counts,
 * and the scratch memory of a worker. Licence: Apache-2.0 */
#ifndef MR_ATTENTION_JOB_H
#define MR_ATTENTION_JOB_H

#include "cpu/rows.h"
#include "op/row.h"

typedef struct attention_attr {
    double scale;
} attention_attr;

typedef struct attention_job {
    const mr_call *call;
    float scale;
    size_t worker_bytes;        /* scratch of one worker */
    int64_t splits, split_rows; /* forward: query ranges per head */
} attention_job;

/* keys of sample b */
MR_ROW_FN int64_t attention_keys(const mr_call *c, int64_t b)
{
    int64_t M = c->in[1].desc.dim[2];
    if (!mr_given(&c->in[3]))
        return M;
    int64_t len = ((const int32_t *)c->in[3].data)[b];
    return MR_MAX(0, MR_MIN(len, M));
}

MR_ROW_FN double attention_scale(const mr_call *c)
{
    const attention_attr *a = c->attr;
    return a->scale != 0 ? a->scale : 1 / sqrt((double)c->in[0].desc.dim[4]);
}

MR_ROW_FN int64_t attention_pad(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* rows of [B, G, h, N] statistics of one head */
MR_ROW_FN int64_t attention_stat(const mr_call *c, int64_t b, int64_t g, int64_t h)
{
    const int64_t *n = c->in[0].desc.dim;
    return ((b * n[1] + g) * n[3] + h) * n[2];
}

/* ---- forms: what they serve, and their scratch ---- */

enum {
    LANES_ROWS = 32,
    QUERIES = 64,
    KEYS = 256, /* of a tile */
    AMX_ROWS = 64,
    AMX_KEYS = 256,
    AMX_LD = AMX_KEYS + 32
};

/* This form serves short sequences of equal length. */
MR_ROW_FN bool lanes_fit(const mr_call *c)
{
    return !mr_given(&c->in[3]) && c->in[0].desc.dim[2] <= LANES_ROWS &&
           c->in[1].desc.dim[2] <= LANES_ROWS;
}
/* Floats of one worker: q, k, v, the output side, scores (two in backward) of the widest lanes. */
MR_ROW_FN int64_t lanes_scratch(const mr_call *c, bool backward)
{
    int64_t N = c->in[0].desc.dim[2], M = c->in[1].desc.dim[2], d = c->in[0].desc.dim[4];
    return 16 * (2 * (N + M) * d + (backward ? 2 : 1) * N * M);
}

/* Widths of the scratch areas, rounded for the widest instruction set, and floats of one worker. */
typedef struct tile_sizes {
    int64_t area, width, rows, tile, worker;
} tile_sizes;
MR_ROW_FN tile_sizes tile_scratch(const mr_call *c, bool backward)
{
    const int64_t *n = c->in[0].desc.dim, mp = attention_pad(c->in[1].desc.dim[2], 16);
    tile_sizes s = {.width = attention_pad(n[4], 16),
                    .rows = MR_MIN(QUERIES, attention_pad(n[2], 16)),
                    .tile = MR_MIN(KEYS, mp)};
    s.area = mp * s.width;
    // keys and values, then what a tile of queries needs
    s.worker = backward ? 5 * s.area + s.rows * (4 * s.width + 2 * s.tile + 1)
                        : 3 * s.area + s.rows * (2 * s.width + s.tile + 2);
    return s;
}

/* Bytes of one worker's areas, in the order they lie. */
typedef struct amx_sizes {
    int64_t dk, dp, mp, gp, bytes;
} amx_sizes;
MR_ROW_FN amx_sizes amx_scratch(const mr_call *c, bool backward)
{
    int64_t d = c->in[0].desc.dim[4], R = AMX_ROWS;
    amx_sizes s = {.dk = attention_pad(d, 32),
                   .dp = attention_pad(d, 16),
                   .mp = attention_pad(c->in[1].desc.dim[2], 32)};
    // rows of turned gradients: their step must not be a power of two, or a tile's rows share cache
    // sets
    s.gp = s.mp + 16;
    if (backward)
        s.bytes = 2 * (2 * s.mp * s.dk + s.mp * s.dp) + 8 * s.dp * s.gp + 4 * R * s.dk +
                  4 * R * s.dp + 4 * R * AMX_KEYS + 2 * R * AMX_LD + 4 * R * s.dp + 8 * 32 * 32 +
                  8 * R;
    else
        s.bytes = 2 * s.mp * (s.dk + s.dp) + 2 * R * s.dk + 6 * R * AMX_LD + 4 * R * s.dp + 8 * R;
    return s;
}

/* One file per form, compiled per instruction set. `at` is one worker's scratch. */
#define lanes_forward  MR_CAT3(mr_attention_lanes_forward, _, MR_ISA)
#define lanes_backward MR_CAT3(mr_attention_lanes_backward, _, MR_ISA)
#define tile_forward   MR_CAT3(mr_attention_tile_forward, _, MR_ISA)
#define tile_backward  MR_CAT3(mr_attention_tile_backward, _, MR_ISA)

/* Heads unit .. unit + count of [B * G * h], count <= VF_LANES. */
void lanes_forward(const attention_job *jb, int64_t unit, int64_t count, float *at);
void lanes_backward(const attention_job *jb, int64_t unit, int64_t count, float *at);
/* Queries first .. last of one head; one whole head. */
void tile_forward(const attention_job *jb, int64_t b, int64_t g, int64_t h, int64_t first,
                  int64_t last, float *at);
void tile_backward(const attention_job *jb, int64_t b, int64_t g, int64_t h, float *at);
#if defined(MR_ISA_avx512) && defined(__AVX512F__) && defined(__x86_64__) && defined(__linux__)
#define ATTENTION_AMX 1
#endif
/* The same where ATTENTION_AMX is defined, only after mr_cpu_amx(). */
void mr_attention_amx_forward(const attention_job *jb, int64_t b, int64_t g, int64_t h,
                              int64_t first, int64_t last, void *at);
void mr_attention_amx_backward(const attention_job *jb, int64_t b, int64_t g, int64_t h, void *at);

#endif
