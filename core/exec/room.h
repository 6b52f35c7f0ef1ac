/* exec, inside: what executor, programs and CPU devices share. Licence: Apache-2.0 */
#ifndef MR_EXEC_ROOM_H
#define MR_EXEC_ROOM_H

#include "moonreel/exec.h"

#define MR_POISON 0xff /* all bits set: a NaN in every floating dtype */

/* Steps on the host: shared by the cpu and shadow devices (step.c). */

/* Choose the kernel of a step and its workspace from facts and shapes; the naive kernel if no other
 * supports it. */
mr_status mr_step_choose(mr_step *step, const mr_facts *facts);
/* Create the kernel states of steps; after a failure none exists. */
mr_status mr_steps_prepare(mr_step *steps, int n, const mr_facts *facts);
void mr_steps_forget(mr_step *steps, int n);
/* Run one step on a call whose addresses are real. A failure carries op, node and origin. */
mr_status mr_step_run(const mr_step *step, const mr_call *call);
/* The cost by the op definition, or by the bytes of a copy. */
mr_cost mr_step_cost(const mr_step *step);
/* The name of its kernel's algorithm (mr_kernel.way); NULL: the usual one. */
const char *mr_step_way(const mr_step *step, const mr_facts *facts);

/* `memory` of devices whose memory is that of the host. */
mr_status mr_host_memory(mr_device *dev, size_t *free_bytes, size_t *total_bytes);
mr_status mr_cpu_open(int threads, mr_device **out);
mr_status mr_shadow_open(int threads, mr_device **out);
/* The number of the queue order of the next run (shadow.c); later runs use the next numbers. A new
 * device starts with 0. */
void mr_shadow_order(mr_device *dev, uint64_t number);
/* Set the guard of a block on a checking device; p 0: no block. */
void mr_device_guard(mr_device *dev, mr_dptr p, mr_guard guard);

/* ---- executor ---- */

typedef struct region {
    mr_region def;
    size_t bytes;
    mr_dptr at;
} region;

typedef struct arena {
    mr_dptr at;
    size_t bytes;
} arena;

/* A result in transfer to the host; its number determines its entry of the ring. */
typedef struct fetch {
    mr_event *there;
    uint64_t number, lost; /* lost: mr_device.lost when it was fetched */
    mr_desc desc;
    char name[32]; /* for errors */
} fetch;

struct mr_exec {
    mr_device *dev; /* NULL: the executor only plans */
    mr_facts facts;
    mr_device *rated_by; /* device whose rates apply: `dev`, or the device for which a planning
                          * executor plans, or NULL */
    mr_params *params;
    mr_exec_options options;
    mr_arena names; /* names of the regions */
    region *regions;
    int n_regions;
    arena arena[MR_SPACE_COUNT];
    region *transient; /* the region in the arena; NULL: none */
    bool used, lost;   /* used: a run or the host wrote it; lost: its content was overwritten */
    /* host memory for conversions, as large as the largest output */
    void *staging;
    size_t staging_bytes;
    mr_program *programs; /* list by `next` */
    /* transfers to and from the device (edge.c) */
    bool at_once;          /* the device is synchronous: no transfer is ever pending */
    arena landing;         /* as large as the largest program's inputs */
    mr_dptr ring, takeoff; /* buffers of results: in pinned memory, on the device */
    mr_event *taken;       /* the staging buffer is free */
    mr_event *left;        /* a result is in the take-off buffer */
    fetch fetches[MR_FETCHES];
    uint64_t n_fetched;
    fetch there; /* the last one known to have arrived */
    mr_waits waits;
};

typedef struct slot {
    int storage;
    const char *name;
    bool set, fresh; /* fresh: set since the last run */
    int64_t passed;  /* number of its first elements that were passed from runs */
    uint64_t lost;   /* mr_device.lost when the first of them was passed */
} slot;
/* offset in `results` */
typedef struct result {
    const char *name;
    mr_ref value;
    size_t offset;
} result;

struct mr_program {
    mr_exec *exec;
    mr_program *next;
    const mr_graph *graph;
    mr_layout *layout;
    /* setup steps, then those of a run, then the copies of outputs */
    mr_step *steps;
    mr_arg *args;   /* arguments of all steps */
    void *prepared; /* state of the device for the steps of a run */
    bool is_prepared;
    /* NULL until timed: clocks of the steps of a run, then of each input (copy to the staging
     * buffer, copy to its slot), then of each output */
    mr_step_clock *clocks;
    int n_setup, n_run, n_copies;
    int n_library;  /* number of steps that oneDNN can compute */
    size_t *place;  /* storage -> offset in its block (inputs, consts) */
    int *step_node; /* per step its node; per copy its output */
    mr_span *spans; /* on checking devices: per entry of the layout */
    mr_span **used; /* per step those it uses */
    int n_spans;
    mr_dptr inputs, consts, results;
    mr_dptr staged; /* inputs as set, in pinned memory */
    mr_event *sent; /* they are copied out of it */
    bool sending;   /* the host has not waited for that yet */
    uint64_t lost;  /* mr_device.lost at the last run */
    size_t inputs_bytes, consts_bytes, results_bytes;
    size_t staging_bytes, own_bytes; /* host bytes: for conversions; of plan and graph */
    slot *slots;
    int n_slots, n_unset;
    result *outputs;
    int n_outputs;
    bool timed;
};

/* ---- look-up by name (held.c) ---- */

/* Fail if the executor only plans. */
mr_status mr_exec_works(const mr_exec *exec);
mr_status mr_exec_staging(mr_exec *exec, size_t bytes);
/* Fail if the content of the transient region is lost. */
mr_status mr_exec_transient(const mr_exec *exec);
/* Find by name; NULL and an error that lists the existing ones. */
const region *mr_exec_need(const mr_exec *exec, const char *name);
const result *mr_program_result(const mr_program *p, const char *name);
/* Fail with MR_E_SHAPE: "`what` 'name' is [4] f32, the given tensor is [3] f32". */
mr_status mr_shapes_differ(const char *what, const char *name, const mr_desc *came,
                           const mr_desc *expected);

/* ---- programs ---- */

/* Lay out the graph of an empty program and choose its steps (plan.c). */
mr_status mr_program_plan(mr_program *p);
mr_dptr mr_program_address(const mr_program *p, int storage);
mr_dptr mr_program_result_at(const mr_program *p, const result *r);
/* Set data pointers, workspaces and spans from the current addresses of the blocks (bind.c). */
void mr_program_bind(mr_program *p);
/* spans: find the arena ranges of each step. waits: find the steps for which each step waits. */
mr_status mr_program_spans(mr_program *p);
void mr_program_waits(mr_program *p);

/* ---- transfers to and from the device (edge.c) ---- */

/* Whether a device of this name is synchronous. */
bool mr_device_at_once(const char *device);
/* Create memory and events for transfers of an executor, and of a program with its slots. Call
 * `close` and `remove` even after a failure. */
mr_status mr_edge_open(mr_exec *exec);
void mr_edge_close(mr_exec *exec);
mr_status mr_edge_add(mr_program *p);
void mr_edge_remove(mr_program *p);
/* The clock of the copies of input i or output i; NULL: not timed. */
mr_step_clock *mr_edge_clock_in(const mr_program *p, int i, bool take);
mr_step_clock *mr_edge_clock_out(const mr_program *p, int i);
/* bytes of ring and take-off buffer */
size_t mr_edge_ring_bytes(const mr_exec *exec);
/* Enqueue the copies of fresh inputs to their slots. Errors: an input has no value. */
mr_status mr_edge_send(mr_program *p);

#endif
