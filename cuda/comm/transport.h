/* cuda/comm: the interface of a library that transports bytes between the GPUs of ranks: one table
 * with two implementations. nccl.c loads NCCL; transport_emu.cpp moves the bytes of emulated
 * GPUs through shared memory. A shared object has one of the two.
 *
 * Joining and calls are enqueued and return; `state` says what became of them, for communicators
 * fail at any time.
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
}; /* bytes by which the ranks of a communicator find each other */

/* One message of a call, either side; at most one each way per peer, another rank. Memory of the
 * device. */
typedef struct mr_cuda_message {
    int peer;
    bool receives;
    void *data;
    size_t bytes;
} mr_cuda_message;

typedef struct mr_cuda_transport {
    const char *name;
    /* Is the library there? Errors: MR_E_UNSUPPORTED which one is missing or too old, what to
     * install */
    mr_status (*ready)(void);
    /* Of the first rank, for all. */
    mr_status (*id)(int size, char out[MR_CUDA_TRANSPORT_ID]);
    /* Begin to join, with the device that the thread uses. */
    mr_status (*join)(const char id[MR_CUDA_TRANSPORT_ID], int rank, int size, void **comm);
    /* Is what the host began over? Errors: MR_E_NODE the communicator failed */
    mr_status (*state)(void *comm, bool *over);
    /* Leave it. `abort`: calls that are under way end without having their bytes. */
    void (*leave)(void *comm, bool abort);
    /* All messages of a call at once. */
    mr_status (*exchange)(void *comm, const mr_cuda_message *messages, int n, void *stream);
    /* all [size][bytes]: every rank's, that of this one, `rank`, lies there already */
    mr_status (*gather)(void *comm, void *all, int rank, size_t bytes, void *stream);
} mr_cuda_transport;

/* the body of this object */
extern const mr_cuda_transport mr_cuda_ranks_transport;

#ifdef __cplusplus
}
#endif
#endif
