/* graph, inside: what the files of the room share. Licence: Apache-2.0 */
#ifndef MR_GRAPH_ROOM_H
#define MR_GRAPH_ROOM_H

#include "moonreel/graph.h"

/* How an alias value came from its parent: what the backward pass undoes. */
typedef enum view_kind {
    VIEW_NONE,
    VIEW_RESHAPE,
    VIEW_SLICE,
    VIEW_PERMUTE,
    VIEW_EXPAND,
    VIEW_WINDOW /* a parameter in gathered weights: as a leaf, it hands no gradient on */
} view_kind;

/* A value with what only this room needs. */
typedef struct value {
    mr_value pub;
    view_kind view;
    mr_ref parent; /* of a view */
    /* the value the chain of views starts from; itself when no view */
    mr_ref root;
    mr_ref beside; /* while a graph is closed: another value on this storage */
    int axis, order[MR_MAX_RANK];
    int64_t start, stop; /* slice */
    /* kept in host memory for the backward pass: the copy there, and the one back; else MR_NONE */
    mr_ref away, back;
    bool setup;   /* depends on constants only */
    bool forward; /* made before the backward pass began */
    /* of a parameter whose gradient the caller wants as a value: no row adds it to "grad" unseen */
    bool asked;
} value;

/* Building order of nodes, views and leaves: the backward pass walks it in reverse. */
/* node >= 0, else a leaf or view */
typedef struct tape_entry {
    int node;
    mr_ref value;
} tape_entry;

typedef struct block {
    const char *name;
    bool recompute;
} block;
typedef struct output {
    const char *name;
    mr_ref value;
} output;

/* A growing array; elements move, so hold indices across calls. */
#define VEC(T)                                                                                     \
    struct {                                                                                       \
        T *at;                                                                                     \
        int n, cap;                                                                                \
    }
#define VEC_PUSH(v, item)                                                                          \
    (vec_room((void **)&(v).at, &(v).cap, (v).n, sizeof *(v).at) == MR_OK                          \
         ? ((v).at[(v).n++] = (item), MR_OK)                                                       \
         : MR_E_MEMORY)

struct mr_graph {
    mr_params *params;
    mr_graph_options options;
    mr_arena arena; /* names, origins, constants */
    VEC(mr_node) nodes;
    VEC(value) values;
    VEC(mr_storage) storages;
    VEC(tape_entry) tape;
    VEC(block) blocks;
    VEC(output) outputs;
    const char *origin;
    mr_queue queue; /* of nodes added now */
    int open_block;
    mr_ref newest;   /* made last on compute; MR_NONE none */
    mr_ref sent;     /* the newest copy of an offload */
    mr_ref sent_due; /* the one before it, until a node of compute waits for it */
    mr_ref fetch_at; /* what compute makes before it needs the newest that came back */
    bool backward;   /* nodes added now belong to the backward pass */
    bool finished;
    /* forward node -> its repetition in the backward part, -1 none */
    int *clones;
    int n_forward;
};

mr_status vec_room(void **at, int *cap, int n, size_t size);

/* of its tables and constants */
size_t graph_bytes(const mr_graph *g);
mr_status graph_new_storage(mr_graph *g, mr_class kind, size_t bytes, int *out);
mr_status graph_new_value(mr_graph *g, const value *v, mr_ref *out);
/* Append a node with inferred outputs; no copies inserted, no tape entry beyond its own. */
mr_status graph_append(mr_graph *g, const mr_node *node, mr_ref *outs);
/* In the backward pass: the value to read instead of forward value x (a repetition where x is not
 * kept). */
mr_status graph_available(mr_graph *g, mr_ref x, mr_ref *out);
/* Before a backward pass: mark what leaves its recompute block, and the outputs, as kept. */
void graph_save_results(mr_graph *g);
/* Is this node a copy between two spaces? Such a one moves bytes as they lie. */
bool graph_crosses(const mr_graph *g, const mr_node *node);
/* May a row with this access read or write these strides? */
bool graph_strides_fit(mr_access access, const mr_desc *d);
mr_status graph_check_open(const mr_graph *g, const char *what);
mr_status graph_check_ref(const mr_graph *g, mr_ref x, const char *what);

#endif
