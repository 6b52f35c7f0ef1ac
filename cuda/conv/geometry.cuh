/* Where places of a convolution's input and output meet. Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_CONV_GEOMETRY_CUH
#define MOONREEL_CUDA_CONV_GEOMETRY_CUH

#include "cuda/prim/kernel.cuh"

// x [B, in, C], w [O, C / groups, kernel], y [B, out, O]; zeros stand `before` the first place
struct Conv {
    int B, C, O, groups, taps;
    int in[3], out[3], kernel[3], stride[3], before[3];

    MR_MEMBER int64_t in_places() const
    {
        return (int64_t)B * in[0] * in[1] * in[2];
    }
    MR_MEMBER int64_t out_places() const
    {
        return (int64_t)B * out[0] * out[1] * out[2];
    }
};

// a place: sample, time, height, width; b < 0: it does not exist
struct Place3 {
    int b, at[3];
};

MR_DEVICE Place3 place3(int64_t i, const int (&dim)[3])
{
    Place3 p;
    p.at[2] = (int)(i % dim[2]);
    i /= dim[2];
    p.at[1] = (int)(i % dim[1]);
    i /= dim[1];
    p.at[0] = (int)(i % dim[0]);
    p.b = (int)(i / dim[0]);
    return p;
}

// which of x a place of y meets by a tap, or (ADJOINT) which of y a place of x; -1: none
template <bool ADJOINT> MR_DEVICE int64_t meets(const Conv &c, const Place3 &p, int tap)
{
    int k[3] = {tap / c.kernel[2] / c.kernel[1], tap / c.kernel[2] % c.kernel[1],
                tap % c.kernel[2]};
    int64_t at = p.b;
    bool inside = p.b >= 0;
#pragma unroll
    for (int i = 0; i < 3; i++) {
        int length = ADJOINT ? c.out[i] : c.in[i], from;
        if (ADJOINT) {
            from = p.at[i] + c.before[i] - k[i];
            inside = inside && from % c.stride[i] == 0;
            from /= c.stride[i];
        } else {
            from = p.at[i] * c.stride[i] - c.before[i] + k[i];
        }
        inside = inside && from >= 0 && from < length;
        at = at * length + from;
    }
    return inside ? at : -1;
}

/* The places that a block writes to all meet the same taps: those of y meet all, those of x
 * (ADJOINT) whose remainders by the strides are `first` every stride-th from `tap` on. So strides
 * cost no products with zeros. There are as many phases as remainders. */
template <bool ADJOINT> struct Phase {
    int first[3], n[3], step[3], tap[3], taps[3];

    MR_MEMBER Phase(const Conv &c, int phase)
    {
#pragma unroll
        for (int i = 2; i >= 0; i--) {
            int dim = ADJOINT ? c.in[i] : c.out[i];
            step[i] = ADJOINT ? c.stride[i] : 1;
            first[i] = phase % step[i];
            phase /= step[i];
            tap[i] = ADJOINT ? (first[i] + c.before[i]) % step[i] : 0;
            n[i] = (dim - first[i] + step[i] - 1) / step[i];
            taps[i] = (c.kernel[i] - tap[i] + step[i] - 1) / step[i];
        }
    }
    MR_MEMBER int64_t places(const Conv &c) const
    {
        return (int64_t)c.B * n[0] * n[1] * n[2];
    }
    MR_MEMBER int all_taps() const
    {
        return taps[0] * taps[1] * taps[2];
    }
    // the i-th of its places; one beyond them does not exist
    MR_MEMBER Place3 place(const Conv &c, int64_t i) const
    {
        Place3 p = place3(i, n);
#pragma unroll
        for (int k = 0; k < 3; k++)
            p.at[k] = first[k] + step[k] * p.at[k];
        if (p.b >= c.B)
            p.b = -1;
        return p;
    }
    // which place of the tensor that is
    MR_MEMBER int64_t index(const Conv &c, const Place3 &p) const
    {
        const int(&dim)[3] = ADJOINT ? c.in : c.out;
        return (((int64_t)p.b * dim[0] + p.at[0]) * dim[1] + p.at[1]) * dim[2] + p.at[2];
    }
    // the i-th of its taps
    MR_MEMBER int tap_at(const Conv &c, int i) const
    {
        int t = tap[0] + step[0] * (i / taps[2] / taps[1]),
            h = tap[1] + step[1] * (i / taps[2] % taps[1]), w = tap[2] + step[2] * (i % taps[2]);
        return (t * c.kernel[1] + h) * c.kernel[2] + w;
    }
};

// blocks of `rows` places that the largest phase, the first, takes, and how many phases there are
template <bool ADJOINT> static int64_t phase_tiles(const Conv &c, int rows, int *phases)
{
    int64_t places = c.B;
    *phases = 1;
    for (int i = 0; i < 3; i++) {
        int step = ADJOINT ? c.stride[i] : 1, dim = ADJOINT ? c.in[i] : c.out[i];
        places *= (dim + step - 1) / step;
        *phases *= step;
    }
    return (places + rows - 1) / rows;
}

#endif
