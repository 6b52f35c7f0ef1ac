/* attention_lanes: attention of many short sequences at once: each vector lane computes one
 * (sample, group, head).
 *
 * Data is transposed so that element (row, k) of all lanes is one vector. Then products, softmax
 * and sums do not cross lanes, and every lane is used for every head size. For up to LANES_ROWS
 * queries and keys (temporal attention, small latents). Licence: Apache-2.0 */
#include "cpu/transpose.h"
#include "op/attention_job.h"

// sums kept in registers; with one x per row and one y they use 29 registers, or 15
#if defined(__AVX512F__)
enum { LANES_NI = 4, LANES_NC = 6 };
#else
enum { LANES_NI = 2, LANES_NC = 6 };
#endif

/* c(i, j) = sum over r of a(i, r) * b(r, j) in each lane. Strides count vectors; ni and nc are
 * constants. */
VF_INLINE void lanes_block(int ni, int nc, int64_t n, const float *a, int64_t ai, int64_t ar,
                           const float *b, int64_t br, int64_t bc, float *c, int64_t ci, int64_t cc)
{
    vf acc[LANES_NI][LANES_NC];
#pragma GCC unroll 4
    for (int i = 0; i < ni; i++)
#pragma GCC unroll 6
        for (int j = 0; j < nc; j++)
            acc[i][j] = vf_zero();
    for (int64_t r = 0; r < n; r++) {
        vf x[LANES_NI];
#pragma GCC unroll 4
        for (int i = 0; i < ni; i++)
            x[i] = vf_load(a + (i * ai + r * ar) * VF_LANES);
#pragma GCC unroll 6
        for (int j = 0; j < nc; j++) {
            vf y = vf_load(b + (r * br + j * bc) * VF_LANES);
#if defined(__x86_64__)
            __asm__("" : "+v"(y)); // load it once; gcc would load it for every product
#endif
#pragma GCC unroll 4
            for (int i = 0; i < ni; i++)
                acc[i][j] = vf_fma(x[i], y, acc[i][j]);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < ni; i++)
#pragma GCC unroll 6
        for (int j = 0; j < nc; j++)
            vf_store(c + (i * ci + j * cc) * VF_LANES, acc[i][j]);
}

VF_INLINE void lanes_rows(int ni, int64_t n_c, int64_t n, const float *a, int64_t ai, int64_t ar,
                          const float *b, int64_t br, int64_t bc, float *c, int64_t ci, int64_t cc)
{
    int64_t j = 0;
    for (; j + LANES_NC <= n_c; j += LANES_NC)
        lanes_block(ni, LANES_NC, n, a, ai, ar, b + j * bc * VF_LANES, br, bc,
                    c + j * cc * VF_LANES, ci, cc);
    b += j * bc * VF_LANES, c += j * cc * VF_LANES;
    switch (n_c - j) {
    case 5: lanes_block(ni, 5, n, a, ai, ar, b, br, bc, c, ci, cc); break;
    case 4: lanes_block(ni, 4, n, a, ai, ar, b, br, bc, c, ci, cc); break;
    case 3: lanes_block(ni, 3, n, a, ai, ar, b, br, bc, c, ci, cc); break;
    case 2: lanes_block(ni, 2, n, a, ai, ar, b, br, bc, c, ci, cc); break;
    case 1: lanes_block(ni, 1, n, a, ai, ar, b, br, bc, c, ci, cc); break;
    default: break;
    }
}

/* c[m, n_c] = a[m, n] b[n, n_c], strides in vectors. */
static __attribute__((noinline, noclone, unused)) void lanes_product(
    int64_t m, int64_t n_c, int64_t n, const float *a, int64_t ai, int64_t ar, const float *b,
    int64_t br, int64_t bc, float *c, int64_t ci, int64_t cc)
{
    int64_t i = 0;
    for (; i + LANES_NI <= m; i += LANES_NI)
        lanes_rows(LANES_NI, n_c, n, a + i * ai * VF_LANES, ai, ar, b, br, bc,
                   c + i * ci * VF_LANES, ci, cc);
    for (; i + 2 <= m; i += 2)
        lanes_rows(2, n_c, n, a + i * ai * VF_LANES, ai, ar, b, br, bc, c + i * ci * VF_LANES, ci,
                   cc);
    if (i < m)
        lanes_rows(1, n_c, n, a + i * ai * VF_LANES, ai, ar, b, br, bc, c + i * ci * VF_LANES, ci,
                   cc);
}

/* The offset of each lane's head in an argument [B, G, N, h, d]. Unused lanes repeat the last
 * head. */
typedef struct lanes_head {
    void *data;
    int64_t at[VF_LANES], row_step, step;
    mr_dtype dtype;
} lanes_head;
static __attribute__((noinline, unused)) lanes_head lanes_of(const mr_view *v, int64_t unit,
                                                             int64_t count)
{
    const int64_t *s = v->desc.stride, *n = v->desc.dim;
    lanes_head h = {.data = v->data, .row_step = s[2], .step = s[4], .dtype = v->desc.dtype};
    for (int64_t l = 0; l < VF_LANES; l++) {
        int64_t u = unit + MR_MIN(l, count - 1);
        h.at[l] = u / n[3] / n[1] * s[0] + u / n[3] % n[1] * s[1] + u % n[3] * s[3];
    }
    return h;
}

VF_INLINE void lanes_gather_as(const lanes_head *h, int64_t rows, int64_t d, float *dst, mr_dtype t)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < d; k += VF_LANES) {
            int64_t m = MR_MIN(d - k, (int64_t)VF_LANES), at = i * h->row_step + k * h->step;
            vf r[VF_LANES];
            for (int l = 0; l < VF_LANES; l++)
                r[l] = vf_ldx(h->data, h->at[l] + at, h->step, m, t);
            vf_transpose(r);
            float *to = dst + (i * d + k) * VF_LANES;
            if (m == VF_LANES)
                for (int l = 0; l < VF_LANES; l++)
                    vf_store(to + l * VF_LANES, r[l]);
            else
                for (int64_t l = 0; l < m; l++)
                    vf_store(to + l * VF_LANES, r[l]);
        }
}

/* Adjacent bf16 elements are transposed in pairs, which halves the number of swaps. */
MR_OP_FN bool lanes_paired(const lanes_head *h, int64_t d)
{
    return h->dtype == MR_BF16 && h->step == 1 && d % 2 == 0;
}
MR_OP_FN float *lanes_pairs(const lanes_head *h, int lane, int64_t at)
{
    return (float *)(void *)((uint16_t *)h->data + h->at[lane] + at);
}

VF_INLINE void lanes_gather_pairs(const lanes_head *h, int64_t rows, int64_t d, float *dst)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < d; k += 2 * VF_LANES) {
            int64_t m = MR_MIN((d - k) / 2, (int64_t)VF_LANES), at = i * h->row_step + k;
            vf r[VF_LANES];
            for (int l = 0; l < VF_LANES; l++)
                r[l] = vf_ldx(lanes_pairs(h, l, at), 0, 1, m, MR_F32);
            vf_transpose(r);
            float *to = dst + (i * d + k) * VF_LANES;
            for (int64_t l = 0; l < m; l++, to += 2 * VF_LANES)
                vf_store(to, vf_first(r[l])), vf_store(to + VF_LANES, vf_second(r[l]));
        }
}

/* dst[row * d + k] = element (row, k) of all lanes, as a vector. */
static __attribute__((noinline, unused)) void lanes_gather(const lanes_head *h, int64_t rows,
                                                           int64_t d, float *dst)
{
    if (lanes_paired(h, d))
        lanes_gather_pairs(h, rows, d, dst);
    else if (h->dtype == MR_BF16)
        lanes_gather_as(h, rows, d, dst, MR_BF16);
    else
        lanes_gather_as(h, rows, d, dst, MR_F32);
}

VF_INLINE void lanes_scatter_as(const lanes_head *h, int64_t count, int64_t rows, int64_t d,
                                const float *src, mr_dtype t)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < d; k += VF_LANES) {
            int64_t m = MR_MIN(d - k, (int64_t)VF_LANES), at = i * h->row_step + k * h->step;
            vf r[VF_LANES];
            const float *from = src + (i * d + k) * VF_LANES;
            for (int l = 0; l < VF_LANES; l++)
                r[l] = l < m ? vf_load(from + l * VF_LANES) : vf_zero();
            vf_transpose(r);
            for (int64_t l = 0; l < count; l++)
                vf_stx(h->data, h->at[l] + at, h->step, r[l], m, t);
        }
}

VF_INLINE void lanes_scatter_pairs(const lanes_head *h, int64_t count, int64_t rows, int64_t d,
                                   const float *src)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < d; k += 2 * VF_LANES) {
            int64_t m = MR_MIN((d - k) / 2, (int64_t)VF_LANES), at = i * h->row_step + k;
            const float *from = src + (i * d + k) * VF_LANES;
            vf r[VF_LANES];
            for (int l = 0; l < VF_LANES; l++, from += 2 * VF_LANES)
                r[l] = l < m ? vf_pair(vf_load(from), vf_load(from + VF_LANES)) : vf_zero();
            vf_transpose(r);
            for (int l = 0; l < count; l++)
                vf_stx(lanes_pairs(h, l, at), 0, 1, r[l], m, MR_F32);
        }
}

/* The inverse of lanes_gather, for the first `count` lanes. */
static __attribute__((noinline, unused)) void lanes_scatter(const lanes_head *h, int64_t count,
                                                            int64_t rows, int64_t d,
                                                            const float *src)
{
    if (lanes_paired(h, d))
        lanes_scatter_pairs(h, count, rows, d, src);
    else if (h->dtype == MR_BF16)
        lanes_scatter_as(h, count, rows, d, src, MR_BF16);
    else
        lanes_scatter_as(h, count, rows, d, src, MR_F32);
}

VF_INLINE vf lanes_dot_as(const lanes_head *x, const lanes_head *y, int64_t row, int64_t d,
                          mr_dtype t)
{
    vf sum[VF_LANES];
    for (int l = 0; l < VF_LANES; l++) {
        sum[l] = vf_zero();
        int64_t at_x = x->at[l] + row * x->row_step, at_y = y->at[l] + row * y->row_step;
        for (int64_t k = 0; k < d; k += VF_LANES) {
            int64_t m = MR_MIN(d - k, (int64_t)VF_LANES);
            sum[l] = vf_fma(vf_ldx(x->data, at_x + k * x->step, x->step, m, t),
                            vf_ldx(y->data, at_y + k * y->step, y->step, m, t), sum[l]);
        }
    }
    vf_transpose(sum);
    for (int l = 1; l < VF_LANES; l++)
        sum[0] = sum[0] + sum[l];
    return sum[0];
}
/* The dot product of row `row` of x and y in each lane, read from memory directly. */
static __attribute__((noinline, unused)) vf lanes_dot(const lanes_head *x, const lanes_head *y,
                                                      int64_t row, int64_t d)
{
    return x->dtype == MR_BF16 ? lanes_dot_as(x, y, row, d, MR_BF16)
                               : lanes_dot_as(x, y, row, d, MR_F32);
}

void lanes_forward(const attention_job *jb, int64_t unit, int64_t count, float *at)
{
    const mr_call *c = jb->call;
    const int64_t N = c->in[0].desc.dim[2], M = c->in[1].desc.dim[2], d = c->in[0].desc.dim[4],
                  dv = c->in[2].desc.dim[4];
    attention_keys keys = attention_keys_of(c, 0);
    lanes_head q = lanes_of(&c->in[0], unit, count), k = lanes_of(&c->in[1], unit, count),
               v = lanes_of(&c->in[2], unit, count);
    lanes_head o = lanes_of(&c->out[0], unit, count);
    float *lq = at, *lk = lq + N * d * VF_LANES, *lv = lk + M * d * VF_LANES,
          *lo = lv + M * dv * VF_LANES, *s = lo + N * dv * VF_LANES;
    lanes_gather(&q, N, d, lq);
    lanes_gather(&k, M, d, lk);
    lanes_gather(&v, M, dv, lv);
    lanes_product(N, M, d, lq, d, 1, lk, 1, d, s, M, 1);
    vf scale = vf_set(jb->scale);
    for (int64_t i = 0; i < N; i++) {
        float *row = s + i * M * VF_LANES, lse[VF_LANES];
        vf max = vf_set(-INFINITY), sum = vf_zero();
        int64_t seen = attention_seen(&keys, i);
        for (int64_t j = 0; j < seen; j++)
            max = vf_max(max, vf_load(row + j * VF_LANES) * scale);
        for (int64_t j = 0; j < seen; j++) {
            vf p = formula_exp(vf_fma(vf_load(row + j * VF_LANES), scale, vf_zero() - max));
            sum = sum + p;
            vf_store(row + j * VF_LANES, p);
        }
        vf share = vf_set(1.0f) / sum;
        for (int64_t j = 0; j < seen; j++)
            vf_store(row + j * VF_LANES, vf_load(row + j * VF_LANES) * share);
        for (int64_t j = seen; j < M; j++)
            vf_store(row + j * VF_LANES, vf_zero());
        vf_store(lse, sum);
        float top[VF_LANES];
        vf_store(top, max);
        for (int64_t l = 0; l < count; l++)
            ((float *)c->out[1].data)[(unit + l) * N + i] = M ? top[l] + logf(lse[l]) : -INFINITY;
    }
    lanes_product(N, dv, M, s, M, 1, lv, dv, 1, lo, dv, 1);
    lanes_scatter(&o, count, N, dv, lo);
}

void lanes_backward(const attention_job *jb, int64_t unit, int64_t count, float *at)
{
    const mr_call *c = jb->call;
    const float *lse = c->in[5].data, *dlse = c->in[7].data;
    const int64_t N = c->in[0].desc.dim[2], M = c->in[1].desc.dim[2], d = c->in[0].desc.dim[4],
                  dv = c->in[2].desc.dim[4];
    attention_keys keys = attention_keys_of(c, 0);
    lanes_head q = lanes_of(&c->in[0], unit, count), k = lanes_of(&c->in[1], unit, count),
               v = lanes_of(&c->in[2], unit, count);
    lanes_head dy = lanes_of(&c->in[6], unit, count), dq = lanes_of(&c->out[0], unit, count),
               dk = lanes_of(&c->out[1], unit, count);
    lanes_head dw = lanes_of(&c->out[2], unit, count), o = lanes_of(&c->in[4], unit, count);
    float *lq = at, *lk = lq + N * d * VF_LANES, *lv = lk + M * d * VF_LANES,
          *ly = lv + M * dv * VF_LANES;
    float *p = ly + N * MR_MAX(d, dv) * VF_LANES, *ds = p + N * M * VF_LANES;
    lanes_gather(&q, N, d, lq);
    lanes_gather(&k, M, d, lk);
    lanes_gather(&v, M, dv, lv);
    lanes_gather(&dy, N, dv, ly);
    lanes_product(N, M, d, lq, d, 1, lk, 1, d, p, M, 1);
    lanes_product(N, M, dv, ly, dv, 1, lv, 1, dv, ds, M, 1);
    vf scale = vf_set(jb->scale);
    bool part = ((const attention_attr *)c->attr)->part;
    for (int64_t i = 0; i < N; i++) {
        float *row = p + i * M * VF_LANES, *drow = ds + i * M * VF_LANES;
        vf log = vf_ldx(lse, unit * N + i, N, count, MR_F32), D;
        int64_t seen = attention_seen(&keys, i);
        // a single key has the weight 1 whatever its score: the gradient of the score is exactly
        // zero, so do o must cancel do v
        if (seen > 1 || part)
            D = lanes_dot(&o, &dy, i, dv);
        else
            D = vf_load(drow);
        if (dlse)
            D = D - vf_ldx(dlse, unit * N + i, N, count, MR_F32);
        for (int64_t j = 0; j < seen; j++) {
            vf pj = formula_exp(vf_fma(vf_load(row + j * VF_LANES), scale, vf_zero() - log));
            vf_store(row + j * VF_LANES, pj);
            vf_store(drow + j * VF_LANES,
                     scale * formula_score_grad(pj, vf_load(drow + j * VF_LANES), D));
        }
        for (int64_t j = seen; j < M; j++)
            vf_store(row + j * VF_LANES, vf_zero()), vf_store(drow + j * VF_LANES, vf_zero());
    }
    // each gradient overwrites data that is no longer needed
    lanes_product(M, dv, N, p, 1, M, ly, dv, 1, lv, dv, 1);
    lanes_product(N, d, M, ds, M, 1, lk, d, 1, ly, d, 1);
    lanes_product(M, d, N, ds, 1, M, lq, d, 1, lk, d, 1);
    lanes_scatter(&dw, count, M, dv, lv);
    lanes_scatter(&dq, count, N, d, ly);
    lanes_scatter(&dk, count, M, d, lk);
}
