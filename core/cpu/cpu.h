/* cpu: shared helpers of CPU kernels, in addition to vec.h: threads, loops over strided views,
 * processor facts.
 *
 * Threads: every function here may be called from any thread; the loops share one team.
 * Licence: Apache-2.0 */
#ifndef MR_CPU_H
#define MR_CPU_H

#include "moonreel/op.h"

/* body(user, begin, end, worker) runs once for every chunk [i * grain, min(n, (i + 1) * grain)).
 * Chunks do not depend on the team size, so what a chunk computes is equal for any `threads`;
 * worker < threads numbers the member that runs it (for scratch memory). Runs on the calling
 * thread alone when there is one chunk, one thread, or the team is in another loop. grain >= 1.
 * After an interruption (base.h) the chunks left are not run: who runs the kernel reports it as
 * stopped. */
typedef void mr_cpu_body(void *user, int64_t begin, int64_t end, int worker);
void mr_cpu_for(int64_t n, int64_t grain, int threads, mr_cpu_body *body, void *user);

/* Whether this processor multiplies bf16 matrices faster than f32 ones (AVX512-BF16 or AMX, and a
 * oneDNN that may use them: it honours ONEDNN_MAX_CPU_ISA). */
MR_API bool mr_cpu_bf16(void);

/* Whether own kernels may use AMX tiles for bf16; asks the system for them once. False where
 * mr_cpu_bf16 is. */
bool mr_cpu_amx(void);

/* This processor as planning sees it, with the kernels of that instruction set (0 base, 1 avx2,
 * 2 avx512). threads 0: all. */
mr_facts mr_cpu_facts(const char *device, int isa, int threads);
/* The number of a set by its name, -1 for an unknown one. */
int mr_isa_index(const char *name);

/* A loop over views of one shape with any strides. Dimensions are ordered by the strides of
 * argument 0 (the output), length 1 is dropped, neighbours are merged where all views allow it. */
enum { MR_LOOP_ARGS = 4, MR_LOOP_PIECE = 16384 };
typedef struct mr_loop {
    int n_args, rank; /* rank >= 1 */
    int64_t dim[MR_MAX_RANK];
    int64_t stride[MR_LOOP_ARGS][MR_MAX_RANK];
} mr_loop;
void mr_loop_init(mr_loop *loop, const mr_desc *const *descs, int n_args);
/* body(user, at, n, step): n elements of argument a begin at element at[a] and lie step[a] apart.
 * Runs are at most MR_LOOP_PIECE long and the same for every team size. */
typedef void mr_loop_body(void *user, const int64_t *at, int64_t n, const int64_t *step);
void mr_loop_run(const mr_loop *loop, int threads, mr_loop_body *body, void *user);
/* The loop of a kernel over output 0 of `call`, which is argument 0 of the body, and n of its
 * inputs from `first` on; `user` is the call. */
void mr_loop_call(const mr_call *call, int first, int n, mr_loop_body *body);

#endif
