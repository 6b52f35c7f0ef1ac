/* life: state that ranks publish while they run, so that other programs can read it even if a rank
 * is blocked, stopped or dead.
 *
 * A page is memory that a launch shares with its ranks: a head (run, launcher) and a seat per rank
 * of this host. A rank writes only its own seat: step, phase, heartbeats, durations of phases, what
 * Lua was doing, and a ring of its last operations with other ranks. Pages are files of a registry,
 * a folder of this host and user, so that other programs find the ranks of a run. Times are
 * mr_now_s(), which is the same for all processes of a host.
 *
 * A process publishes on the one seat that it has taken; without a seat the calls do nothing.
 * Publishing takes well below a microsecond and never waits.
 *
 * Threads: publishing: any; other functions: one call at a time.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_LIFE_H
#define MOONREEL_LIFE_H

#include "moonreel/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mr_phase {
    MR_PHASE_START,   /* starting the program, reading the recipe */
    MR_PHASE_MEET,    /* waiting for the other ranks of the run */
    MR_PHASE_OPEN,    /* opening the run directory and the checkpoint or weights to start from */
    MR_PHASE_DEVICE,  /* opening the device, allocating the memory of the models */
    MR_PHASE_INDEX,   /* opening the index */
    MR_PHASE_WEIGHTS, /* loading or making weights */
    MR_PHASE_COMPILE, /* compiling programs of the first buckets */
    MR_PHASE_LOAD,    /* waiting for a batch; from here on phases of a step */
    MR_PHASE_FORWARD, /* forward and backward */
    MR_PHASE_REDUCE,  /* communication between ranks */
    MR_PHASE_OPTIMIZER,
    MR_PHASE_SNAPSHOT, /* copying the state for a checkpoint */
    MR_PHASE_PERSIST,  /* waiting until a checkpoint is written */
    MR_PHASE_COUNT
} mr_phase;
MR_API const char *mr_phase_name(mr_phase phase);     /* "forward"; lent, static */
MR_API mr_phase mr_phase_from_name(const char *name); /* MR_PHASE_COUNT when unknown */

enum { MR_LIFE_RANKS = 1024, MR_LIFE_OPS = 2048, MR_LIFE_STEPS = 64 };

typedef struct mr_life mr_life;

/* ---- making and finding pages ---- */

/* The folder of pages: MOONREEL_REGISTRY, otherwise /dev/shm/moonreel-UID, otherwise
 * /tmp/moonreel-UID; created if absent. False if no such folder belongs to this user alone. */
MR_API bool mr_life_registry(char *path, size_t cap);
/* A page for `ranks` ranks of this host that this process starts, the first of them rank `first` of
 * `world`. Without a registry the page has no name, and only ranks can access it. Removes pages of
 * killed launches from the registry.
 * Owns: caller. Errors: MR_E_USAGE not 1 to MR_LIFE_RANKS; MR_E_MEMORY */
MR_API mr_status mr_life_new(int ranks, int first, int world, mr_life **out);
/* Open the page of a descriptor or file for reading. Owns: caller. Errors: MR_E_FORMAT not a page,
 * or one of another version; MR_E_IO */
MR_API mr_status mr_life_open(const char *path, mr_life **out);
/* Open another read-only view of a page. Owns: caller. Errors: MR_E_IO, MR_E_MEMORY */
MR_API mr_status mr_life_view(const mr_life *page, mr_life **out);
MR_API int mr_life_fd(const mr_life *page); /* for children; lent */
/* Free a page; the file of a page made by mr_life_new is removed with it. NULL is fine. */
MR_API void mr_life_free(mr_life *page);

/* From now on this process publishes on a seat. Borrows the page for the life of the process. A
 * child that becomes a rank by exec calls this before exec. */
MR_API void mr_life_take(mr_life *page, int seat);
/* The same through an inherited descriptor, if this process took the seat before exec; otherwise
 * does nothing. Errors: MR_E_FORMAT no such page or seat */
MR_API mr_status mr_life_join(int fd, int seat);
MR_API bool mr_life_publishes(void);

/* ---- publishing ---- */

/* The run of this page, once it is known; rank 0 of the host sets it for all. */
MR_API void mr_life_set_run(const char *id, const char *dir, int64_t fence);
/* The job of another launcher to which this rank belongs. */
MR_API void mr_life_set_job(const char *job);
/* A phase begins. Returns the one that ends. */
MR_API mr_phase mr_life_phase(mr_phase phase);
/* A step begins. */
MR_API void mr_life_step(int64_t step);
/* The clip that a batch waits for; "": no clip. */
MR_API void mr_life_clip(const char *name);
/* The Lua stack: nearest frame first, one per line. */
MR_API void mr_life_frames(const char *text);
/* The caller of the operations that this thread begins next: "file:line", or a node. */
MR_API void mr_life_set_where(const char *where);

/* One operation with other ranks. */
typedef struct mr_life_op {
    uint64_t number;     /* counted by this rank, from 1 */
    uint32_t group, seq; /* the group, and the number of the call in it */
    char kind[16], dtype[8], where[56];
    uint64_t count, bytes;   /* elements of the call, 0: they differ by rank; bytes of this rank */
    double began_s, ended_s; /* ended 0: in progress */
} mr_life_op;
/* `number`, began_s and where are filled in. Returns the number of the operation; 0: this process
 * does not publish. */
MR_API uint64_t mr_life_op_begin(const mr_life_op *op);
/* The operation waits for others; it has ended and sent `bytes` bytes. mr_life_op_wait may be
 * called repeatedly. */
MR_API void mr_life_op_wait(uint64_t number);
MR_API void mr_life_op_end(uint64_t number, uint64_t bytes);

/* ---- reading ---- */

typedef struct mr_life_launch {
    int ranks, first, world; /* ranks of this page; number of the first one; ranks of all hosts */
    uint32_t uid;
    int64_t pid, start; /* the launcher's; start: in clock ticks since boot */
    int64_t fence;
    char token[40];         /* MOONREEL_LAUNCH of all processes that it started */
    char host[72], run[40]; /* run "": not known yet */
    char dir[3400];         /* the run directory */
    char job[100];          /* of another launcher: ranks with one text belong together */
} mr_life_launch;
MR_API void mr_life_about(const mr_life *page, mr_life_launch *out);

typedef struct mr_life_rank {
    int rank;
    int64_t pid, start;  /* pid 0: the seat is free */
    int64_t step, steps; /* steps: begun since the start */
    mr_phase phase;
    double phase_s, beat_s; /* when the phase began; last beat */
    uint64_t ops;           /* operations so far */
    mr_life_op open;        /* the oldest in progress; number 0: none */
    mr_life_op last;        /* the newest that ended; number 0: none */
    char clip[160], frames[1024];
} mr_life_rank;
/* Read a seat, from 0. The rank may write meanwhile: each field is consistent, but not all of them
 * together. */
MR_API void mr_life_look(const mr_life *page, int seat, mr_life_rank *out);
/* The last operations, oldest first, at most MR_LIFE_OPS. Returns their number. */
MR_API int mr_life_ops(const mr_life *page, int seat, mr_life_op *out);
/* Seconds of a rank's step without its waits for other ranks. 0: unknown, or no longer kept. */
MR_API double mr_life_own_s(const mr_life *page, int seat, int64_t step);
/* The quantile `share` of the durations of all phases of this kind, over all ranks, without waits
 * for others, with an error of at most a fifth; *count: the number of phases. */
MR_API double mr_life_quantile_s(const mr_life *page, mr_phase phase, double share, int64_t *count);

/* ---- processes ---- */

/* Send a signal to a process, if it still is the one that started at `start` and belongs to `uid`.
 * A pidfd refers to the process during the check, so no other process can take over its number.
 * Returns MR_OK; MR_E_NODE: it has ended, or is another one; MR_E_IO not allowed. */
MR_API mr_status mr_life_signal(int64_t pid, int64_t start, uint32_t uid, int number);

typedef struct mr_life_process {
    int64_t pid, start;
    char state; /* as in /proc: R, S, D live; T, t are stopped */
} mr_life_process;
/* Whether that process still exists. *state as above, 0: no. */
MR_API bool mr_life_process_state(int64_t pid, int64_t start, char *state);
/* Processes of `uid` that a launch has started, and their children, even detached ones: their
 * environment began with MOONREEL_LAUNCH=token. Returns their number, at most `most`. */
MR_API int mr_life_processes(const char *token, uint32_t uid, mr_life_process *out, int most);
/* Work of a process and all its descendants so far: processor seconds, bytes read and written.
 * False: it has ended, or the system does not report it. */
typedef struct mr_life_work {
    double cpu_s;
    double bytes;
} mr_life_work;
MR_API bool mr_life_work_of(int64_t pid, mr_life_work *out);
/* Send a signal to all of these, each as mr_life_signal does. Returns how many received it. */
MR_API int mr_life_signal_all(const char *token, uint32_t uid, int number);

/* ---- stacks ---- */

enum { MR_LIFE_THREADS = 4096 };
typedef struct mr_life_thread {
    int64_t tid;
    char name[24];
    char waits[64]; /* kernel function in which it waits, "" if unknown */
    char state;     /* as in /proc */
} mr_life_thread;
/* Threads of a process, as the kernel reports them. Returns their number, at most `most`. */
MR_API int mr_life_threads(int64_t pid, mr_life_thread *out, int most);
/* Called for each frame of each thread, the innermost first; `text` is lent. */
typedef void mr_life_sink(void *user, int64_t tid, const char *text);
/* Frames of all threads of a process, also of a blocked or stopped one. Errors: MR_E_UNSUPPORTED
 * without the plug-in of libdw; MR_E_IO not allowed, or it has ended */
MR_API mr_status mr_life_frames_of(int64_t pid, mr_life_sink *sink, void *user);

#ifdef __cplusplus
}
#endif
#endif
