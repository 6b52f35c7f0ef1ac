/* comm: ranks of one run, and communication between them.
 *
 * A transport moves bytes between the ranks of a world: rings in memory that ranks of one host
 * share (threads of one process as well), TCP between hosts, or MPI from the plug-in
 * libmoonreel_mpi.so. A communicator is a group of ranks on a transport. Its collectives are
 * schedules of messages, the same on every transport. Sums add the contributions in the order of
 * ranks, in f32 (f64 for f64), and round once: equal worlds give equal bits.
 *
 * Every message carries the call to which it belongs (group, number, op, dtype, elements). Ranks
 * that make different calls fail with an error that names rank and call; nothing waits past its
 * deadline. After a failed call the world has ended: present and further calls of every rank fail
 * with the reason.
 *
 * Counts are in elements, arrays are dense host memory.
 *
 * Threads: one call per group at a time. Groups that two threads of a rank use concurrently are on
 * different lanes; all ranks use the groups of one lane in the same order.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_COMM_H
#define MOONREEL_COMM_H

#include "moonreel/life.h"
#include "moonreel/tensor.h"
#include "moonreel/transport.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- transports ---- */

/* Opens the plug-in at the first call. Errors: MR_E_UNSUPPORTED; and those of open */
MR_API mr_status mr_mpi_transport(int rank, int size, double deadline_s, mr_transport **out);
/* The function `raw` of mr_mpi. Errors: MR_E_UNSUPPORTED; and those of raw */
MR_API mr_status mr_mpi_raw(mr_comm_op op, void *x, size_t bytes);

/* A shared-memory segment of the ranks of one host: a ring for each pair of ranks and lane. */
typedef struct mr_segment mr_segment;
enum { MR_SEGMENT_RANKS = 1024 };
/* For `ranks` ranks, in a file without a name that children may map: see mr_segment_fd.
 * Errors: MR_E_USAGE not 1 to MR_SEGMENT_RANKS; MR_E_MEMORY. Owns: caller */
MR_API mr_status mr_segment_new(int ranks, mr_segment **out);
MR_API int mr_segment_fd(const mr_segment *m); /* lent */
/* Notify the other ranks that a rank has ended, if it ended without doing so itself. */
MR_API void mr_segment_mark_left(mr_segment *m, int rank);
/* Its place among the ranks that left, from 1; 0: it has not left. */
MR_API int mr_segment_left(const mr_segment *m, int rank);
MR_API void mr_segment_abort(mr_segment *m, const char *text);
/* Close its transports first. NULL is fine. */
MR_API void mr_segment_free(mr_segment *m);
/* The transport of one rank over the segment. Borrows the segment. Errors: MR_E_USAGE no such rank;
 * MR_E_MEMORY */
MR_API mr_status mr_segment_transport(mr_segment *m, int rank, mr_transport **out);
/* The same for the memory of `size` ranks behind a descriptor that this process has inherited.
 * Borrows `fd`. Errors: MR_E_NODE no segment, or a segment of another version or for other ranks */
MR_API mr_status mr_segment_join(int fd, int rank, int size, mr_transport **out);

/* How ranks of several hosts connect and authenticate each other. */
typedef struct mr_tcp_place {
    int rank, size;
    const char *host; /* of rank 0: a name or an address, IPv4 or IPv6 */
    int port, ports;  /* rank 0 listens at the first free one of `ports` ports from here on; 0: 1 */
    int listener;     /* of rank 0: a listening socket, which the call takes over; -1: no socket */
    /* Where this rank listens during the rendezvous, as in mr_tcp_listen. NULL or "": rank 0 at all
     * addresses of its host, each other rank at the address from which it has reached rank 0. */
    const char *listen;
    uint64_t run;   /* the same on all ranks */
    uint64_t fence; /* the launch of the run, the same on all ranks */
    /* A secret that only ranks of the run know. Keys derived from it authenticate all messages, and
     * encrypt them with `hides`. NULL or "": messages are neither authenticated nor encrypted, and
     * any process that can connect may join. */
    const char *secret;
    bool hides;          /* the same on all ranks */
    double deadline_s;   /* for connecting to all others */
    int first, n_local;  /* ranks that share memory with this one, with it; n_local 0: none do */
    double lost_after_s; /* a host counts as lost after this time without an answer; 0: 10 */
} mr_tcp_place;
/* A transport over TCP. `shared`: the transport of the `n_local` ranks, which the call takes over,
 * also on failure; NULL: no shared memory.
 * Errors: MR_E_NODE ranks that do not connect, belong to another run or lack the secret (named), no
 * port; MR_E_USAGE place; MR_E_MEMORY */
MR_API mr_status mr_tcp_transport(const mr_tcp_place *place, mr_transport *shared,
                                  mr_transport **out);
/* Listen at the first free port of `ports` from first_port on (0: any free one), at `where`: an
 * interface ("eth0"), a name or an address of this host; NULL or "": at all of its addresses.
 * Borrows nothing, the caller closes *fd. Errors: MR_E_NODE */
MR_API mr_status mr_tcp_listen(const char *where, int first_port, int ports, int *fd, int *port);
/* Allow this process, and those that it starts, to open `count` files and some more, as far as the
 * system permits. `who` names the part that needs them, and begins the error.
 * Errors: MR_E_NODE the system does not permit it */
MR_API mr_status mr_allow_files(int64_t count, const char *who);

/* ---- ranks of this host ---- */

typedef struct mr_ranks_end {
    int exit;       /* 0, or that of the first rank that failed; 128 + number of a signal */
    int rank;       /* the rank that failed first, or -1 */
    char text[512]; /* "rank 2 ended with exit code 3" */
} mr_ranks_end;
typedef struct mr_ranks mr_ranks;
/* Start this program `ranks` times with `argv`, as ranks of a run of `world` from `first` on. Each
 * finds its place in MOONREEL_RANK, MOONREEL_WORLD_SIZE, MOONREEL_LOCAL_RANK, MOONREEL_LOCAL_SIZE,
 * MOONREEL_SEGMENT (a descriptor for mr_segment_join) and MOONREEL_PAGE (one for mr_life_join), and
 * its share of the processors in OMP_NUM_THREADS.
 * From then on mr_ranks_look handles SIGINT, SIGTERM and SIGHUP. No rank outlives this process: a
 * guard ends the remaining ranks when this process is lost, and orphans of ranks become its
 * children.
 *
 * grace_s  between the message, SIGTERM and SIGKILL; a rank that saves a checkpoint has 25 s before
 * Owns:    caller owns *out
 * Errors:  MR_E_USAGE number of ranks; MR_E_IO a rank cannot be started; MR_E_MEMORY
 * Threads: only the main thread, before it has started others, for all calls */
MR_API mr_status mr_ranks_start(char *const *argv, int ranks, int first, int world, double grace_s,
                                mr_ranks **out);
/* Forward signals (a second one ends the ranks), collect ranks that ended, and end the others if
 * one has failed. Returns the number of running ranks, after at most `ms`, earlier if something
 * happens. */
MR_API int mr_ranks_look(mr_ranks *l, int ms);
/* Kill a rank that will not end by itself. The others receive `text`, which becomes the reported
 * reason. If several ranks fail, the first one counts. */
MR_API void mr_ranks_fail(mr_ranks *l, int rank, const char *text);
/* Forward SIGINT, SIGTERM or SIGHUP, as if this process had received it. */
MR_API void mr_ranks_signal(mr_ranks *l, int number);
/* End all ranks because of an event elsewhere; they receive `text`. */
MR_API void mr_ranks_stop(mr_ranks *l, const char *text);
MR_API const mr_life *mr_ranks_page(const mr_ranks *l); /* lent */
/* The signal that was forwarded; 0: none. */
MR_API int mr_ranks_asked(const mr_ranks *l);
/* How the ranks ended; meaningful when none runs. */
MR_API void mr_ranks_ended(const mr_ranks *l, mr_ranks_end *end);
/* Kills running ranks, with all processes that they have started. NULL is fine. */
MR_API void mr_ranks_free(mr_ranks *l);

/* ---- communicators ---- */

MR_API const char *mr_comm_op_name(mr_comm_op op); /* "all_reduce"; lent, static */
typedef enum mr_comm_kind { MR_COMM_SUM, MR_COMM_MAX, MR_COMM_KIND_COUNT } mr_comm_kind;
MR_API const char *mr_comm_kind_name(mr_comm_kind kind); /* "sum"; lent, static */

typedef struct mr_comm mr_comm;
typedef struct mr_comm_options {
    double deadline_s; /* of a call; 0: 600 */
    uint64_t program;  /* a hash of the program, which must be equal on all ranks */
    bool check;        /* compare the calls of all ranks before each collective */
} mr_comm_options;

/* The group of all ranks of a transport; NULL: a world of this rank alone.
 * Owns: takes `transport`, also on failure; the caller frees the result.
 * Errors: MR_E_NODE ranks that run another program (named), rank left, deadline; MR_E_MEMORY */
MR_API mr_status mr_comm_world(mr_transport *transport, const mr_comm_options *options,
                               mr_comm **out);
/* The ranks of `of` that pass the same color, in order of key, then rank; with a color below 0 *out
 * is NULL. Collective. On lane `lane`.
 * Owns: the caller frees the result
 * Errors: as collectives; MR_E_USAGE lane */
MR_API mr_status mr_comm_split(mr_comm *of, int color, int key, int lane, mr_comm **out);
/* For a world: leave it and close the transport; calls of its groups fail from then on. NULL is
 * fine. */
MR_API void mr_comm_free(mr_comm *c);
MR_API int mr_comm_rank(const mr_comm *c);
MR_API int mr_comm_size(const mr_comm *c);
MR_API int mr_comm_world_rank(const mr_comm *c, int rank);

/* Calls and bytes of this rank in its world so far, over all groups. */
typedef struct mr_comm_count {
    int64_t calls;
    int64_t bytes; /* passed to the transport, without message heads */
} mr_comm_count;
MR_API mr_comm_count mr_comm_counted(const mr_comm *c, mr_comm_op op);
MR_API void mr_comm_count_reset(mr_comm *c);

/* ---- collectives ----
 * Errors of all: MR_E_NODE another call on another rank, a rank that left or gave up, the deadline:
 * each names ranks, call and number; MR_E_SHAPE other counts on another rank; MR_E_USAGE dtype
 * without a sum; MR_E_MEMORY; MR_E_STOPPED at the prompt. Contents are undefined after a failure.
 */

/* deadline_s 0: that of the world */
MR_API mr_status mr_comm_barrier(mr_comm *c, double deadline_s);
/* x [count], in place. Bytes per rank: 2 (n-1)/n of x; up to 4 KiB in one hop, (n-1) times x. */
MR_API mr_status mr_comm_all_reduce(mr_comm *c, mr_comm_kind kind, mr_dtype dtype, void *x,
                                    int64_t count);
/* in [sum of counts] in `dtype`, out [counts[rank]] in `to`: this rank's part of the reduction over
 * ranks. `to` is `dtype`, or f32 and bf16 each become the other. out may be this rank's part of in
 * when the dtypes are equal. */
MR_API mr_status mr_comm_reduce_scatter(mr_comm *c, mr_comm_kind kind, mr_dtype dtype,
                                        const void *in, const int64_t *counts, mr_dtype to,
                                        void *out);
/* in [counts[rank]], out [sum of counts] in the order of ranks; in may be its part of out. Any
 * dtype. */
MR_API mr_status mr_comm_all_gather(mr_comm *c, mr_dtype dtype, const void *in,
                                    const int64_t *counts, void *out);
/* in: for each rank sends[rank] elements; out: from each rank receives[rank]. Any dtype; in and out
 * do not overlap. */
MR_API mr_status mr_comm_all_to_all(mr_comm *c, mr_dtype dtype, const void *in,
                                    const int64_t *sends, void *out, const int64_t *receives);
/* The ranks form a ring. Send in [count] to the rank `hops` after this one; receive out [out_count]
 * from the rank `hops` before it. Negative hops go backwards. Any dtype; in and out do not
 * overlap. */
MR_API mr_status mr_comm_shift(mr_comm *c, int hops, mr_dtype dtype, const void *in, int64_t count,
                               void *out, int64_t out_count);
MR_API mr_status mr_comm_broadcast(mr_comm *c, int root, mr_dtype dtype, void *x, int64_t count);
/* One message from a rank to another. Both ranks make their calls in the same order. */
MR_API mr_status mr_comm_send(mr_comm *c, int to, mr_dtype dtype, const void *x, int64_t count);
MR_API mr_status mr_comm_receive(mr_comm *c, int from, mr_dtype dtype, void *x, int64_t count);

/* The id by which ops name this group (moonreel/collective.h), as long as it lives; counts of
 * values in equal chunks are multiples of its size. Errors: MR_E_MEMORY */
MR_API mr_status mr_comm_op_group(mr_comm *c, int64_t *group);

/* ---- two hops ----
 * Collectives over groups of `local` consecutive ranks (a host): first inside each group, then
 * between the ranks at the same place of all groups. Rank (host n, place l) owns chunk l * hosts +
 * n, so that each hop works on contiguous memory. Partial sums are f32. Ref: parallelism 9. */

typedef struct mr_torus mr_torus;
/* Collective. Owns: the caller frees the result.
 * Errors: MR_E_USAGE `local` does not divide the ranks; those of split */
MR_API mr_status mr_torus_new(mr_comm *c, int local, mr_torus **out);
MR_API void mr_torus_free(mr_torus *t);
MR_API int mr_torus_chunk(const mr_torus *t); /* that this rank owns */
/* in [ranks * chunk], out [chunk] in `to` */
MR_API mr_status mr_torus_reduce_scatter(mr_torus *t, mr_comm_kind kind, mr_dtype dtype,
                                         const void *in, int64_t chunk, mr_dtype to, void *out);
/* in [chunk], out [ranks * chunk] by chunk; in may be its part of out */
MR_API mr_status mr_torus_all_gather(mr_torus *t, mr_dtype dtype, const void *in, int64_t chunk,
                                     void *out);

#ifdef __cplusplus
}
#endif
#endif
