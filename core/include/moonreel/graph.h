/* graph: nodes and values of one phase of a step, shape inference, gradients, recomputation.
 *
 * A value is (storage, desc, offset), assigned once. View functions add no node. Building infers
 * shapes at once, inserts `copy` nodes where a row wants denser strides, and records the origin
 * (file:line) in force. Single-threaded while building; immutable after mr_graph_finish.
 * Decisions: reference core 1 to 6.
 *
 * Threads: a parameter table and a graph belong to one thread while they are built; sealed and
 * finished ones may be read by any.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_GRAPH_H
#define MOONREEL_GRAPH_H

#include "moonreel/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- parameters ---- */

/* One table per model, in forward use order, shared by all its graphs. Trainable parameters form
 * one range of elements, aligned to MR_PARAM_ALIGN each; frozen ones and buffers a range of their
 * own. Regions: "w" over the trainable range and "frozen" over the other, in compute dtype; what an
 * optimizer declares over the trainable range (moonreel/exec.h), of which backward knows "grad",
 * f32. */
typedef struct mr_params mr_params;

/* Elements that every parameter begins at a multiple of: one cache line of f32 four times over, a
 * whole line of bf16 twice. */
enum { MR_PARAM_ALIGN = 64 };

typedef enum mr_init_kind {
    MR_INIT_ZEROS,
    MR_INIT_ONES,
    MR_INIT_NORMAL,
    MR_INIT_UNIFORM,
    MR_INIT_XAVIER,
    MR_INIT_VALUES
} mr_init_kind;
enum { MR_SPLIT_PARTS = 8 };

typedef struct mr_init {
    mr_init_kind kind;
    double scale;        /* NORMAL: deviation; UNIFORM: bound */
    const float *values; /* VALUES: copied by mr_params_add */
} mr_init;

/* Which part of a parameter this rank has: an axis is cut into parts, and of each part it has the
 * `at`-th of `ranks` equal shares. */
typedef struct mr_split {
    int ranks, at; /* 0 ranks: all of it */
    int axis, parts;
    int64_t part[MR_SPLIT_PARTS]; /* positions of the axis, of all ranks */
} mr_split;

typedef struct mr_param {
    const char *name; /* released name */
    mr_desc desc;     /* dense, compute dtype; of what this rank has, valid after add */
    mr_split split;
    mr_desc whole; /* of all ranks; valid after add */
    mr_init init;
    bool frozen, buffer;    /* buffer: saved, never trained, not counted as a parameter */
    float decay, lr_factor; /* weight decay factor and learning-rate factor of its group */
    bool lookup;            /* rows are looked up: many have no gradient, which is no fault */
    bool outside;           /* frozen, from a file of its own: in no checkpoint */
    int model;              /* of several that are updated apart: each in buckets of its own */
    int64_t offset;         /* elements, within its range; valid after seal */
    int64_t block;          /* of mr_cut, 0: no matrix of it; valid after seal */
} mr_param;

/* compute: MR_BF16 or MR_F32. Owns: caller frees, after all graphs over it. Errors: MR_E_MEMORY */
MR_API mr_status mr_params_new(mr_dtype compute, mr_params **out);
MR_API void mr_params_free(mr_params *params);
/* Declare the next parameter, its desc that of all ranks; name and init values are copied. What a
 * rank has of one with a split are dense shares of its parts, one behind the other: it has the
 * whole's rank where they make up a tensor of that rank, else one axis. Errors: MR_E_USAGE on a
 * second use of a name with another shape (the same shape returns the first id: weights may be
 * shared); MR_E_SHAPE a split that does not make up the axis, or whose ranks do not divide it */
MR_API mr_status mr_params_add(mr_params *params, const mr_param *param, int *id);
/* How the trainable range is cut for ranks: into buckets of whole parameters, each of equal chunks,
 * one per rank, that are multiples of some bytes in compute dtype. A parameter with more elements
 * than a bucket has one of its own. Pads stay zero. */
typedef struct mr_cut {
    int ranks;        /* owners, from 1 */
    int64_t elements; /* of a bucket at most, pads aside; 0: all in one */
    int64_t granule;  /* bytes, a multiple of those of MR_PARAM_ALIGN elements; 0: 64 KiB */
    /* Elements of a block of the matrices, a multiple of MR_PARAM_ALIGN: a matrix is updated block
     * by block. Matrices lie behind all other parameters, in buckets whose chunks are whole blocks.
     * 0: no parameter is a matrix. */
    int64_t block;
    const bool *matrix; /* is the parameter of this id a matrix? used where block > 0 */
} mr_cut;
/* Fixes offsets; further adds of new names fail. cut NULL: one bucket without pads, of one owner.
 * Errors: MR_E_RANGE no rank, negative elements, granule, a block, a matrix that is not of whole
 * blocks or frozen; MR_E_MEMORY */
MR_API mr_status mr_params_seal(mr_params *params, const mr_cut *cut);
/* Buckets in the order of their elements, [start, stop) each, without gaps. */
MR_API int mr_params_buckets(const mr_params *params);
MR_API void mr_params_bucket(const mr_params *params, int i, int64_t *start, int64_t *stop);
/* The part of bucket i that a rank owns: by position, whatever parameters lie there. */
MR_API void mr_params_owned(const mr_params *params, int i, int rank, int64_t *start,
                            int64_t *stop);
/* The bucket in which an element of the trainable range lies. */
MR_API int mr_params_bucket_of(const mr_params *params, int64_t element);
MR_API bool mr_params_sealed(const mr_params *params);
MR_API int mr_params_count(const mr_params *params);
/* lent; NULL when there is no such id */
MR_API const mr_param *mr_params_at(const mr_params *params, int id);
MR_API int mr_params_find(const mr_params *params, const char *name); /* -1 when unknown */
MR_API mr_dtype mr_params_compute(const mr_params *params);
/* of the whole range, pads included */
MR_API int64_t mr_params_elements(const mr_params *params, bool frozen);
/* where the matrices of the cut begin in the trainable range; they go to its end */
MR_API int64_t mr_params_matrices(const mr_params *params);
/* where the parameters with a split begin in it: behind those without, and before the matrices, in
 * buckets of their own */
MR_API int64_t mr_params_split(const mr_params *params);
/* Of which of these three is a parameter: 0 without a split, 1 with one, 2 a matrix. */
MR_API int mr_param_class(const mr_param *param);
/* Ranks that tell each other what each holds of a bucket, on the queue of one hop: of all of them,
 * or first within nodes and then between these. Each hop keeps an equal, contiguous piece of what
 * the one before it kept: the `at`-th of `ranks`. Ref: parallelism 9. */
typedef struct mr_hop {
    int queue;     /* mr_queue */
    int64_t group; /* of moonreel/collective.h */
    int ranks, at;
} mr_hop;
/* What of a sealed table this rank does not hold whole, in every graph over it that is built from
 * then on. Region i of a kind covers this rank's chunk of bucket i, the one behind all hops.
 *
 * gradients: backward adds up those of a bucket in the arena, and when the last one is there they
 * are reduced over ranks into regions "grad", "grad.2", ...; buckets go from the last to the first.
 *
 * weights: a bucket is gathered from regions "w.1", "w.2", ... when its first parameter is asked
 * for, and again in the backward pass; each gather may set out when compute begins with the bucket
 * before it, so that two of them are there at a time. */
typedef struct mr_param_shares {
    mr_hop hop[2];
    int hops; /* 0: nothing is shared */
    bool gradients, weights;
} mr_param_shares;
/* Errors: MR_E_USAGE not sealed; MR_E_RANGE hops that do not make the ranks that the table is cut
 * for */
MR_API mr_status mr_params_share(mr_params *params, const mr_param_shares *shares);
MR_API const mr_param_shares *mr_params_shares(const mr_params *params); /* lent */
/* This rank's chunk of bucket i. Without shares: all of it. */
MR_API void mr_params_chunk(const mr_params *params, int i, int64_t *start, int64_t *stop);
/* The initial values of one parameter, drawn with its name's hash as sample key: out [its shape]
 * f32, dense; of one with a split this rank's part of those of all of it. */
MR_API mr_status mr_params_init(const mr_params *params, int id, uint64_t seed, float *out);

/* ---- building ---- */

typedef enum mr_class {
    MR_ARENA, /* lives inside one run of the graph; placed by layout */
    MR_INPUT, /* slot written by the host before a run */
    MR_CONST, /* filled once per compiled graph: constants and setup nodes */
    MR_REGION /* range of a persistent region ("w", "grad", ...) */
} mr_class;

/* Memory that a storage lies in: the device's own, or the host's that it copies from and to by
 * itself. Only copies read and write the latter. */
typedef enum mr_space { MR_SPACE_DEVICE, MR_SPACE_PINNED, MR_SPACE_COUNT } mr_space;

typedef struct mr_storage {
    mr_class kind;
    mr_space space; /* of MR_ARENA and MR_REGION; all others lie in the device's */
    size_t bytes;
    const char *region;    /* MR_REGION: its name */
    int64_t region_offset; /* bytes */
    const void *data;      /* MR_CONST with host data (owned by the graph), else NULL */
    const char *name;      /* inputs: the name */
} mr_storage;

typedef struct mr_value {
    int storage;
    int64_t offset; /* bytes from the storage's start */
    mr_desc desc;
    int node;         /* producer; -1 for inputs, constants, regions */
    int param;        /* parameter that this is, or a view of, else -1 */
    int64_t param_at; /* elements from the parameter's first one to that of this value */
    bool alias;       /* a view, or the in-place successor, of another value */
    bool save;        /* kept by recomputation */
} mr_value;

/* Nodes of one queue run in the order of the graph; those of different queues run side by side
 * where no data forbids it. Names: "compute", "comm_intra" and "comm_inter" (collectives inside a
 * node and between nodes), "h2d" and "d2h" (copies to and from the device). */
typedef enum mr_queue {
    MR_Q_COMPUTE,
    MR_Q_COMM_INTRA,
    MR_Q_COMM_INTER,
    MR_Q_H2D,
    MR_Q_D2H,
    MR_QUEUE_COUNT
} mr_queue;
MR_API const char *mr_queue_name(mr_queue queue); /* lent; "?" when there is no such queue */
MR_API mr_queue mr_queue_find(const char *name);  /* MR_QUEUE_COUNT when unknown */

typedef struct mr_node {
    const mr_op *op;
    mr_ref in[MR_MAX_IN], out[MR_MAX_OUT];
    int n_in, n_out;
    unsigned char attr[MR_ATTR_BYTES];
    const char *origin; /* "file:line" or "" */
    const char *name;   /* "spatial_blocks.3/linear" */
    int block;          /* -1 outside blocks */
    int recompute_of;   /* node it repeats, or -1 */
    /* setup: depends on constants only, runs once per compiled graph */
    bool backward, setup;
    mr_queue queue;
    /* a value of another queue that must be there too before it begins, though it does not read it;
     * MR_NONE: none. What makes it may have been dropped: then there is nothing to wait for. */
    mr_ref after;
} mr_node;

typedef struct mr_graph mr_graph;
typedef struct mr_graph_options {
    bool no_inplace; /* specs: every output gets its own place */
    bool no_cheap;   /* keep also what rows call cheap */
    bool no_fuse;    /* every node is one row as it was built */
    /* Gradients of parameters begin at zero in each run, whatever is in region "grad"; those of
     * parameters that the loss does not depend on are zero. Of a table that is not shared. */
    bool fresh_gradients;
} mr_graph_options;

/* `params` may be NULL; borrowed, must outlive the graph. Owns: caller frees. Errors:
 * MR_E_MEMORY */
MR_API mr_status mr_graph_new(mr_params *params, const mr_graph_options *options, mr_graph **out);
MR_API void mr_graph_free(mr_graph *g);

/* All functions below up to mr_graph_finish: texts, dims and data are copied, *out is a new value
 * of this graph.
 * Errors: MR_E_USAGE on a finished graph, a value that is not of this graph, a name taken twice;
 * MR_E_SHAPE with shapes, node and origin; MR_E_MEMORY. */

/* A dense slot that the host fills before a run. */
MR_API mr_status mr_graph_input(mr_graph *g, const char *name, mr_dtype dtype, int rank,
                                const int64_t *dim, mr_ref *out);
/* copies the data */
MR_API mr_status mr_graph_const(mr_graph *g, const mr_view *data, mr_ref *out);
/* of a sealed table, compute dtype: in region "w" or "frozen", or in gathered weights */
MR_API mr_status mr_graph_param(mr_graph *g, int id, mr_ref *out);
/* The parameter `id` inside `x`, a value of compute dtype, dense and of one dimension, whose first
 * element is element `first` of the trainable range: gathered weights. It is the parameter as far
 * as gradients go, and none flows into x. Errors also: MR_E_SHAPE for another x; MR_E_RANGE where
 * the parameter is not whole in it, MR_E_USAGE where it is frozen. */
MR_API mr_status mr_graph_window(mr_graph *g, mr_ref x, int64_t first, int id, mr_ref *out);
/* A value over a persistent region: `offset` in elements of `dtype`. Update graphs use it. One in
 * host memory is brought to the device by mr_graph_move and written by mr_graph_put. Errors also:
 * MR_E_RANGE for an offset that no region has; its end and `space` are checked when compiled. */
MR_API mr_status mr_graph_region(mr_graph *g, const char *region, mr_space space, mr_dtype dtype,
                                 int64_t offset, int rank, const int64_t *dim, mr_ref *out);
/* Add one node of the row `op`. in [n_in]: MR_NONE = absent optional, as are those beyond n_in;
 * outs: room for all outputs of the row. Errors also: MR_E_USAGE unknown op (with the nearest),
 * missing input, attribute out of range */
MR_API mr_status mr_graph_add(mr_graph *g, const char *op, const mr_attr *attrs, int n_attrs,
                              const mr_ref *in, int n_in, mr_ref *outs);
/* Views, as mr_desc_* says. reshape inserts a copy when strides demand it. */
MR_API mr_status mr_graph_reshape(mr_graph *g, mr_ref x, int rank, const int64_t *dim, mr_ref *out);
MR_API mr_status mr_graph_slice(mr_graph *g, mr_ref x, int axis, int64_t start, int64_t stop,
                                mr_ref *out);
MR_API mr_status mr_graph_permute(mr_graph *g, mr_ref x, const int *order, mr_ref *out);
MR_API mr_status mr_graph_expand(mr_graph *g, mr_ref x, int rank, const int64_t *dim, mr_ref *out);
/* Join along an axis; where a producer can write strided rows it writes in place and no copy is
 * made. */
MR_API mr_status mr_graph_concat(mr_graph *g, const mr_ref *parts, int n, int axis, mr_ref *out);

/* Copy x to another memory: a `copy` node on the queue in force. What it gives is never repeated by
 * the backward pass. On another queue than compute it runs beside it, and the bytes of x are free
 * only where compute waits for something behind the copy. `after`: a value of another queue that
 * must be there before the copy sets out, or MR_NONE.
 * Errors also: MR_E_USAGE for a constant, or where x lies there already. */
MR_API mr_status mr_graph_move(mr_graph *g, mr_ref x, mr_space space, mr_ref after, mr_ref *out);
/* Copy x, in one memory, over `to`, a value of mr_graph_region in the other: a `copy` node on the
 * queue in force. *out: what lies in the region then.
 * Errors also: MR_E_USAGE where `to` is no value of g, or lies in the memory of x. */
MR_API mr_status mr_graph_put(mr_graph *g, mr_ref x, mr_ref to, mr_ref *out);
/* Keep x for the backward pass in host memory: copied there now on d2h, and back on h2d for the
 * first node that reads it or a view of it then. Those of two blocks are on their way at a time:
 * compute goes on behind offloads when the copies of earlier ones are over, with no node of compute
 * between them they go together. The first that comes back sets out when it is there, the others
 * when compute begins to need what came before. Errors as of mr_graph_move. */
MR_API mr_status mr_graph_offload(mr_graph *g, mr_ref x);
/* Name a result the host reads after a run; copied where x is no dense value of its own. */
MR_API mr_status mr_graph_output(mr_graph *g, const char *name, mr_ref x);
MR_API void mr_graph_set_origin(mr_graph *g, const char *origin); /* copied; "" for none */
/* The queue of the nodes added from here on, at first compute. What depends on constants alone runs
 * once, on compute; what undoes or repeats a node runs on that node's queue. `before` (may be NULL)
 * gets the queue in force until now. Errors: MR_E_USAGE when there is no such queue. */
MR_API mr_status mr_graph_set_queue(mr_graph *g, mr_queue queue, mr_queue *before);
/* A block whose inside may be recomputed in the backward pass. Blocks do not nest. With
 * recompute = true inner values are dropped and redone; else they are kept. */
MR_API mr_status mr_graph_block_begin(mr_graph *g, const char *name, bool recompute);
MR_API mr_status mr_graph_block_end(mr_graph *g);
/* keep across recomputation */
MR_API mr_status mr_graph_save(mr_graph *g, mr_ref x);
/* Gradients of the scalar f32 `loss` with respect to all trainable parameters in use (added into
 * region "grad") and of wrt[] (returned as values in dwrt[], MR_NONE = zero). wrt may name
 * parameters, frozen ones too: their gradients come in f32, over all uses; what is not named and
 * not trainable costs nothing. A loss that is not finite makes all of them NaN or infinite, also
 * where they would be finite: an update that looks at their norm needs no other news of the loss.
 */
MR_API mr_status mr_graph_backward(mr_graph *g, mr_ref loss, const mr_ref *wrt, int n_wrt,
                                   mr_ref *dwrt);
/* Gradients of the scalar f32 `loss` with respect to wrt[] alone, as mr_graph_backward returns
 * them, at any time before it: no parameter gets one. They are forward values, and have no gradient
 * themselves where their rows have none: read them through mr_graph_detach. */
MR_API mr_status mr_graph_gradients(mr_graph *g, mr_ref loss, const mr_ref *wrt, int n_wrt,
                                    mr_ref *dwrt);
/* x as a constant, as far as gradients go: a view that hands none on. */
MR_API mr_status mr_graph_detach(mr_graph *g, mr_ref x, mr_ref *out);
/* Of a rank that computes nothing while others run `like`, over the same table: the gathers of that
 * graph in its order, and its reductions, of zeros. Errors: MR_E_USAGE other tables */
MR_API mr_status mr_graph_echo(mr_graph *g, const mr_graph *like);
/* What a graph over a shared table tells other ranks, in order: "gather 1", "reduce 1". All ranks
 * run graphs of one story at a time. Owns: caller frees with mr_free. Errors: MR_E_MEMORY */
MR_API mr_status mr_graph_op_log(const mr_graph *g, char **text);
/* No more nodes: drops what nothing needs, makes one node of two where a row does both (mr_fusion),
 * decides in-place, fixes order. Nothing is done in place
 * of a value that another queue reads. */
MR_API mr_status mr_graph_finish(mr_graph *g);

/* ---- helpers for grad functions ---- */

/* mr_graph_add for the gradient of a row. */
MR_API mr_status mr_grad_op(mr_grad *ctx, const char *op, const mr_attr *attrs, int n_attrs,
                            const mr_ref *in, int n_in, mr_ref *outs);
/* The f32 accumulator for input i: the place in "grad" of a parameter, else zeros. Pass it to a
 * row whose output must lie in its place, then set din[i] to that output. */
MR_API mr_status mr_grad_acc(mr_grad *ctx, int i, mr_ref *acc);
MR_API const mr_desc *mr_grad_desc(const mr_grad *ctx, mr_ref x);

/* ---- reading ---- */

/* All is lent and lives as long as the graph; indices are not checked. *_find: MR_NONE when there
 * is none. */

MR_API bool mr_graph_finished(const mr_graph *g);
/* Host memory of its tables and constants. */
MR_API size_t mr_graph_bytes(const mr_graph *g);
MR_API int mr_graph_nodes(const mr_graph *g);
MR_API const mr_node *mr_graph_node(const mr_graph *g, int i); /* in running order */
/* Is this node a copy between two spaces? Such a copy moves bytes as they lie. */
MR_API bool mr_graph_crosses(const mr_graph *g, const mr_node *node);
MR_API const mr_value *mr_graph_value(const mr_graph *g, mr_ref x);
MR_API int mr_graph_storages(const mr_graph *g);
MR_API const mr_storage *mr_graph_storage(const mr_graph *g, int i);
MR_API int mr_graph_outputs(const mr_graph *g);
MR_API mr_ref mr_graph_output_at(const mr_graph *g, int i, const char **name);
MR_API mr_ref mr_graph_output_find(const mr_graph *g, const char *name);
MR_API mr_ref mr_graph_input_find(const mr_graph *g, const char *name);
MR_API mr_params *mr_graph_params(const mr_graph *g);
MR_API const char *mr_graph_block_name(const mr_graph *g, int block);
/* Call shapes of node i without data pointers (descs, attr): for cost, workspace, prepare. */
MR_API void mr_graph_call(const mr_graph *g, int i, mr_call *call);
/* One line per node; copies, aliases and recomputed nodes are visible. Owns: free with mr_free. */
MR_API mr_status mr_graph_print(const mr_graph *g, char **text);

/* ---- the order of a run ---- */

/* What of a run may go on side by side. Its steps are the nodes of a finished graph without those
 * of setup, in their order, then on d2h one copy out of the arena for each output that lies there.
 * Steps of one queue run in order. A step waits for earlier ones of other queues that touch bytes
 * it touches where one of the two writes, and for what its node names in `after`; what another wait
 * implies is left out. So whatever the
 * queues do, the bits are those of the order of the list. */
typedef struct mr_schedule mr_schedule;
typedef struct mr_schedule_step {
    mr_queue queue;
    int node;                             /* -1: a copy */
    int output;                           /* of a copy, else -1 */
    int wait_n, wait[MR_QUEUE_COUNT - 1]; /* steps on other queues, the newest first */
    int before[MR_QUEUE_COUNT];           /* newest step of each queue that surely is over, or -1 */
} mr_schedule_step;
/* shared [n_shared]: regions that are "w" by another name, as an executor's rows say (read during
 * the call); without any, regions of two names are two. Owns: caller frees; borrows g for life.
 * Errors: MR_E_MEMORY, MR_E_USAGE before mr_graph_finish. */
MR_API mr_status mr_schedule_new(const mr_graph *g, const char *const *shared, int n_shared,
                                 mr_schedule **out);
MR_API void mr_schedule_free(mr_schedule *schedule);
MR_API int mr_schedule_steps(const mr_schedule *schedule);
MR_API const mr_schedule_step *mr_schedule_at(const mr_schedule *schedule, int i); /* lent */
/* Is step `a` over when step `b` begins, whatever the queues do? */
MR_API bool mr_schedule_before(const mr_schedule *schedule, int a, int b);
/* When each step begins, start[i], if it takes seconds[i] and every queue goes on as soon as it
 * may; both mr_schedule_steps long, in seconds. Returns when the last one ends. */
MR_API double mr_schedule_play(const mr_schedule *schedule, const double *seconds, double *start);
/* One line per step: queue, op, node, waits, and for steps of side queues what they may run beside.
 * Owns: free with mr_free. Errors: MR_E_MEMORY */
MR_API mr_status mr_schedule_print(const mr_schedule *schedule, char **text);

#ifdef __cplusplus
}
#endif
#endif
