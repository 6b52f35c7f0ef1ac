/* bind: moonreel.core.comm - ranks of this run and collectives on tensors. Licence: Apache-2.0 */
#include "bind/room.h"
#include "moonreel/comm.h"

#include <string.h>

#define TORUS "mr.Torus"

static void free_comm(void *c)
{
    mr_comm_free(c);
}
static void free_torus(void *t)
{
    mr_torus_free(t);
}

static mr_comm *comm_at(lua_State *L)
{
    mr_bind_tell_where(L);
    return mr_bind_unbox(L, 1, mr_bind_comm_type);
}

/* ---- tensors ---- */

static const mr_view *dense_at(lua_State *L, int arg, const char *who)
{
    const mr_view *v = mr_tensor_view(mr_bind_tensor(L, arg));
    char text[128];
    if (!mr_desc_is_dense(&v->desc))
        mr_bind_raise(L, MR_E_SHAPE, "%s: %s has gaps or another order of axes; try: x:clone()",
                      who, mr_desc_text(&v->desc, text, sizeof text));
    return v;
}

/* The number of rows, which are positions of the first axis; a scalar is one row. */
static int64_t rows_of(const mr_desc *d)
{
    return d->rank ? d->dim[0] : 1;
}
static int64_t row_count(const mr_desc *d)
{
    int64_t n = 1;
    for (int i = 1; i < d->rank; i++)
        n *= d->dim[i];
    return n;
}

/* Push a new tensor of `rows` rows like those of d, in `dtype`. */
static const mr_view *push_rows(lua_State *L, const mr_desc *d, int64_t rows, mr_dtype dtype)
{
    mr_desc out = *d;
    out.dim[0] = rows;
    mr_tensor **t = mr_bind_new_tensor(L);
    mr_bind_check(L, mr_tensor_new(dtype, MR_MAX(d->rank, 1), out.dim, t));
    return mr_tensor_view(*t);
}

/* The same; or use the tensor `out` of the options at `arg`, which must have that dtype and
 * size. */
static const mr_view *result_rows(lua_State *L, int arg, const char *who, const mr_desc *d,
                                  int64_t rows, mr_dtype dtype)
{
    if (!lua_istable(L, arg) || lua_getfield(L, arg, "out") == LUA_TNIL)
        return push_rows(L, d, rows, dtype);
    char text[128];
    if (!mr_bind_to_tensor(L, -1))
        mr_bind_raise(L, MR_E_USAGE, "%s: out: expected a tensor, got %s", who,
                      luaL_typename(L, -1));
    const mr_view *out = dense_at(L, -1, who);
    if (out->desc.dtype != dtype || mr_desc_count(&out->desc) != rows * row_count(d))
        mr_bind_raise(L, MR_E_SHAPE, "%s: out is %s: expected %lld elements of %s", who,
                      mr_desc_text(&out->desc, text, sizeof text), (long long)(rows * row_count(d)),
                      mr_dtype_name(dtype));
    return out;
}

/* Field `name` of the options at `arg`: rows per rank; NULL if absent. */
static int64_t *row_list(lua_State *L, int arg, const mr_comm *c, const char *who, const char *name,
                         const mr_desc *d)
{
    const int n = mr_comm_size(c);
    int kind = lua_istable(L, arg) ? lua_getfield(L, arg, name) : (lua_pushnil(L), LUA_TNIL);
    if (kind == LUA_TNIL) {
        lua_pop(L, 1);
        return NULL;
    }
    if (kind != LUA_TTABLE || (int)lua_rawlen(L, -1) != n)
        mr_bind_raise(L, MR_E_USAGE, "%s: %s: expected a list of %d numbers of rows, one per rank",
                      who, name, n);
    int list = lua_gettop(L);
    int64_t *rows = mr_bind_scratch(L, (size_t)n * sizeof *rows);
    // the sum must fit into a tensor
    int64_t left = (int64_t)(MR_BYTES_MAX / mr_dtype_bytes(d->dtype)) / MR_MAX(row_count(d), 1);
    for (int i = 0; i < n; i++) {
        int ok;
        lua_rawgeti(L, list, i + 1);
        rows[i] = lua_tointegerx(L, -1, &ok);
        if (!ok || rows[i] < 0 || rows[i] > left)
            mr_bind_raise(L, MR_E_USAGE, "%s: %s[%d] is %s: expected a number of rows, 0 to %lld",
                          who, name, i + 1, luaL_tolstring(L, -1, NULL), (long long)left);
        lua_pop(L, 1);
        left -= rows[i];
    }
    return rows;
}

/* The list with the same number of rows for every rank. */
static int64_t *equal_rows(lua_State *L, const mr_comm *c, int64_t each)
{
    int64_t *rows = mr_bind_scratch(L, (size_t)mr_comm_size(c) * sizeof *rows);
    for (int i = 0; i < mr_comm_size(c); i++)
        rows[i] = each;
    return rows;
}

static int64_t sum_of(const int64_t *rows, int n)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += rows[i];
    return sum;
}

/* The number of elements per rank, for `rows` rows of the width of d. */
static int64_t *elements_of(lua_State *L, const mr_comm *c, const int64_t *rows, const mr_desc *d)
{
    int64_t *counts = mr_bind_scratch(L, (size_t)mr_comm_size(c) * sizeof *counts);
    for (int i = 0; i < mr_comm_size(c); i++)
        counts[i] = rows[i] * row_count(d);
    return counts;
}

static void expect_rows(lua_State *L, const char *who, const char *what, int64_t got, int64_t want)
{
    if (got != want)
        mr_bind_raise(L, MR_E_SHAPE, "%s: %s says %lld rows, x has %lld", who, what, (long long)got,
                      (long long)want);
}

static mr_comm_kind kind_of(lua_State *L, const char *who, const char *name)
{
    for (int k = 0; name && k < MR_COMM_KIND_COUNT; k++)
        if (strcmp(name, mr_comm_kind_name((mr_comm_kind)k)) == 0)
            return (mr_comm_kind)k;
    if (name)
        mr_bind_raise(L, MR_E_USAGE, "%s: '%s': expected sum or max", who, name);
    return MR_COMM_SUM;
}

/* ---- collectives ---- */

static int c_barrier(lua_State *L)
{
    mr_comm *c = comm_at(L);
    const double s = luaL_optnumber(L, 2, 0);
    if (!(s >= 0))
        return mr_bind_raise(L, MR_E_USAGE, "barrier: deadline_s is %g: expected seconds", s);
    mr_bind_check(L, mr_comm_barrier(c, s));
    return 0;
}

static int c_all_reduce(lua_State *L)
{
    mr_comm *c = comm_at(L);
    const mr_view *x = dense_at(L, 2, "all_reduce");
    mr_comm_kind kind = kind_of(L, "all_reduce", luaL_optstring(L, 3, NULL));
    mr_bind_check(L, mr_comm_all_reduce(c, kind, x->desc.dtype, x->data, mr_desc_count(&x->desc)));
    lua_settop(L, 2);
    return 1;
}

typedef struct reduce_options {
    const char *kind, *dtype;
} reduce_options;

static const mr_bind_field reduce_fields[] = {
    MR_BIND_STR("kind", reduce_options, kind, "\"sum\" (default) or \"max\"."),
    MR_BIND_STR(
        "dtype", reduce_options, dtype,
        "Dtype of the result: that of x (default); f32 and bf16 can be converted to each other."),
    MR_BIND_ANY("rows", "integer[]", "Rows for each rank; default: the same for all."),
    MR_BIND_ANY("out", "mr.Tensor", "Tensor for the result; it can be this rank's rows of x."),
    MR_BIND_END};

/* The dtype of the options, or that of x. */
static mr_dtype result_dtype(lua_State *L, const char *name, mr_dtype x)
{
    if (!name)
        return x;
    mr_dtype to = mr_dtype_from_name(name);
    if (to == MR_DTYPE_COUNT)
        mr_bind_raise(L, MR_E_USAGE, "reduce_scatter: there is no dtype '%s'", name);
    return to;
}

static int c_reduce_scatter(lua_State *L)
{
    reduce_options o;
    mr_comm *c = comm_at(L);
    const mr_view *x = dense_at(L, 2, "reduce_scatter");
    const int n = mr_comm_size(c);
    mr_bind_options(L, 3, "reduce_scatter", reduce_fields, &o);
    mr_comm_kind kind = kind_of(L, "reduce_scatter", o.kind);
    mr_dtype to = result_dtype(L, o.dtype, x->desc.dtype);
    const int64_t *rows = row_list(L, 3, c, "reduce_scatter", "rows", &x->desc);
    const int64_t all = rows_of(&x->desc);
    if (!rows && all % n)
        return mr_bind_raise(L, MR_E_SHAPE,
                             "reduce_scatter: %lld rows for %d ranks; try: rows = {...}, the rows "
                             "of each",
                             (long long)all, n);
    if (!rows)
        rows = equal_rows(L, c, all / n);
    expect_rows(L, "reduce_scatter", "rows", sum_of(rows, n), all);
    const int64_t *counts = elements_of(L, c, rows, &x->desc);
    const mr_view *out = result_rows(L, 3, "reduce_scatter", &x->desc, rows[mr_comm_rank(c)], to);
    mr_bind_check(L,
                  mr_comm_reduce_scatter(c, kind, x->desc.dtype, x->data, counts, to, out->data));
    return 1;
}

static const mr_bind_field gather_fields[] = {
    MR_BIND_ANY("rows", "integer[]", "Rows of each rank; default: as many as on this one."),
    MR_BIND_ANY("out", "mr.Tensor", "Tensor for the result; x can be its rows of this rank."),
    MR_BIND_END};

static int c_all_gather(lua_State *L)
{
    mr_comm *c = comm_at(L);
    const mr_view *x = dense_at(L, 2, "all_gather");
    mr_bind_options(L, 3, "all_gather", gather_fields, NULL);
    const int64_t *rows = row_list(L, 3, c, "all_gather", "rows", &x->desc);
    if (!rows)
        rows = equal_rows(L, c, rows_of(&x->desc));
    expect_rows(L, "all_gather", "rows of this rank", rows[mr_comm_rank(c)], rows_of(&x->desc));
    const int64_t *counts = elements_of(L, c, rows, &x->desc);
    const mr_view *out =
        result_rows(L, 3, "all_gather", &x->desc, sum_of(rows, mr_comm_size(c)), x->desc.dtype);
    mr_bind_check(L, mr_comm_all_gather(c, x->desc.dtype, x->data, counts, out->data));
    return 1;
}

static const mr_bind_field all_to_all_fields[] = {
    MR_BIND_ANY("sends", "integer[]", "Rows for each rank; default: the same for all."),
    MR_BIND_ANY("receives", "integer[]",
                "Rows from each rank; default: as many as are sent to it."),
    MR_BIND_END};

static int c_all_to_all(lua_State *L)
{
    mr_comm *c = comm_at(L);
    const mr_view *x = dense_at(L, 2, "all_to_all");
    const int n = mr_comm_size(c);
    mr_bind_options(L, 3, "all_to_all", all_to_all_fields, NULL);
    const int64_t *sends = row_list(L, 3, c, "all_to_all", "sends", &x->desc);
    const int64_t *receives = row_list(L, 3, c, "all_to_all", "receives", &x->desc);
    const int64_t all = rows_of(&x->desc);
    if (!sends && all % n)
        return mr_bind_raise(L, MR_E_SHAPE,
                             "all_to_all: %lld rows for %d ranks; try: sends = {...}, the rows for "
                             "each",
                             (long long)all, n);
    if (!sends)
        sends = equal_rows(L, c, all / n);
    if (!receives)
        receives = sends;
    expect_rows(L, "all_to_all", "sends", sum_of(sends, n), all);
    const int64_t *give = elements_of(L, c, sends, &x->desc);
    const int64_t *get = elements_of(L, c, receives, &x->desc);
    const mr_view *out = push_rows(L, &x->desc, sum_of(receives, n), x->desc.dtype);
    mr_bind_check(L, mr_comm_all_to_all(c, x->desc.dtype, x->data, give, out->data, get));
    return 1;
}

static int c_broadcast(lua_State *L)
{
    mr_comm *c = comm_at(L);
    const mr_view *x = dense_at(L, 2, "broadcast");
    lua_Integer root = luaL_optinteger(L, 3, 0);
    luaL_argcheck(L, root >= 0 && root < mr_comm_size(c), 3, "expected a rank of the group");
    mr_bind_check(L,
                  mr_comm_broadcast(c, (int)root, x->desc.dtype, x->data, mr_desc_count(&x->desc)));
    lua_settop(L, 2);
    return 1;
}

static int c_send(lua_State *L)
{
    mr_comm *c = comm_at(L);
    const mr_view *x = dense_at(L, 2, "send");
    lua_Integer to = luaL_checkinteger(L, 3);
    luaL_argcheck(L, to >= 0 && to < mr_comm_size(c), 3, "expected a rank of the group");
    mr_bind_check(L, mr_comm_send(c, (int)to, x->desc.dtype, x->data, mr_desc_count(&x->desc)));
    return 0;
}

static int c_receive(lua_State *L)
{
    mr_comm *c = comm_at(L);
    const mr_view *x = dense_at(L, 2, "receive");
    lua_Integer from = luaL_checkinteger(L, 3);
    luaL_argcheck(L, from >= 0 && from < mr_comm_size(c), 3, "expected a rank of the group");
    mr_bind_check(L,
                  mr_comm_receive(c, (int)from, x->desc.dtype, x->data, mr_desc_count(&x->desc)));
    lua_settop(L, 2);
    return 1;
}

/* ---- groups ---- */

typedef struct split_options {
    int key, lane;
} split_options;

static const mr_bind_field split_fields[] = {
    MR_BIND_INT("key", split_options, key, 0, INT32_MIN,
                "Order in the group; equal keys keep the order of ranks."),
    MR_BIND_INT("lane", split_options, lane, 0, 0,
                "0 or 1: two threads that use groups concurrently need different lanes."),
    MR_BIND_END};

static int c_split(lua_State *L)
{
    split_options o;
    mr_comm *c = comm_at(L);
    lua_Integer color = luaL_optinteger(L, 2, -1);
    luaL_argcheck(L, color >= -1 && color <= INT32_MAX, 2, "expected a number from 0 on, or nil");
    mr_bind_options(L, 3, "split", split_fields, &o);
    mr_comm **part = (mr_comm **)mr_bind_box(L, mr_bind_comm_type);
    mr_bind_check(L, mr_comm_split(c, (int)color, o.key, o.lane, part));
    if (!*part)
        lua_pushnil(L);
    return 1;
}

static int c_rank(lua_State *L)
{
    lua_pushinteger(L, mr_comm_rank(comm_at(L)));
    return 1;
}
static int c_size(lua_State *L)
{
    lua_pushinteger(L, mr_comm_size(comm_at(L)));
    return 1;
}
static int c_world_rank(lua_State *L)
{
    mr_comm *c = comm_at(L);
    lua_Integer rank = luaL_optinteger(L, 2, mr_comm_rank(c));
    luaL_argcheck(L, rank >= 0 && rank < mr_comm_size(c), 2, "expected a rank of the group");
    lua_pushinteger(L, mr_comm_world_rank(c, (int)rank));
    return 1;
}

static int c_counts(lua_State *L)
{
    mr_comm *c = comm_at(L);
    lua_newtable(L);
    for (int op = 0; op < MR_COMM_OP_COUNT; op++) {
        mr_comm_count n = mr_comm_counted(c, (mr_comm_op)op);
        if (!n.calls)
            continue;
        lua_createtable(L, 0, 2);
        MR_BIND_SET(L, n, calls, bytes);
        lua_setfield(L, -2, mr_comm_op_name((mr_comm_op)op));
    }
    return 1;
}

static int c_reset_counts(lua_State *L)
{
    mr_comm_count_reset(comm_at(L));
    return 0;
}

static int c_tostring(lua_State *L)
{
    mr_comm *const *c = lua_touserdata(L, 1);
    if (*c)
        lua_pushfstring(L, "rank %d of %d", mr_comm_rank(*c), mr_comm_size(*c));
    else
        lua_pushfstring(L, "%s (closed)", mr_bind_comm_type);
    return 1;
}

/* ---- two hops ---- */

static int c_torus(lua_State *L)
{
    mr_comm *c = comm_at(L);
    lua_Integer local = luaL_checkinteger(L, 2);
    luaL_argcheck(L, local >= 1 && local <= INT32_MAX, 2, "expected ranks per node");
    mr_torus **t = (mr_torus **)mr_bind_box(L, TORUS);
    mr_bind_check(L, mr_torus_new(c, (int)local, t));
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, -2, 1);
    return 1;
}

/* The torus at 1, and its number of ranks. */
static mr_torus *torus_at(lua_State *L, int64_t *ranks)
{
    mr_torus *t = mr_bind_unbox(L, 1, TORUS);
    lua_getiuservalue(L, 1, 1);
    *ranks = mr_comm_size(mr_bind_unbox(L, -1, mr_bind_comm_type));
    lua_pop(L, 1);
    return t;
}

static const mr_bind_field torus_fields[] = {
    MR_BIND_STR("kind", reduce_options, kind, "\"sum\" (default) or \"max\"."),
    MR_BIND_STR(
        "dtype", reduce_options, dtype,
        "Dtype of the result: that of x (default); f32 and bf16 can be converted to each other."),
    MR_BIND_END};

static int t_reduce_scatter(lua_State *L)
{
    reduce_options o;
    int64_t ranks;
    mr_torus *t = torus_at(L, &ranks);
    const mr_view *x = dense_at(L, 2, "reduce_scatter");
    mr_bind_options(L, 3, "reduce_scatter", torus_fields, &o);
    mr_comm_kind kind = kind_of(L, "reduce_scatter", o.kind);
    mr_dtype to = result_dtype(L, o.dtype, x->desc.dtype);
    if (rows_of(&x->desc) % ranks)
        return mr_bind_raise(L, MR_E_SHAPE, "reduce_scatter: %lld rows for %lld ranks",
                             (long long)rows_of(&x->desc), (long long)ranks);
    const mr_view *out = push_rows(L, &x->desc, rows_of(&x->desc) / ranks, to);
    mr_bind_check(L, mr_torus_reduce_scatter(t, kind, x->desc.dtype, x->data,
                                             mr_desc_count(&x->desc) / ranks, to, out->data));
    return 1;
}

static int t_all_gather(lua_State *L)
{
    int64_t ranks;
    mr_torus *t = torus_at(L, &ranks);
    const mr_view *x = dense_at(L, 2, "all_gather");
    const mr_view *out = push_rows(L, &x->desc, rows_of(&x->desc) * ranks, x->desc.dtype);
    mr_bind_check(
        L, mr_torus_all_gather(t, x->desc.dtype, x->data, mr_desc_count(&x->desc), out->data));
    return 1;
}

static int t_chunk(lua_State *L)
{
    lua_pushinteger(L, mr_torus_chunk(mr_bind_unbox(L, 1, TORUS)));
    return 1;
}

/* ---- functions of the module ---- */

static int b_raw_mpi(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    const mr_view *x = dense_at(L, 2, "raw_mpi");
    int op = 0;
    while (op < MR_COMM_OP_COUNT && strcmp(name, mr_comm_op_name((mr_comm_op)op)) != 0)
        op++;
    mr_bind_check(L, mr_mpi_raw((mr_comm_op)op, x->data, mr_desc_span_bytes(&x->desc)));
    return 0;
}

static int c_op_group(lua_State *L)
{
    int64_t group;
    mr_bind_check(L, mr_comm_op_group(comm_at(L), &group));
    lua_pushinteger(L, group);
    return 1;
}

/* ---- entries ---- */

static const mr_bind_entry comm_methods[] = {
    MR_ENTRY("rank", c_rank, "(): integer", "This rank of the group, from 0."),
    MR_ENTRY("size", c_size, "(): integer", "Ranks of the group."),
    MR_ENTRY("world_rank", c_world_rank, "(rank?: integer): integer",
             "The number of a rank of the group in the world."),
    MR_ENTRY_OPTIONS("split", c_split, "(color?: integer, options?: table): mr.Comm?",
                     "The group of all ranks that pass the same color; no group for nil.",
                     split_fields),
    MR_ENTRY("barrier", c_barrier, "(deadline_s?: number)", "Wait until all ranks call this."),
    MR_ENTRY("all_reduce", c_all_reduce, "(x: mr.Tensor, kind?: string): mr.Tensor",
             "Add x of all ranks, in the order of ranks, in place; kind \"max\": the largest."),
    MR_ENTRY_OPTIONS("reduce_scatter", c_reduce_scatter,
                     "(x: mr.Tensor, options?: table): mr.Tensor",
                     "The sum over ranks, of which each rank gets its rows.", reduce_fields),
    MR_ENTRY_OPTIONS("all_gather", c_all_gather, "(x: mr.Tensor, options?: table): mr.Tensor",
                     "The rows of all ranks, in the order of ranks.", gather_fields),
    MR_ENTRY_OPTIONS("all_to_all", c_all_to_all, "(x: mr.Tensor, options?: table): mr.Tensor",
                     "Send rows to each rank, and receive rows from each rank.", all_to_all_fields),
    MR_ENTRY("broadcast", c_broadcast, "(x: mr.Tensor, root?: integer): mr.Tensor",
             "Copy x of one rank, by default 0, to x of all ranks."),
    MR_ENTRY("send", c_send, "(x: mr.Tensor, to: integer)",
             "Send x to a rank, which must receive it."),
    MR_ENTRY("receive", c_receive, "(x: mr.Tensor, from: integer): mr.Tensor",
             "Receive into x, which has the dtype and size of the tensor that the rank sends."),
    MR_ENTRY("counts", c_counts, "(): table",
             "Calls and sent bytes of this rank in its world: {all_reduce = {calls, bytes}}."),
    MR_ENTRY("reset_counts", c_reset_counts, "()", "Reset the counts to 0."),
    MR_ENTRY("op_group", c_op_group, "(): integer",
             "Its group number, for the attribute `group` of ops between ranks; valid while the "
             "group lives."),
    MR_ENTRY("torus", c_torus, "(local_ranks: integer): mr.Torus",
             "Reductions in two hops, first within nodes of `size` consecutive ranks."),
    MR_ENTRY("__tostring", c_tostring, "(): string", "Rank and size."),
    MR_ENTRY_END};
static const mr_bind_face comm_type = {mr_bind_comm_type, "Ranks that call collectives together.",
                                       comm_methods, free_comm};

static const mr_bind_entry torus_methods[] = {
    MR_ENTRY("chunk", t_chunk, "(): integer", "Index of the chunk that this rank owns, from 0."),
    MR_ENTRY_OPTIONS(
        "reduce_scatter", t_reduce_scatter, "(x: mr.Tensor, options?: table): mr.Tensor",
        "The sum over ranks, of which each rank gets the rows of its chunk.", torus_fields),
    MR_ENTRY("all_gather", t_all_gather, "(x: mr.Tensor): mr.Tensor", "The chunks of all ranks."),
    MR_ENTRY_END};
static const mr_bind_face torus_type = {TORUS, "Collectives in two hops.", torus_methods,
                                        free_torus};

static const mr_bind_entry comm_entries[] = {
    MR_ENTRY_OPTIONS("world", mr_bind_world, "(options?: table): mr.Comm",
                     "The group of all ranks of a run; moonreel.comm finds the options.",
                     mr_bind_world_fields),
    MR_ENTRY("raw_mpi", b_raw_mpi, "(op: string, x: mr.Tensor)",
             "MPI's own barrier, broadcast, all_reduce (f32) or send (and back), for benchmarks."),
    MR_ENTRY_END};
static const mr_bind_face comm_face = {
    "moonreel.core.comm", "Ranks of a run, and collectives between them.", comm_entries, NULL};

MR_BIND_ROOM(comm)
{
    mr_bind_type(L, &comm_type);
    mr_bind_type(L, &torus_type);
    return mr_bind_module(L, &comm_face);
}
