/* ckpt: weights saved by torch, read as data. Inside the room. Licence: Apache-2.0 */
#ifndef MR_CKPT_TORCH_H
#define MR_CKPT_TORCH_H

#include "moonreel/ckpt.h"

typedef struct mr_torch mr_torch;

/* Open a zip of torch.save. The dictionaries inside are read as names, joined by dots; tensor data
 * is not read.
 * Errors: MR_E_FORMAT damaged or with anything that weights do not need; MR_E_UNSUPPORTED a strided
 * view, or a build without minizip; MR_E_IO; MR_E_MEMORY */
mr_status mr_torch_open(const char *path, mr_torch **out);
void mr_torch_close(mr_torch *torch); /* NULL is fine */
int mr_torch_count(const mr_torch *torch);
const mr_st_tensor *mr_torch_at(const mr_torch *torch, int i); /* lent */
/* Bytes [offset, offset + n) of a tensor, inside it. Errors: MR_E_IO, MR_E_FORMAT file cut. */
mr_status mr_torch_read(const mr_torch *torch, const mr_st_tensor *t, void *dst, int64_t offset,
                        int64_t n);

#endif
