/* bind, inside: what the files of the room share. Licence: Apache-2.0 */
#ifndef MR_BIND_ROOM_H
#define MR_BIND_ROOM_H

#include "bind/members.h"
#include "moonreel/base.h"
#include "moonreel/bind.h"
#include "moonreel/ckpt.h"
#include "moonreel/data.h"
#include "moonreel/exec.h"
#include "moonreel/run.h"

#include <lauxlib.h>
#include <lua.h>
#include <stddef.h>

/* What all binding files share. Only this room raises Lua errors. A failure of the C side becomes a
 * Lua error value: a table with metatable "mr.Error" and the fields `code` ("MR_E_DATA"), `message`
 * (the whole text) and `exit`; tostring() returns the message. Order in a binding: check all
 * arguments, call the core, push. Scratch memory that must survive an error is in a to-be-closed
 * userdata (mr_bind_scratch). */

/* Raise this thread's error record when st is not MR_OK. With an empty origin it blames the
 * nearest Lua frame outside moonreel's own modules. */
void mr_bind_check(lua_State *L, mr_status st);
/* Raise an error of `code` with a printf text, with the same origin. */
int mr_bind_raise(lua_State *L, mr_status code, const char *fmt, ...) MR_PRINTF(3, 4);
/* "file:line" of the nearest Lua frame whose source is not a moonreel module; "" when none.
 * Own modules have chunk names that start with "@moonreel/". */
void mr_bind_origin(lua_State *L, char *buf, size_t cap);
/* Push the current error record as an mr.Error value without raising. */
void mr_bind_push_error(lua_State *L);

/* A block that is freed when it is closed, collected or left by an error; pushes one stack slot. */
void *mr_bind_scratch(lua_State *L, size_t bytes);

/* A variable for a pointer that is freed (mr_free) when the block is closed, collected or left by
 * an error; pushes one stack slot. For memory that the core returns. */
void **mr_bind_hold(lua_State *L);

/* Box an opaque C object: a userdata with the pointer. close(), __close or __gc call `free` once.
 * `type` is the name of the metatable ("mr.Index"). */
typedef void mr_bind_free(void *object);
void **mr_bind_box(lua_State *L, const char *type); /* pushes an empty box */
/* raises if it is closed or has another type */
void *mr_bind_unbox(lua_State *L, int arg, const char *type);
/* The declaration of a field of an options table: mr_bind_options reads the field by it, help() and
 * docs/api.md print it. */
typedef enum mr_bind_kind {
    MR_BIND_INTEGER,
    MR_BIND_NUMBER,
    MR_BIND_BOOLEAN,
    MR_BIND_TEXT,
    MR_BIND_OTHER /* a table or an object, which the function reads itself */
} mr_bind_kind;
typedef struct mr_bind_field {
    const char *name, *doc;
    mr_bind_kind kind;
    size_t at, bytes; /* its member in the struct of the options */
    double def;       /* default of numbers and booleans; an absent text is NULL */
    int64_t least;    /* minimum of integers; the type of the member determines the maximum */
    const char *type; /* type in help for MR_BIND_OTHER: "mr.Tensor" */
} mr_bind_field;

/* Entries of a list of fields, which ends with MR_BIND_END: name of the field, struct of the
 * options, member. */
#define MR_BIND_PLACE(of, member) offsetof(of, member), sizeof((of *)0)->member
#define MR_BIND_INT(name, of, member, def, least, doc)                                             \
    {                                                                                              \
        name, doc, MR_BIND_INTEGER, MR_BIND_PLACE(of, member), def, least, NULL                    \
    }
#define MR_BIND_NUM(name, of, member, def, doc)                                                    \
    {                                                                                              \
        name, doc, MR_BIND_NUMBER, MR_BIND_PLACE(of, member), def, 0, NULL                         \
    }
#define MR_BIND_BOOL(name, of, member, doc)                                                        \
    {                                                                                              \
        name, doc, MR_BIND_BOOLEAN, MR_BIND_PLACE(of, member), 0, 0, NULL                          \
    }
/* Names of memories: device, pinned; ends with NULL. */
extern const char *const mr_bind_spaces[];

#define MR_BIND_STR(name, of, member, doc)                                                         \
    {                                                                                              \
        name, doc, MR_BIND_TEXT, MR_BIND_PLACE(of, member), 0, 0, NULL                             \
    }
#define MR_BIND_ANY(name, type, doc)                                                               \
    {                                                                                              \
        name, doc, MR_BIND_OTHER, 0, 0, 0, 0, type                                                 \
    }
#define MR_BIND_END                                                                                \
    {                                                                                              \
        NULL, NULL, MR_BIND_OTHER, 0, 0, 0, 0, NULL                                                \
    }

/* Read the options table at `arg` of function `who` ("exec.new") into the struct `out`: every
 * member of `fields` gets its value or its default; others do not change. Nothing and nil count as
 * an empty table. Texts are lent while the table lives.
 * Errors: MR_E_USAGE a field that is not listed (names the nearest), of another type, or out of
 * range. */
void mr_bind_options(lua_State *L, int arg, const char *who, const mr_bind_field *fields,
                     void *out);

/* One function, method or field as Lua sees it: what help(), completion, docs/api.md and the stubs
 * for editors print. */
typedef struct mr_bind_entry {
    const char *name;   /* starting with "__": a metamethod */
    lua_CFunction call; /* NULL: a field, which code of the module or type sets */
    const char *type;   /* "(dtype: mr.Dtype, dims: integer[]): mr.Tensor"; for a field its type */
    const char *doc;    /* a sentence or two */
    const mr_bind_field *options; /* fields of the argument `options`; NULL: no such argument */
} mr_bind_entry;
#define MR_ENTRY(name, call, type, doc)                                                            \
    {                                                                                              \
        name, call, type, doc, NULL                                                                \
    }
#define MR_ENTRY_OPTIONS(name, call, type, doc, options)                                           \
    {                                                                                              \
        name, call, type, doc, options                                                             \
    }
#define MR_ENTRY_FIELD(name, type, doc)                                                            \
    {                                                                                              \
        name, NULL, type, doc, NULL                                                                \
    }
#define MR_ENTRY_END                                                                               \
    {                                                                                              \
        NULL, NULL, NULL, NULL, NULL                                                               \
    }

/* A module ("moonreel.core.tensor") or a type ("mr.Tensor"). It must be static: entries are read
 * while Lua lives. */
typedef struct mr_bind_face {
    const char *name, *doc;       /* doc NULL: not in help */
    const mr_bind_entry *entries; /* NULL: none */
    mr_bind_free *free_object;    /* for a type of boxes, which then also has close() */
} mr_bind_face;

/* Push a module's table with its functions; returns 1. */
int mr_bind_module(lua_State *L, const mr_bind_face *face);
/* Register a type. An entry "__index" gets the table of methods as its first upvalue; without it,
 * only that table is searched. tostring() returns the name of the type unless an entry defines
 * it. */
void mr_bind_type(lua_State *L, const mr_bind_face *face);
/* The registry table of all registered faces with a doc: name -> light userdata. */
#define MR_BIND_FACES "mr.faces"

/* Set a field of the table on top of the stack. */
void mr_bind_set_int(lua_State *L, const char *field, int64_t x);
void mr_bind_set_num(lua_State *L, const char *field, double x);
void mr_bind_set_bool(lua_State *L, const char *field, bool x);
void mr_bind_set_str(lua_State *L, const char *field, const char *x); /* NULL: nil */
void mr_bind_set_ints(lua_State *L, const char *field, const int64_t *x, int n);

/* One opener per room, which leaves one table on the stack: moonreel.core.<room>. The linker
 * collects the list from files core/bind/<room>.c with MR_BIND_ROOM(<room>). */
typedef struct mr_bind_room {
    const char *name;
    lua_CFunction open;
} mr_bind_room;
#define MR_BIND_ROOM(room)                                                                         \
    static int open_##room(lua_State *L);                                                          \
    static const mr_bind_room room_##room = {#room, open_##room};                                  \
    static const mr_bind_room *const room_ptr_##room __attribute__((used, section("mr_rooms"))) =  \
        &room_##room;                                                                              \
    static int open_##room(lua_State *L)

/* Tensors, values, graphs and parameter tables as other binding files see them (args.c). */

/* lent; raises if arg is not a tensor. A value with __tensor in its metatable, such as a tensor of
 * a checkpoint, is replaced by a tensor on the stack. */
mr_tensor *mr_bind_tensor(lua_State *L, int arg);
/* Whether the argument is a tensor, or is replaced by one. */
bool mr_bind_to_tensor(lua_State *L, int arg);
/* Push an empty box before the tensor is created: if Lua runs out of memory, no tensor is lost. */
mr_tensor **mr_bind_new_tensor(lua_State *L);
mr_dtype mr_bind_dtype(lua_State *L, int arg); /* "f32" ...; raises with the list of dtypes */

mr_graph *mr_bind_graph(lua_State *L, int arg);   /* type "mr.Graph" */
mr_params *mr_bind_params(lua_State *L, int arg); /* type "mr.Params" */
/* The device of eager arithmetic: MOONREEL_DEVICE or "cpu", opened at first use; lent. */
mr_device *mr_bind_eager_device(lua_State *L);

/* Call op `name` on the arguments first..last (tensors, values, false or nil for an absent input;
 * a last plain table holds attributes). Pushes the outputs, returns their number. */
int mr_bind_call_op(lua_State *L, const char *name, int first, int last);

/* Lua: t:sum(axes, keep) and similar methods. */
int mr_bind_reduce_sum(lua_State *L);
int mr_bind_reduce_mean(lua_State *L);
int mr_bind_reduce_max(lua_State *L);
int mr_bind_reduce_min(lua_State *L);
int mr_bind_reduce_norm(lua_State *L);

/* Arithmetic on tensors and values of graphs; MR_ENTRY_OPERATORS are the entries of such a type. */
int mr_bind_add(lua_State *L);
int mr_bind_sub(lua_State *L);
int mr_bind_mul(lua_State *L);
int mr_bind_div(lua_State *L);
int mr_bind_unm(lua_State *L);
#define MR_ENTRY_OPERATORS(type)                                                                   \
    MR_ENTRY("__add", mr_bind_add, "(other: number|" type "): " type, "Sum."),                     \
        MR_ENTRY("__sub", mr_bind_sub, "(other: number|" type "): " type, "Difference."),          \
        MR_ENTRY("__mul", mr_bind_mul, "(other: number|" type "): " type, "Product by element."),  \
        MR_ENTRY("__div", mr_bind_div, "(other: number|" type "): " type, "Quotient by element."), \
        MR_ENTRY("__unm", mr_bind_unm, "(): " type, "The same with the other sign.")

/* Of tensors and of values. A list of integers at `arg` (table) into dim[MR_MAX_RANK]; returns its
 * length. */
int mr_bind_dims(lua_State *L, int arg, int64_t *dim);
/* The order of axes that swaps those at `arg` and arg + 1, the last two if both are absent;
 * negative ones count from the end. Raises if they do not exist. */
void mr_bind_swap(lua_State *L, int arg, int rank, int *order);
/* "0, :, 3:16" or an integer at `arg` into ranges[MR_MAX_RANK], of the first dimensions of `d`;
 * returns their number. */
typedef struct mr_bind_range {
    bool drop; /* one position: drop the dimension */
    int64_t start, stop;
} mr_bind_range;
int mr_bind_ranges(lua_State *L, int arg, const mr_desc *d, mr_bind_range *ranges);

/* Values of a graph, for graph.c, value.c, params.c and op.c. */

/* A value in Lua; user value 1 keeps its graph alive. */
typedef struct mr_bind_value {
    mr_graph *graph;
    mr_ref ref;
} mr_bind_value;
#define MR_VALUE "mr.Value"

/* `graph_at` is the stack index of the graph userdata. */
void mr_bind_push_value(lua_State *L, int graph_at, mr_graph *g, mr_ref ref);
/* lent; raises if the graph is closed */
mr_bind_value *mr_bind_value_at(lua_State *L, int arg);
/* The value of g at `arg`; raises if it belongs to another graph. */
mr_ref mr_bind_ref_of(lua_State *L, mr_graph *g, int arg);
/* The value at `arg` for graph g: itself, or an eager tensor as a constant. */
mr_ref mr_bind_ref(lua_State *L, mr_graph *g, int arg);
/* Set the origin of new nodes of g: file:line of the nearest frame of a model or of the user's
 * code. */
void mr_bind_set_origin(lua_State *L, mr_graph *g);

/* Lua: params(dtype), op(name, {inputs}, {attrs}) */
int mr_bind_params_new(lua_State *L);
int mr_bind_op_by_name(lua_State *L);
/* Register the types mr.Value and mr.Params. */
void mr_bind_value_type(lua_State *L);
void mr_bind_params_type(lua_State *L);

/* Devices, executors and programs, for device.c, exec.c and program.c. */

typedef struct device {
    mr_device *dev;
    int refs;
} device;
typedef struct executor executor;
typedef struct program {
    mr_program *prog; /* NULL once the executor is closed */
    executor *of;
    struct program *next;
} program;
struct executor {
    mr_exec *exec;
    device *dev;
    program *programs;
};

/* User values of a box: 1 is the object from which it was created (device, executor), 2 is params
 * or graph. */

/* Lua: device(name, threads). The device at `arg`, which lives until its last user releases it. */
int mr_bind_device_open(lua_State *L);
device *mr_bind_device(lua_State *L, int arg);
void mr_bind_device_unref(void *device);
/* The facts in the table on top of the stack, or those of this processor if it is nil. */
mr_facts mr_bind_facts(lua_State *L);
/* Register mr.Device. */
void mr_bind_device_type(lua_State *L);
/* the executor at `arg`; its parameter table is still open */
mr_exec *mr_bind_exec(lua_State *L, int arg);
/* Lua: executor:compile(graph) */
int mr_bind_program_new(lua_State *L);
/* Register mr.Program. */
void mr_bind_program_type(lua_State *L);

/* The lock type, shared by moonreel.core.run and moonreel.core.ckpt. */

extern const char mr_bind_lock_type[];

/* ---- states that ranks publish ---- */

extern const char mr_bind_life_type[]; /* "mr.Life", a box of a page */
/* Record the nearest Lua frame outside moonreel.comm as the caller of the next collectives of this
 * thread. */
void mr_bind_tell_where(lua_State *L);

/* ---- world.c, for moonreel.core.comm ---- */

extern const char mr_bind_comm_type[]; /* "mr.Comm", a box of a group */
/* Lua: world(options) with its fields */
int mr_bind_world(lua_State *L);
extern const mr_bind_field mr_bind_world_fields[];

/* ---- builder.c, for moonreel.core.index ---- */

extern const char mr_bind_index_type[]; /* "mr.Index", a box of a reader */
/* Push a value of a column: an integer, a float, or nil. */
void mr_bind_push_number(lua_State *L, mr_number value);
/* The kind of a column in Lua: "whole" or "real". */
const char *mr_bind_column_kind(mr_column_kind kind);
/* Lua: builder(path) */
int mr_bind_builder_new(lua_State *L);
/* Register mr.IndexBuilder. */
void mr_bind_builder_type(lua_State *L);

/* ---- sweep.c, for moonreel.core.index ---- */

/* Lua: sweep(index, rows, options) */
int mr_bind_sweep_new(lua_State *L);
extern const mr_bind_field mr_bind_sweep_fields[];
void mr_bind_sweep_type(lua_State *L);

/* ---- rule.c, for moonreel.core.loader and order.c ---- */

extern const char mr_bind_rule_type[]; /* "mr.BucketRule", a box of an mr_bucket_rule */
/* Lua: rule(options) with its fields */
int mr_bind_rule_new(lua_State *L);
extern const mr_bind_field mr_bind_rule_fields[];
void mr_bind_rule_type_open(lua_State *L);
/* The options about a rule in the options of another function, as a member of their struct. */
typedef struct mr_bind_rule_options {
    int64_t draw_epochs;
    int32_t frame_interval;
    bool compat;
    const char *reference;
    double fps_max;
} mr_bind_rule_options;
#define MR_BIND_RULE_FIELDS(of, at)                                                                \
    MR_BIND_ANY("buckets", "table", "The bucket rule, required."),                                 \
        MR_BIND_INT("frame_interval", of, at.frame_interval, 1, 1,                                 \
                    "Step from one frame to the next."),                                           \
        MR_BIND_BOOL("compat", of, at.compat, "Lengths and frames as in Open-Sora 1.2."),          \
        MR_BIND_INT("draw_epochs", of, at.draw_epochs, 0, 0,                                       \
                    "Epochs after which draws of samples repeat; 0: never."),                      \
        MR_BIND_STR("reference", of, at.reference,                                                 \
                    "Use the buckets and the order of \"opensora-1.2\" or \"opensora-2.0\"."),     \
        MR_BIND_NUM("fps_max", of, at.fps_max, 0,                                                  \
                    "For 2.0: thin faster clips to this frame rate; 0: do not.")
/* Create the rule of the options at `options`; the caller owns it. Values that it leaves on the
 * stack are dropped with the caller's frame. */
mr_bucket_rule *mr_bind_rule(lua_State *L, int options, const mr_bind_rule_options *o);
/* Push a table {resolution, frames, height, width, batch} of bucket b. */
void mr_bind_push_shape(lua_State *L, const mr_bucket_rule *rule, int32_t b);

/* ---- source.c, for moonreel.core.loader, order.c and rule.c ---- */

/* Lua: quantiles(index, options) with its fields */
int mr_bind_quantiles(lua_State *L);
extern const mr_bind_field mr_bind_quantiles_fields[];
/* Lua: hold(index, options) with its fields */
int mr_bind_hold_back(lua_State *L);
extern const mr_bind_field mr_bind_hold_back_fields[];
void mr_bind_subset_type_open(lua_State *L);
/* The subset at `at`, lent; NULL if absent. */
mr_subset *mr_bind_subset(lua_State *L, int at);
/* Read *n sources from the list at `list`. Memory and stack values are dropped with the caller's
 * frame; the list lends names and indexes. */
mr_source *mr_bind_sources(lua_State *L, int list, int32_t *n);

/* ---- order.c, for moonreel.core.loader ---- */

/* Lua: order(sources, options) with its fields */
int mr_bind_order_new(lua_State *L);
extern const mr_bind_field mr_bind_order_fields[];
/* Register mr.Order. */
void mr_bind_order_type(lua_State *L);

/* ---- saver.c, for moonreel.core.ckpt ---- */

/* Lua: write(path, tensors [, {key = text}]); saver(lock, options) with its fields */
int mr_bind_ckpt_write(lua_State *L);
/* Read the table of texts at `arg`, if there is one, as scratch memory. Returns their number. */
int mr_bind_metadata(lua_State *L, int arg, mr_st_pair **out);
/* Read the slice in the table at `t`: range = {from, to} or box = {{from, to}, ...}; neither: the
 * whole tensor. Raises MR_E_USAGE. */
void mr_bind_slice(lua_State *L, int t, const char *name, int rank, mr_ckpt_slice *out);
int mr_bind_saver_new(lua_State *L);
extern const mr_bind_field mr_bind_saver_fields[];
/* Register mr.Saver. */
void mr_bind_saver_type(lua_State *L);

#endif
