/* The contract of a CUDA kernel: over the cases of its row, and over more, in each of
 * its forms, equal to the naive row
 * within the row's tolerance, the same bits in every order of blocks, silence of the emulator,
 * every output written and nothing else, the arguments moved and no more. */
#ifndef MOONREEL_SPEC_CUDA_CONTRACT_H
#define MOONREEL_SPEC_CUDA_CONTRACT_H

#include "moonreel/base.h"

#ifdef __cplusplus
extern "C" {
#endif

// All cases of the row.
void contract_row(const char *name);

/* All cases of the row whose arguments may have strides, spread so that their last places lie 2^31
 * elements behind the first: along each axis. Returns how often a kernel took them; one may leave
 * such strides to others. */
int contract_far(const char *name);

// One more case, in the words of MR_CASES; large ones run in one order of blocks.
void contract_case(const char *name, const char *text);

// The same in every order, however large.
void contract_orders(const char *name, const char *text);

/* One more case, also with each argument lying so that no pieces of 16 bytes serve, for each reason
 * alone. */
void contract_singles(const char *name, const char *text);

/* A case for which the kernel is fast: requests touch (to 1 %) no sector in vain, all threads
 * together ask for at most (1 + again) times the bytes that the row's cost declares: with -1 for
 * none, because a library does all. */
void contract_fast(const char *name, const char *text, double again);

/* The same of a row that declares `held` times what its arguments hold, since it reads some of them
 * twice, and whose requests touch at most `sectors` times the sectors that would do. */
void contract_passes(const char *name, const char *text, double held, double again, double sectors);

/* A case of whole tiles, for which tensor cores are asked for at most `most` times the operations
 * that the row's cost declares. */
void contract_lean(const char *name, const char *text, double most);

/* A case of the form for sm_90a alone, in every order, however large; with `most` > 0 lean as
 * above. */
void contract_sm90a(const char *name, const char *text, double most);

// A case that the kernel refuses as MR_E_UNSUPPORTED.
void contract_refuses(const char *name, const char *text);

/* A case that is too large for the kernel, which says so by MR_E_UNSUPPORTED before it reads
 * anything: no memory is made. */
void contract_too_large(const char *name, const char *text);

/* A case whose values fail the naive row and, when the kernel has run, its check. It touches
 * nothing that is not its own. */
void contract_fails(const char *name, const char *text, mr_status code);

/* A case beside the slow, plain kernel of plain.h on the device, where inputs are drawn and results
 * compared: for sizes that take a CPU too long. The newest form of the row, dense. */
void contract_real(const char *name, const char *text);

// the exit status of the spec
int contract_done(void);

#ifdef __cplusplus
}
#endif
#endif
