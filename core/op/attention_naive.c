/* attention_naive: attention and its gradient by the formulas of attention.c, in f64, one score at
 * a time. Licence: Apache-2.0 */
#include "op/attention_job.h"

#ifdef MR_ISA_base
/* One head of one sample. */
typedef struct place {
    int64_t b, g, h;
} place;
static place place_of(const int64_t *n, int64_t unit)
{
    return (place){unit / n[3] / n[1], unit / n[3] % n[1], unit % n[3]};
}

// element k of row i of an argument [B, G, N, h, d]
static double *at(const mr_view *v, place u, int64_t i, int64_t k)
{
    return mr_el(v, u.b, u.g, i, u.h, k);
}

// the dot product of row i of x and row j of y
static double dot(const mr_view *x, int64_t i, const mr_view *y, int64_t j, place u)
{
    double sum = 0;
    for (int64_t k = 0; k < x->desc.dim[4]; k++)
        sum += *at(x, u, i, k) * *at(y, u, j, k);
    return sum;
}

// row i of y += times * row j of x
static void add(const mr_view *y, int64_t i, double times, const mr_view *x, int64_t j, place u)
{
    for (int64_t k = 0; k < y->desc.dim[4]; k++)
        *at(y, u, i, k) += times * *at(x, u, j, k);
}

// set `rows` rows to zero
static void clear(const mr_view *y, int64_t rows, place u)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < y->desc.dim[4]; k++)
            *at(y, u, i, k) = 0;
}

// Whether query i sees the key in row j. Deliberately independent of attention_job.h.
static bool sees(const mr_call *c, place u, int64_t i, int64_t j)
{
    const attention_attr *a = c->attr;
    int64_t row = a->before + j, counted = a->text ? a->text : a->before + c->in[1].desc.dim[2];
    if (mr_given(&c->in[3]) && row < counted && row >= ((const int32_t *)c->in[3].data)[u.b])
        return false;
    return !a->frame || j / a->frame <= i / a->frame;
}

// scale q k + bias, or -inf
static double score(const mr_call *c, const mr_view *bias, place u, int64_t i, int64_t j)
{
    if (!sees(c, u, i, j))
        return -INFINITY;
    return attention_scale(c) * dot(&c->in[0], i, &c->in[1], j, u) +
           (mr_given(bias) ? *mr_el(bias, u.h, i, j, 0, 0) : 0);
}

// compute query i of one head; a NaN score makes the result NaN
static void query(const mr_call *c, place u, int64_t i)
{
    const mr_view *v = &c->in[2], *o = &c->out[0];
    const int64_t M = v->desc.dim[2];
    double max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < M; j++) {
        double s = score(c, &c->in[4], u, i, j);
        max = s > max || isnan(s) ? s : max;
    }
    for (int64_t k = 0; k < o->desc.dim[4]; k++)
        *at(o, u, i, k) = 0;
    for (int64_t j = 0; max != -INFINITY && j < M; j++) {
        double p = exp(score(c, &c->in[4], u, i, j) - max);
        sum += p;
        if (p != 0)
            add(o, i, p, v, j, u);
    }
    for (int64_t k = 0; sum != 0 && k < o->desc.dim[4]; k++)
        *at(o, u, i, k) /= sum;
    *mr_el(&c->out[1], u.b, u.g, u.h, i, 0) = sum != 0 ? max + log(sum) : -INFINITY;
}

mr_status mr_attention_naive(const mr_call *c)
{
    const int64_t *n = c->in[0].desc.dim;
    for (int64_t row = 0; row < n[0] * n[1] * n[3] * n[2]; row++)
        query(c, place_of(n, row / n[2]), row % n[2]);
    return MR_OK;
}

// D of query i, which is subtracted from the gradient of each of its weights: do o - dlse. If it
// sees one key, o is v.
static double mean_grad(const mr_call *c, place u, int64_t i)
{
    const attention_attr *a = c->attr;
    const mr_view *dy = &c->in[6];
    int64_t only = -1, seen = 0;
    for (int64_t j = 0; j < c->in[1].desc.dim[2]; j++)
        if (sees(c, u, i, j))
            only = j, seen++;
    double D = seen == 1 && !a->part ? dot(dy, i, &c->in[2], only, u) : dot(dy, i, &c->in[4], i, u);
    return mr_given(&c->in[7]) ? D - *mr_el(&c->in[7], u.b, u.g, u.h, i, 0) : D;
}

// add the share of query i of one head to the gradients
static void query_grad(const mr_call *c, place u, int64_t i)
{
    const mr_view *q = &c->in[0], *k = &c->in[1], *dy = &c->in[6];
    const int64_t M = k->desc.dim[2];
    double scale = attention_scale(c), D = mean_grad(c, u, i), *dbias = c->out[3].data;
    double lse = *mr_el(&c->in[5], u.b, u.g, u.h, i, 0);
    for (int64_t j = 0; lse != -INFINITY && j < M; j++) {
        double p = exp(score(c, &c->in[8], u, i, j) - lse);
        if (p == 0)
            continue;
        double ds = p * (dot(dy, i, &c->in[2], j, u) - D);
        if (dbias)
            dbias[(u.h * q->desc.dim[2] + i) * M + j] += ds;
        add(&c->out[0], i, scale * ds, k, j, u);
        add(&c->out[1], j, scale * ds, q, i, u);
        add(&c->out[2], j, p, dy, i, u);
    }
}

mr_status mr_attention_grad_naive(const mr_call *c)
{
    const mr_view *acc = &c->in[9];
    const int64_t *n = c->in[0].desc.dim;
    if (c->out[3].data)
        memmove(c->out[3].data, acc->data, (size_t)mr_desc_count(&acc->desc) * sizeof(double));
    for (int64_t unit = 0; unit < n[0] * n[1] * n[3]; unit++) {
        place u = place_of(n, unit);
        for (int i = 0; i < 3; i++)
            clear(&c->out[i], c->out[i].desc.dim[2], u);
        for (int64_t i = 0; i < n[2]; i++)
            query_grad(c, u, i);
    }
    return MR_OK;
}
#endif
