/* cuda/rt: the compute capability of a GPU selects the form of a kernel; results of a captured run
 * of each form, with tensor maps among its parameters. Covers: cuda/kernels/kernel_call.h,
 * core/cpu/isa.c, cuda/rt/driver_emu.cpp, cuda/gemm/product.cpp */
#include "check.h"
#include "cuda/emu/emu.h"
#include "cuda/gemm/product.h"
#include "cuda/rt/driver.h"
#include "moonreel/exec.h"
#include <math.h>

#define OK(call) CHECK_OK(call)
extern "C" const mr_device_plugin *mr_cudaemu_entry(void);

enum { N = 65, D = 64, RUNS = 4 };
typedef std::vector<float> Values;

// o of attention of x with itself, [1, 1, N, 1, D], in RUNS runs. Its strides along dimensions of
// size one come from a permuted [N, 1, 1, 1, D] and are smaller than the inner dimensions.
static Values attend(mr_device *dev)
{
    mr_graph *g = NULL;
    mr_exec *e = NULL;
    mr_program *p = NULL;
    mr_ref x, o[2];
    int64_t dim[] = {1, 1, N, 1, D}, given[] = {N, 1, 1, 1, D};
    const int order[] = {1, 2, 0, 3, 4};
    mr_exec_options options = {};
    Values all;
    OK(mr_graph_new(NULL, NULL, &g));
    OK(mr_graph_input(g, "x", MR_BF16, 5, given, &x));
    OK(mr_graph_permute(g, x, order, &x));
    mr_ref in[] = {x, x, x, MR_NONE, MR_NONE};
    OK(mr_graph_add(g, "attention", MR_NO_ATTRS, in, 5, o));
    OK(mr_graph_output(g, "o", o[0]));
    OK(mr_graph_finish(g));
    OK(mr_exec_new(dev, NULL, &options, &e));
    OK(mr_exec_compile(e, g, &p));
    for (int run = 0; run < RUNS; run++) {
        std::vector<uint16_t> in_values(N * D), out_values(N * D);
        for (int i = 0; i < N * D; i++)
            in_values[i] = mr_f32_to_bf16(sinf((float)(i * (run + 3))));
        mr_view vx = {in_values.data(), mr_desc_dense(MR_BF16, 5, given)},
                vo = {out_values.data(), mr_desc_dense(MR_BF16, 5, dim)};
        OK(mr_program_set(p, "x", &vx));
        OK(mr_program_run(p));
        OK(mr_program_get(p, "o", &vo));
        for (uint16_t v : out_values)
            all.push_back(mr_bf16_to_f32(v));
    }
    mr_program_free(p);
    mr_exec_free(e);
    mr_device_close(dev);
    mr_graph_free(g);
    return all;
}

static bool launched(const char *kernel)
{
    return emu::launches().count(kernel) > 0;
}

static void near(const Values &got, const Values &want)
{
    double off = 0, size = 0;
    for (size_t i = 0; i < want.size(); i++) {
        off += (got[i] - want[i]) * (got[i] - want[i]);
        size += want[i] * want[i];
    }
    // results are rounded to bf16
    CHECK(sqrt(off / size) < 1.0 / 128);
}

static Values on_gpu(const char *setting)
{
    mr_device *dev = NULL;
    setenv("MOONREEL_CUDAEMU", setting, 1);
    OK(mr_cudaemu_entry()->open(0, 1, &dev));
    return attend(dev);
}

// tensor_map refuses maps that TMA does not support, and accepts others
static void maps()
{
    emu::TensorMap map;
    alignas(16) static char memory[16];
    const mr_cuda_tensor good = {
        memory, {64, 1, 9, 1, 1}, {2, 128, 128, 1152, 1152}, {64, 1, 8, 1, 1}, 128};
    CHECK_INT(mr_cuda.tensor_map(&good, &map), 0);
    mr_cuda_tensor bad = good;
    bad.step_bytes[2] = 72;
    CHECK_INT(mr_cuda.tensor_map(&bad, &map), 1);
    bad = good;
    bad.step_bytes[3] = 1136; // a dimension of size one whose stride is too small
    CHECK_INT(mr_cuda.tensor_map(&bad, &map), 1);
    bad = good;
    bad.box[2] = 257;
    CHECK_INT(mr_cuda.tensor_map(&bad, &map), 1);
    bad = good;
    bad.swizzle = 32;
    CHECK_INT(mr_cuda.tensor_map(&bad, &map), 1);
    bad = good;
    bad.base = memory + 2;
    CHECK_INT(mr_cuda.tensor_map(&bad, &map), 1);
    bad = good;
    bad.size[4] = 0;
    CHECK_INT(mr_cuda.tensor_map(&bad, &map), 1);
}

// the algorithm is chosen by the alignment of all matrices and the bias; any of them may be
// unaligned
static void products_off_the_grid(void)
{
    enum { SIDE = 16, BYTES = (SIDE * SIDE + 1) * sizeof(float) };
    mr_product_spec s = {};
    s.m = s.n = s.k = s.a_row = s.b_row = s.c_row = SIDE;
    s.a_col = s.b_col = s.batch = 1;
    s.in = s.out = MR_F32;
    s.bias = true;
    for (int off = 0; off < 5; off++) {
        float *at[4];
        for (int i = 0; i < 4; i++) {
            at[i] = (float *)emu::alloc(BYTES);
            memset(at[i], 0, BYTES);
            emu::host_wrote(at[i], BYTES);
            at[i] += off == i + 1;
        }
        emu::forget_reports();
        void *workspace = emu::alloc(mr_cuda_product_workspace(&s));
        OK(mr_cuda_product_run(&s, NULL, at[0], at[1], at[3], at[2], workspace, NULL));
        CHECK_INT(emu::reports().size(), 0);
    }
    emu::free_all();
}

int main(void)
{
    products_off_the_grid();
    mr_device *cpu = NULL;
    OK(mr_device_open("cpu", 1, &cpu));
    Values want = attend(cpu);
    for (const char *other : {"arch=80", "arch=86", "arch=100"}) {
        near(on_gpu(other), want);
        CHECK(launched("attention_forward") && !launched("attention_forward_groups"));
    }
    near(on_gpu("arch=90"), want);
    CHECK(launched("attention_forward_groups"));
    maps();
    return check_done();
}
