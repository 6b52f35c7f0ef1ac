/* cuda/emu: planted faults. Each kernel runs correctly, without a report, and with one fault, which
 * the emulator must find and name. It must find a fault in every order of threads and blocks that
 * is tried. Covers: cuda/emu/memory.cpp, collective.cpp, copy.cpp, product.cpp, turn.cpp, block.cpp
 */
#include "cuda/prim/sm90a.cuh"
#include "support.h"

struct Args {
    float *in, *out;
    uint32_t *words; // two words, both 0
    bool bad;
};
typedef void Kernel(Args);

// ---- order of accesses ----

__global__ void neighbours(Args a)
{
    MR_SHARED(raw);
    float *s = (float *)raw;
    int i = threadIdx.x;
    s[i] = a.in[i];
    if (!a.bad)
        __syncthreads();
    a.out[i] = s[(i + 33) % 64];
}

__global__ void two_writers(Args a)
{
    MR_SHARED(raw);
    float *s = (float *)raw;
    s[a.bad ? threadIdx.x / 2 : threadIdx.x] = 1;
}

__global__ void buffer_used_again(Args a)
{
    MR_SHARED(raw);
    float *s = (float *)raw;
    int i = threadIdx.x;
    for (int round = 0; round < 2; round++) {
        s[i] = a.in[i] + round;
        __syncthreads();
        a.out[round * 64 + i] = s[63 - i];
        if (!a.bad)
            __syncthreads();
    }
}

__global__ void many_readers(Args a)
{
    MR_SHARED(raw);
    float *s = (float *)raw;
    int i = threadIdx.x;
    if (i == 0)
        s[0] = a.in[0];
    __syncthreads();
    a.out[i] = s[0];
    if (!a.bad)
        __syncthreads();
    if (i == 63)
        s[0] = 2;
}

__global__ void lanes_without_order(Args a)
{
    MR_SHARED(raw);
    float *s = (float *)raw;
    int i = threadIdx.x;
    s[i] = a.in[i];
    if (!a.bad)
        __syncwarp();
    a.out[i] = s[i ^ 1];
}

// a shuffle brings lanes together and orders none of their memory
__global__ void order_by_a_shuffle(Args a)
{
    MR_SHARED(raw);
    float *s = (float *)raw;
    int i = threadIdx.x;
    s[i] = a.in[i];
    if (a.bad)
        __shfl_xor_sync(~0u, i, 1);
    else
        __syncwarp();
    a.out[i] = s[i ^ 1];
}

__global__ void through_global(Args a)
{
    int i = threadIdx.x;
    a.out[i] = a.in[i];
    if (!a.bad)
        __syncthreads();
    a.out[64 + i] = a.out[63 - i] + 1;
}

__global__ void blocks_write_one_place(Args a)
{
    a.out[(a.bad ? 0 : blockIdx.x * 64) + threadIdx.x] = 1;
}

__global__ void block_reads_another(Args a)
{
    unsigned b = blockIdx.x, i = b * 64 + threadIdx.x;
    a.out[i] = 1;
    __syncthreads();
    float x = a.out[a.bad && b == 1 ? threadIdx.x : i];
    a.out[i] = x + 1;
}

__global__ void block_writes_what_all_read(Args a)
{
    float x = a.in[0];
    a.out[blockIdx.x * 64 + threadIdx.x] = x;
    if (a.bad && blockIdx.x == 0 && threadIdx.x == 0)
        a.in[0] = x + 1;
}

// ---- places ----

__global__ void shared_end(Args a)
{
    MR_SHARED(raw);
    ((float *)raw)[threadIdx.x + (a.bad ? 193 : 192)] = 0;
}

__global__ void global_end(Args a)
{
    a.out[threadIdx.x + (a.bad ? 449 : 448)] = 0;
}

__global__ void global_begin(Args a)
{
    a.out[(int)threadIdx.x - (a.bad ? 1 : 0)] = 0;
}

__global__ void odd_address(Args a)
{
    uint4 x = mr_load16((char *)a.in + threadIdx.x * 16 + (a.bad ? 4 : 0));
    mr_store16((char *)a.out + threadIdx.x * 16, x);
}

__global__ void unwritten_shared(Args a)
{
    MR_SHARED(raw);
    float *s = (float *)raw;
    if (!a.bad || threadIdx.x < 63)
        s[threadIdx.x] = 1;
    __syncthreads();
    a.out[threadIdx.x] = s[threadIdx.x];
}

__global__ void unwritten_global(Args a)
{
    if (!a.bad)
        a.out[threadIdx.x] = 0;
    a.out[threadIdx.x] += 1;
}

// ---- collectives ----

__global__ void lane_missing(Args a)
{
    float x = a.in[threadIdx.x];
    if (!a.bad || threadIdx.x != 5)
        x = mr_warp_sum(x);
    a.out[threadIdx.x] = x;
}

__global__ void two_collectives(Args a)
{
    float x = a.in[threadIdx.x];
    if (a.bad && threadIdx.x < 16)
        x += __ballot_sync(~0u, 1);
    else
        x += __shfl_xor_sync(~0u, x, 1);
    a.out[threadIdx.x] = x;
}

__global__ void not_in_mask(Args a)
{
    if (threadIdx.x < (a.bad ? 17 : 16))
        a.out[threadIdx.x] = __shfl_xor_sync(0xFFFFu, 1.0f, 1);
}

__global__ void absent_lane(Args a)
{
    if (threadIdx.x < 16)
        a.out[threadIdx.x] = __shfl_sync(0xFFFFu, a.in[threadIdx.x], a.bad ? 20 : 3);
}

__global__ void barrier_in_a_branch(Args a)
{
    if (!a.bad || threadIdx.x < 32)
        __syncthreads();
}

__global__ void barrier_counts_differ(Args a)
{
    mr_barrier_sync(1, a.bad && threadIdx.x >= 32 ? 96 : 64);
}

__global__ void barrier_count_odd(Args a)
{
    mr_barrier_sync(1, a.bad ? 65 : 64);
}

__global__ void lost_arrival(Args a)
{
    if (threadIdx.x < 32)
        mr_barrier_sync(1, 64);
    else if (!a.bad)
        mr_barrier_arrive(1, 64);
}

__global__ void spare_arrival(Args a)
{
    if (threadIdx.x < 32)
        mr_barrier_sync(1, 64);
    else
        mr_barrier_arrive(1, 64);
    if (a.bad && threadIdx.x < 32)
        mr_barrier_arrive(1, 64);
}

// ---- cp.async ----

__global__ void copy_not_waited(Args a)
{
    MR_SHARED(s);
    unsigned i = threadIdx.x;
    mr_copy16(s + i * 16, a.in + i * 4, 16);
    mr_copy_commit();
    if (!a.bad)
        mr_copy_wait<0>();
    a.out[i] = ((float *)s)[i * 4];
    mr_copy_wait<0>();
}

__global__ void copy_waited_one_short(Args a)
{
    MR_SHARED(s);
    unsigned i = threadIdx.x;
    for (int half = 0; half < 2; half++) {
        mr_copy16(s + half * 1024 + i * 16, a.in + half * 256 + i * 4, 16);
        mr_copy_commit();
    }
    if (a.bad)
        mr_copy_wait<1>();
    else
        mr_copy_wait<0>();
    a.out[i] = ((float *)s)[256 + i * 4];
    mr_copy_wait<0>();
}

__global__ void copy_not_committed(Args a)
{
    MR_SHARED(s);
    unsigned i = threadIdx.x;
    mr_copy16(s + i * 16, a.in + i * 4, 16);
    if (!a.bad)
        mr_copy_commit();
    mr_copy_wait<0>();
}

__global__ void copy_of_another_thread(Args a)
{
    MR_SHARED(s);
    unsigned i = threadIdx.x;
    mr_copy16(s + i * 16, a.in + i * 4, 16);
    mr_copy_commit();
    mr_copy_wait<0>();
    if (!a.bad)
        __syncthreads();
    a.out[i] = ((float *)s)[(i + 32) % 64 * 4];
}

__global__ void copy_over_a_read(Args a)
{
    MR_SHARED(s);
    unsigned i = threadIdx.x;
    *(float *)(s + i * 16) = 1;
    __syncthreads();
    a.out[i] = *(float *)(s + (63 - i) * 16);
    if (!a.bad)
        __syncthreads();
    mr_copy16(s + i * 16, a.in + i * 4, 16);
    mr_copy_commit();
    mr_copy_wait<0>();
}

__global__ void copy_odd_address(Args a)
{
    MR_SHARED(s);
    mr_copy16(s + threadIdx.x * 16, a.in + threadIdx.x * 4 + (a.bad ? 1 : 0), 16);
    mr_copy_commit();
    mr_copy_wait<0>();
}

__global__ void copy_past_the_end(Args a)
{
    MR_SHARED(s);
    unsigned i = threadIdx.x;
    mr_copy16(s + i * 16, a.in + i * 4 + 260, i == 63 && !a.bad ? 0 : 16);
    mr_copy_commit();
    mr_copy_wait<0>();
}

// ---- ldmatrix ----

__global__ void matrix_row_odd(Args a)
{
    MR_SHARED(s);
    unsigned i = threadIdx.x, r[4];
    *(float *)(s + i * 4) = 0;
    *(float *)(s + 256 + i * 4) = 0;
    *(float *)(s + 512 + i * 4) = 0;
    __syncthreads();
    mr_load_matrix4<false>(r, s + i % 32 * 16 + (a.bad ? 8 : 0));
    a.out[i] = (float)r[0];
}

__global__ void matrix_row_unwritten(Args a)
{
    MR_SHARED(s);
    unsigned i = threadIdx.x, r[2];
    *(float *)(s + i * 4) = 0;
    __syncthreads();
    mr_load_matrix2<false>(r, s + i % 16 * (a.bad ? 32 : 16));
    a.out[i] = (float)r[0];
}

__global__ void matrix_with_a_lane_missing(Args a)
{
    MR_SHARED(s);
    unsigned i = threadIdx.x, r[2] = {0, 0};
    *(float *)(s + i * 4) = 0;
    __syncthreads();
    if (!a.bad || i != 40)
        mr_load_matrix2<false>(r, s + i % 16 * 16);
    a.out[i] = (float)r[0];
}

// ---- mbarriers and TMA copies ----

// 16 rows of 16 floats, one box of 4 rows
static emu::TensorMap map_of(const float *base)
{
    return {base, 5, {16, 16, 1, 1, 1}, {4, 64, 1024, 1024, 1024}, {16, 4, 1, 1, 1}, 0, 4};
}

struct Tensor {
    emu::TensorMap map;
    int init = 1, bytes = 256, parity = 0, shift = 0, arrivals = 1;
    bool wait = true, fence = true;
};

__global__ void tensor_into_shared(Args a, Tensor t)
{
    MR_SHARED(s);
    uint64_t *full = (uint64_t *)(s + 1024);
    unsigned i = threadIdx.x;
    if (i == 0 && t.init)
        mr_mbarrier_init(full, 1);
    if (i == 0 && t.fence)
        mr_proxy_fence();
    __syncthreads();
    if (i == 0) {
        for (int n = 0; n < t.arrivals; n++)
            mr_mbarrier_expect(full, n ? 0 : t.bytes);
        mr_tensor_copy5(s + t.shift, &t.map, full, 0, 8, 0, 0, 0);
    }
    if (t.wait)
        mr_mbarrier_wait(full, t.parity);
    a.out[i] = ((float *)s)[i];
    mr_mbarrier_wait(full, 0);
}

__global__ void tensor_plain(Args a)
{
    Tensor t = {map_of(a.in)};
    t.wait = !a.bad;
    tensor_into_shared(a, t);
}

// nothing comes to the barriers next to the one of the copy
__global__ void tensor_left(Args a)
{
    MR_SHARED(s);
    uint64_t *full = (uint64_t *)(s + 1024);
    emu::TensorMap map = map_of(a.in);
    if (threadIdx.x == 0) {
        for (int i = -1; i <= 1; i++)
            mr_mbarrier_init(full + i, 1);
        mr_proxy_fence();
        mr_mbarrier_expect(full, 256);
        mr_tensor_copy5(s, &map, full, 0, 8, 0, 0, 0);
    }
    __syncthreads();
    if (!a.bad)
        mr_mbarrier_wait(full, 0);
}

__global__ void tensor_parity(Args a)
{
    Tensor t = {map_of(a.in)};
    t.parity = a.bad;
    tensor_into_shared(a, t);
}

__global__ void tensor_bytes(Args a)
{
    Tensor t = {map_of(a.in)};
    t.bytes = a.bad ? 272 : 256;
    tensor_into_shared(a, t);
}

__global__ void tensor_no_barrier(Args a)
{
    Tensor t = {map_of(a.in)};
    t.init = !a.bad;
    tensor_into_shared(a, t);
}

__global__ void tensor_target(Args a)
{
    Tensor t = {map_of(a.in)};
    t.shift = a.bad ? 16 : 0;
    tensor_into_shared(a, t);
}

__global__ void tensor_swizzle(Args a)
{
    Tensor t = {map_of(a.in)};
    t.map.swizzle = a.bad ? 32 : 64;
    tensor_into_shared(a, t);
}

__global__ void tensor_no_fence(Args a)
{
    Tensor t = {map_of(a.in)};
    t.fence = !a.bad;
    tensor_into_shared(a, t);
}

__global__ void tensor_arrivals(Args a)
{
    MR_SHARED(s);
    uint64_t *full = (uint64_t *)s;
    if (threadIdx.x == 0) {
        mr_mbarrier_init(full, a.bad ? 3 : 2);
        mr_mbarrier_arrive(full);
        mr_mbarrier_arrive(full);
    }
    __syncthreads();
    mr_mbarrier_wait(full, 0);
}

__global__ void arrival_without_end(Args a)
{
    MR_SHARED(s);
    uint64_t *full = (uint64_t *)s;
    if (threadIdx.x == 0) {
        mr_mbarrier_init(full, 1);
        mr_mbarrier_expect(full, a.bad ? 64 : 0);
        if (a.bad)
            mr_mbarrier_arrive(full);
    }
}

// ---- products of a warp group: 128 threads, a in registers, b 16 x 16 without swizzle ----

struct Group {
    bool fence = true, wait = true, keep = true, same = true, barrier = true;
};

__global__ void group_product(Args a, Group g)
{
    MR_SHARED(s);
    unsigned i = threadIdx.x, fragment[4] = {0, 0, 0, 0};
    ((float *)s)[i] = 0;
    if (g.fence)
        mr_proxy_fence();
    if (g.barrier)
        __syncthreads();
    float d[8] = {};
    uint64_t b = mr_operand<MR_SWIZZLE_NONE>(mr_shared_address(s), 256, 128);
    mr_group_fence();
    mr_group_product<0>(d, fragment, b + (g.same ? 0 : i / 64), 1);
    mr_group_commit();
    if (!g.keep) {
        ((float *)s)[i] = 1;
        mr_proxy_fence();
    }
    if (g.wait)
        mr_group_wait<0>();
    a.out[i] = d[0];
    mr_group_wait<0>();
}

__global__ void group_no_proxy_fence(Args a)
{
    Group g;
    g.fence = !a.bad;
    group_product(a, g);
}

__global__ void group_no_barrier(Args a)
{
    Group g;
    g.barrier = !a.bad;
    group_product(a, g);
}

__global__ void group_not_waited(Args a)
{
    Group g;
    g.wait = !a.bad;
    group_product(a, g);
}

__global__ void group_operand_lost(Args a)
{
    Group g;
    g.keep = !a.bad;
    group_product(a, g);
}

__global__ void group_descriptors(Args a)
{
    Group g;
    g.same = !a.bad;
    group_product(a, g);
}

// ---- registers of warp groups ----

// three groups are launched with 168 registers per thread, 504 in total
template <int FEWER> MR_DEVICE void hand_over_registers()
{
    if (threadIdx.x < 128)
        mr_registers_fewer<FEWER>();
    else
        mr_registers_more<240>();
}

__global__ void registers_more_than_there_are(Args a)
{
    if (a.bad)
        hand_over_registers<32>();
    else
        hand_over_registers<24>();
}

__global__ void registers_the_wrong_way(Args a)
{
    mr_registers_fewer<40>();
    __syncthreads();
    if (a.bad)
        mr_registers_fewer<48>();
    else
        mr_registers_more<48>();
}

// ---- between blocks: eight blocks add to the same floats, in turns ----

struct Turns {
    bool ticket = true, wait = true, pass = true, before = true, after = true, first = true;
};

__global__ void sums(Args a, Turns t)
{
    MR_SHARED(s);
    uint32_t *turn = (uint32_t *)s;
    unsigned i = threadIdx.x;
    if (i == 0)
        *turn = t.ticket ? mr_take_ticket(a.words) : 7 - blockIdx.x;
    __syncthreads();
    if (i == 0 && t.wait)
        mr_turn_wait(a.words + 1, *turn);
    if (t.before)
        __syncthreads();
    const float x[4] = {1, 2, 3, a.in[blockIdx.x]};
    if (*turn == 0 && t.first)
        mr_store16(a.out + i * 4, {0, 0, 0, 0});
    else
        mr_add_four(a.out + i * 4, x);
    if (t.after)
        __syncthreads();
    if (i == 0 && t.pass)
        mr_turn_pass(a.words + 1, *turn + 1);
}

__global__ void turn_by_block(Args a)
{
    Turns t;
    t.ticket = !a.bad;
    sums(a, t);
}

__global__ void turn_not_waited(Args a)
{
    Turns t;
    t.wait = !a.bad;
    sums(a, t);
}

__global__ void turn_not_passed(Args a)
{
    Turns t;
    t.pass = !a.bad;
    sums(a, t);
}

__global__ void turn_kept_by_one_thread(Args a)
{
    Turns t;
    t.before = !a.bad;
    sums(a, t);
}

__global__ void turn_passed_before_the_sums(Args a)
{
    Turns t;
    t.after = !a.bad;
    sums(a, t);
}

__global__ void sum_of_nothing(Args a)
{
    Turns t;
    t.first = !a.bad;
    sums(a, t);
}

struct Fault {
    const char *name;
    Kernel *kernel;
    const char *words; // expected texts in the report, one per line
    int threads = 64;
    int blocks = 1;
    bool late_only = false; // found only if copies and products are late
};

#define FAULT(kernel, ...)                                                                         \
    {                                                                                              \
#kernel, kernel, __VA_ARGS__                                                               \
    }
static const Fault faults[] = {
    FAULT(neighbours, "race: read of shared memory"),
    FAULT(two_writers, "race: write of shared memory"),
    FAULT(buffer_used_again, "read by thread"),
    FAULT(many_readers, "[0, 4), read by thread\n[0, 4), written by thread 63"),
    FAULT(lanes_without_order, "expected a barrier"),
    FAULT(order_by_a_shuffle, "expected a barrier"),
    FAULT(through_global, "race: read of global memory"),
    FAULT(blocks_write_one_place, "race between blocks: write of global memory", 64, 2),
    FAULT(block_reads_another, "race between blocks:", 64, 2),
    FAULT(block_writes_what_all_read, "race between blocks:", 64, 3),
    FAULT(shared_end, "write of shared memory [1024, 1028) out of bounds; the launch gave 1024"),
    FAULT(global_end, "write of global memory"),
    FAULT(global_begin, "out of bounds: byte 0 belongs to no allocation"),
    FAULT(odd_address, "16 bytes; expected an aligned address"),
    FAULT(unwritten_shared, "read of unwritten shared memory [252, 256)"),
    FAULT(unwritten_global, "read of unwritten global memory"),
    FAULT(lane_missing, "31 threads in shfl.bfly", 32),
    FAULT(two_collectives, "diverged: this thread is in", 32),
    FAULT(not_in_mask, "shfl.bfly: lane 16 is not in its own mask 0000ffff", 32),
    FAULT(absent_lane, "reads lane 20, which does not take part", 32),
    FAULT(barrier_in_a_branch, "32 threads in __syncthreads"),
    FAULT(barrier_counts_differ,
          "expected 64 as in the first request\nexpected 96 as in the first"),
    FAULT(barrier_count_odd, "65 threads requested, expected a multiple of 32"),
    FAULT(lost_arrival, "deadlock: 32 threads in bar.sync, 32 threads in the end"),
    FAULT(spare_arrival, "barrier 1 ends with 32 of 64 threads"),
    FAULT(copy_not_waited, "while an asynchronous copy into it is in flight", 64, 1, true),
    FAULT(copy_waited_one_short, "while an asynchronous copy into it is in flight", 64, 1, true),
    FAULT(copy_not_committed, "64 asynchronous copies or products in flight at the end", 64, 1,
          true),
    FAULT(copy_of_another_thread, "race: read of shared memory\nwhile an asynchronous copy"),
    FAULT(copy_over_a_read, "race: write of shared memory\nwhile an asynchronous copy"),
    FAULT(copy_odd_address, "expected both at multiples of 16"),
    FAULT(copy_past_the_end, "16 bytes, out of bounds"),
    FAULT(matrix_row_odd, "ldmatrix row at shared memory"),
    FAULT(matrix_row_unwritten, "read of unwritten shared memory"),
    FAULT(matrix_with_a_lane_missing, "deadlock: 31 threads in ldmatrix.x2"),
    FAULT(tensor_plain, "while an asynchronous copy into it is in flight", 64, 1, true),
    FAULT(tensor_left, "1 asynchronous copies or products in flight at the end", 64, 1, true),
    FAULT(tensor_parity, "while an asynchronous copy into it is in flight", 64, 1, true),
    FAULT(tensor_bytes, "64 threads in mbarrier.try_wait"),
    FAULT(tensor_no_barrier, "expected mbarrier.init before"),
    FAULT(tensor_no_fence, "expected fence.proxy.async in that thread after mbarrier.init"),
    FAULT(tensor_target, "TMA copy to shared memory 16; expected a multiple of 128"),
    FAULT(tensor_swizzle, "TMA copy with rows of 64 bytes; expected at most its swizzle of 32"),
    FAULT(tensor_arrivals, "64 threads in mbarrier.try_wait"),
    FAULT(arrival_without_end, "one more arrival in a phase of 1"),
    FAULT(group_no_proxy_fence, "expected fence.proxy.async in that thread after the store", 128),
    FAULT(group_no_barrier, "race: read of shared memory", 128),
    FAULT(group_not_waited, "read of an accumulator of a product in flight", 128, 1, true),
    FAULT(group_operand_lost, "race: read of shared memory", 128, 1, true),
    FAULT(group_descriptors, "has other descriptors than thread 0", 128),
    FAULT(registers_more_than_there_are, "deadlock: 128 threads in setmaxnreg.inc", 384),
    FAULT(registers_the_wrong_way, "setmaxnreg.dec from 40 to 48 registers", 256),
    FAULT(turn_by_block, "deadlock: 63 threads in __syncthreads, 1 threads in a turn of", 64, 8),
    FAULT(turn_not_waited, "race between blocks: write of global memory\nread of unwritten", 64, 8),
    FAULT(turn_not_passed, "1 threads in a turn of another block", 64, 8),
    FAULT(turn_kept_by_one_thread, "race between blocks: read of global memory", 64, 8),
    FAULT(turn_passed_before_the_sums, "race between blocks: read of global memory", 64, 8),
    FAULT(sum_of_nothing, "read of unwritten global memory", 64, 8),
};

// does a report contain one of the texts, which are one per line?
static bool found(const char *words)
{
    std::string all = all_reports(), rest = words;
    while (!rest.empty()) {
        std::string one = rest.substr(0, rest.find('\n'));
        if (all.find(one) != std::string::npos)
            return true;
        rest = one.size() < rest.size() ? rest.substr(one.size() + 1) : "";
    }
    return false;
}

static void run(const Fault &f, bool bad)
{
    Args a = {device_values<float>(512, [](size_t i) { return (float)i; }), device_room<float>(512),
              device_values<uint32_t>(2, [](size_t) { return 0u; }), bad};
    Kernel *kernel = f.kernel;
    emu::forget_reports();
    emu::launch(f.name, (const void *)kernel, dim3(f.blocks), dim3(f.threads),
                f.kernel == shared_end ? 1024 : 2048, NULL, [=] { kernel(a); });
}

// two places with no memory between them; bad: a 32-bit offset overflows
__global__ void far_apart(float *out, int64_t step, bool bad)
{
    out[bad ? (int64_t)(int)(step * threadIdx.x) : step * threadIdx.x] = 1;
}

static void sparse(void)
{
    const int64_t step = ((int64_t)1 << 31) + 64;
    emu::forget_reports();
    float *out = (float *)emu::alloc_sparse(step * 4 + 256);
    if (!out)
        return; // the host does not have enough addresses
    for (int i = 0; i < 2; i++)
        emu::open(out + i * step, 256);
    MR_LAUNCH(far_apart, dim3(1), dim3(2), 0, NULL, out, step, false);
    CHECK_SILENT();
    CHECK(out[0] == 1 && out[step] == 1);
    CHECK(emu::all_written(out + step, 4) && !emu::all_written(out + step, 8));
    MR_LAUNCH(far_apart, dim3(1), dim3(2), 0, NULL, out, step, true);
    CHECK(found("out of bounds: byte 0 belongs to no allocation"));
    emu::forget_reports();
    emu::free_all();
    CHECK(emu::alloc_sparse((size_t)1 << 50) == NULL);
}

int main(void)
{
    sparse();
    for (const Fault &f : faults)
        for (unsigned seed = 0; seed < 4; seed++)
            for (emu::Async async : {emu::Async::eager, emu::Async::late}) {
                emu::options.seed = seed;
                emu::options.async = async;
                run(f, false);
                if (!CHECK_SILENT())
                    printf("  %s as it should be, seed %u\n", f.name, seed);
                if (f.late_only && async == emu::Async::eager)
                    continue;
                run(f, true);
                if (!CHECK(found(f.words)))
                    printf("  %s, seed %u: expected \"%s\", got\n%s", f.name, seed, f.words,
                           all_reports().c_str());
            }
    printf("%zu faults\n", sizeof faults / sizeof *faults);
    return check_done();
}
