/* emu: CUDA kernels on a CPU, for tests. This header replaces the CUDA headers for kernel sources,
 * and declares what specs set and query.
 *
 * g++ compiles the kernel source with -fsanitize=thread. Only the instrumentation is used:
 * hooks.cpp defines its load and store hooks, and libtsan is not linked. Each CUDA thread is a
 * fiber. Blocks run one after another in seeded order, or up to three at once if they wait for each
 * other's turns. A shadow memory checks every access: bounds, first write before first read, and
 * happens-before by vector clocks. Asynchronous copies and products complete at once (eager) or as
 * late as the program allows (late). Until then their destinations are poisoned.
 *
 * A spec allocates memory with emu::alloc, launches with MR_LAUNCH, and then checks that
 * emu::reports() is empty and emu::counts is right.
 *
 * Threads: one host thread; a fiber never leaves it.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_EMU_H
#define MOONREEL_CUDA_EMU_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

// ---- keywords of CUDA C++ ----

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
// functions that emulate the hardware are not instrumented
#define EMU_UNWATCHED __attribute__((no_sanitize("thread"), noinline))

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct __align__(16) uint4
{
    unsigned x, y, z, w;
};
struct __align__(8) uint2
{
    unsigned x, y;
};
typedef struct CUstream_st *cudaStream_t;

namespace emu
{

// ---- settings and queries for specs ----

// when an asynchronous copy or product takes effect
enum class Async { eager, late };

struct Options {
    unsigned seed = 1;         // order of blocks and threads; 0: ascending
    Async async = Async::late; // specs run every asynchronous kernel in both modes
    bool counting = true;      // count sectors and wavefronts; takes a third of the time
};
extern Options options;

/* Sums over launches until reset. A request is one access by the lanes of one warp. sectors counts
 * the 32-byte pieces of global memory that requests touch; ideal_sectors is the minimum for their
 * bytes. wavefronts counts the passes that the 32 banks of shared memory need. */
struct Counts {
    uint64_t launches, switches, product_flop;
    uint64_t global_read, global_written; // bytes that threads accessed
    uint64_t shared_read, shared_written;
    uint64_t requests, sectors, ideal_sectors;
    uint64_t wavefronts, ideal_wavefronts;
};
extern Counts counts;

/* The largest block and the most shared memory of any launch, by kernel name without template
 * arguments. */
struct Launch {
    unsigned threads;
    size_t shared;
};
const std::map<std::string, Launch> &launches();

// Errors found, one text each: kernel, block, thread, file:line, actual and expected.
const std::vector<std::string> &reports();
void forget_reports();

/* Allocate device memory with a guard on both sides. It counts as unwritten until the first write.
 * NULL if no hole is large enough. */
void *alloc(size_t bytes);
void free(void *p);
// free all memory
void free_all();
size_t free_bytes();
/* Reserve address space, which may be larger than the host's memory. A kernel may touch only ranges
 * that `open` opens later. They begin unwritten; every other byte is out of bounds. NULL if no
 * address space remains. */
void *alloc_sparse(size_t bytes);
void open(void *p, size_t bytes);
void host_wrote(void *p, size_t bytes);
bool all_written(const void *p, size_t bytes);
// memmove between device and host memory; unwritten bytes stay unwritten
void copy(void *to, const void *from, size_t bytes);

// without a stream, runs at once; otherwise when the stream reaches it (stream.cpp); entry: the
// kernel
void launch(const char *kernel, const void *entry, dim3 grid, dim3 block, size_t shared_bytes,
            cudaStream_t stream, const std::function<void()> &body);
// allow later launches of this kernel `bytes` bytes of shared memory instead of 48 KB
void allow_shared(const void *entry, size_t bytes);

// a call of f with copies of these arguments
template <class F, class... A> std::function<void()> bound(F f, A... arguments)
{
    return [f, all = std::make_tuple(arguments...)] { std::apply(f, all); };
}

/* Streams and events. Tasks of one stream run in order. Tasks of several streams run in an order
 * that depends on the seed, and only when a caller waits for one of them. */
typedef std::function<void()> Task;
cudaStream_t stream_new();
void stream_free(cudaStream_t stream); // drops tasks that have not run
void enqueue(cudaStream_t stream, const Task &task);
/* A task that depends on other ranks: it is called whenever the stream could continue, until it
 * returns true. Then it starts over: in a captured graph it runs again with each run. */
typedef std::function<bool()> Attempt;
void enqueue_attempts(cudaStream_t stream, const Attempt &attempt);
// Called before and after each task of a stream; if `before` returns false, the task is skipped.
// NULL: no calls.
void stream_watch(bool (*before)(), void (*after)());
// Run until the stream is empty. False: it waits for an event that is never recorded.
bool stream_sync(cudaStream_t stream);
struct Event;
Event *event_new();
void event_free(Event *event);
void event_record(Event *event, cudaStream_t stream);
void event_wait(Event *event, cudaStream_t stream);
// Has the last record completed? block: run until it has; otherwise run one task. False: not yet,
// or never.
bool event_reached(const Event *event, bool block);
// number of tasks that had run when a stream last reached the event
uint64_t event_turn(const Event *event);
// seed of later choices between streams
void stream_order(unsigned seed);

/* Captures: tasks go into a graph instead. capture_end returns NULL and sets `why` if a stream of
 * the capture was not joined, or if work was enqueued on a stream outside it. */
struct Graph;
bool capturing();
void capture_begin(cudaStream_t stream);
Graph *capture_end(cudaStream_t stream, const char **why);
void graph_run(Graph *graph, cudaStream_t stream);
void graph_free(Graph *graph);

// ---- functions for kernels and for the instructions of cuda/prim ----

struct Thread {
    dim3 index;
    unsigned linear, lane, warp;
};
extern Thread *current;
extern dim3 block_index, block_size, grid_size;
extern unsigned char *shared_memory; // of the running block

void report(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

// barriers and collectives of a warp
void sync_threads();
void sync_warp(unsigned mask);
void barrier_sync(int id, int threads);
void barrier_arrive(int id, int threads);
uint32_t shuffle(unsigned mask, uint32_t value, unsigned from_lane, const char *what);
unsigned ballot(unsigned mask, bool vote);
uint32_t atomic_add(uint32_t *p, uint32_t (*add)(uint32_t old, uint32_t value), uint32_t value);

/* Between blocks: tickets, words that say which block has its turn, and sums in memory. The order
 * of sums matters: a sum that no turn orders after the previous one is a race. */
uint32_t take_ticket(uint32_t *next);
void turn_wait(const uint32_t *word, uint32_t turn);
void turn_pass(uint32_t *word, uint32_t turn);
void add_four(float *to, const float *x);

// sm_80: asynchronous copies of 16 bytes, matrix fragments, products of a warp
uint32_t shared_address(const void *p);
void copy16_async(void *shared, const void *global, int bytes);
void copy_commit();
void copy_wait(int pending);
void load_matrix(uint32_t *out, int matrices, bool transposed, const void *row);
void product_16x8(float *d, const uint32_t *a, const uint32_t *b, int k);

// sm_90a: mbarriers, TMA copies, products of a warp group
void proxy_fence();
void mbarrier_init(void *barrier, int arrivals);
void mbarrier_arrive(void *barrier);
void mbarrier_expect(void *barrier, int bytes);
void mbarrier_wait(void *barrier, int parity);

/* A tensor in global memory as TMA sees it, dimension 0 innermost. stride is in bytes (stride[0] is
 * the element size), swizzle is 0, 32, 64 or 128 bytes. */
struct TensorMap {
    const void *base;
    int rank;
    uint64_t size[5], stride[5];
    uint32_t box[5];
    int swizzle, element_bytes;
};
void tensor_copy(void *shared, const TensorMap *map, void *barrier, const int *at);
void group_product(float *d, int n, const uint32_t *a, uint64_t a_desc, bool a_transposed,
                   uint64_t b_desc, bool b_transposed, bool accumulate);
void group_commit();
void group_wait(int pending);
void set_registers(int registers, bool more);

} // namespace emu

// ---- built-in variables and functions of CUDA C++ ----

#define threadIdx       (emu::current->index)
#define blockIdx        (emu::block_index)
#define blockDim        (emu::block_size)
#define gridDim         (emu::grid_size)
#define __syncthreads() emu::sync_threads()

static inline void __syncwarp(unsigned mask = ~0u)
{
    emu::sync_warp(mask);
}

// shuffles any 4-byte type
template <class Word>
EMU_UNWATCHED inline Word emu_shuffle(unsigned mask, Word v, unsigned from, const char *what)
{
    static_assert(sizeof v == 4, "only 4-byte types can be shuffled");
    uint32_t bits;
    memcpy(&bits, &v, 4);
    bits = emu::shuffle(mask, bits, from, what);
    memcpy(&v, &bits, 4);
    return v;
}

template <class Word> static inline Word __shfl_xor_sync(unsigned mask, Word v, int lanes)
{
    return emu_shuffle(mask, v, emu::current->lane ^ (unsigned)lanes, "shfl.bfly");
}

template <class Word> static inline Word __shfl_sync(unsigned mask, Word v, int lane)
{
    return emu_shuffle(mask, v, (unsigned)lane & 31, "shfl.idx");
}

static inline unsigned __ballot_sync(unsigned mask, int vote)
{
    return emu::ballot(mask, vote != 0);
}

EMU_UNWATCHED inline float atomicAdd(float *p, float v)
{
    auto add = [](uint32_t old, uint32_t value) {
        float x, y;
        memcpy(&x, &old, 4);
        memcpy(&y, &value, 4);
        x += y;
        memcpy(&old, &x, 4);
        return old;
    };
    uint32_t bits;
    memcpy(&bits, &v, 4);
    bits = emu::atomic_add((uint32_t *)p, add, bits);
    memcpy(&v, &bits, 4);
    return v;
}

static inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}

#endif
