/* cpu: helpers of CPU kernels, in addition to vec.h: threads, loops over strided views, facts about
 * the processor.
 *
 * Threads: any thread can call every function here; all loops share one team of threads.
 * Licence: Apache-2.0 */
#ifndef MR_CPU_H
#define MR_CPU_H

#include "moonreel/op.h"

/* Run body(user, begin, end, worker) once for every chunk [i * grain, min(n, (i + 1) * grain)).
 * Chunks do not depend on the team size, so a chunk computes the same for any `threads`. worker <
 * threads is the index of the thread that runs the chunk (for scratch memory). The calling thread
 * alone runs all chunks if there is one chunk or one thread, or if the team is in another loop.
 * grain >= 1. After an interruption (base.h) no further chunk starts; the caller of the kernel
 * reports MR_E_STOPPED. */
typedef void mr_cpu_body(void *user, int64_t begin, int64_t end, int worker);
void mr_cpu_for(int64_t n, int64_t grain, int threads, mr_cpu_body *body, void *user);

/* Whether this processor multiplies bf16 matrices faster than f32 ones: it has AVX512-BF16 or AMX,
 * and oneDNN can use them (it obeys ONEDNN_MAX_CPU_ISA). */
MR_API bool mr_cpu_bf16(void);

/* Whether moonreel's kernels can use AMX tiles for bf16. The first call asks the operating system
 * for permission. False if mr_cpu_bf16 is. */
bool mr_cpu_amx(void);

/* The facts about this processor for planning, with kernels of instruction set `isa` (0 base, 1
 * avx2, 2 avx512). threads 0: all. */
mr_facts mr_cpu_facts(const char *device, int isa, int threads);
/* The index of an instruction set by its name; -1 if unknown. */
int mr_isa_index(const char *name);

/* A loop over views of one shape with any strides. Dimensions are ordered by the strides of
 * argument 0 (the output); those of length 1 are dropped, and adjacent ones are merged if all views
 * allow it. */
enum { MR_LOOP_ARGS = 4, MR_LOOP_PIECE = 16384 };
typedef struct mr_loop {
    int n_args, rank; /* rank >= 1 */
    int64_t dim[MR_MAX_RANK];
    int64_t stride[MR_LOOP_ARGS][MR_MAX_RANK];
} mr_loop;
void mr_loop_init(mr_loop *loop, const mr_desc *const *descs, int n_args);
/* body(user, at, n, step) gets n elements of each argument a: they start at element at[a] and have
 * the stride step[a]. n is at most MR_LOOP_PIECE, and does not depend on the team size. */
typedef void mr_loop_body(void *user, const int64_t *at, int64_t n, const int64_t *step);
void mr_loop_run(const mr_loop *loop, int threads, mr_loop_body *body, void *user);
/* The loop of a kernel over output 0 of `call`, which is argument 0 of the body, and n of its
 * inputs from `first` on; `user` is the call. */
void mr_loop_call(const mr_call *call, int first, int n, mr_loop_body *body);

#endif
