/* PTX of sm_90a: named barriers, mbarriers in shared memory, TMA copies, tickets, turns and sums
 * between blocks, and warp-group products. Each instruction is one function with two bodies: one
 * for nvcc, one for the emulator.
 *
 * Threads: each section says who calls its functions; "the group" means 128 threads, four whole
 * warps.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_PRIM_SM90A_CUH
#define MOONREEL_CUDA_PRIM_SM90A_CUH

#include "cuda/prim/sm80.cuh"

#ifdef __CUDACC__
#define MR_TWO_BODIES(ptx, emulated) MR_PTX ptx
#else
#define MR_TWO_BODIES(ptx, emulated) emulated
#endif

// ---- named barriers: `threads` threads of the block, a multiple of 32, meet at barrier `id` ----

MR_INSTRUCTION void mr_barrier_sync(int id, int threads)
{
    MR_TWO_BODIES(("bar.sync %0, %1;" ::"r"(id), "r"(threads)
                   : "memory"),
                  emu::barrier_sync(id, threads));
}

// arrive at the barrier without waiting
MR_INSTRUCTION void mr_barrier_arrive(int id, int threads)
{
    MR_TWO_BODIES(("bar.arrive %0, %1;" ::"r"(id), "r"(threads)
                   : "memory"),
                  emu::barrier_arrive(id, threads));
}

// ---- mbarriers, per thread: 8 bytes in shared memory; a phase ends when all `arrivals` and all
// expected bytes have come ----

MR_INSTRUCTION void mr_mbarrier_init(uint64_t *barrier, int arrivals)
{
    MR_TWO_BODIES(
        ("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(mr_shared_address(barrier)), "r"(arrivals)
         : "memory"),
        emu::mbarrier_init(barrier, arrivals));
}

MR_INSTRUCTION void mr_mbarrier_arrive(uint64_t *barrier)
{
    MR_TWO_BODIES(("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(mr_shared_address(barrier))
                   : "memory"),
                  emu::mbarrier_arrive(barrier));
}

// arrive, and make the phase wait for `bytes` more bytes
MR_INSTRUCTION void mr_mbarrier_expect(uint64_t *barrier, int bytes)
{
    MR_TWO_BODIES(
        ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(mr_shared_address(barrier)),
         "r"(bytes)
         : "memory"),
        emu::mbarrier_expect(barrier, bytes));
}

// wait until the phase with this parity ends
MR_INSTRUCTION void mr_mbarrier_wait(uint64_t *barrier, int parity)
{
    MR_TWO_BODIES(("{.reg .pred p;\n"
                   "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                   "@!p bra again;}" ::"r"(mr_shared_address(barrier)),
                   "r"(parity)
                   : "memory"),
                  emu::mbarrier_wait(barrier, parity));
}

// make this thread's stores to shared memory visible to later TMA copies and wgmma products
MR_INSTRUCTION void mr_proxy_fence()
{
    MR_TWO_BODIES(("fence.proxy.async.shared::cta;" ::: "memory"), emu::proxy_fence());
}

// ---- TMA copies, by one thread: the box of `map` at these coordinates, dimension 0 innermost ----

MR_INSTRUCTION void mr_tensor_copy5(void *shared, const mr_tensor_map *map, uint64_t *barrier,
                                    int c0, int c1, int c2, int c3, int c4)
{
#ifdef __CUDACC__
    MR_PTX("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
           "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(mr_shared_address(shared)),
           "l"(map), "r"(mr_shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
           : "memory");
#else
    int at[5] = {c0, c1, c2, c3, c4};
    emu::tensor_copy(shared, map, barrier, at);
#endif
}

// ---- communication between blocks through words of global memory ----

// one thread: returns how many calls came before this one
MR_INSTRUCTION uint32_t mr_take_ticket(uint32_t *next)
{
#ifdef __CUDACC__
    uint32_t ticket;
    MR_PTX("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;" : "=r"(ticket) : "l"(next) : "memory");
    return ticket;
#else
    return emu::take_ticket(next);
#endif
}

// one thread: wait until the word equals `turn`; then this thread sees all that the passing thread
// saw
MR_INSTRUCTION void mr_turn_wait(const uint32_t *word, uint32_t turn)
{
    MR_TWO_BODIES(("{.reg .pred p;\n.reg .u32 x;\n"
                   "again: ld.acquire.gpu.global.u32 x, [%0];\n"
                   "setp.ne.u32 p, x, %1;\n"
                   "@p bra again;}" ::"l"(word),
                   "r"(turn)
                   : "memory"),
                  emu::turn_wait(word, turn));
}

// one thread: set the word to `turn` after all writes that this thread has made or seen
MR_INSTRUCTION void mr_turn_pass(uint32_t *word, uint32_t turn)
{
    MR_TWO_BODIES(("st.release.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(turn)
                   : "memory"),
                  emu::turn_pass(word, turn));
}

// add to four floats in global memory; if several blocks add to the same floats, turns fix their
// order
MR_INSTRUCTION void mr_add_four(float *to, const float (&x)[4])
{
    MR_TWO_BODIES(("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x[0]),
                   "f"(x[1]), "f"(x[2]), "f"(x[3])
                   : "memory"),
                  emu::add_four(to, x));
}

// ---- products of a warp group: d [64, N] f32 = a [64, 16] by b [16, N] bf16; `accumulate` adds
// the old d ----

enum { MR_SWIZZLE_NONE, MR_SWIZZLE_128, MR_SWIZZLE_64, MR_SWIZZLE_32 };

// descriptor of an operand in shared memory: address, leading and stride offsets in bytes
template <int SWIZZLE> MR_DEVICE uint64_t mr_operand(uint32_t at, uint32_t lead, uint32_t stride)
{
    return (uint64_t)(at >> 4 & 0x3FFF) | (uint64_t)(lead >> 4) << 16 |
           (uint64_t)(stride >> 4) << 32 | (uint64_t)SWIZZLE << 62;
}

// the same descriptor, `bytes` further on
MR_DEVICE uint64_t mr_operand_behind(uint64_t operand, uint32_t bytes)
{
    return operand + (bytes >> 4);
}

// number of the warp group of this thread; the shuffle makes it uniform across the warp, so the
// compiler computes operands that depend on it once per warp
MR_DEVICE int mr_group_number()
{
    return __shfl_sync(~0u, (int)threadIdx.x / 128, 0);
}

#ifdef __CUDACC__
// names and constraints of the accumulators, eight at a time
#define MR_R0      "%0, %1, %2, %3, %4, %5, %6, %7"
#define MR_R1      "%8, %9, %10, %11, %12, %13, %14, %15"
#define MR_R2      "%16, %17, %18, %19, %20, %21, %22, %23"
#define MR_R3      "%24, %25, %26, %27, %28, %29, %30, %31"
#define MR_R4      "%32, %33, %34, %35, %36, %37, %38, %39"
#define MR_R5      "%40, %41, %42, %43, %44, %45, %46, %47"
#define MR_R6      "%48, %49, %50, %51, %52, %53, %54, %55"
#define MR_R7      "%56, %57, %58, %59, %60, %61, %62, %63"
#define MR_REGS_16 MR_R0 ", " MR_R1
#define MR_REGS_32 MR_REGS_16 ", " MR_R2 ", " MR_R3
#define MR_REGS_64 MR_REGS_32 ", " MR_R4 ", " MR_R5 ", " MR_R6 ", " MR_R7
#define MR_ACC_8(d, i)                                                                             \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),    \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define MR_ACC_16(d, i) MR_ACC_8(d, i), MR_ACC_8(d, i + 8)
#define MR_ACC_32(d, i) MR_ACC_16(d, i), MR_ACC_16(d, i + 16)
#define MR_ACC_64(d)    MR_ACC_32(d, 0), MR_ACC_32(d, 32)
#define MR_WGMMA(n, accumulate, operands)                                                          \
    "{.reg .pred p; setp.ne.b32 p, " accumulate ", 0;\n"                                           \
    "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 " operands "}"
#endif

/* The number of accumulators per thread gives N: 64 accumulators are 128 columns. Operands in
 * shared memory are K-major. A_TRANSPOSED makes A M-major, B_TRANSPOSED makes B N-major. */
template <int B_TRANSPOSED, int A_TRANSPOSED = 0>
MR_INSTRUCTION void mr_group_product(float (&d)[64], uint64_t a, uint64_t b, int accumulate)
{
    MR_TWO_BODIES((MR_WGMMA(128, "%66", "{" MR_REGS_64 "}, %64, %65, p, 1, 1, %67, %68;")
                   : MR_ACC_64(d)
                   : "l"(a), "l"(b), "r"(accumulate), "n"(A_TRANSPOSED), "n"(B_TRANSPOSED)),
                  emu::group_product(d, 128, NULL, a, A_TRANSPOSED, b, B_TRANSPOSED, accumulate));
}

template <int B_TRANSPOSED, int A_TRANSPOSED = 0>
MR_INSTRUCTION void mr_group_product(float (&d)[32], uint64_t a, uint64_t b, int accumulate)
{
    MR_TWO_BODIES((MR_WGMMA(64, "%34", "{" MR_REGS_32 "}, %32, %33, p, 1, 1, %35, %36;")
                   : MR_ACC_32(d, 0)
                   : "l"(a), "l"(b), "r"(accumulate), "n"(A_TRANSPOSED), "n"(B_TRANSPOSED)),
                  emu::group_product(d, 64, NULL, a, A_TRANSPOSED, b, B_TRANSPOSED, accumulate));
}

template <int B_TRANSPOSED>
MR_INSTRUCTION void mr_group_product(float (&d)[16], uint64_t a, uint64_t b, int accumulate)
{
    MR_TWO_BODIES((MR_WGMMA(32, "%18", "{" MR_REGS_16 "}, %16, %17, p, 1, 1, 0, %19;")
                   : MR_ACC_16(d, 0)
                   : "l"(a), "l"(b), "r"(accumulate), "n"(B_TRANSPOSED)),
                  emu::group_product(d, 32, NULL, a, 0, b, B_TRANSPOSED, accumulate));
}

template <int B_TRANSPOSED, int A_TRANSPOSED>
MR_INSTRUCTION void mr_group_product(float (&d)[8], uint64_t a, uint64_t b, int accumulate)
{
    MR_TWO_BODIES((MR_WGMMA(16, "%10", "{" MR_R0 "}, %8, %9, p, 1, 1, %11, %12;")
                   : MR_ACC_8(d, 0)
                   : "l"(a), "l"(b), "r"(accumulate), "n"(A_TRANSPOSED), "n"(B_TRANSPOSED)),
                  emu::group_product(d, 16, NULL, a, A_TRANSPOSED, b, B_TRANSPOSED, accumulate));
}

// A comes from registers: each thread passes its fragment of the 16 x 16 part of its warp
template <int TRANSPOSED>
MR_INSTRUCTION void mr_group_product(float (&d)[64], const uint32_t (&a)[4], uint64_t b,
                                     int accumulate)
{
    MR_TWO_BODIES(
        (MR_WGMMA(128, "%69", "{" MR_REGS_64 "}, {%64, %65, %66, %67}, %68, p, 1, 1, %70;")
         : MR_ACC_64(d)
         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(TRANSPOSED)),
        emu::group_product(d, 128, a, 0, 0, b, TRANSPOSED, accumulate));
}

template <int TRANSPOSED>
MR_INSTRUCTION void mr_group_product(float (&d)[32], const uint32_t (&a)[4], uint64_t b,
                                     int accumulate)
{
    MR_TWO_BODIES(
        (MR_WGMMA(64, "%37", "{" MR_REGS_32 "}, {%32, %33, %34, %35}, %36, p, 1, 1, %38;")
         : MR_ACC_32(d, 0)
         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(TRANSPOSED)),
        emu::group_product(d, 64, a, 0, 0, b, TRANSPOSED, accumulate));
}

template <int TRANSPOSED>
MR_INSTRUCTION void mr_group_product(float (&d)[16], const uint32_t (&a)[4], uint64_t b,
                                     int accumulate)
{
    MR_TWO_BODIES(
        (MR_WGMMA(32, "%21", "{" MR_REGS_16 "}, {%16, %17, %18, %19}, %20, p, 1, 1, %22;")
         : MR_ACC_16(d, 0)
         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(TRANSPOSED)),
        emu::group_product(d, 32, a, 0, 0, b, TRANSPOSED, accumulate));
}

template <int TRANSPOSED>
MR_INSTRUCTION void mr_group_product(float (&d)[8], const uint32_t (&a)[4], uint64_t b,
                                     int accumulate)
{
    MR_TWO_BODIES(
        (MR_WGMMA(16, "%13", "{" MR_R0 "}, {%8, %9, %10, %11}, %12, p, 1, 1, %14;")
         : MR_ACC_8(d, 0)
         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(TRANSPOSED)),
        emu::group_product(d, 16, a, 0, 0, b, TRANSPOSED, accumulate));
}

// call before the first product: the product then sees registers that were written before
MR_INSTRUCTION void mr_group_fence()
{
    MR_TWO_BODIES(("wgmma.fence.sync.aligned;" ::: "memory"), (void)0);
}

/* Emits no instruction. Forces earlier writes to the accumulators to end here, so that none moves
 * between products. Without this, ptxas serialises the products (C7515). */
template <int N> MR_INSTRUCTION void mr_group_pin(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        MR_TWO_BODIES(("" : "+f"(d[i])::"memory"), (void)d);
}

MR_INSTRUCTION void mr_group_commit()
{
    MR_TWO_BODIES(("wgmma.commit_group.sync.aligned;" ::: "memory"), emu::group_commit());
}

// wait until at most PENDING committed product groups are in flight
template <int PENDING> MR_INSTRUCTION void mr_group_wait()
{
    MR_TWO_BODIES(("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING)
                   : "memory"),
                  emu::group_wait(PENDING));
}

/* Set the number of registers per thread of a warp group, a multiple of 8. The block cannot exceed
 * its number of registers at launch: a group that asks for more waits until other groups have
 * released enough. */
template <int REGISTERS> MR_INSTRUCTION void mr_registers_more()
{
    MR_TWO_BODIES(("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS)),
                  emu::set_registers(REGISTERS, true));
}

template <int REGISTERS> MR_INSTRUCTION void mr_registers_fewer()
{
    MR_TWO_BODIES(("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS)),
                  emu::set_registers(REGISTERS, false));
}

#endif
