/* Maps positions of a convolution's output to positions of its input, and back.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_CONV_GEOMETRY_CUH
#define MOONREEL_CUDA_CONV_GEOMETRY_CUH

#include "cuda/prim/kernel.cuh"

enum { THREADS = 128 }; // of a block, except in the warp-group kernels

/* x [B, in, C], w [O, C / groups, kernel], y [B, out, O]. The padding has `before` positions before
 * the first and others after the last: zeros, or with `edge` copies of the nearest position. */
struct Conv {
    int B, C, O, groups, taps;
    int in[3], out[3], kernel[3], stride[3], before[3];
    bool edge;

    MR_BOTH_MEMBER int64_t in_places() const
    {
        return (int64_t)B * in[0] * in[1] * in[2];
    }
    MR_BOTH_MEMBER int64_t out_places() const
    {
        return (int64_t)B * out[0] * out[1] * out[2];
    }
};

// a position: sample, time, height, width; b < 0: it does not exist
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

// move p forward by `by`, which is a position counted from the first
MR_DEVICE void place3_move(Place3 &p, const Place3 &by, const int (&dim)[3])
{
    int carry = 0;
#pragma unroll
    for (int i = 2; i >= 0; i--) {
        p.at[i] += by.at[i] + carry;
        carry = p.at[i] >= dim[i];
        p.at[i] -= carry ? dim[i] : 0;
    }
    p.b += by.b + carry;
}

/* All positions that a block writes meet the same taps. Positions of y meet all taps. Positions of
 * x (ADJOINT) are split by their remainders modulo the strides: those with remainder `first` meet
 * every stride-th tap from `tap` on. So strides cause no products with zeros. There are as many
 * phases as combinations of remainders. */
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
        if (all_taps() == 0)
            taps[0] = 0;
    }
    MR_MEMBER int64_t places(const Conv &c) const
    {
        return (int64_t)c.B * n[0] * n[1] * n[2];
    }
    MR_MEMBER int all_taps() const
    {
        return taps[0] * taps[1] * taps[2];
    }
    // the i-th position of this phase; one past the end does not exist
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
    // index of this position in the tensor
    MR_MEMBER int64_t index(const Conv &c, const Place3 &p) const
    {
        const int(&dim)[3] = ADJOINT ? c.in : c.out;
        return (((int64_t)p.b * dim[0] + p.at[0]) * dim[1] + p.at[1]) * dim[2] + p.at[2];
    }
};

/* An element in a row of [taps of a phase, K channels]. It advances step by step, because a
 * division costs as much as the copy of a piece. */
template <bool ADJOINT> struct Walk {
    int tap[3] = {0, 0, 0}, k = 0;

    MR_MEMBER Walk(const Phase<ADJOINT> &phase, int K, int first)
    {
        move(phase, K, first);
    }
    MR_MEMBER void move(const Phase<ADJOINT> &phase, int K, int channels)
    {
        for (k += channels; k >= K && exists(phase); k -= K)
            if (++tap[2] == phase.taps[2]) {
                tap[2] = 0;
                if (++tap[1] == phase.taps[1]) {
                    tap[1] = 0;
                    tap[0]++;
                }
            }
    }
    MR_MEMBER bool exists(const Phase<ADJOINT> &phase) const
    {
        return tap[0] < phase.taps[0];
    }
    // its offset in a row of weights [taps, K]
    MR_MEMBER int weight(const Conv &c, const Phase<ADJOINT> &phase, int K) const
    {
        int at[3];
#pragma unroll
        for (int i = 0; i < 3; i++)
            at[i] = phase.tap[i] + phase.step[i] * tap[i];
        return ((at[0] * c.kernel[1] + at[1]) * c.kernel[2] + at[2]) * K + k;
    }
};

MR_DEVICE int nearest(int at, int dim)
{
    return at < 0 ? 0 : at < dim ? at : dim - 1;
}

/* The source position that a position of y meets in x or, with ADJOINT, a position of x in y. The
 * source has `width` elements per position. Stored is the source position for the phase's first
 * tap. Edges repeat x; y has no positions outside. */
template <bool ADJOINT> struct Source {
    static constexpr int OUTSIDE = INT32_MIN / 2; // for a position that does not exist
    int at[3];
    uint32_t first; // index of its first element

    MR_MEMBER Source() {}
    MR_MEMBER Source(const Conv &c, const Phase<ADJOINT> &phase, const Place3 &p, int width)
    {
        const int(&dim)[3] = ADJOINT ? c.out : c.in;
        first = (uint32_t)p.b;
#pragma unroll
        for (int i = 0; i < 3; i++) {
            at[i] = ADJOINT ? (p.at[i] + c.before[i] - phase.tap[i]) / c.stride[i]
                            : p.at[i] * c.stride[i] - c.before[i];
            first = first * (uint32_t)dim[i] + (uint32_t)at[i];
        }
        first *= (uint32_t)width;
        if (p.b < 0)
            at[0] = OUTSIDE;
    }
    /* Does the position meet a source position by this tap? If so, `element`, an offset from the
     * first tap's element, becomes the index in the source. */
    MR_MEMBER bool meets(const Conv &c, const int (&tap)[3], int width, uint32_t &element) const
    {
        const int(&dim)[3] = ADJOINT ? c.out : c.in;
        bool inside = true;
        element += first;
#pragma unroll
        for (int i = 0; i < 3; i++)
            inside = inside && (unsigned)(at[i] + (ADJOINT ? -tap[i] : tap[i])) < (unsigned)dim[i];
        if (ADJOINT || !c.edge || inside || at[0] == OUTSIDE)
            return inside;
        uint32_t far = 0; // distance in positions to the nearest position inside
#pragma unroll
        for (int i = 0; i < 3; i++) {
            int there = at[i] + tap[i];
            far = far * (uint32_t)dim[i] + (uint32_t)(nearest(there, dim[i]) - there);
        }
        element += far * (uint32_t)width;
        return true;
    }
    // offset in elements from the first tap to this tap
    static MR_MEMBER uint32_t behind(const Conv &c, const int (&tap)[3], int width)
    {
        const int(&dim)[3] = ADJOINT ? c.out : c.in;
        uint32_t far = (((uint32_t)tap[0] * dim[1] + tap[1]) * dim[2] + tap[2]) * width;
        return ADJOINT ? 0 - far : far;
    }
};

// number of blocks of `rows` positions in the first phase, which is the largest; *phases: number of
// phases
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
