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
    int groups;              /* that know it; it goes with the last one */
    mr_comm_options options;
    mr_status broken; /* of the call that ended the world */
    char why[1024];
    mr_comm_count counted[MR_COMM_OP_COUNT];
    mr_comm_count carried[MR_COMM_OP_COUNT]; /* by devices; see carried.c */
} world;

struct mr_comm {
    world *world;
    bool owns_world;
    uint32_t id, seq;
    uint32_t carried; /* calls by devices so far */
    uint64_t op;      /* the call under way, in what this rank tells of itself */
    int rank, size, lane;
    int *world_rank;             /* [size] */
    uint32_t *sent, *got;        /* [size] messages to and from each rank */
    mr_parcel *sends, *receives; /* [size] of the call under way */
    int n_sends, n_receives;
    const void **parts; /* [size] contributions of ranks */
    int64_t *even;      /* [size] elements of ranks in an even split */
    int64_t op_group;   /* its number for ops, 0: none */
    int64_t *equal;     /* [size] of those ops; NULL: none */
    char *scratch;      /* contributions that wait to be summed */
    size_t scratch_bytes;
};

/* Number a new call of the group, and compare it over ranks where the options say so.
 * count 0: differs by rank. */
mr_status comm_begin(mr_comm *c, mr_comm_op op, mr_dtype dtype, int64_t count, unsigned detail,
                     mr_comm_head *call);
/* Put a call among the operations that this rank reports; messages that follow belong to it. */
void comm_record(mr_comm *c, const mr_comm_head *call);
/* Add a message to the call; `rank` is of the group and another one than this. At most one each
 * way per rank. */
void comm_send(mr_comm *c, const mr_comm_head *call, int rank, const void *data, size_t bytes);
void comm_receive(mr_comm *c, const mr_comm_head *call, int rank, void *data, size_t bytes);
/* Wait until all messages that were added have moved, then forget them. Errors: see
 * moonreel/comm.h; they end the world. deadline_s 0: that of the world */
mr_status comm_complete(mr_comm *c, const mr_comm_head *call, double deadline_s);
/* End the world with this thread's error record. Returns its code. */
mr_status comm_break(mr_comm *c, mr_status st);
/* Has a rank given up, or is `gone` (a rank that was seen to have left, -1: none) lost? Who gives
 * up says so before it leaves, so that is asked last. `call` begins the text.
 * Errors: MR_E_NODE */
mr_status comm_look(mr_transport *w, int gone, const char *call);
/* Bring in[bytes] of every rank to every rank: c->scratch then begins with [size][bytes] in the
 * order of ranks. For little: as few rounds as doublings make the size. */
mr_status comm_everyone(mr_comm *c, mr_comm_head *call, const void *in, size_t bytes);
/* c->scratch has at least `bytes` bytes. */
mr_status comm_scratch(mr_comm *c, size_t bytes);

/* Reduce parts[n] of `count` elements, in their order, into out; out may be one of them when the
 * dtypes are equal. */
void comm_sum(mr_comm_kind kind, mr_dtype dtype, const void *const *parts, int n, int64_t count,
              mr_dtype to, void *out);
/* Errors: MR_E_USAGE what has no sum */
mr_status comm_can_sum(mr_dtype dtype, mr_dtype to);

/* "all_reduce 12 (64 f32)" */
const char *comm_call_text(const mr_comm_head *head, char *buf, size_t cap);

/* Wake the rank of a transport of one host that pauses. */
void comm_wake(mr_transport *shared);

/* ---- calls that devices carry, as mr_group has them ---- */

mr_status comm_carried_broadcast(void *user, void *data, size_t bytes);
mr_status comm_carried_look(void *user, double waited_s);
mr_status comm_carried_give_up(void *user, mr_status st);
void comm_carried_begins(void *user, mr_carried *call);
void comm_carried_ends(void *user, const mr_carried *call);
mr_comm_count comm_carried_counted(const mr_comm *c, mr_comm_op op);

/* ---- ranks of several hosts ---- */

/* Connections between two ranks: one for each lane, and one for what is no message of a call. */
enum { LINK_CONTROL = MR_TRANSPORT_LANES, LINKS };
typedef struct tcp_links {
    int fd[LINKS];                  /* -1: none */
    seal_way in[LINKS], out[LINKS]; /* of these connections; off where the run has no secret */
    char where[80];                 /* "10.0.0.2 port 40001" */
} tcp_links;
/* What travels on LINK_CONTROL. */
typedef struct tcp_word {
    uint64_t run, fence;
    uint32_t kind; /* TCP_GIVES_UP, TCP_LEAVES */
    char text[1004];
} tcp_word;
enum { TCP_GIVES_UP = 1, TCP_LEAVES };
/* How long a record of `bytes` bytes is on its way. */
static inline size_t tcp_sealed(const seal_way *w, size_t bytes)
{
    return bytes + (w->on ? SEAL_TAG : 0);
}
/* Say it to a rank that this one is connected with, and do not wait. */
void tcp_tell(tcp_links *l, const tcp_word *word);
/* Close one connection, if there is one, and forget its keys. */
void tcp_hang_up(tcp_links *l, int link);

/* Connect this rank with all that are not on `shared`: links [size], which the caller closes, also
 * after a failure. Errors: those of mr_tcp_transport */
mr_status comm_rendezvous(const mr_tcp_place *place, mr_transport *shared, tcp_links *links);

#endif
