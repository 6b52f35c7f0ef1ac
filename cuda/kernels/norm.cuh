/* One row of layer_norm or layer_norm_modulate, kept in registers by a group of threads, and its
 * gradient:
 *
 *   y = n f + add    n = (x - mean) rstd    f = factor + one    g = dy f
 *   dx = rstd (g - mean(g) - n mean(g n))
 *
 * `one` is 1 for a modulation or if there is no factor, otherwise 0. A row that is not `inside` is
 * not stored. Past the end of a row dy is 0 and adds nothing.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_KERNELS_NORM_CUH
#define MOONREEL_CUDA_KERNELS_NORM_CUH

#include "cuda/kernels/rows.cuh"

template <typename T, class F> struct NormRow {
    typedef Part<T, F> P;
    const P &x;
    int C;
    float mean, rstd;

    // scratch as for row_sum
    MR_MEMBER NormRow(const P &x, int C, float eps, float *scratch) : x(x), C(C)
    {
        row_moments(x, C, eps, scratch, &mean, &rstd);
    }

    MR_MEMBER void forward(const P &factor, float one, const P &add, bool inside, T *y) const
    {
#pragma unroll
        for (int i = 0; i < P::N; i++) {
            if (!inside || P::column(i) >= C)
                continue;
            float v[P::E], f[P::E], a[P::E];
            x.get(i, v);
            factor.get(i, f);
            add.get(i, a);
#pragma unroll
            for (int e = 0; e < P::E; e++)
                v[e] = (v[e] - mean) * rstd * (f[e] + one) + a[e];
            mr_store(y + P::column(i), v);
        }
    }

    // calls each(i, e, dy, n) for every element of the thread
    template <class Each>
    MR_MEMBER void backward(const P &dy, const P &factor, float one, float *scratch, bool inside,
                            T *dx, Each each) const
    {
        float g1 = 0, gn = 0;
#pragma unroll
        for (int i = 0; i < P::N; i++) {
            float v[P::E], d[P::E], f[P::E];
            x.get(i, v);
            dy.get(i, d);
            factor.get(i, f);
#pragma unroll
            for (int e = 0; e < P::E; e++) {
                float n = (v[e] - mean) * rstd, g = d[e] * (f[e] + one);
                each(i, e, d[e], n);
                g1 += g;
                gn += g * n;
            }
        }
        g1 = row_sum<F>(g1, scratch) / C;
        gn = row_sum<F>(gn, scratch) / C;
#pragma unroll
        for (int i = 0; i < P::N; i++) {
            if (!inside || P::column(i) >= C)
                continue;
            float v[P::E], d[P::E], f[P::E];
            x.get(i, v);
            dy.get(i, d);
            factor.get(i, f);
#pragma unroll
            for (int e = 0; e < P::E; e++)
                v[e] = rstd * (d[e] * (f[e] + one) - g1 - (v[e] - mean) * rstd * gn);
            mr_store(dx + P::column(i), v);
        }
    }
};

#endif
