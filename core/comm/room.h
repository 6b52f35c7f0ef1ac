/* comm, inside: what the files of the room share. Licence: Apache-2.0 */
#ifndef MR_COMM_ROOM_H
#define MR_COMM_ROOM_H

#include "comm/seal.h"
#include "moonreel/collective.h"
#include "moonreel/comm.h"
#include "moonreel/life.h"

/* What all groups of a world share. */
typedef struct world {
    mr_transport *transport; /* NULL: this rank is alone */
    int groups;              /* groups of this world; the last one frees it */
    mr_comm_options options;
    mr_status broken; /* the error of the call that ended the world */
    char why[1024];
    mr_comm_count counted[MR_COMM_OP_COUNT];
    mr_comm_count carried[MR_COMM_OP_COUNT]; /* calls by devices; see carried.c */
} world;

struct mr_comm {
    world *world;
    bool owns_world;
    uint32_t id, seq;
    uint32_t carried; /* number of calls by devices so far */
    uint64_t op;      /* the current call, in the log of operations */
    int rank, size, lane;
    int *world_rank;             /* [size] */
    uint32_t *sent, *got;        /* [size] messages to and from each rank */
    mr_parcel *sends, *receives; /* [size] of the current call */
    int n_sends, n_receives;
    const void **parts; /* [size] contributions of ranks */
    int64_t *even;      /* [size] elements of ranks in an even split */
    int64_t op_group;   /* group number for ops; 0: not registered */
    int64_t *equal;     /* [size] equal counts for these ops, or NULL */
    char *scratch;      /* contributions that wait to be summed */
    size_t scratch_bytes;
};

/* Start a new call of the group, with the next number. If the options say so, compare it over
 * ranks. count 0: differs by rank. */
mr_status comm_begin(mr_comm *c, mr_comm_op op, mr_dtype dtype, int64_t count, unsigned detail,
                     mr_comm_head *call);
/* Add a call to the log of operations of this rank; the next messages belong to it. */
void comm_record(mr_comm *c, const mr_comm_head *call);
/* Add a message to the call; `rank` is another rank of the group. At most one message per rank and
 * direction. */
void comm_send(mr_comm *c, const mr_comm_head *call, int rank, const void *data, size_t bytes);
void comm_receive(mr_comm *c, const mr_comm_head *call, int rank, void *data, size_t bytes);
/* Wait until all added messages are transferred, then remove them. Errors: see moonreel/comm.h;
 * they end the world. deadline_s 0: that of the world */
mr_status comm_complete(mr_comm *c, const mr_comm_head *call, double deadline_s);
/* End the world with the error record of this thread. Returns its code. */
mr_status comm_break(mr_comm *c, mr_status st);
/* Check whether a rank has given up, or rank `gone`, which has left (-1: no rank), is lost. A rank
 * publishes that it gives up before it leaves, so that is checked last. `call` is the prefix of the
 * text.
 * Errors: MR_E_NODE */
mr_status comm_look(mr_transport *w, int gone, const char *call);
/* Send in[bytes] of each rank to all ranks: c->scratch then starts with [size][bytes] in the order
 * of ranks. For few bytes: it takes log2(size) rounds. */
mr_status comm_everyone(mr_comm *c, mr_comm_head *call, const void *in, size_t bytes);
/* Make c->scratch at least `bytes` bytes large. */
mr_status comm_scratch(mr_comm *c, size_t bytes);

/* Reduce parts[n] of `count` elements, in order, into out; out can be one of them if the dtypes are
 * equal. */
void comm_sum(mr_comm_kind kind, mr_dtype dtype, const void *const *parts, int n, int64_t count,
              mr_dtype to, void *out);
/* Errors: MR_E_USAGE a dtype that has no sum */
mr_status comm_can_sum(mr_dtype dtype, mr_dtype to);

/* "all_reduce 12 (64 f32)" */
const char *comm_call_text(const mr_comm_head *head, char *buf, size_t cap);

/* Wake the rank of a shared-memory transport from a pause. */
void comm_wake(mr_transport *shared);

/* ---- calls that devices carry: the functions of mr_group ---- */

mr_status comm_carried_broadcast(void *user, void *data, size_t bytes);
mr_status comm_carried_look(void *user, double waited_s);
mr_status comm_carried_give_up(void *user, mr_status st);
void comm_carried_begins(void *user, mr_carried *call);
void comm_carried_ends(void *user, const mr_carried *call);
mr_comm_count comm_carried_counted(const mr_comm *c, mr_comm_op op);

/* ---- ranks of several hosts ---- */

/* Connections between two ranks: one per lane, and the control connection for everything that is
 * not a message of a call. */
enum { LINK_CONTROL = MR_TRANSPORT_LANES, LINKS };
typedef struct tcp_links {
    int fd[LINKS];                  /* -1: not connected */
    seal_way in[LINKS], out[LINKS]; /* of these connections; off if the run has no secret */
    char where[80];                 /* "10.0.0.2 port 40001" */
} tcp_links;
/* A message on LINK_CONTROL. */
typedef struct tcp_word {
    uint64_t run, fence;
    uint32_t kind; /* TCP_GIVES_UP, TCP_LEAVES */
    char text[1004];
} tcp_word;
enum { TCP_GIVES_UP = 1, TCP_LEAVES };
/* The size of a record of `bytes` bytes on the wire. */
static inline size_t tcp_sealed(const seal_way *w, size_t bytes)
{
    return bytes + (w->on ? SEAL_TAG : 0);
}
/* Send a control message to a connected rank, without waiting. */
void tcp_tell(tcp_links *l, const tcp_word *word);
/* Close a connection, if it is open, and erase its keys. */
void tcp_hang_up(tcp_links *l, int link);

/* Connect this rank to all ranks that are not on `shared`. links [size]: the caller closes them,
 * even after a failure. Errors: those of mr_tcp_transport */
mr_status comm_rendezvous(const mr_tcp_place *place, mr_transport *shared, tcp_links *links);

#endif
