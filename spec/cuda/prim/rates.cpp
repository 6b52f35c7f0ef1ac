/* cuda/prim under load: how many products, exponentials, bytes of shared memory and bytes of the L2
 * cache a multiprocessor processes per cycle, and the cost of a launch. On a GPU, `rates measure`
 * prints rates as a machine file lists them (`cycle` of machines/NAME.lua). Without it, and on the
 * emulator, it counts the operations of each kernel, by which the rates are divided.
 * Covers: spec/cuda/prim/rates.cu */
#include "cuda/kernels/kernel_call.h"
#include "rates.cu"
#include "support.h"
#include <algorithm>

static bool measuring;

#ifdef __CUDACC__
static unsigned processors(void)
{
    int n = 0;
    CHECK_INT(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, 0), cudaSuccess);
    return (unsigned)n;
}
#else
static unsigned processors(void)
{
    return 2;
}
#endif

// the cycles of the slowest block; 1 where nothing is timed
static double cycles_of(const uint64_t *at, unsigned blocks)
{
    const std::vector<uint64_t> all = seen(at, blocks);
    return std::max(1.0, (double)*std::max_element(all.begin(), all.end()));
}

template <typename L> static double best(L launch, const uint64_t *cycles, unsigned blocks)
{
    double least = 0;
    for (int i = 0; i < (measuring ? 5 : 1); i++) {
        emu::forget_reports();
        launch();
        CHECK_SILENT();
        const double now = cycles_of(cycles, blocks);
        least = i == 0 || now < least ? now : least;
    }
    return least;
}

static uint64_t *clocks(unsigned blocks)
{
    return device_values<uint64_t>(blocks, [](size_t) { return (uint64_t)1; });
}

/* Check that the emulator counts the expected operations since `before`; rates are divided by this
 * number. */
static void counted(const char *what, uint64_t seen_so_far, uint64_t before, double expected)
{
    if (!measuring && (double)(seen_so_far - before) != expected)
        printf("%s: counted %llu, expected %.0f\n", what,
               (unsigned long long)(seen_so_far - before), expected);
#ifndef __CUDACC__
    CHECK((double)(seen_so_far - before) == expected);
#endif
}

#ifdef __CUDACC__
struct Counts {
    uint64_t product_flop, shared_read, global_read, global_written;
};
static Counts now(void)
{
    return {};
}
#else
typedef emu::Counts Counts;
static Counts now(void)
{
    return emu::counts;
}
#endif

// multiply-adds per cycle of a multiprocessor
template <int N, bool REGISTERS> static double products(int turns)
{
    const unsigned blocks = processors();
    uint64_t *cycles = clocks(blocks);
    float *sink = device_room<float>(blocks * PRODUCT_THREADS);
    const unsigned shared = (GROUPS * 64 + N) * 128;
    mr_cuda_shared(rate_of_products<N, REGISTERS>, shared);
    const Counts before = now();
    const double took = best(
        [&] {
            MR_LAUNCH((rate_of_products<N, REGISTERS>), dim3(blocks), dim3(PRODUCT_THREADS), shared,
                      NULL, cycles, sink, turns);
        },
        cycles, blocks);
    const double work = (double)turns * 4 * GROUPS * 64 * N * 16;
    counted("products", now().product_flop, before.product_flop, 2 * work * blocks);
    if (measuring)
        printf("  -- m64n%dk16, a in %s: %.0f multiply-adds a cycle\n", N,
               REGISTERS ? "registers" : "shared memory", work / took);
    return work / took;
}

static double exponentials(int turns)
{
    const unsigned blocks = processors();
    uint64_t *cycles = clocks(blocks);
    float *sink = device_room<float>(blocks * THREADS);
    const double took = best(
        [&] {
            MR_LAUNCH(rate_of_exponentials, dim3(blocks), dim3(THREADS), 0, NULL, cycles, sink,
                      turns);
        },
        cycles, blocks);
    return (double)turns * CHAINS * THREADS / took;
}

static double shared_bytes(int turns)
{
    const unsigned blocks = processors(), bytes = 4 * THREADS * 16;
    uint64_t *cycles = clocks(blocks);
    float *sink = device_room<float>(blocks * THREADS);
    const Counts before = now();
    const double took = best(
        [&] {
            MR_LAUNCH(rate_of_shared, dim3(blocks), dim3(THREADS), bytes, NULL, cycles, sink,
                      turns);
        },
        cycles, blocks);
    const double work = (double)turns * 4 * THREADS * 16;
    counted("bytes of shared memory", now().shared_read, before.shared_read, work * blocks);
    return work / took;
}

static double l2_bytes(int turns)
{
    const unsigned blocks = processors();
    uint64_t *cycles = clocks(blocks);
    float *sink = device_room<float>(blocks * THREADS);
    const Four *all = device_values<Four>((size_t)blocks * (L2_BYTES / 16), [](size_t i) {
        return Four{{0, 1, 2, (float)i}};
    });
    const Counts before = now();
    const double took = best(
        [&] {
            MR_LAUNCH(rate_of_l2, dim3(blocks), dim3(THREADS), 0, NULL, cycles, sink, all, turns);
        },
        cycles, blocks);
    const double work = (double)turns * L2_BYTES;
    counted("bytes of the L2 cache", now().global_read, before.global_read, work * blocks);
    return work / took;
}

static double sums(int turns)
{
    const unsigned blocks = processors();
    const size_t n = (size_t)blocks * (L2_BYTES / 4);
    uint64_t *cycles = clocks(blocks);
    float *all = device_values<float>(n, [](size_t) { return 0.0f; });
    int launches = 0;
    const double took = best(
        [&] {
            MR_LAUNCH(rate_of_sums, dim3(blocks), dim3(THREADS), 0, NULL, cycles, all, turns);
            launches++;
        },
        cycles, blocks);
    int wrong = 0;
    for (float x : seen(all, n))
        wrong += x != (float)(launches * turns);
    CHECK_INT(wrong, 0);
    return (double)turns * L2_BYTES / took;
}

#ifdef __CUDACC__
// seconds of an asynchronous launch, and of a node of a graph that runs again
static void launches(double *launch_s, double *replay_s)
{
    enum { TIMES = 2000, NODES = 200, REPLAYS = 50 };
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    CHECK_INT(cudaStreamCreate(&stream), cudaSuccess);
    nothing<<<1, 32, 0, stream>>>(0);
    CHECK_INT(cudaStreamSynchronize(stream), cudaSuccess);
    double begin = mr_now_s();
    for (int i = 0; i < TIMES; i++)
        nothing<<<1, 32, 0, stream>>>(0);
    CHECK_INT(cudaStreamSynchronize(stream), cudaSuccess);
    *launch_s = (mr_now_s() - begin) / TIMES;
    CHECK_INT(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    for (int i = 0; i < NODES; i++)
        nothing<<<1, 32, 0, stream>>>(0);
    CHECK_INT(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    CHECK_INT(cudaGraphInstantiate(&ready, graph, 0), cudaSuccess);
    CHECK_INT(cudaGraphLaunch(ready, stream), cudaSuccess);
    CHECK_INT(cudaStreamSynchronize(stream), cudaSuccess);
    begin = mr_now_s();
    for (int i = 0; i < REPLAYS; i++)
        CHECK_INT(cudaGraphLaunch(ready, stream), cudaSuccess);
    CHECK_INT(cudaStreamSynchronize(stream), cudaSuccess);
    *replay_s = (mr_now_s() - begin) / REPLAYS / NODES;
    cudaGraphExecDestroy(ready);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
}
#else
static void launches(double *launch_s, double *replay_s)
{
    *launch_s = *replay_s = 0;
    MR_LAUNCH(nothing, dim3(1), dim3(32), 0, NULL, 0);
}
#endif

int main(int argc, char **argv)
{
    measuring = argc > 1 && strcmp(argv[1], "measure") == 0;
#ifndef __CUDACC__
    measuring = false;
#endif
    // a millisecond each, or two iterations
    const int many = measuring ? 4000 : 2;
    double launch_s, replay_s;
    products<16, false>(many);
    const double n16 = products<16, true>(many), n32 = products<32, true>(many),
                 n64 = products<64, true>(many);
    products<32, false>(many);
    products<64, false>(many);
    products<128, true>(many);
    const double n128 = products<128, false>(many);
    const double special = exponentials(measuring ? 20000 : 2), shared = shared_bytes(many),
                 l2 = l2_bytes(measuring ? 200 : 2), added = sums(measuring ? 50 : 2);
    launches(&launch_s, &replay_s);
    if (measuring)
        printf("  cycle = { product = %.0f, product16 = %.0f, product32 = %.0f, product64 = %.0f, "
               "special = %.1f,\n    issue = 4, shared = %.0f, l2 = %.1f, sums = %.1f, launch_s = "
               "%.2e, replay_s = %.2e,\n    source = \"measured by cuda/bench/verify, issue "
               "assumed\" },\n",
               n128, n16, n32, n64, special, shared, l2, added, launch_s, replay_s);
    return check_done();
}
