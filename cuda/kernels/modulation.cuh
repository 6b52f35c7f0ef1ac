/* Shared by ops with a vector per sample and frame: shift, scale and gate [B, T, C] with any
 * strides, applied to dense [B, T, S, C]. Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_KERNELS_MODULATION_CUH
#define MOONREEL_CUDA_KERNELS_MODULATION_CUH

#include "cuda/kernels/rows.cuh"

// start of the vector of a frame, and the stride along C
template <typename T> struct Modulation {
    const T *data;
    int64_t b, t, c;

    MR_MEMBER const T *of(int frame, int T_) const
    {
        return data + frame / T_ * b + frame % T_ * t;
    }
};

template <typename T> static Modulation<T> modulation(const mr_view *m)
{
    const int64_t *s = m->desc.stride;
    return {(const T *)m->data, s[0], s[1], s[2]};
}

// [B, T, S, C]; a block takes `span` rows of one frame; grid (pieces of S, frames)
struct Frames {
    int T, S, C, span;
    float eps;

    struct Rows {
        int first, last;
    };
    MR_MEMBER Rows of_block() const
    {
        int first = blockIdx.x * span;
        return {first, S - first < span ? S : first + span};
    }
};

// MR_E_UNSUPPORTED if the grid is too small for the frames
static inline mr_status frames_of(const mr_desc *x, int span, double eps, Frames *n)
{
    const int64_t *d = x->dim;
    if (d[0] * d[1] > 65535 || d[2] > INT32_MAX || d[3] > INT32_MAX)
        return mr_fail(MR_E_UNSUPPORTED, "B * T is %lld, expected at most 65535",
                       (long long)(d[0] * d[1]));
    *n = {(int)d[1], (int)d[2], (int)d[3], span, (float)eps};
    return MR_OK;
}

static inline int pieces_of(const Frames &n)
{
    return (n.S + n.span - 1) / n.span;
}

#endif
