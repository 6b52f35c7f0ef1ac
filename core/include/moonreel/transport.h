/* transport: carries messages between the ranks of a world, as core/comm uses it and the
 * plug-in libmoonreel_mpi.so provides it.
 *
 * A message is a head, which names the call that it belongs to, and bytes. Messages between two
 * ranks on one lane arrive in the order in which they were begun.
 *
 * Threads: one thread per lane at a time.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_TRANSPORT_H
#define MOONREEL_TRANSPORT_H

#include "moonreel/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mr_comm_op {
    MR_COMM_HELLO, /* of a new world: checks that all ranks run the same program */
    MR_COMM_LEAVE,
    MR_COMM_CHECK,
    MR_COMM_SPLIT,
    MR_COMM_BARRIER,
    MR_COMM_ALL_REDUCE,
    MR_COMM_REDUCE_SCATTER,
    MR_COMM_ALL_GATHER,
    MR_COMM_ALL_TO_ALL,
    MR_COMM_BROADCAST,
    MR_COMM_SEND,
    MR_COMM_SHIFT,
    MR_COMM_OP_COUNT
} mr_comm_op;

/* Precedes the bytes of every message: the call that it belongs to. */
typedef struct mr_comm_head {
    uint64_t bytes;      /* that follow */
    uint64_t count;      /* elements of the call over all ranks; 0: they differ by rank */
    uint32_t group, seq; /* the group, and the number of the call in it */
    uint32_t part;       /* of the call */
    uint8_t op, dtype;
    uint16_t detail; /* kind of a reduction, root of a broadcast */
} mr_comm_head;

enum { MR_TRANSPORT_LANES = 2 };

/* One message in transfer, on either side. The transport continues it from call to call. */
typedef struct mr_parcel {
    int peer; /* rank in the world */
    int lane;
    mr_comm_head head; /* sent; or, once headed, received */
    void *data;        /* [bytes]; only read for a send */
    size_t bytes, moved;
    bool headed, done;
    size_t passed; /* bytes of incomplete records; not yet counted in `moved` */
    void *state;   /* private to the transport, NULL at first and when done */
} mr_parcel;

typedef struct mr_transport mr_transport;
#define MR_TRANSPORT_VERSION 2
typedef struct mr_transport_ops {
    /* Continue a message as far as possible without waiting. A receive stops once after the head:
     * the caller continues only if the head announces the expected number of bytes. */
    mr_status (*send)(mr_transport *w, mr_parcel *p);
    mr_status (*receive)(mr_transport *w, mr_parcel *p);
    /* Give up a message that will not be continued. */
    void (*drop)(mr_transport *w, mr_parcel *p);
    /* Whether that rank has closed its transport or ended. Earlier messages can still be received.
     */
    bool (*left)(mr_transport *w, int rank);
    /* pause(w, look(w)) returns if anything arrived since look, or after some milliseconds. */
    uint32_t (*look)(mr_transport *w);
    void (*pause)(mr_transport *w, uint32_t look);
    /* Notify all ranks that this one gives up; only the first notification counts. */
    void (*abort)(mr_transport *w, const char *text);
    bool (*aborted)(mr_transport *w, char *text, size_t cap);
    /* `clean`: all ranks have agreed to leave */
    void (*close)(mr_transport *w, bool clean);
    bool farewell; /* close needs that agreement */
} mr_transport_ops;
struct mr_transport {
    const mr_transport_ops *ops;
    int rank, size;
};

/* The plug-in of MPI exports "mr_mpi_entry". */
typedef struct mr_mpi {
    uint32_t version; /* MR_TRANSPORT_VERSION */
    /* Join the world that mpirun or srun has started, as rank `rank` of `size`.
     * Errors: MR_E_NODE MPI has another world or does not start within the deadline */
    mr_status (*open)(int rank, int size, double deadline_s, mr_transport **out);
    /* One call of MPI itself on x [bytes] of all ranks, for measurements: all_reduce adds f32 in
     * place, broadcast is from rank 0, send goes from rank 0 to rank 1 and back, barrier needs no
     * x.
     * Errors: MR_E_USAGE another op, before open; MR_E_NODE */
    mr_status (*raw)(mr_comm_op op, void *x, size_t bytes);
} mr_mpi;
typedef const mr_mpi *mr_mpi_entry_fn(void);

#ifdef __cplusplus
}
#endif
#endif
