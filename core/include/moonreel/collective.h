/* collective: what the rows of an op say to other ranks, without knowing how they are reached.
 *
 * Whoever has groups of ranks (core/comm) gives them numbers here; the attribute `group` of a row
 * is one of these. Group 0 is this rank alone, where nothing is said. A device whose memory the
 * group cannot reach carries the messages of such rows itself, and tells the group of it.
 *
 * Threads: any; calls of one group come one at a time, and it goes when there are none.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_COLLECTIVE_H
#define MOONREEL_COLLECTIVE_H

#include "moonreel/tensor.h"
#include "moonreel/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Over x, in equal chunks of which each rank owns one: its owner gets the sum of a chunk and the
 * others zeros; all get each chunk of its owner; all get the sum of everything. */
typedef enum mr_collective {
    MR_COLLECTIVE_REDUCE_SCATTER,
    MR_COLLECTIVE_ALL_GATHER,
    MR_COLLECTIVE_ALL_REDUCE
} mr_collective;

/* Parts of values that change hands, dense and of any size, those of all ranks one behind the
 * other. hops 0: in has sends[rank] elements for each rank, or, with sends NULL, receives[of this
 * rank] elements for all of them; out gets receives[rank] from each. Else sends[0] elements go to
 * the rank `hops` further on in the circle, and receives[0] come from the one that many before. */
typedef struct mr_exchange {
    mr_dtype dtype;
    int hops;
    const void *in;
    const int64_t *sends;
    void *out;
    const int64_t *receives;
} mr_exchange;

/* A call whose messages a device carries by itself. */
typedef struct mr_carried {
    mr_comm_op op;
    mr_dtype dtype;
    int64_t count;   /* elements over all ranks; 0: they differ by rank */
    uint64_t bytes;  /* that this rank sends */
    uint64_t number; /* among the operations that this rank tells of; the group's */
} mr_carried;

/* What a group is to rows, and to devices that carry messages themselves. */
typedef struct mr_group {
    void *user;
    int rank, size;
    double deadline_s; /* of a call */
    mr_status (*run)(void *user, mr_collective what, mr_dtype dtype, void *x, int64_t count);
    mr_status (*exchange)(void *user, const mr_exchange *what);
    /* The first rank's bytes for all: how ranks meet elsewhere. Collective. */
    mr_status (*meet)(void *user, void *data, size_t bytes);
    /* Nothing came from the others in `waited_s` seconds: are they still there? Returns at once.
     * Errors: MR_E_NODE a rank gave up or has left, and with it the world is over */
    mr_status (*look)(void *user, double waited_s);
    /* The world is over because of this thread's error, whose code is returned. */
    mr_status (*give_up)(void *user, mr_status st);
    /* A call begins and is over: counted as if the group had made it. From any thread. */
    void (*begins)(void *user, mr_carried *call);
    void (*ends)(void *user, const mr_carried *call);
} mr_group;

/* Give a group, which is copied, a number, from 1. Errors: MR_E_MEMORY */
MR_API mr_status mr_collective_add(const mr_group *group, int64_t *number);
/* The number names no group any more; 0 is fine. Who watches is called before, and may still use
 * the group: one device at a time; NULL: no one watches. */
MR_API void mr_collective_remove(int64_t number);
typedef void mr_collective_watcher(int64_t number);
MR_API void mr_collective_watch(mr_collective_watcher *watcher);
/* Errors: MR_E_USAGE no such group */
MR_API mr_status mr_collective_group(int64_t number, mr_group *out);
/* Has the group as many ranks, and is this one the `at`-th of them? 0 is whatever a row says.
 * Errors: MR_E_USAGE no such group, or another one than the row was made for */
MR_API mr_status mr_collective_ranks(int64_t number, int64_t ranks, int64_t at);
/* In place, x [count]. Errors: MR_E_USAGE no such group; those of its function */
MR_API mr_status mr_collective_run(int64_t group, mr_collective what, mr_dtype dtype, void *x,
                                   int64_t count);

/* Errors: MR_E_USAGE no such group, or 0, which is one rank alone; those of its
 * function */
MR_API mr_status mr_collective_exchange(int64_t group, const mr_exchange *what);

#ifdef __cplusplus
}
#endif
#endif
