/* Shared by rms_norm and qk_norm; qk_norm also rotates each row by the angles of its position.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_KERNELS_RMS_H
#define MOONREEL_CUDA_KERNELS_RMS_H

#include "cuda/kernels/kernel_call.h"

// cos and sin [N, d/2] belong to x [B, G, N, h, d]; with data NULL nothing is rotated
mr_status mr_cuda_rms(const mr_view *x, const mr_view *w, const mr_view *cos, const mr_view *sin,
                      const mr_view *y, double eps, cudaStream_t stream);

// with acc->data NULL the gradient of w is not computed; workspace: mr_cuda_rms_workspace bytes
mr_status mr_cuda_rms_grad(const mr_view *x, const mr_view *w, const mr_view *cos,
                           const mr_view *sin, const mr_view *dy, const mr_view *dx,
                           const mr_view *acc, double eps, void *workspace, cudaStream_t stream);
size_t mr_cuda_rms_workspace(const mr_view *x, const mr_view *acc);

#endif
