/* The contract of a CUDA kernel. Over the cases of its op, and over more, in each of its forms:
 * results equal those of the naive kernel within the op's tolerance, the bits are the same in every
 * order of blocks, the emulator reports nothing, the kernel writes every output and nothing else,
 * and it moves its arguments and no more bytes. */
#ifndef MOONREEL_SPEC_CUDA_CONTRACT_H
#define MOONREEL_SPEC_CUDA_CONTRACT_H

#include "moonreel/base.h"

#ifdef __cplusplus
extern "C" {
#endif

// All cases of the op.
void contract_row(const char *name);

/* All cases of the op whose arguments may have strides, spread along each axis so that the last
 * position is 2^31 elements after the first. Returns how many of them a CUDA kernel ran; it may
 * leave such strides to the naive kernel. */
int contract_far(const char *name);

// One more case, in the syntax of MR_CASES; large cases run in one order of blocks.
void contract_case(const char *name, const char *text);

// The same in every order, for any size.
void contract_orders(const char *name, const char *text);

/* One more case. It also runs with each argument in a layout that does not allow 16-byte pieces,
 * for each single reason. */
void contract_singles(const char *name, const char *text);

/* A case for which the kernel is fast. Requests touch no useless sector (to 1 %). All threads
 * together move at most (1 + again) times the bytes that the op's cost declares; again = -1: none,
 * because a library moves them all. */
void contract_fast(const char *name, const char *text, double again);

/* The same for an op that declares `held` times the bytes of its arguments, because it reads some
 * of them twice, and whose requests touch at most `sectors` times the minimal number of sectors. */
void contract_passes(const char *name, const char *text, double held, double again, double sectors);

/* A case of whole tiles, for which the tensor cores run at most `most` times the operations that
 * the op's cost declares. */
void contract_lean(const char *name, const char *text, double most);

/* A case for only the sm_90a form, in every order, for any size; `most` > 0 limits the operations
 * as above. */
void contract_sm90a(const char *name, const char *text, double most);

// A case that the kernel refuses with MR_E_UNSUPPORTED.
void contract_refuses(const char *name, const char *text);

/* A case that is too large for the kernel. It must return MR_E_UNSUPPORTED before it reads
 * anything: no memory is allocated. */
void contract_too_large(const char *name, const char *text);

/* A case with values that the naive kernel refuses, and the check of the CUDA kernel after its run.
 * The kernel must not touch memory outside its arguments. */
void contract_fails(const char *name, const char *text, mr_status code);

/* A case compared with the slow, plain kernel of plain.h on the device, where inputs are drawn and
 * results compared: for sizes that take a CPU too long. Runs the newest form of the op, dense. */
void contract_real(const char *name, const char *text);

// the exit status of the spec
int contract_done(void);

#ifdef __cplusplus
}
#endif
#endif
