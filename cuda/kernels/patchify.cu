/* patchify: latents cut into tokens of one patch each, zeros beyond the end of T, H and W. Every
 * byte is read and written once; patch.cuh says how. */
#include "cuda/kernels/patch.cuh"

MR_CUDA_KERNEL(patchify)
{
    return patch_run<true>(call, &call->in[0], stream);
}
