/* group_norm_naive: group_norm, its moments and its gradient by the formulas of group_norm.c, in
 * f64. Licence: Apache-2.0 */
#include "op/group_norm.h"

#ifdef MR_ISA_base
static double f_slope(double u)
{
    double s = 1 / (1 + exp(-u));
    return s * (1 + u * (1 - s));
}

mr_status mr_group_norm_naive(const mr_call *c)
{
    const group_attr *a = c->attr;
    const mr_desc *d = &c->in[0].desc;
    int64_t batch = d->dim[0], channels = d->dim[d->rank - 1], wide = channels / a->groups,
            places = mr_desc_count(d) / MR_MAX(batch * channels, 1);
    const double *w = c->in[1].data, *b = c->in[2].data;
    double *stats = c->out[1].data;
    for (int64_t i = 0; i < batch * a->groups; i++) {
        int64_t first = i / a->groups * places * channels + i % a->groups * wide;
        const double *x = (const double *)c->in[0].data + first;
        double *y = (double *)c->out[0].data + first, sum = 0, squares = 0;
        double n = (double)MR_MAX(places * wide, 1);
        for (int64_t p = 0; p < places; p++)
            for (int64_t k = 0; k < wide; k++)
                sum += x[p * channels + k];
        double mean = sum / n;
        for (int64_t p = 0; p < places; p++)
            for (int64_t k = 0; k < wide; k++)
                squares += (x[p * channels + k] - mean) * (x[p * channels + k] - mean);
        double r = 1 / sqrt(squares / n + a->eps);
        for (int64_t p = 0; p < places; p++)
            for (int64_t k = 0; k < wide; k++) {
                int64_t channel = i % a->groups * wide + k;
                double u = (x[p * channels + k] - mean) * r * w[channel] + b[channel];
                y[p * channels + k] = a->silu ? u / (1 + exp(-u)) : u;
            }
        stats[2 * i] = mean, stats[2 * i + 1] = r;
    }
    return MR_OK;
}

mr_status mr_group_moments_naive(const mr_call *c)
{
    const group_attr *a = c->attr;
    const mr_desc *d = &c->in[0].desc;
    int64_t batch = d->dim[0], channels = d->dim[d->rank - 1], wide = channels / a->groups,
            places = mr_desc_count(d) / MR_MAX(batch * channels, 1);
    for (int64_t i = 0; i < batch * a->groups; i++) {
        const double *x = (const double *)c->in[0].data + i / a->groups * places * channels +
                          i % a->groups * wide;
        const double *before = c->in[1].data;
        double *m = (double *)c->out[0].data + 3 * i;
        for (int k = 0; k < 3; k++)
            m[k] = before ? before[3 * i + k] : 0;
        // add one element at a time. Ref: Welford 1962
        for (int64_t p = 0; p < places * wide; p++) {
            double off = x[p / wide * channels + p % wide] - m[0];
            m[2]++, m[0] += off / m[2];
            m[1] += off * (x[p / wide * channels + p % wide] - m[0]);
        }
    }
    return MR_OK;
}

mr_status mr_group_norm_by_naive(const mr_call *c)
{
    const group_attr *a = c->attr;
    const mr_desc *d = &c->in[0].desc;
    int64_t channels = d->dim[d->rank - 1], n = mr_desc_count(d), each = n / MR_MAX(d->dim[0], 1);
    const double *x = c->in[0].data, *w = c->in[1].data, *b = c->in[2].data;
    for (int64_t i = 0; i < n; i++) {
        int64_t channel = i % channels, group = channel / (channels / a->groups);
        const double *m = (const double *)c->in[3].data + (i / each * a->groups + group) * 3;
        double u =
            (x[i] - m[0]) / sqrt(m[1] / MR_MAX(m[2], 1.0) + a->eps) * w[channel] + b[channel];
        ((double *)c->out[0].data)[i] = a->silu ? u / (1 + exp(-u)) : u;
    }
    return MR_OK;
}

mr_status mr_group_norm_grad_naive(const mr_call *c)
{
    const group_attr *a = c->attr;
    const mr_desc *d = &c->in[0].desc;
    int64_t batch = d->dim[0], channels = d->dim[d->rank - 1], wide = channels / a->groups,
            places = mr_desc_count(d) / MR_MAX(batch * channels, 1);
    const double *w = c->in[1].data, *b = c->in[2].data, *stats = c->in[3].data;
    double *sums[] = {c->out[1].data, c->out[2].data};
    for (int i = 0; i < 2; i++)
        for (int64_t k = 0; sums[i] && k < channels; k++)
            sums[i][k] = ((const double *)c->in[6 + i].data)[k];
    for (int64_t i = 0; i < batch * a->groups; i++) {
        int64_t first = i / a->groups * places * channels + i % a->groups * wide;
        const double *x = (const double *)c->in[0].data + first,
                     *dy = (const double *)c->in[4].data + first;
        double *dx = (double *)c->out[0].data + first, one = 0, two = 0, r = stats[2 * i + 1];
        const double *more = c->in[5].data;
        if (more) {
            one = -more[2 * i] / r / (double)(places * wide);
            two = more[2 * i + 1] * r / (double)(places * wide);
        }
        // the first pass sums over the group, the second writes
        for (int pass = 0; pass < 2; pass++)
            for (int64_t p = 0; p < places; p++)
                for (int64_t k = 0; k < wide; k++) {
                    int64_t channel = i % a->groups * wide + k, at = p * channels + k;
                    double n = (x[at] - stats[2 * i]) * r, u = n * w[channel] + b[channel];
                    double g = dy[at] * (a->silu ? f_slope(u) : 1), count = (double)(places * wide);
                    if (pass == 0) {
                        one += g * w[channel] / count, two += g * w[channel] * n / count;
                        if (sums[0])
                            sums[0][channel] += g * n;
                        if (sums[1])
                            sums[1][channel] += g;
                    } else
                        dx[at] = r * (g * w[channel] - one - n * two);
                }
    }
    return MR_OK;
}
#endif
