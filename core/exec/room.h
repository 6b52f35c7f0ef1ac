/* exec, inside: what executor, programs and CPU devices share. Licence: Apache-2.0 */
#ifndef MR_EXEC_ROOM_H
#define MR_EXEC_ROOM_H

#include "moonreel/exec.h"

#define MR_POISON 0xff /* all bits set: a NaN in every floating dtype */

/* Steps on the host: shared by the cpu and shadow devices (step.c). */

/* The kernel that facts ask for and its workspace, by shapes alone; the naive row where there is
 * none. */
mr_status mr_step_choose(mr_step *step, const mr_facts *facts);
/* The states of their kernels; none is left after a failure. */
mr_status mr_steps_prepare(mr_step *steps, int n, const mr_facts *facts);
void mr_steps_forget(mr_step *steps, int n);
/* Run one step on a call whose addresses are real. A failure carries op, node and origin. */
mr_status mr_step_run(const mr_step *step, const mr_call *call);
/* By the row, or of the bytes of a copy. */
mr_cost mr_step_cost(const mr_step *step);
/* The way its kernel goes, as mr_kernel says; NULL: the usual one. */
const char *mr_step_way(const mr_step *step, const mr_facts *facts);

/* `memory` of devices that live in the host's. */
mr_status mr_host_memory(mr_device *dev, size_t *free_bytes, size_t *total_bytes);
mr_status mr_cpu_open(int threads, mr_device **out);
mr_status mr_shadow_open(int threads, mr_device **out);
/* How the queues of the next run are ordered, by number (shadow.c); those after it take the numbers
 * that follow. Opened, the device begins with 0. */
void mr_shadow_order(mr_device *dev, uint64_t number);
/* Tell a checking device; 0 is no block. */
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

/* A result on its way to the host; its place follows from its number. */
typedef struct fetch {
    mr_event *there;
    uint64_t number, lost; /* lost: the device's, when it was fetched */
    mr_desc desc;
    char name[32]; /* for errors */
} fetch;

struct mr_exec {
    mr_device *dev; /* NULL: it plans */
    mr_facts facts;
    mr_device *rated_by; /* whose rates count: `dev`, or that of one that plans, or NULL */
    mr_params *params;
    mr_exec_options options;
    mr_arena names; /* of the regions */
    region *regions;
    int n_regions;
    arena arena[MR_SPACE_COUNT];
    region *transient; /* that lies in it; NULL: none */
    bool used, lost;   /* runs or the host wrote into it; and that is there no more */
    /* host bytes for conversions, as large as the largest output */
    void *staging;
    size_t staging_bytes;
    mr_program *programs; /* list by `next` */
    /* edges of runs (edge.c): what is on its way to the device, and from it */
    bool at_once;          /* of the device: nothing is ever on its way */
    arena landing;         /* as large as the largest program's inputs */
    mr_dptr ring, takeoff; /* of results: in pinned memory, on the device */
    mr_event *taken;       /* the landing is free again */
    mr_event *left;        /* a result lies in the take-off */
    fetch fetches[MR_FETCHES];
    uint64_t n_fetched;
    fetch there; /* the last one that is known to be */
    mr_waits waits;
};

typedef struct slot {
    int storage;
    const char *name;
    bool set, fresh; /* fresh: set since the last run */
    int64_t passed;  /* its first elements that came from runs */
    uint64_t lost;   /* the device's, when the first of them came */
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
    mr_arg *args;   /* of all steps */
    void *prepared; /* the device's, for the steps of a run */
    bool is_prepared;
    /* NULL until it is timed: of the steps of a run, then of each input on its way to the landing
     * and to its slot, then of each output on its way back */
    mr_step_clock *clocks;
    int n_setup, n_run, n_copies;
    int n_library;  /* of setup and run: steps that oneDNN may serve */
    size_t *place;  /* storage -> offset in its block (inputs, consts) */
    int *step_node; /* of each step its node; of a copy its output */
    mr_span *spans; /* checking devices: of each entry of the layout */
    mr_span **used; /* of each step those it uses */
    int n_spans;
    mr_dptr inputs, consts, results;
    mr_dptr staged; /* inputs as they were set, in pinned memory */
    mr_event *sent; /* they have left it */
    bool sending;   /* and the host has not waited for that yet */
    uint64_t lost;  /* the device's, at the last run */
    size_t inputs_bytes, consts_bytes, results_bytes;
    size_t staging_bytes, own_bytes; /* of the host: for conversions; plan and graph */
    slot *slots;
    int n_slots, n_unset;
    result *outputs;
    int n_outputs;
    bool timed;
};

/* ---- what is held (held.c) ---- */

/* Refuses for an executor that plans. */
mr_status mr_exec_works(const mr_exec *exec);
mr_status mr_exec_staging(mr_exec *exec, size_t bytes);
/* A transient region: refuse where its content was lost. */
mr_status mr_exec_transient(const mr_exec *exec);
/* NULL and an error that lists those there are. */
const region *mr_exec_need(const mr_exec *exec, const char *name);
const result *mr_program_result(const mr_program *p, const char *name);
/* "`what` 'name' is [4] f32, the tensor given is [3] f32": MR_E_SHAPE. */
mr_status mr_shapes_differ(const char *what, const char *name, const mr_desc *came,
                           const mr_desc *expected);

/* ---- programs ---- */

/* Lay out the graph of an empty program and choose its steps (plan.c). */
mr_status mr_program_plan(mr_program *p);
mr_dptr mr_program_address(const mr_program *p, int storage);
mr_dptr mr_program_result_at(const mr_program *p, const result *r);
/* Fill data pointers, workspaces and spans from the blocks' present addresses (bind.c). */
void mr_program_bind(mr_program *p);
/* Say of each step what it uses of the arena, and for whom it waits. */
mr_status mr_program_spans(mr_program *p);
void mr_program_waits(mr_program *p);

/* ---- edges of runs (edge.c) ---- */

/* Does a device of this name do everything at once? */
bool mr_device_at_once(const char *device);
/* Memory and events of an executor and of a program with its slots; `close` and `remove` also after
 * a failure. */
mr_status mr_edge_open(mr_exec *exec);
void mr_edge_close(mr_exec *exec);
mr_status mr_edge_add(mr_program *p);
void mr_edge_remove(mr_program *p);
/* Of the copies of input i, of output i; NULL: not timed. */
mr_step_clock *mr_edge_clock_in(const mr_program *p, int i, bool take);
mr_step_clock *mr_edge_clock_out(const mr_program *p, int i);
/* of the ring and the take-off, in all */
size_t mr_edge_ring_bytes(const mr_exec *exec);
/* Enqueue what brings fresh inputs into their slots. Errors: one has no value. */
mr_status mr_edge_send(mr_program *p);

#endif
