/* linear_gelu: y = gelu_tanh(h), h = x w^T + b, and linear_dx_gelu: dh = (dy w) gelu_tanh'(h)
 *
 *   x [..., K], y, h [..., N] dense rows   w [N, K]   b [N]
 *
 * In bf16 one product of cuBLASLt with an epilogue does both (cuda/gemm): gelu and its slope apply
 * to the f32 sums; h is written only if it is kept, and never read back. If cuBLASLt does not
 * support a case (f32, rows of h that are not multiples of 16 bytes), the kernels of the two ops
 * run one after the other. In bf16 this moves 4 more bytes per element of h. */
#include "cuda/kernels/product_rows.cuh"

static mr_call call_of(const mr_call *call, int n_in, const mr_view *to)
{
    mr_call c = *call;
    for (int i = n_in; i < MR_MAX_IN; i++)
        c.in[i].desc.rank = -1;
    for (int i = 1; i < MR_MAX_OUT; i++)
        c.out[i].desc.rank = -1;
    c.out[0] = *to;
    c.n_in = n_in;
    c.n_out = 1;
    return c;
}

static mr_status kernel_of(const char *row, const mr_call *call)
{
    return mr_cuda_kernel_find(row)->kernel.run[0](call);
}

// where the product goes if it has no epilogue
static const mr_view *sums_of(const mr_call *call)
{
    return &call->out[call->out[1].desc.rank >= 0];
}

// run as one product if cuBLASLt supports the epilogue; otherwise *done is false
static mr_status at_once(const mr_call *first, const mr_view *out, mr_cuda_ending kind,
                         const mr_view *aux, bool transposed, cudaStream_t stream, bool *done)
{
    mr_call call = *first;
    mr_product_ending ending = {kind, NULL, 0};
    call.out[0] = *out;
    *done = row_step(&out->desc) && (!aux || row_step(&aux->desc));
    if (!*done)
        return MR_OK;
    if (aux) {
        ending.aux = aux->data;
        ending.aux_row = row_step(&aux->desc);
    }
    return run_ended(rows_plan(&call, transposed), &call, &ending, stream, done);
}

static size_t linear_workspace(const mr_call *call, const mr_facts *)
{
    mr_call first = call_of(call, 3, sums_of(call));
    return workspace_of(rows_plan(&first, true));
}

MR_CUDA_KERNEL(linear_gelu, linear_workspace)
{
    const mr_view *sums = sums_of(call);
    bool keep = sums != call->out, done;
    mr_call first = call_of(call, 3, sums), second = call_of(call, 1, call->out);
    MR_TRY(at_once(&first, call->out, keep ? MR_CUDA_GELU_KEEP : MR_CUDA_GELU, keep ? sums : NULL,
                   true, stream, &done));
    if (done)
        return MR_OK;
    second.in[0] = *sums;
    MR_TRY(kernel_of("linear", &first));
    return kernel_of("gelu_tanh", &second);
}

static size_t dx_workspace(const mr_call *call, const mr_facts *)
{
    mr_call first = call_of(call, 2, call->out);
    return workspace_of(rows_plan(&first, false));
}

MR_CUDA_KERNEL(linear_dx_gelu, dx_workspace)
{
    bool done;
    mr_call first = call_of(call, 2, call->out), second = call_of(call, 2, call->out);
    MR_TRY(at_once(&first, call->out, MR_CUDA_GELU_SLOPE, &call->in[2], false, stream, &done));
    if (done)
        return MR_OK;
    second.in[0] = call->in[2];
    second.in[1] = call->out[0];
    MR_TRY(kernel_of("linear_dx", &first));
    return kernel_of("gelu_tanh_grad", &second);
}
