/* unpatchify: puts tokens of one patch each back together as latents and drops cells past the end.
 * Every remaining byte is read and written once; see patch.cuh. */
#include "cuda/kernels/patch.cuh"

MR_CUDA_KERNEL(unpatchify)
{
    return patch_run<false>(call, &call->out[0], stream);
}
