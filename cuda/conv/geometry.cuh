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
            from = from < 0 ? -1 : from / c.stride[i];
        } else {
            from = p.at[i] * c.stride[i] - c.before[i] + k[i];
        }
        inside = inside && from >= 0 && from < length;
        at = at * length + from;
    }
    return inside ? at : -1;
}

#endif
