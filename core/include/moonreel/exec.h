/* exec: devices, persistent regions and the execution of laid-out graphs.
 *
 * An executor owns, on one device: the regions of a parameter table, one arena as large as the
 * largest compiled graph needs, and the compiled programs. A program is an array of steps with
 * resolved kernels and fixed addresses: running it allocates nothing and decides nothing.
 *
 * Threads: one thread at a time per device, its executors and programs; devices do not share
 * state. A program's kernels use the device's own team of threads.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_EXEC_H
#define MOONREEL_EXEC_H

#include "moonreel/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- devices ---- */

typedef uintptr_t mr_dptr; /* an address of the device; host code never dereferences it */

/* One argument of a step. */
typedef struct mr_arg {
    const mr_desc *desc; /* lent by the graph; NULL: absent */
    mr_dptr at;
} mr_arg;

/* One step of a program as a device sees it. It is small, because a program has thousands of steps
 * and a run many programs. OP runs a kernel; COPY copies `bytes` from input to output (equal
 * strides). */
typedef enum mr_step_kind { MR_STEP_OP, MR_STEP_COPY } mr_step_kind;
/* A range of the arena that `users` steps of a run use, for checking devices: contents from before
 * the first user or after the last one must not be read, in any order of execution. `seen`, at
 * first 0, belongs to the device: the number of users that have run. */
typedef struct mr_span {
    mr_dptr at;
    size_t bytes;
    int users, seen;
} mr_span;
typedef struct mr_step_clock {
    double start_s, seconds;
} mr_step_clock;
typedef struct mr_step {
    mr_step_kind kind;
    mr_queue queue;
    const mr_op *op;         /* COPY: that of its node, NULL for a result */
    const mr_node *node;     /* attributes, names; NULL if there is none */
    const mr_kernel *kernel; /* of `op` on this device */
    mr_kernel_fn *run;       /* its function, chosen from facts during planning */
    void *state;             /* made by `prepare` */
    mr_arg *arg;             /* n_in inputs, then n_out outputs */
    int n_in, n_out;
    mr_dptr workspace;
    size_t workspace_bytes;
    size_t bytes; /* COPY */
    int threads;
    /* earlier steps of this run on other queues that must have finished */
    int wait_n, wait[MR_QUEUE_COUNT - 1];
    bool naive;            /* run by the naive kernel */
    bool placed;           /* the graph has placed a result in a region */
    mr_span *const *spans; /* checking devices: the spans it uses, each once */
    int n_spans;
    mr_step_clock *clock; /* NULL: not timed */
} mr_step;
/* The argument of a step's kernel; addresses are the device's. */
MR_API void mr_step_call(const mr_step *step, mr_call *call);

/* What steps may write in a block: ANY; only outputs that an op or a graph places there (regions,
 * input slots); nothing (constants). Host copies may always write. */
typedef enum mr_guard { MR_GUARD_NONE, MR_GUARD_NAMED, MR_GUARD_ALL } mr_guard;

/* A device works in lanes. Entries of one lane run in the order in which they were enqueued. Lanes
 * run in any order, unless one waits for an event of another. RUN: runs, and copies within the
 * device. IN and OUT: copies of inputs to it and of results from it, independent of the borders
 * between runs. (Queues are inside a run: they order the steps that may run concurrently.) */
typedef enum mr_lane { MR_LANE_RUN, MR_LANE_IN, MR_LANE_OUT, MR_LANE_COUNT } mr_lane;
/* A point in the order of a device's lane; an unmarked event counts as reached. */
typedef struct mr_event mr_event;
typedef struct mr_copy {
    mr_dptr to, from; /* two ranges that do not overlap, each in memory of `alloc` */
    size_t bytes;
    const char *name;     /* of the copied value, for errors and the trace; lent until done */
    mr_step_clock *clock; /* NULL: not timed */
} mr_copy;

/* Calls come from one thread at a time. `run`, `copy`, `mark` and `wait` enqueue and return.
 * `alloc`, `free`, `copy_in`, `copy_out`, `fill`, `forget`, `guard` and `sync` return when every
 * lane is empty, `reached` and `block` depend only on their event, the others do not wait. A failed
 * step or copy drops everything enqueued on every lane, whose events then count as reached. The
 * next of these calls that returns a status reports the failure, once, and adds one to `lost`.
 */
typedef struct mr_device mr_device;
typedef struct mr_device_ops {
    /* 4096-byte aligned, cleared. Memory of MR_SPACE_PINNED is the host's; copies access it after
     * the steps before them. The host may read and write it at `host` from the event after the last
     * copy that accesses it until the next such copy is enqueued. */
    mr_status (*alloc)(mr_device *dev, size_t bytes, mr_space space, mr_dptr *out);
    void (*free)(mr_device *dev, mr_dptr p, size_t bytes, mr_space space);
    void *(*host)(mr_device *dev, mr_dptr p);
    mr_status (*copy_in)(mr_device *dev, mr_dptr dst, const void *src, size_t bytes);
    mr_status (*copy_out)(mr_device *dev, void *dst, mr_dptr src, size_t bytes);
    /* Set bytes whose old contents are not needed; a checking device treats them as unwritten. */
    mr_status (*fill)(mr_device *dev, mr_dptr dst, int byte, size_t bytes);
    /* Make the states of planned steps that will run together, and whatever else the device keeps
     * for them (a captured launch); arguments have shapes, no addresses yet. A failure leaves
     * nothing behind. `moved`: they have addresses now, or new ones, because the arena grew; NULL:
     * the device keeps none. `forget`: they will not run again. */
    mr_status (*prepare)(mr_device *dev, mr_step *steps, int n, void **prepared);
    void (*moved)(mr_device *dev, const mr_step *steps, int n, void *prepared);
    void (*forget)(mr_device *dev, mr_step *steps, int n, void *prepared);
    /* Enqueue all prepared steps on MR_LANE_RUN; later entries of this lane come after the last of
     * them. The array must not change until they are done. */
    mr_status (*run)(mr_device *dev, const mr_step *steps, int n, void *prepared);
    mr_status (*sync)(mr_device *dev);
    /* Pinned memory on one side of IN and OUT. Errors, here or later: MR_E_MEMORY, errors of the
     * device. */
    mr_status (*copy)(mr_device *dev, mr_lane lane, const mr_copy *copy);
    /* Events: made, freed when no lane waits for them any more. `mark`: the event is reached when
     * all present entries of the lane are done. `wait`: later entries of the lane begin when the
     * latest mark of the event is reached; later marks do not count. `reached`: whether it is.
     * `block`: return when it is. A device that executes at once has NULL for events. */
    mr_status (*event)(mr_device *dev, mr_event **out);
    void (*event_free)(mr_device *dev, mr_event *event);
    mr_status (*mark)(mr_device *dev, mr_lane lane, mr_event *event);
    mr_status (*wait)(mr_device *dev, mr_lane lane, mr_event *event);
    mr_status (*reached)(mr_device *dev, mr_event *event, bool block, bool *out);
    /* Forbid later steps to write to the block that begins at `p`. NULL: not a checking device. */
    void (*guard)(mr_device *dev, mr_dptr p, mr_guard guard);
    /* Bytes that `alloc` may still get, and the total. */
    mr_status (*memory)(mr_device *dev, size_t *free_bytes, size_t *total_bytes);
    void (*close)(mr_device *dev);
} mr_device_ops;
/* Operations and bytes per second of a kind of step, whose time is the sum of both; 0: the device
 * has no such kind. */
typedef struct mr_rate {
    double flop_s, bytes_s;
} mr_rate;
/* Kinds of steps (core/exec/rates.c), the first of which covers all other steps, and constant
 * seconds per step. A device measures a kind once, when a prediction first needs it. */
enum { MR_RATED = 29 };
typedef struct mr_rates {
    mr_rate of[MR_RATED];
    double step_s;
} mr_rates;
/* The name of kind i: "elementwise", "attention", "attention by lanes". */
MR_API const char *mr_rates_kind(int i);
struct mr_device {
    const mr_device_ops *ops;
    mr_facts facts;
    mr_rates rates[2];    /* f32, bf16 */
    uint32_t measured[2]; /* of these, a bit per kind; a plug-in may know them all */
    int ordinal;          /* of "cuda:1": 1 */
    char bus[32];         /* PCI address of a GPU; otherwise empty */
    bool checks;          /* needs spans with each step */
    bool host;            /* its addresses are the host's, and it executes at once */
    uint64_t lost;        /* failures that dropped enqueued work */
    void *eager;          /* programs kept by mr_eager */
};
/* Returned by the entry of a device's plug-in (base/plugin.h). */
#define MR_DEVICE_VERSION 8u
typedef struct mr_device_plugin {
    uint32_t version;
    mr_status (*open)(int ordinal, int threads, mr_device **out);
} mr_device_plugin;

/* Open "cpu", "shadow" or a device of a plug-in: "cuda", "cuda:1" for the second of several.
 * threads 0 = all cores of this process. Owns: caller closes. Errors: MR_E_USAGE an unknown name,
 * no threads, or too many; MR_E_UNSUPPORTED its plug-in is missing. */
MR_API mr_status mr_device_open(const char *name, int threads, mr_device **out);
MR_API void mr_device_close(mr_device *dev);
/* Free and total bytes of the device. */
MR_API mr_status mr_device_memory(mr_device *dev, size_t *free_bytes, size_t *total_bytes);
/* The compute dtype for the dtype that a recipe requests: bf16 only if its products are fast,
 * otherwise f32, which mr_log reports once per process. */
MR_API mr_dtype mr_device_compute(const mr_device *dev, mr_dtype wish);
/* All rates for compute in f32 or bf16. Those that are not known yet are measured (all of them take
 * some 20 ms). Errors: MR_E_MEMORY; those of its kernels. */
MR_API mr_status mr_device_rates(mr_device *dev, mr_dtype compute, mr_rates *out);

/* ---- regions ---- */

/* The role of a region, which determines its initial values. */
typedef enum mr_region_role {
    MR_ROLE_STATE,   /* gradients, moments: zeros */
    MR_ROLE_MASTER,  /* f32 weights of an optimizer, from which "w" is rounded */
    MR_ROLE_AVERAGE, /* averaged weights: initially the weights, f32 */
    /* "w" and "frozen", in compute dtype: every executor has them by itself. If other regions have
     * this role, they replace "w", which is empty. */
    MR_ROLE_WEIGHTS,
    MR_ROLE_FROZEN
} mr_region_role;

/* A persistent region over the trainable range, as an optimizer declares it. All code uses its name
 * from here: the executor allocates it, checkpoints and inspection name its tensors by it. */
typedef struct mr_region {
    const char *name; /* in graphs */
    mr_dtype dtype;
    mr_region_role role;
    /* Prefix of its tensors in a checkpoint, before the parameter's name; NULL: not saved. */
    const char *prefix;
    int64_t start, stop; /* elements of the trainable range it covers; both 0: all of it */
    int64_t per;         /* trainable elements per element of the region, a divisor of 64; 0: one */
    /* The region is at the arena's start, where computed values may be too until a run writes it.
     * Its contents last until a run that does not name it. At most one such region, on the device,
     * not saved. */
    bool transient;
    /* Host memory for values that only updates read, which copy it to the device range by range. */
    mr_space space;
    /* Set by mr_regions: a master with the dtype and range of the weights is another name of "w",
     * and shares its memory. */
    bool shared;
} mr_region;

/* The regions of a sealed table for an optimizer: "w", "frozen", then its regions with complete
 * ranges. out: space for n + 2; names are those of `regions`.
 * Errors: MR_E_USAGE a repeated name, a master or average not in f32 or not element by element, a
 * `per` that could cover parts of two parameters, a transient region that is saved, or not on the
 * device, a second transient region; MR_E_RANGE outside the trainable range, or not a multiple of
 * `per`.
 * Threads: any. */
MR_API mr_status mr_regions(const mr_params *params, const mr_region *regions, int n,
                            mr_region *out);
/* bytes of a region of mr_regions; a shared one takes none in addition to those of "w" */
MR_API size_t mr_region_bytes(const mr_region *region);
/* The place of a parameter in a region of mr_regions, in elements of the region.
 * Errors: MR_E_USAGE the parameter is frozen and the region is trainable, or the reverse;
 * MR_E_RANGE the region does not cover all of it.
 */
MR_API mr_status mr_region_find(const mr_region *region, const mr_param *param, int64_t *at,
                                int64_t *count);

/* ---- executor ---- */

typedef struct mr_exec mr_exec;
typedef struct mr_program mr_program;
typedef struct mr_exec_options {
    const mr_region *regions; /* copied, with names; without "w" and "frozen" */
    int n_regions;
    bool poison;   /* fill the arena before each run (specs) */
    bool no_reuse; /* a separate range of the arena for every storage (specs) */
} mr_exec_options;

/* `params` sealed or NULL (then without regions); both borrowed for life. Regions are allocated and
 * cleared here. Errors: as mr_regions; MR_E_MEMORY. */
MR_API mr_status mr_exec_new(mr_device *dev, mr_params *params, const mr_exec_options *options,
                             mr_exec **out);
/* An executor without a device, planned from facts: it allocates no region and no arena. Its
 * programs have the same steps, layout, cost and bytes as others, and cannot run.
 * Errors also: MR_E_UNSUPPORTED a device that has no kernels here. */
MR_API mr_status mr_exec_plan(const mr_facts *facts, mr_params *params,
                              const mr_exec_options *options, mr_exec **out);
/* Set the device (borrowed for life) whose rates such an executor uses to predict seconds. */
MR_API void mr_exec_rates(mr_exec *exec, mr_device *dev);
/* Whether its kernels compute conv3d with edges, so that layers need no padded copies. */
MR_API bool mr_exec_edges(const mr_exec *exec);
MR_API void mr_exec_free(mr_exec *exec);
/* Lay out and compile a finished graph (kept by reference: must outlive the program), run its
 * setup nodes once, grow the arena if needed. Programs stay valid when the arena grows, but the
 * contents of a transient region are lost. */
MR_API mr_status mr_exec_compile(mr_exec *exec, const mr_graph *g, mr_program **out);
MR_API void mr_program_free(mr_program *prog);
/* Set an input: a whole tensor, converted if its dtype differs. It is copied before this returns,
 * so the caller's memory is free again. Runs from the next one on use it, until it is set again,
 * also after a failed run. Waits at most until the previous run has begun.
 * Errors: MR_E_SHAPE naming the input and both shapes, MR_E_USAGE for an unknown name;
 * MR_E_STOPPED: the input then has no value. */
MR_API mr_status mr_program_set(mr_program *prog, const char *input, const mr_view *data);
/* Copy `count` elements of an output, from element `first` on, to an input, from element `at` on.
 * The output belongs to this or another program of the device and has its value after the last
 * enqueued run. The copy is enqueued like a run; the call does not wait. Pieces come in order from
 * the input's first element on; with the last one the input has its value, until it is set or
 * passed again. If the device fails, the value is lost. The output is dense, of the input's dtype;
 * executors may differ.
 * Errors: MR_E_USAGE a name, another device, an output that is not dense, a piece out of order;
 * MR_E_SHAPE another dtype, more elements than there are. */
MR_API mr_status mr_program_pass(mr_program *from, const char *output, int64_t first, int64_t count,
                                 mr_program *to, const char *input, int64_t at);
/* Skip elements [at, at + count) of an input between pieces that are passed, in the same order.
 * They keep their old contents, which the graph must not use for a result.
 * Errors: as mr_program_pass. */
MR_API mr_status mr_program_skip(mr_program *prog, const char *input, int64_t at, int64_t count);
/* May return before the run has finished. Allocates nothing. Errors: MR_E_USAGE naming an input
 * that was never set, or a transient region that this run continues and that was lost; errors of a
 * step. */
MR_API mr_status mr_program_run(mr_program *prog);
/* Copy an output, the result of the last run of this program; runs of others do not change it. An
 * output in a region is read from there, in its present state. Waits for everything enqueued.
 * Errors: as mr_program_set. */
MR_API mr_status mr_program_get(mr_program *prog, const char *output, const mr_view *out);
MR_API mr_status mr_exec_sync(mr_exec *exec);

/* The same without waiting for later work. `fetch` enqueues a copy of an output to the host, in its
 * state after the runs enqueued so far, `ready` says whether it has arrived, `take` waits for it
 * and copies it. An executor keeps the last MR_FETCHES fetches of all its programs, also of freed
 * ones; each may be taken repeatedly. *ticket: its number. Errors: MR_E_USAGE more than
 * MR_FETCH_BYTES, a ticket too old, one that was lost when a step failed; MR_E_SHAPE; errors of a
 * step. */
enum { MR_FETCHES = 64, MR_FETCH_BYTES = 512 };
MR_API mr_status mr_program_fetch(mr_program *prog, const char *output, uint64_t *ticket);
MR_API mr_status mr_exec_ready(mr_exec *exec, uint64_t ticket, bool *ready);
MR_API mr_status mr_exec_take(mr_exec *exec, uint64_t ticket, const mr_view *out);
/* The number of times that the host had to wait so far, on any device. `all`: for everything
 * enqueued (get, sync, regions read and written); `results`: for a fetch that had not arrived;
 * `inputs`: for the copy of the previous inputs, in `set`. */
typedef struct mr_waits {
    uint64_t all, results, inputs;
} mr_waits;
MR_API mr_waits mr_exec_waits(const mr_exec *exec);

/* Regions in the order of mr_regions, lent; NULL for an unknown name. `mr_exec_read/write` copy
 * bytes from and to the host. */
MR_API int mr_exec_regions(const mr_exec *exec);
MR_API const mr_region *mr_exec_region_at(const mr_exec *exec, int i);
MR_API const mr_region *mr_exec_region(const mr_exec *exec, const char *name);
/* The bytes of a region in the executor's own memory, or NULL: no such region, or not in host
 * memory. Read them after mr_exec_sync and before the next run. */
MR_API const void *mr_exec_host(const mr_exec *exec, const char *region);
MR_API mr_status mr_exec_read(mr_exec *exec, const char *region, size_t at, void *dst,
                              size_t bytes);
MR_API mr_status mr_exec_write(mr_exec *exec, const char *region, size_t at, const void *src,
                               size_t bytes);
/* Write the initial values of every parameter into all regions of weights, masters and averages.
 * Errors: MR_E_STOPPED between two of them */
MR_API mr_status mr_exec_init_params(mr_exec *exec, uint64_t seed);
/* w := round(master), for instance after a load; does nothing without a separate master. */
MR_API mr_status mr_exec_refresh(mr_exec *exec);

/* ---- facts of a program ---- */

/* Bytes, known when the program is planned. */
typedef struct mr_memory {
    /* of this graph, including a transient region; largest sum of storages live at the same time */
    size_t arena, bound;
    size_t pinned;          /* arena in host memory, for values that a run copies there */
    size_t workspace;       /* of the step that needs most; a part of the arena */
    size_t params, state;   /* regions of weights; all others on the device */
    size_t offloaded;       /* regions in host memory, pinned */
    size_t inputs, results; /* slots, and memory in which outputs stay until the next run */
    size_t landing;         /* on the device: inputs in transfer, for all programs the largest */
    size_t staged;          /* of the host, pinned: inputs as they were set */
    size_t ring;            /* of an executor: fetched results, half of it pinned */
    size_t consts;
    size_t library; /* reserve for one-time allocations of oneDNN and its code */
    size_t host;    /* of the host: graph, steps, states of kernels, and the executor's staging */
    size_t staging; /* memory to convert the largest result */
} mr_memory;
MR_API mr_memory mr_program_memory(const mr_program *prog);
MR_API const mr_layout *mr_program_layout(const mr_program *prog);
/* of one run, including recomputation */
MR_API mr_cost mr_program_cost(const mr_program *prog);
/* Predicted seconds of a run by the device's rates, with concurrent queues if it has them. */
MR_API mr_status mr_program_seconds(const mr_program *prog, double *seconds);
/* Highest arena byte written in the last run (needs options.poison). */
MR_API size_t mr_program_measured(mr_program *prog);
/* Per-step timing: on, run, then read. Errors: MR_E_MEMORY. */
MR_API mr_status mr_program_time(mr_program *prog, bool on);
typedef struct mr_step_time {
    const mr_node *node;
    double seconds;  /* of the last timed run, else 0 */
    double expected; /* by the device's rates, if they were measured or given already, else 0 */
    mr_cost cost;
    bool naive;
    const char *way; /* of its kernel, where that has several (op.h); NULL: the usual one; lent */
} mr_step_time;
/* returns the number of steps */
MR_API int mr_program_times(const mr_program *prog, mr_step_time *out, int cap);
/* The steps of a run (mr_schedule_print), then copies that may overlap the runs before and after.
 * Owns: free with mr_free. Errors: MR_E_MEMORY */
MR_API mr_status mr_program_schedule(const mr_program *prog, char **text);
/* Chrome trace file of the last timed run, a row per queue and two for transfers of inputs and
 * results. If nodes name side queues, or there were transfers, also the same steps begun as early
 * as the schedule permits, with the inputs of the next run and the results of the previous one. */
MR_API mr_status mr_program_trace(const mr_program *prog, const char *path);

/* ---- eager ---- */

/* Run one op on host tensors: a graph of one node. outs receives new tensors (caller unrefs). */
MR_API mr_status mr_eager(mr_device *dev, const char *op, const mr_attr *attrs, int n_attrs,
                          mr_tensor *const *in, int n_in, mr_tensor **outs);

#ifdef __cplusplus
}
#endif
#endif
