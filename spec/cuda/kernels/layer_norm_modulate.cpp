/* cuda/kernels/layer_norm_modulate: equal to the row within its tolerance over its own cases and
 * more, the same bits in every order of blocks, bytes as declared, whole sectors, silence. Covers:
 * cuda/kernels/layer_norm_modulate.cu */
#include "cuda/kernels/kernel_call.h"
#include "support.h"
#include <initializer_list>

extern "C" mr_cuda_kernel_fn mr_cuda_layer_norm_modulate;

// A call of the row: arguments on the device, and as doubles for the truth.
struct Run {
    mr_dtype dtype;
    int64_t B, T, S, C;
    bool one_frame; // shift and scale have stride 0 over T
    int64_t step;   // between elements of shift and scale
    double mean;    // of x
    bool fast;      // a row is read once, in pieces of 16 bytes
};

struct Argument {
    mr_desc desc;
    int64_t elements; // of the storage
    void *device;
    double *truth;
};

static double noise(uint32_t key, size_t i)
{
    uint32_t x = (uint32_t)i * 2654435761u + key * 40503u;
    x = (x ^ x >> 15) * 2246822519u;
    x = (x ^ x >> 13) * 3266489917u;
    return (double)(x ^ x >> 16) / 4294967296.0 * 2 - 1;
}

static double rounded(mr_dtype dtype, double x)
{
    return dtype == MR_BF16 ? mr_bf16_to_f32(mr_f32_to_bf16((float)x)) : (float)x;
}

static void fill(Argument *a, uint32_t key, double mean)
{
    size_t bytes = a->elements * mr_dtype_bytes(a->desc.dtype);
    a->device = emu::alloc(bytes);
    a->truth = (double *)malloc(a->elements * sizeof *a->truth);
    for (int64_t i = 0; i < a->elements; i++) {
        a->truth[i] = rounded(a->desc.dtype, mean + noise(key, i) * (1 + i % 3));
        if (a->desc.dtype == MR_BF16)
            ((uint16_t *)a->device)[i] = mr_f32_to_bf16((float)a->truth[i]);
        else
            ((float *)a->device)[i] = (float)a->truth[i];
    }
    emu::host_wrote(a->device, bytes);
}

static Argument modulation(const Run &r, uint32_t key)
{
    Argument a = {};
    int64_t dim[3] = {r.B, r.T, r.C}, frames = r.one_frame ? 1 : r.T;
    a.desc = mr_desc_dense(r.dtype, 3, dim);
    a.desc.stride[0] = frames * r.C * r.step;
    a.desc.stride[1] = r.one_frame ? 0 : r.C * r.step;
    a.desc.stride[2] = r.step;
    a.elements = r.B * frames * r.C * r.step;
    fill(&a, key, 0.25);
    return a;
}

// the call with pointers of the device, or of the doubles
static mr_call call_of(const Argument *in, const Argument *out, bool truth, const void *attr)
{
    mr_call call = {};
    call.n_in = 3;
    call.n_out = 1;
    call.attr = attr;
    call.threads = 1;
    for (int i = 0; i < 4; i++) {
        const Argument *a = i < 3 ? &in[i] : out;
        mr_view *view = i < 3 ? &call.in[i] : &call.out[0];
        view->data = truth ? (void *)a->truth : a->device;
        view->desc = a->desc;
        if (truth)
            view->desc.dtype = MR_F64;
    }
    return call;
}

static double value(const Argument *a, int64_t i)
{
    return a->desc.dtype == MR_BF16 ? mr_bf16_to_f32(((uint16_t *)a->device)[i])
                                    : ((float *)a->device)[i];
}

static void check(const Run &r)
{
    const mr_op *op = mr_op_find("layer_norm_modulate");
    alignas(16) unsigned char attr[MR_ATTR_BYTES];
    CHECK_OK(mr_op_attrs(op, MR_NO_ATTRS, attr));
    int64_t dim[4] = {r.B, r.T, r.S, r.C};
    Argument x = {mr_desc_dense(r.dtype, 4, dim), r.B * r.T * r.S * r.C, NULL, NULL};
    fill(&x, 1, r.mean);
    Argument in[3] = {x, modulation(r, 2), modulation(r, 3)}, want = x;
    want.truth = (double *)malloc(x.elements * sizeof *want.truth);
    mr_call truth = call_of(in, &want, true, attr);
    CHECK_OK(op->naive(&truth));

    size_t bytes = x.elements * mr_dtype_bytes(r.dtype);
    void *first = NULL;
    for (unsigned seed = 0; seed < 3; seed++)
        for (emu::Async async : {emu::Async::eager, emu::Async::late}) {
            Argument out = x;
            out.device = emu::alloc(bytes);
            mr_call call = call_of(in, &out, false, attr);
            emu::options.seed = seed;
            emu::options.async = async;
            emu::forget_reports();
            emu::counts = {};
            CHECK_OK(mr_cuda_layer_norm_modulate(&call, NULL));
            CHECK_SILENT();
            CHECK(emu::all_written(out.device, bytes));
            if (!first)
                first = out.device;
            CHECK(memcmp(first, out.device, bytes) == 0);
            // x and y by the row's cost, and shift and scale of each frame once
            mr_cost cost;
            op->cost(&call, &cost);
            double modulations = (double)(in[1].elements + in[2].elements) / r.step;
            CHECK_NEAR(emu::counts.distinct_read + emu::counts.distinct_written,
                       cost.bytes + modulations * mr_dtype_bytes(r.dtype), 0);
            CHECK_INT(emu::counts.global_written, bytes);
            CHECK_INT(emu::counts.wavefronts, emu::counts.ideal_wavefronts);
            if (r.fast) {
                // each of the 4 warps of a block reads the modulation once for 32 rows
                double warps = (double)(r.B * r.T * ((r.S + 31) / 32) * 4);
                CHECK_NEAR(emu::counts.global_read,
                           bytes + warps * 2 * r.C * mr_dtype_bytes(r.dtype), 0);
                CHECK_INT(emu::counts.sectors, emu::counts.ideal_sectors);
            }
        }

    Argument got = x;
    got.device = first;
    double error = 0, norm = 0;
    for (int64_t i = 0; i < x.elements; i++) {
        double d = value(&got, i) - want.truth[i];
        error += d * d;
        norm += want.truth[i] * want.truth[i];
    }
    // the row's tolerances: f32 sums of a row, one rounding to bf16
    if (!CHECK_NEAR(sqrt(error / norm), 0, r.dtype == MR_BF16 ? 1.0 / 256 : 2e-6))
        printf("  [%d, %d, %d, %d] %s\n", (int)r.B, (int)r.T, (int)r.S, (int)r.C,
               mr_dtype_name(r.dtype));
    free(want.truth);
    for (Argument &a : in)
        free(a.truth);
}

static void refusals(void)
{
    double eps = 1e-6;
    int64_t dim[4] = {300, 300, 1, 8}, mod[3] = {300, 300, 8};
    Argument x = {mr_desc_dense(MR_F32, 4, dim), 0, NULL, NULL};
    Argument m = {mr_desc_dense(MR_F32, 3, mod), 0, NULL, NULL};
    Argument in[3] = {x, m, m};
    mr_call call = call_of(in, &x, false, &eps);
    CHECK_FAILS(mr_cuda_layer_norm_modulate(&call, NULL), MR_E_UNSUPPORTED,
                "B * T is 90000, expected at most 65535");
    // nothing to do
    emu::counts = {};
    call.in[0].desc.dim[0] = 0;
    CHECK_OK(mr_cuda_layer_norm_modulate(&call, NULL));
    CHECK_INT(emu::counts.launches, 0);
}

int main(void)
{
    const Run runs[] = {
        // the width of STDiT3-XL/2, one whole block and a tail of rows
        {MR_BF16, 1, 2, 37, 1152, false, 1, 0, true},
        {MR_F32, 1, 2, 5, 1152, true, 1, 0, true},
        // 1, 2, 5 and 9 pieces a lane, and one element more than they hold
        {MR_BF16, 2, 2, 9, 72, false, 1, 0, true},
        {MR_BF16, 1, 1, 3, 512, false, 1, 0, true},
        {MR_BF16, 1, 1, 3, 2304, false, 1, 0, true},
        {MR_BF16, 1, 1, 3, 2312, false, 1, 0, false},
        // a large mean beside a small deviation
        {MR_F32, 2, 3, 5, 64, true, 1, 30, true},
        // rows that are no pieces of 16 bytes, strides that are not dense
        {MR_F32, 2, 3, 5, 7, false, 1, 0, false},
        {MR_BF16, 1, 2, 35, 33, true, 1, 3, false},
        {MR_BF16, 2, 1, 4, 64, false, 3, 0, false},
    };
    for (const Run &r : runs)
        check(r);
    refusals();
    return check_done();
}
