/* PTX of sm_80. Each instruction is one function with two bodies: one for nvcc, one for the
 * emulator.
 *
 * Threads: each section says who calls its functions; "per warp" means that all 32 lanes call
 * together.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_PRIM_SM80_CUH
#define MOONREEL_CUDA_PRIM_SM80_CUH

#include "cuda/prim/kernel.cuh"
#include "moonreel/f8_inline.h"

// pack two floats as bf16, rounded to nearest even, a in the low half
MR_INSTRUCTION uint32_t mr_pack(float a, float b)
{
#ifdef __CUDACC__
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
    return r;
#else
    auto round = [](float x) {
        uint32_t bits;
        memcpy(&bits, &x, 4);
        return x != x ? 0x7FFF : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    };
    return (round(a) & 0xFFFF) | round(b) << 16;
#endif
}

/* Pack two floats as 8-bit floats with M mantissa bits, a in the low byte. Rounds like mr_f8_of.
 * sm_80 has no such instruction and uses the second body. */
template <int M> MR_INSTRUCTION uint32_t mr_pack8(float a, float b)
{
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 890
    uint16_t r;
    if (M == 3)
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(b), "f"(a));
    else
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(r) : "f"(b), "f"(a));
    return r;
#else
    return mr_f8_of(a, M) | (uint32_t)mr_f8_of(b, M) << 8;
#endif
}

// 2^x with relative error 2^-22; a denormal result becomes zero
MR_INSTRUCTION float mr_exp2(float x)
{
#ifdef __CUDACC__
    float r;
    MR_PTX("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
#else
    return exp2f(x);
#endif
}

// 1 / x with relative error 2^-23, for 2^-126 <= |x| <= 2^126
MR_INSTRUCTION float mr_recip(float x)
{
#ifdef __CUDACC__
    float r;
    MR_PTX("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
#else
    return 1 / x;
#endif
}

MR_INSTRUCTION uint32_t mr_shared_address(const void *p)
{
#ifdef __CUDACC__
    return (uint32_t)__cvta_generic_to_shared(p);
#else
    return emu::shared_address(p);
#endif
}

// ---- asynchronous copies, per thread ----

// copy `bytes` of 16 bytes to shared memory and fill the rest with zeros; both addresses are
// multiples of 16
MR_INSTRUCTION void mr_copy16(void *shared, const void *global, int bytes)
{
#ifdef __CUDACC__
    MR_PTX("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(mr_shared_address(shared)),
           "l"(global), "r"(bytes)
           : "memory");
#else
    emu::copy16_async(shared, global, bytes);
#endif
}

// put the copies since the last commit into one group
MR_INSTRUCTION void mr_copy_commit()
{
#ifdef __CUDACC__
    MR_PTX("cp.async.commit_group;" ::: "memory");
#else
    emu::copy_commit();
#endif
}

// wait until at most PENDING of this thread's groups are in flight
template <int PENDING> MR_INSTRUCTION void mr_copy_wait()
{
#ifdef __CUDACC__
    MR_PTX("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#else
    emu::copy_wait(PENDING);
#endif
}

// ---- matrix fragments and products, per warp ----

// load four 8 x 8 bf16 matrices; lane i passes the address of row i % 8 of matrix i / 8
template <bool TRANSPOSED> MR_INSTRUCTION void mr_load_matrix4(uint32_t (&r)[4], const void *row)
{
#ifdef __CUDACC__
    if (TRANSPOSED)
        MR_PTX("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(mr_shared_address(row))
               : "memory");
    else
        MR_PTX("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(mr_shared_address(row))
               : "memory");
#else
    emu::load_matrix(r, 4, TRANSPOSED, row);
#endif
}

// load two matrices; only the addresses of lanes 0 to 15 are used
template <bool TRANSPOSED> MR_INSTRUCTION void mr_load_matrix2(uint32_t (&r)[2], const void *row)
{
#ifdef __CUDACC__
    if (TRANSPOSED)
        MR_PTX("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(mr_shared_address(row))
               : "memory");
    else
        MR_PTX("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(mr_shared_address(row))
               : "memory");
#else
    emu::load_matrix(r, 2, TRANSPOSED, row);
#endif
}

// d [16, 8] f32 += a [16, 16] bf16 by b [16, 8] bf16
MR_INSTRUCTION void mr_product16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
#ifdef __CUDACC__
    MR_PTX("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
           "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
           : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
           : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    uint32_t b[2] = {b0, b1};
    emu::product_16x8(d, a, b, 16);
#endif
}

// d [16, 8] f32 += a [16, 8] bf16 by b [8, 8] bf16
MR_INSTRUCTION void mr_product8(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t b0)
{
#ifdef __CUDACC__
    MR_PTX("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
           "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
           : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
           : "r"(a0), "r"(a1), "r"(b0));
#else
    uint32_t a[2] = {a0, a1};
    emu::product_16x8(d, a, &b0, 8);
#endif
}

#endif
