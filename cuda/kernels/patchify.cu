/* patchify: cuts latents into tokens of one patch each, with zeros past the end of T, H and W.
 * Every byte is read and written once; see patch.cuh. */
#include "cuda/kernels/patch.cuh"

MR_CUDA_KERNEL(patchify)
{
    return patch_run<true>(call, &call->in[0], stream);
}
