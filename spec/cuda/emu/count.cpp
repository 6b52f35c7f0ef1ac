/* cuda/emu: counts of kernels whose counts are known by hand, and the format of a report.
 * Covers: cuda/emu/count.cpp, cuda/emu/report.cpp, cuda/emu/hooks.cpp */
#include "cuda/prim/sm80.cuh"
#include "support.h"

// y[i] = x[i * step]
__global__ void strided(const float *x, float *y, int step)
{
    y[threadIdx.x] = x[threadIdx.x * step];
}

__global__ void pieces(const float *x, float *y)
{
    mr_store16(y + threadIdx.x * 4, mr_load16(x + threadIdx.x * 4));
}

// the addresses of lanes are `step` words apart in shared memory
__global__ void banks(float *y, int step)
{
    MR_SHARED(raw);
    float *s = (float *)raw;
    s[threadIdx.x * step] = 1;
    y[threadIdx.x] = s[threadIdx.x * step];
}

// store to shared memory: lanes 8 n to 8 n + 7 use all banks once, other groups of lanes do not
__global__ void shared_pieces(const float *x)
{
    MR_SHARED(raw);
    int lane = threadIdx.x;
    float *s = (float *)raw + lane / 8 * 32 + (lane % 8 ^ lane / 8) * 4;
    mr_store16(s, mr_load16(x + lane * 4));
}

__global__ void twice(const float *x, float *y)
{
    y[threadIdx.x] = x[threadIdx.x] + x[31 - threadIdx.x];
}

static float *x, *y;

static void reset(void)
{
    emu::forget_reports();
    emu::counts = {};
}

static void sectors(int step, int read, int ideal)
{
    reset();
    MR_LAUNCH(strided, dim3(1), dim3(32), 0, NULL, x, y, step);
    CHECK_SILENT();
    CHECK_INT(emu::counts.requests, 2);
    CHECK_INT(emu::counts.sectors, read + 4);
    CHECK_INT(emu::counts.ideal_sectors, ideal + 4);
}

static void conflicts(int step, int passes)
{
    reset();
    MR_LAUNCH(banks, dim3(1), dim3(32), 4 * 32 * 33, NULL, y, step);
    CHECK_SILENT();
    CHECK_INT(emu::counts.wavefronts, 2 * passes);
    CHECK_INT(emu::counts.ideal_wavefronts, 2);
    CHECK_INT(emu::counts.shared_read, 128);
}

int main(void)
{
    x = device_values<float>(1024, [](size_t i) { return (float)i; });
    y = device_room<float>(1024);
    sectors(1, 4, 4);
    sectors(2, 8, 4);
    sectors(8, 32, 4);
    sectors(0, 1, 1);
    conflicts(1, 1);
    conflicts(2, 2);
    conflicts(32, 32);
    conflicts(33, 1);

    // 8 lanes at a time, by lane number, in whatever order threads run
    for (unsigned seed = 0; seed < 6; seed++) {
        reset();
        emu::options.seed = seed;
        MR_LAUNCH(shared_pieces, dim3(1), dim3(32), 512, NULL, x);
        CHECK_SILENT();
        CHECK_INT(emu::counts.wavefronts, 4);
        CHECK_INT(emu::counts.ideal_wavefronts, 4);
    }
    emu::options.seed = 0;

    // fewer lanes than a warp, in 16-byte pieces; two warps are two requests
    reset();
    MR_LAUNCH(pieces, dim3(1), dim3(40), 0, NULL, x, y);
    CHECK_INT(emu::counts.requests, 4);
    CHECK_INT(emu::counts.sectors, 2 * (16 + 4));
    CHECK_INT(emu::counts.ideal_sectors, 2 * (16 + 4));
    CHECK_INT(emu::counts.global_read, 640);

    // each element is read twice
    reset();
    MR_LAUNCH(twice, dim3(1), dim3(32), 0, NULL, x, y);
    CHECK_INT(emu::counts.global_read, 256);
    CHECK_INT(emu::counts.global_written, 128);

    // a report names kernel, block, thread, file and line, actual and expected; one report, not one
    // per thread
    reset();
    MR_LAUNCH(strided, dim3(1), dim3(1), 0, NULL, x, y, 0);
    MR_LAUNCH(strided, dim3(1), dim3(32), 0, NULL, x + 1020, y, 1);
    CHECK_INT(emu::reports().size(), 1);
    const std::string &text = emu::reports()[0];
    CHECK(text.find("strided: block (0,0,0) thread ") == 0);
    CHECK(text.find(" at count.cpp:9: read of global memory ") != std::string::npos);
    CHECK(text.find("4 bytes, out of bounds: byte 0 belongs to no allocation") !=
          std::string::npos);

    // launches that no device accepts
    reset();
    MR_LAUNCH(strided, dim3(1), dim3(1025), 0, NULL, x, y, 1);
    MR_LAUNCH(strided, dim3(1), dim3(32), 232449, NULL, x, y, 1);
    MR_LAUNCH(strided, dim3(1, 65536), dim3(32), 0, NULL, x, y, 1);
    CHECK_INT(emu::counts.launches, 0);
    CHECK(all_reports().find("a block of 1025 threads, expected 1 to 1024") != std::string::npos);
    CHECK(all_reports().find("232449 bytes of shared memory, expected at most 232448") !=
          std::string::npos);
    CHECK(all_reports().find("expected 1 to 65535 in y and z") != std::string::npos);
    // a kernel must ask for more than 48 KB before its launch
    reset();
    MR_LAUNCH(strided, dim3(1), dim3(1), 49153, NULL, x, y, 0);
    emu::allow_shared((const void *)banks, 65536);
    MR_LAUNCH(strided, dim3(1), dim3(1), 49153, NULL, x, y, 0);
    CHECK_INT(emu::counts.launches, 0);
    CHECK(all_reports().find("49153 bytes of shared memory, expected mr_cuda_shared to ask for "
                             "more than 49152 before the launch") != std::string::npos);
    emu::allow_shared((const void *)strided, 49153);
    emu::forget_reports();
    MR_LAUNCH(strided, dim3(1), dim3(1), 49152, NULL, x, y, 0);
    MR_LAUNCH(strided, dim3(1), dim3(1), 49153, NULL, x, y, 0);
    CHECK_SILENT();
    emu::allow_shared((const void *)strided, 0);
    // the largest launch of each kernel
    MR_LAUNCH(strided, dim3(1), dim3(64), 128, NULL, x, y, 1);
    MR_LAUNCH(strided, dim3(1), dim3(32), 256, NULL, x, y, 1);
    CHECK_INT(emu::launches().at("strided").threads, 64);
    CHECK_INT(emu::launches().at("strided").shared, 49153);
    CHECK_INT(emu::launches().at("banks").threads, 32);
    return check_done();
}
