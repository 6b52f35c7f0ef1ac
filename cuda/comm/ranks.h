/* cuda/comm: groups of ranks on this GPU, as kernels and the runtime see them.
 *
 * A group gets a communicator when the first step names it. The communication of a step is a talk:
 * it is created when the step is prepared, then enqueued with each run, on any stream and in
 * captures. The group counts and reports it when the stream executes it.
 *
 * A thread that waits for a stream also monitors the open communicators: a lost rank, a failed
 * communicator or a passed deadline aborts all of them, and the enqueued work ends without its
 * data.
 *
 * A communicator is freed together with its group.
 *
 * Threads: one at a time; one GPU per process.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_COMM_RANKS_H
#define MOONREEL_CUDA_COMM_RANKS_H

#include "cuda/comm/transport.h"
#include "moonreel/collective.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_cuda_talk {
    struct mr_cuda_ranks *ranks;
    int rank, size;
    mr_carried call;
    mr_cuda_message *messages; /* [2 size]: messages added since the last exchange */
    int n_messages;
} mr_cuda_talk;

/* Create a talk of a group. The first talk of a group creates the communicator: this call is
 * collective and waits for all ranks. The caller sets call.count and call.bytes. Owns: the caller
 * frees *out before the device closes. Errors: MR_E_USAGE no such group; MR_E_UNSUPPORTED no
 * library; MR_E_NODE a rank did not join; MR_E_MEMORY */
mr_status mr_cuda_talk_new(int64_t group, mr_comm_op op, mr_dtype dtype, mr_cuda_talk **out);
void mr_cuda_talk_free(void *talk); /* NULL is allowed */

/* Enqueue, in this order: begin; any number of exchanges or gathers, each after its messages were
 * added; end. Errors: MR_E_NODE */
mr_status mr_cuda_talk_begins(mr_cuda_talk *t, void *stream);
/* Add a message to the next exchange; 0 bytes add nothing. */
void mr_cuda_talk_send(mr_cuda_talk *t, int rank, const void *data, size_t bytes);
void mr_cuda_talk_receive(mr_cuda_talk *t, int rank, void *data, size_t bytes);
mr_status mr_cuda_talk_exchange(mr_cuda_talk *t, void *stream);
/* all [size][bytes]: chunks of all ranks; this rank's chunk is already in place */
mr_status mr_cuda_talk_gather(mr_cuda_talk *t, void *all, size_t bytes, void *stream);
mr_status mr_cuda_talk_ends(mr_cuda_talk *t, void *stream);

/* An open device; `settle` waits until it has no work in flight. */
typedef struct mr_cuda_speaker {
    struct mr_cuda_speaker *next;
    void (*settle)(void *user);
    void *user;
} mr_cuda_speaker;
/* Borrows `device` until mr_cuda_ranks_close. The same GPU may be opened several times. */
void mr_cuda_ranks_start(mr_cuda_speaker *device);
/* Is any communicator open? */
bool mr_cuda_ranks_open(void);
/* Number of closed communicators so far. A graph captured before the last close must be captured
 * again. */
unsigned mr_cuda_ranks_left(void);
/* Check all communicators. Returns at once. Errors: MR_E_NODE; then all communicators are closed,
 * on all ranks */
mr_status mr_cuda_ranks_look(void);
/* Close all communicators because of this thread's error and report it to the other ranks. Returns
 * `st`. */
mr_status mr_cuda_ranks_give_up(mr_status st);
/* Close the device. The last device closes all communicators. */
void mr_cuda_ranks_close(mr_cuda_speaker *device);

#ifdef __cplusplus
}
#endif
#endif
