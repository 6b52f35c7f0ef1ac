/* cuda/comm: the interface of a library that transports bytes between the GPUs of ranks: one table
 * with two implementations. nccl.c loads NCCL; transport_emu.cpp moves the bytes of emulated GPUs
 * through shared memory. A shared object has one of the two.
 *
 * Joining and calls may return before they complete. `state` reports their progress, because a
 * communicator can fail at any time.
 *
 * Threads: one at a time per device.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_COMM_TRANSPORT_H
#define MOONREEL_CUDA_COMM_TRANSPORT_H

#include "moonreel/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    MR_CUDA_TRANSPORT_ID = 128
}; /* size of the id with which the ranks of a communicator find each other */

/* One message of a call, as sender or receiver; at most one in each direction per peer. `data` is
 * device memory. */
typedef struct mr_cuda_message {
    int peer;
    bool receives;
    void *data;
    size_t bytes;
} mr_cuda_message;

typedef struct mr_cuda_transport {
    const char *name;
    /* Load the library. Errors: MR_E_UNSUPPORTED names the missing or old library and what to
     * install */
    mr_status (*ready)(void);
    /* Make the id of a communicator; the first rank calls this and sends it to all. */
    mr_status (*id)(int size, char out[MR_CUDA_TRANSPORT_ID]);
    /* Begin to join, on the device that this thread uses. */
    mr_status (*join)(const char id[MR_CUDA_TRANSPORT_ID], int rank, int size, void **comm);
    /* Is the last operation of the host complete? Errors: MR_E_NODE the communicator failed */
    mr_status (*state)(void *comm, bool *over);
    /* Close the communicator. abort: calls in flight end without their data. */
    void (*leave)(void *comm, bool abort);
    /* Enqueue all messages of a call together. */
    mr_status (*exchange)(void *comm, const mr_cuda_message *messages, int n, void *stream);
    /* all [size][bytes]: chunks of all ranks; the chunk of `rank`, this one, is already in place */
    mr_status (*gather)(void *comm, void *all, int rank, size_t bytes, void *stream);
} mr_cuda_transport;

/* the implementation in this shared object */
extern const mr_cuda_transport mr_cuda_ranks_transport;

#ifdef __cplusplus
}
#endif
#endif
