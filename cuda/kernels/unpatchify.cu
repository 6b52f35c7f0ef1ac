/* unpatchify: tokens of one patch each put back as latents, cells beyond the end dropped. Every
 * byte that is kept is read and written once; patch.cuh says how. */
#include "cuda/kernels/patch.cuh"

MR_CUDA_KERNEL(unpatchify)
{
    return patch_run<false>(call, &call->out[0], stream);
}
