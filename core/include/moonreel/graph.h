/* graph: nodes and values of one phase of a step, shape inference, gradients, recomputation.
 *
 * A value is (storage, desc, offset), assigned once. View functions add no node. Building infers
 * shapes at once, inserts `copy` nodes if an op needs denser strides, and records the present
 * origin (file:line). Single-threaded while building; immutable after mr_graph_finish. Decisions:
 * reference core 1 to 6.
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
 * one range of elements, each aligned to MR_PARAM_ALIGN; frozen ones and buffers form another
 * range. Regions: "w" over the trainable range and "frozen" over the other, in compute dtype, and
 * regions that an optimizer declares over the trainable range (moonreel/exec.h), of which backward
 * uses "grad", f32. */
typedef struct mr_params mr_params;

/* Every parameter begins at a multiple of this many elements: four cache lines of f32, two of bf16.
 */
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

/* The part of a parameter on this rank: an axis is cut into parts, and of each part this rank has
 * the `at`-th of `ranks` equal shares. */
typedef struct mr_split {
    int ranks, at; /* 0 ranks: all of it */
    int axis, parts;
    int64_t part[MR_SPLIT_PARTS]; /* positions of the axis, of all ranks */
} mr_split;

typedef struct mr_param {
    const char *name; /* released name */
    mr_desc desc;     /* dense, compute dtype; of this rank's part, valid after add */
    mr_split split;
    mr_desc whole; /* of all ranks; valid after add */
    mr_init init;
    bool frozen, buffer;    /* buffer: saved, never trained, not counted as a parameter */
    float decay, lr_factor; /* weight decay factor and learning-rate factor of its group */
    bool lookup;            /* rows are looked up: rows without a gradient are not an error */
    bool outside;           /* frozen, from a file of its own: in no checkpoint */
    int model;              /* of several models with separate updates: each has its own buckets */
    int64_t offset;         /* elements, within its range; valid after seal */
    int64_t block;          /* of mr_cut, 0: no matrix of it; valid after seal */
} mr_param;

/* compute: MR_BF16 or MR_F32. Owns: caller frees, after all graphs over it. Errors: MR_E_MEMORY */
MR_API mr_status mr_params_new(mr_dtype compute, mr_params **out);
MR_API void mr_params_free(mr_params *params);
/* Declare the next parameter, with the desc of all ranks; name and init values are copied. This
 * rank's part of a parameter with a split consists of dense shares of its parts, concatenated. It
 * has the whole's rank if the shares form a tensor of that rank, otherwise one axis. Errors:
 * MR_E_USAGE on a second use of a name with another shape (the same shape returns the first id:
 * weights may be shared); MR_E_SHAPE a split that does not cover the axis, or whose ranks do not
 * divide it */
MR_API mr_status mr_params_add(mr_params *params, const mr_param *param, int *id);
/* How the trainable range is cut for ranks: into buckets of whole parameters, each of equal chunks,
 * one per rank, whose bytes in compute dtype are multiples of `granule`. A parameter larger than a
 * bucket has its own bucket. Padding stays zero. */
typedef struct mr_cut {
    int ranks;        /* owners, from 1 */
    int64_t elements; /* of a bucket at most, without padding; 0: all in one */
    int64_t granule;  /* bytes, a multiple of those of MR_PARAM_ALIGN elements; 0: 64 KiB */
    /* Elements of a matrix block, a multiple of MR_PARAM_ALIGN: a matrix is updated block by block.
     * Matrices come after all other parameters, in buckets whose chunks are whole blocks. 0: no
     * parameter is a matrix. */
    int64_t block;
    const bool *matrix; /* whether the parameter of this id is a matrix; used if block > 0 */
} mr_cut;
/* Fixes offsets; further adds of new names fail. cut NULL: one bucket without padding, one owner.
 * Errors: MR_E_RANGE no rank, negative elements, granule, a block, a matrix that is frozen or not a
 * whole number of blocks; MR_E_MEMORY */
MR_API mr_status mr_params_seal(mr_params *params, const mr_cut *cut);
/* Buckets in the order of their elements, [start, stop) each, without gaps. */
MR_API int mr_params_buckets(const mr_params *params);
MR_API void mr_params_bucket(const mr_params *params, int i, int64_t *start, int64_t *stop);
/* The part of bucket i that a rank owns: by position, independent of the parameters there. */
MR_API void mr_params_owned(const mr_params *params, int i, int rank, int64_t *start,
                            int64_t *stop);
/* The bucket that contains an element of the trainable range. */
MR_API int mr_params_bucket_of(const mr_params *params, int64_t element);
MR_API bool mr_params_sealed(const mr_params *params);
MR_API int mr_params_count(const mr_params *params);
/* lent; NULL when there is no such id */
MR_API const mr_param *mr_params_at(const mr_params *params, int id);
MR_API int mr_params_find(const mr_params *params, const char *name); /* -1 when unknown */
MR_API mr_dtype mr_params_compute(const mr_params *params);
/* of the whole range, including padding */
MR_API int64_t mr_params_elements(const mr_params *params, bool frozen);
/* start of the cut's matrices in the trainable range; they extend to its end */
MR_API int64_t mr_params_matrices(const mr_params *params);
/* start of the parameters with a split: after those without, before the matrices, in buckets of
 * their own */
MR_API int64_t mr_params_split(const mr_params *params);
/* The kind of a parameter: 0 without a split, 1 with one, 2 a matrix. */
MR_API int mr_param_class(const mr_param *param);
/* The ranks of one hop, which exchange their parts of a bucket on a queue: all ranks, or first
 * those of a host and then one of each host. Each hop keeps an equal, contiguous piece of the
 * result of the previous one: the `at`-th of `ranks`. Ref: parallelism 9. */
typedef struct mr_hop {
    int queue;     /* mr_queue */
    int64_t group; /* of moonreel/collective.h */
    int ranks, at;
} mr_hop;
/* The state of a sealed table that is sharded, in every graph that is built over it from then on.
 * Region i of a kind covers this rank's chunk of bucket i after all hops.
 *
 * gradients: backward sums those of a bucket in the arena. After the last one they are reduced over
 * ranks into regions "grad", "grad.2", ...; buckets go from the last to the first.
 *
 * weights: a bucket is gathered from regions "w.1", "w.2", ... when its first parameter is used,
 * and again in the backward pass. A gather may start when compute begins with the preceding bucket,
 * so at most two are in memory. */
typedef struct mr_param_shares {
    mr_hop hop[2];
    int hops; /* 0: nothing is shared */
    bool gradients, weights;
} mr_param_shares;
/* Errors: MR_E_USAGE not sealed; MR_E_RANGE the hops do not have the number of ranks that the table
 * is cut for */
MR_API mr_status mr_params_share(mr_params *params, const mr_param_shares *shares);
MR_API const mr_param_shares *mr_params_shares(const mr_params *params); /* lent */
/* This rank's chunk of bucket i. Without shares: all of it. */
MR_API void mr_params_chunk(const mr_params *params, int i, int64_t *start, int64_t *stop);
/* The initial values of one parameter, drawn with its name's hash as sample key: out [its shape]
 * f32, dense; for a parameter with a split this rank's part of the values. */
MR_API mr_status mr_params_init(const mr_params *params, int id, uint64_t seed, float *out);

/* ---- building ---- */

typedef enum mr_class {
    MR_ARENA, /* lives inside one run of the graph; placed by layout */
    MR_INPUT, /* slot written by the host before a run */
    MR_CONST, /* filled once per compiled graph: constants and setup nodes */
    MR_REGION /* range of a persistent region ("w", "grad", ...) */
} mr_class;

/* The memory of a storage: the device's own, or host memory that only copies read and write. */
typedef enum mr_space { MR_SPACE_DEVICE, MR_SPACE_PINNED, MR_SPACE_COUNT } mr_space;

typedef struct mr_storage {
    mr_class kind;
    mr_space space; /* of MR_ARENA and MR_REGION; all others are on the device */
    size_t bytes;
    const char *region;    /* MR_REGION: its name */
    int64_t region_offset; /* bytes */
    const void *data;      /* MR_CONST with host data (owned by the graph), otherwise NULL */
    const char *name;      /* inputs: the name */
} mr_storage;

typedef struct mr_value {
    int storage;
    int64_t offset; /* bytes from the storage's start */
    mr_desc desc;
    int node;         /* producer; -1 for inputs, constants, regions */
    int param;        /* parameter that this is, or a view of, otherwise -1 */
    int64_t param_at; /* elements from the parameter's first one to that of this value */
    bool alias;       /* a view, or the in-place successor, of another value */
    bool save;        /* kept by recomputation */
} mr_value;

/* Nodes of one queue run in the order of the graph; those of different queues run concurrently if
 * no data dependency forbids it. Names: "compute", "comm_intra" and "comm_inter" (collectives
 * inside a host and between hosts), "h2d" and "d2h" (copies to and from the device). */
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
    int recompute_of;   /* the node that it repeats, or -1 */
    /* setup: depends on constants only, runs once per compiled graph */
    bool backward, setup;
    mr_queue queue;
    /* a value of another queue that must be ready before this node begins, though it does not read
     * it; MR_NONE: none. If its producer was dropped, there is no wait. */
    mr_ref after;
} mr_node;

typedef struct mr_graph mr_graph;
typedef struct mr_graph_options {
    bool no_inplace; /* specs: every output gets its own place */
    bool no_cheap;   /* also keep outputs of ops marked cheap */
    bool no_fuse;    /* fuse no nodes */
    /* Gradients of parameters begin at zero in each run, independent of region "grad"; those of
     * parameters that the loss does not depend on are zero. Only for a table that is not shared. */
    bool fresh_gradients;
} mr_graph_options;

/* `params` may be NULL; borrowed, must outlive the graph. Owns: caller frees. Errors:
 * MR_E_MEMORY */
MR_API mr_status mr_graph_new(mr_params *params, const mr_graph_options *options, mr_graph **out);
MR_API void mr_graph_free(mr_graph *g);

/* All functions below up to mr_graph_finish: texts, dims and data are copied, *out is a new value
 * of this graph.
 * Errors: MR_E_USAGE on a finished graph, a value of another graph, a repeated name; MR_E_SHAPE
 * with shapes, node and origin; MR_E_MEMORY. */

/* A dense slot that the host fills before a run. */
MR_API mr_status mr_graph_input(mr_graph *g, const char *name, mr_dtype dtype, int rank,
                                const int64_t *dim, mr_ref *out);
/* copies the data */
MR_API mr_status mr_graph_const(mr_graph *g, const mr_view *data, mr_ref *out);
/* of a sealed table, compute dtype: in region "w" or "frozen", or in gathered weights */
MR_API mr_status mr_graph_param(mr_graph *g, int id, mr_ref *out);
/* The parameter `id` inside `x`, gathered weights: a value of compute dtype, dense, of one
 * dimension, whose first element is element `first` of the trainable range. Gradients treat the
 * result as the parameter, and none flows into x. Errors also: MR_E_SHAPE for another x; MR_E_RANGE
 * if x does not contain the whole parameter, MR_E_USAGE if it is frozen. */
MR_API mr_status mr_graph_window(mr_graph *g, mr_ref x, int64_t first, int id, mr_ref *out);
/* A value over a persistent region: `offset` in elements of `dtype`. Update graphs use it.
 * mr_graph_move copies a region in host memory to the device, mr_graph_put writes it. Errors also:
 * MR_E_RANGE for an offset outside any region; its end and `space` are checked when compiled. */
MR_API mr_status mr_graph_region(mr_graph *g, const char *region, mr_space space, mr_dtype dtype,
                                 int64_t offset, int rank, const int64_t *dim, mr_ref *out);
/* Add one node of `op`. in [n_in]: MR_NONE = absent optional, as are those beyond n_in; outs: space
 * for all outputs of the op. Errors also: MR_E_USAGE unknown op (with the nearest), missing input,
 * attribute out of range */
MR_API mr_status mr_graph_add(mr_graph *g, const char *op, const mr_attr *attrs, int n_attrs,
                              const mr_ref *in, int n_in, mr_ref *outs);
/* Views, as mr_desc_*. reshape inserts a copy if strides require it. */
MR_API mr_status mr_graph_reshape(mr_graph *g, mr_ref x, int rank, const int64_t *dim, mr_ref *out);
MR_API mr_status mr_graph_slice(mr_graph *g, mr_ref x, int axis, int64_t start, int64_t stop,
                                mr_ref *out);
MR_API mr_status mr_graph_permute(mr_graph *g, mr_ref x, const int *order, mr_ref *out);
MR_API mr_status mr_graph_expand(mr_graph *g, mr_ref x, int rank, const int64_t *dim, mr_ref *out);
/* Join along an axis; a producer that can write strided rows writes in place, without a copy. */
MR_API mr_status mr_graph_concat(mr_graph *g, const mr_ref *parts, int n, int axis, mr_ref *out);

/* Copy x to another memory: a `copy` node on the present queue. The backward pass never repeats it.
 * On a queue other than compute it overlaps compute, and the bytes of x are free only after a node
 * that waits for a node behind the copy. `after`: a value of another queue that must be ready
 * before the copy starts, or MR_NONE.
 * Errors also: MR_E_USAGE for a constant, or if x is in that memory already. */
MR_API mr_status mr_graph_move(mr_graph *g, mr_ref x, mr_space space, mr_ref after, mr_ref *out);
/* Copy x, in one memory, over `to`, a value of mr_graph_region in the other: a `copy` node on the
 * present queue. *out: the new contents of the region.
 * Errors also: MR_E_USAGE if `to` is not a value of g, or is in the memory of x. */
MR_API mr_status mr_graph_put(mr_graph *g, mr_ref x, mr_ref to, mr_ref *out);
/* Keep x for the backward pass in host memory: it is copied there now on d2h, and back on h2d for
 * the first node of the backward pass that reads it or a view of it. Copies of at most two blocks
 * are in progress: compute continues after offloads when the copies of earlier ones are done;
 * offloads without a node of compute between them are copied together. The first copy back starts
 * when its data is ready, the others when compute begins to need the preceding ones. Errors: as
 * mr_graph_move. */
MR_API mr_status mr_graph_offload(mr_graph *g, mr_ref x);
/* Name a result that the host reads after a run; copied if x is a view, or not dense. */
MR_API mr_status mr_graph_output(mr_graph *g, const char *name, mr_ref x);
MR_API void mr_graph_set_origin(mr_graph *g, const char *origin); /* copied; "" for none */
/* Set the queue of the nodes that are added from now on; at first it is compute. Nodes that depend
 * only on constants run once, on compute; nodes that undo or repeat another node run on its queue.
 * `before` (may be NULL) gets the previous queue. Errors: MR_E_USAGE no such queue. */
MR_API mr_status mr_graph_set_queue(mr_graph *g, mr_queue queue, mr_queue *before);
/* A block whose inner values may be recomputed in the backward pass. Blocks do not nest. With
 * recompute = true inner values are dropped and computed again; otherwise they are kept. */
MR_API mr_status mr_graph_block_begin(mr_graph *g, const char *name, bool recompute);
MR_API mr_status mr_graph_block_end(mr_graph *g);
/* keep across recomputation */
MR_API mr_status mr_graph_save(mr_graph *g, mr_ref x);
/* Gradients of the scalar f32 `loss` with respect to all trainable parameters in use (added into
 * region "grad") and of wrt[] (returned as values in dwrt[], MR_NONE = zero). wrt may name
 * parameters, also frozen ones: their gradients are f32, over all uses; parameters that are neither
 * named nor trainable cost nothing. A loss that is not finite makes all of them NaN or infinite,
 * even if they would be finite: so a check of their norm also detects such a loss.
 */
MR_API mr_status mr_graph_backward(mr_graph *g, mr_ref loss, const mr_ref *wrt, int n_wrt,
                                   mr_ref *dwrt);
/* Gradients of the scalar f32 `loss` with respect to wrt[] alone, as mr_graph_backward returns
 * them, at any time before it. No parameter gets a gradient. The results are forward values. If
 * their ops have no gradient, read them through mr_graph_detach. */
MR_API mr_status mr_graph_gradients(mr_graph *g, mr_ref loss, const mr_ref *wrt, int n_wrt,
                                    mr_ref *dwrt);
/* x as a constant for gradients: a view that passes none on. */
MR_API mr_status mr_graph_detach(mr_graph *g, mr_ref x, mr_ref *out);
/* Add the gathers of the graph `like`, in its order, and its reductions, with zeros. A rank that
 * computes nothing runs this graph while other ranks run `like`. Both graphs use the same table.
 * Errors: MR_E_USAGE other tables */
MR_API mr_status mr_graph_echo(mr_graph *g, const mr_graph *like);
/* The communication of a graph over a shared table, in order: "gather 1", "reduce 1". At any time
 * all ranks run graphs with the same communication. Owns: caller frees with mr_free. Errors:
 * MR_E_MEMORY */
MR_API mr_status mr_graph_op_log(const mr_graph *g, char **text);
/* End of building: drops unused nodes, fuses two nodes if an op does both (mr_fusion), decides
 * in-place, fixes the order. A node is never in place of a value that another queue reads. */
MR_API mr_status mr_graph_finish(mr_graph *g);

/* ---- helpers for grad functions ---- */

/* mr_graph_add for the gradient of an op. */
MR_API mr_status mr_grad_op(mr_grad *ctx, const char *op, const mr_attr *attrs, int n_attrs,
                            const mr_ref *in, int n_in, mr_ref *outs);
/* The f32 accumulator for input i: the place of a parameter in "grad", otherwise zeros. Pass it to
 * an op whose output must be in its place, then set din[i] to that output. */
MR_API mr_status mr_grad_acc(mr_grad *ctx, int i, mr_ref *acc);
MR_API const mr_desc *mr_grad_desc(const mr_grad *ctx, mr_ref x);

/* ---- reading ---- */

/* All results are lent and live as long as the graph; indices are not checked. *_find: MR_NONE if
 * not found. */

MR_API bool mr_graph_finished(const mr_graph *g);
/* Host memory of its tables and constants. */
MR_API size_t mr_graph_bytes(const mr_graph *g);
MR_API int mr_graph_nodes(const mr_graph *g);
MR_API const mr_node *mr_graph_node(const mr_graph *g, int i); /* in running order */
/* Whether this node is a copy between two spaces. Such a copy copies bytes without conversion. */
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
/* One line per node; copies, aliases and recomputed nodes are visible. Owns: free with mr_free. */
MR_API mr_status mr_graph_print(const mr_graph *g, char **text);

/* ---- the order of a run ---- */

/* The concurrency of a run. Its steps are the nodes of a finished graph without setup nodes, in
 * their order, then on d2h one copy out of the arena for each output there. Steps of one queue run
 * in order. A step waits for earlier ones of other queues that access the same bytes, if one of the
 * two writes, and for the node's `after`; waits implied by others are omitted. So the bits are
 * those of the list's order, in any execution of the queues. */
typedef struct mr_schedule mr_schedule;
typedef struct mr_schedule_step {
    mr_queue queue;
    int node;                             /* -1: a copy */
    int output;                           /* of a copy, otherwise -1 */
    int wait_n, wait[MR_QUEUE_COUNT - 1]; /* steps on other queues, the newest first */
    int before[MR_QUEUE_COUNT];           /* newest finished step of each queue, or -1 */
} mr_schedule_step;
/* shared [n_shared]: regions that share the memory of "w", as declared in an executor's regions
 * (read during the call); without any, no two regions share memory. Owns: caller frees; borrows g
 * for life. Errors: MR_E_MEMORY, MR_E_USAGE before mr_graph_finish. */
MR_API mr_status mr_schedule_new(const mr_graph *g, const char *const *shared, int n_shared,
                                 mr_schedule **out);
MR_API void mr_schedule_free(mr_schedule *schedule);
MR_API int mr_schedule_steps(const mr_schedule *schedule);
MR_API const mr_schedule_step *mr_schedule_at(const mr_schedule *schedule, int i); /* lent */
/* Whether step `a` has always finished when step `b` begins. */
MR_API bool mr_schedule_before(const mr_schedule *schedule, int a, int b);
/* When each step begins, start[i], if it takes seconds[i] and every queue continues as early as
 * possible; both mr_schedule_steps long, in seconds. Returns when the last one ends. */
MR_API double mr_schedule_play(const mr_schedule *schedule, const double *seconds, double *start);
/* One line per step: queue, op, node, waits, and for steps of side queues the steps that they may
 * overlap. Owns: free with mr_free. Errors: MR_E_MEMORY */
MR_API mr_status mr_schedule_print(const mr_schedule *schedule, char **text);

#ifdef __cplusplus
}
#endif
#endif
