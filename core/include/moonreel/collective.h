/* collective: communication of ops with other ranks, independent of the transport.
 *
 * The owner of groups of ranks (core/comm) registers them here and gets ids; the attribute `group`
 * of an op is such an id. Group 0 is this rank alone, without communication. A device whose memory
 * the group cannot access transfers the messages of such ops itself, and notifies the group.
 *
 * Threads: any; a group runs one call at a time; remove it only when no call is running.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_COLLECTIVE_H
#define MOONREEL_COLLECTIVE_H

#include "moonreel/tensor.h"
#include "moonreel/transport.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Over x, in equal chunks of which each rank owns one. Reduce-scatter: the owner of a chunk gets
 * its sum, the others zeros. All-gather: all get each chunk from its owner. All-reduce: all get the
 * sum of everything. */
typedef enum mr_collective {
    MR_COLLECTIVE_REDUCE_SCATTER,
    MR_COLLECTIVE_ALL_GATHER,
    MR_COLLECTIVE_ALL_REDUCE
} mr_collective;

/* Parts of values that ranks exchange, dense and of any size, ordered by rank. With hops 0: `in`
 * has sends[rank] elements for each rank, or, with sends NULL, receives[this rank] elements for all
 * of them; `out` gets receives[rank] from each. Otherwise the ranks form a ring: sends[0] elements
 * go to the rank `hops` after this one, and receives[0] come from the rank `hops` before it. */
typedef struct mr_exchange {
    mr_dtype dtype;
    int hops;
    const void *in;
    const int64_t *sends;
    void *out;
    const int64_t *receives;
} mr_exchange;

/* A call whose messages a device transfers itself. */
typedef struct mr_carried {
    mr_comm_op op;
    mr_dtype dtype;
    int64_t count;   /* elements over all ranks; 0: they differ by rank */
    uint64_t bytes;  /* that this rank sends */
    uint64_t number; /* among the operations that this rank publishes; set by the group */
} mr_carried;

/* A group as ops see it, and devices that transfer messages themselves. */
typedef struct mr_group {
    void *user;
    int rank, size;
    double deadline_s; /* of a call */
    mr_status (*run)(void *user, mr_collective what, mr_dtype dtype, void *x, int64_t count);
    mr_status (*exchange)(void *user, const mr_exchange *what);
    /* Broadcast the first rank's bytes, to set up another transport. Collective. */
    mr_status (*broadcast)(void *user, void *data, size_t bytes);
    /* Nothing has arrived from the others for `waited_s` seconds: check them. Returns at once.
     * Errors: MR_E_NODE a rank gave up or has left, and the world has ended */
    mr_status (*look)(void *user, double waited_s);
    /* End the world because of this thread's error. Returns the error's code. */
    mr_status (*give_up)(void *user, mr_status st);
    /* A call begins, ends: counted as if the group had made it. From any thread. */
    void (*begins)(void *user, mr_carried *call);
    void (*ends)(void *user, const mr_carried *call);
} mr_group;

/* Register a group, which is copied, and get its id, from 1. Errors: MR_E_MEMORY */
MR_API mr_status mr_collective_add(const mr_group *group, int64_t *number);
/* Remove a group; 0 is fine. The watcher is called first, and may still use the group. Only one
 * device watches at a time; NULL: no watcher. */
MR_API void mr_collective_remove(int64_t number);
typedef void mr_collective_watcher(int64_t number);
MR_API void mr_collective_watch(mr_collective_watcher *watcher);
/* Errors: MR_E_USAGE no such group */
MR_API mr_status mr_collective_group(int64_t number, mr_group *out);
/* Check that the group has this many ranks, and that this rank is the `at`-th. Group 0 always fits.
 * Errors: MR_E_USAGE no such group, or a group that differs from that of the op */
MR_API mr_status mr_collective_ranks(int64_t number, int64_t ranks, int64_t at);
/* In place, x [count]. Errors: MR_E_USAGE no such group; those of its function */
MR_API mr_status mr_collective_run(int64_t group, mr_collective what, mr_dtype dtype, void *x,
                                   int64_t count);

/* Errors: MR_E_USAGE no such group, or group 0, which has one rank; those of its function */
MR_API mr_status mr_collective_exchange(int64_t group, const mr_exchange *what);

#ifdef __cplusplus
}
#endif
#endif
