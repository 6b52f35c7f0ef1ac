/* bind: parameter tables. Licence: Apache-2.0 */
#include "bind/room.h"

#include <string.h>

int mr_bind_params_new(lua_State *L)
{
    mr_dtype dtype = mr_bind_dtype(L, 1);
    void **box = mr_bind_box(L, "mr.Params");
    mr_params *p;
    mr_bind_check(L, mr_params_new(dtype, &p));
    *box = p;
    return 1;
}

typedef struct init_options {
    const char *kind;
    double scale;
} init_options;

static const mr_bind_field param_fields[] = {
    MR_BIND_STR("name", mr_param, name, "Name, required."),
    MR_BIND_ANY("shape", "integer[]", "Dimensions, required."),
    MR_BIND_ANY("init", "table", "Initial values, required: {kind =, scale =, values =}."),
    MR_BIND_ANY("cut", "table",
                "This rank has a share of each part of an axis: {ranks =, at =, axis = (from 0), "
                "parts = length of each}; absent: the whole parameter."),
    MR_BIND_BOOL("frozen", mr_param, frozen, "No gradient and no update."),
    MR_BIND_BOOL("buffer", mr_param, buffer,
                 "Recomputed from the recipe, not stored in checkpoints."),
    MR_BIND_NUM("decay", mr_param, decay, 1, "Factor of the weight decay."),
    MR_BIND_NUM("lr_factor", mr_param, lr_factor, 1, "Factor of the learning rate."),
    MR_BIND_BOOL("lookup", mr_param, lookup, "An embedding table."),
    MR_BIND_BOOL("outside", mr_param, outside,
                 "Loaded from a separate file, not stored in checkpoints."),
    MR_BIND_INT("model", mr_param, model, 0, 0,
                "Index of the model, if several are updated separately."),
    MR_BIND_END};

static const mr_bind_field init_fields[] = {
    MR_BIND_STR("kind", init_options, kind,
                "zeros, ones, normal, uniform, xavier or values; required."),
    MR_BIND_NUM("scale", init_options, scale, 1,
                "Standard deviation of normal, half the range of uniform."),
    MR_BIND_ANY("values", "mr.Tensor", "For kind values: a dense f32 tensor of its size."),
    MR_BIND_END};

typedef struct split_options {
    int64_t ranks, at, axis;
} split_options;

static const mr_bind_field split_fields[] = {
    MR_BIND_INT("ranks", split_options, ranks, 1, 1, "Ranks that share it."),
    MR_BIND_INT("at", split_options, at, 0, 0, "Index of this rank among them, from 0."),
    MR_BIND_INT("axis", split_options, axis, 0, 0, "Axis that is split."),
    MR_BIND_ANY("parts", "integer[]", "Length of each part of the axis."), MR_BIND_END};

/* Read how the parameter of the options at 2 is split between ranks. */
static void read_split(lua_State *L, mr_split *s)
{
    if (lua_getfield(L, 2, "cut") == LUA_TNIL) {
        lua_pop(L, 1);
        return;
    }
    split_options o;
    luaL_checktype(L, -1, LUA_TTABLE);
    mr_bind_options(L, lua_gettop(L), "params:add, cut", split_fields, &o);
    *s = (mr_split){.ranks = (int)o.ranks, .at = (int)o.at, .axis = (int)o.axis};
    if (lua_getfield(L, -1, "parts") != LUA_TTABLE || luaL_len(L, -1) > MR_SPLIT_PARTS)
        mr_bind_raise(L, MR_E_USAGE, "params:add, cut: parts: expected a list of at most %d",
                      (int)MR_SPLIT_PARTS);
    s->parts = (int)luaL_len(L, -1);
    for (int i = 0; i < s->parts; i++) {
        lua_rawgeti(L, -1, i + 1);
        s->part[i] = luaL_checkinteger(L, -1);
        lua_pop(L, 1);
    }
    lua_pop(L, 2);
}

/* Push the split of a listed parameter. */
static void push_split(lua_State *L, const mr_split *s)
{
    lua_createtable(L, 0, 4);
    MR_BIND_SET(L, *s, ranks, at, axis);
    mr_bind_set_ints(L, "parts", s->part, s->parts);
}

static int p_add(lua_State *L)
{
    static const char *const kinds[] = {"zeros",  "ones",   "normal", "uniform",
                                        "xavier", "values", NULL};
    mr_params *p = mr_bind_params(L, 1);
    luaL_checktype(L, 2, LUA_TTABLE);
    mr_param row = {0};
    mr_bind_options(L, 2, "params:add", param_fields, &row);
    if (!row.name)
        return mr_bind_raise(L, MR_E_USAGE, "params:add: name is missing; expected text");
    int64_t dim[MR_MAX_RANK];
    lua_getfield(L, 2, "shape");
    row.desc = mr_desc_dense(mr_params_compute(p), mr_bind_dims(L, -1, dim), dim);
    read_split(L, &row.split);
    lua_getfield(L, 2, "init");
    if (!lua_istable(L, -1))
        return mr_bind_raise(L, MR_E_USAGE, "parameter '%s': init = {kind = ...} is missing",
                             row.name);
    int init = lua_gettop(L), kind = 0;
    init_options how;
    mr_bind_options(L, init, "params:add, init", init_fields, &how);
    const char *name = how.kind ? how.kind : "";
    while (kinds[kind] && strcmp(kinds[kind], name))
        kind++;
    if (!kinds[kind])
        return mr_bind_raise(L, MR_E_USAGE,
                             "parameter '%s': init kind '%s', expected zeros, ones, normal, "
                             "uniform, xavier or values",
                             row.name, name);
    row.init = (mr_init){.kind = (mr_init_kind)kind, .scale = how.scale};
    if (kind == MR_INIT_VALUES) {
        lua_getfield(L, init, "values");
        const mr_view *v = mr_tensor_view(mr_bind_tensor(L, -1));
        if (v->desc.dtype != MR_F32 || !mr_desc_is_dense(&v->desc) ||
            mr_desc_count(&v->desc) != mr_desc_count(&row.desc))
            return mr_bind_raise(
                L, MR_E_SHAPE, "parameter '%s': init values must be a dense f32 tensor of its size",
                row.name);
        row.init.values = v->data;
    }
    int id;
    mr_bind_check(L, mr_params_add(p, &row, &id));
    lua_pushinteger(L, id);
    return 1;
}

static const mr_bind_field cut_fields[] = {
    MR_BIND_INT("ranks", mr_cut, ranks, 1, 1, "Ranks that own equal chunks of each bucket."),
    MR_BIND_INT("elements", mr_cut, elements, 0, 0, "Most bytes of a bucket; 0: one bucket."),
    MR_BIND_INT("granule", mr_cut, granule, 0, 0,
                "Chunks are multiples of this number of bytes, in compute dtype; 0: 64 KiB."),
    MR_BIND_INT("block", mr_cut, block, 0, 0,
                "Elements per block of the matrices; chunks split no block; 0: no matrices."),
    MR_BIND_ANY(
        "matrices", "string[]",
        "Names of parameters that are updated block by block; they follow the others in memory."),
    MR_BIND_END};

/* The parameters that cut.matrices names, as a list on the stack. */
static const bool *matrices_of(lua_State *L, const mr_params *p)
{
    bool *list = lua_newuserdatauv(L, (size_t)mr_params_count(p) + 1, 0);
    memset(list, 0, (size_t)mr_params_count(p) + 1);
    if (lua_getfield(L, 2, "matrices") != LUA_TTABLE)
        mr_bind_raise(L, MR_E_USAGE,
                      "params:seal: cut.block is set without cut.matrices; expected both");
    for (lua_Integer i = 1; lua_rawgeti(L, -1, i) != LUA_TNIL; i++) {
        int id = mr_params_find(p, luaL_checkstring(L, -1));
        if (id < 0)
            mr_bind_raise(L, MR_E_USAGE, "params:seal: no parameter '%s'", lua_tostring(L, -1));
        list[id] = true;
        lua_pop(L, 1);
    }
    lua_pop(L, 2);
    return list;
}

/* seal(options): without options there is one bucket without padding */
static int p_seal(lua_State *L)
{
    mr_cut cut;
    mr_params *p = mr_bind_params(L, 1);
    bool given = !lua_isnoneornil(L, 2);
    mr_bind_options(L, 2, "params:seal", cut_fields, &cut);
    cut.matrix = given && cut.block ? matrices_of(L, p) : NULL;
    mr_bind_check(L, mr_params_seal(p, given ? &cut : NULL));
    lua_settop(L, 1);
    return 1;
}

typedef struct hop_options {
    const char *queue;
    int64_t group, ranks, at;
} hop_options;

static const mr_bind_field hop_fields[] = {
    MR_BIND_STR("queue", hop_options, queue, "Queue of its nodes."),
    MR_BIND_INT("group", hop_options, group, 0, 0, "Group number, from comm:op_group()."),
    MR_BIND_INT("ranks", hop_options, ranks, 1, 1, "Number of ranks of the group."),
    MR_BIND_INT("at", hop_options, at, 0, 0, "Index of this rank among them, from 0."),
    MR_BIND_END};

static const mr_bind_field shares_fields[] = {
    MR_BIND_ANY("hops", "table[]",
                "One or two hops, first within hosts: {queue, group, ranks, at}."),
    MR_BIND_BOOL("gradients", mr_param_shares, gradients,
                 "Gradients are reduced in every backward pass."),
    MR_BIND_BOOL("weights", mr_param_shares, weights, "Weights are gathered for every pass."),
    MR_BIND_END};

static void read_hops(lua_State *L, mr_param_shares *s)
{
    if (lua_getfield(L, 2, "hops") != LUA_TTABLE || luaL_len(L, -1) > (int)MR_COUNT(s->hop))
        mr_bind_raise(L, MR_E_USAGE, "params:share: hops: expected a list of one or two tables");
    s->hops = (int)luaL_len(L, -1);
    for (int i = 0; i < s->hops; i++) {
        hop_options o = {0};
        lua_rawgeti(L, -1, i + 1);
        mr_bind_options(L, lua_gettop(L), "params:share, hops", hop_fields, &o);
        mr_queue queue = mr_queue_find(o.queue ? o.queue : "");
        if (queue == MR_QUEUE_COUNT)
            mr_bind_raise(L, MR_E_USAGE, "params:share: hop %d: no queue '%s'", i + 1,
                          o.queue ? o.queue : "");
        s->hop[i] = (mr_hop){queue, o.group, (int)o.ranks, (int)o.at};
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

/* share(options): declare what ranks share */
static int p_share(lua_State *L)
{
    mr_params *p = mr_bind_params(L, 1);
    mr_param_shares shares = {0};
    mr_bind_options(L, 2, "params:share", shares_fields, &shares);
    read_hops(L, &shares);
    mr_bind_check(L, mr_params_share(p, &shares));
    lua_settop(L, 1);
    return 1;
}

static int p_buckets(lua_State *L)
{
    const mr_params *p = mr_bind_params(L, 1);
    int n = mr_params_buckets(p);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        int64_t start, stop, from, to;
        mr_params_bucket(p, i, &start, &stop);
        mr_params_owned(p, i, 0, &from, &to);
        lua_createtable(L, 0, 3);
        mr_bind_set_int(L, "start", start);
        mr_bind_set_int(L, "stop", stop);
        mr_bind_set_int(L, "chunk", to - from);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static int p_list(lua_State *L)
{
    const mr_params *p = mr_bind_params(L, 1);
    int n = mr_params_count(p);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        const mr_param *row = mr_params_at(p, i);
        lua_createtable(L, 0, 14);
        mr_bind_set_ints(L, "shape", row->whole.dim, row->whole.rank);
        if (row->split.ranks)
            push_split(L, &row->split), lua_setfield(L, -2, "cut");
        MR_BIND_SET(L, *row, name, frozen, buffer, lookup, outside, model, block, offset, decay,
                    lr_factor);
        mr_bind_set_int(L, "count", mr_desc_count(&row->desc));
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* elements(frozen=false): length of a range, including padding */
static int p_elements(lua_State *L)
{
    lua_pushinteger(L, mr_params_elements(mr_bind_params(L, 1), lua_toboolean(L, 2)));
    return 1;
}

/* split(): the first element of parameters that are split between ranks */
static int p_split(lua_State *L)
{
    lua_pushinteger(L, mr_params_split(mr_bind_params(L, 1)));
    return 1;
}

/* matrices(): the first element of the matrices */
static int p_matrices(lua_State *L)
{
    lua_pushinteger(L, mr_params_matrices(mr_bind_params(L, 1)));
    return 1;
}

static int p_count(lua_State *L)
{
    lua_pushinteger(L, mr_params_count(mr_bind_params(L, 1)));
    return 1;
}

/* initial(name, seed) -> f32 tensor */
static int p_initial(lua_State *L)
{
    const mr_params *p = mr_bind_params(L, 1);
    const char *name = luaL_checkstring(L, 2);
    int id = mr_params_find(p, name);
    if (id < 0)
        return mr_bind_raise(L, MR_E_USAGE, "no parameter '%s'", name);
    const mr_desc *d = &mr_params_at(p, id)->desc;
    mr_tensor **t = mr_bind_new_tensor(L);
    mr_bind_check(L, mr_tensor_new(MR_F32, d->rank, d->dim, t));
    mr_bind_check(
        L, mr_params_init(p, id, (uint64_t)luaL_checkinteger(L, 3), mr_tensor_view(*t)->data));
    return 1;
}

static void free_params(void *p)
{
    mr_params_free(p);
}

static const mr_bind_entry params_entries[] = {
    MR_ENTRY_OPTIONS("add", p_add, "(options: table): integer",
                     "Declare a parameter. Returns its index, from 0.", param_fields),
    MR_ENTRY_OPTIONS("seal", p_seal, "(options?: table): mr.Params",
                     "Seal the table: fix the places of parameters in memory; options split them "
                     "into buckets for ranks.",
                     cut_fields),
    MR_ENTRY_OPTIONS(
        "share", p_share, "(options: table): mr.Params",
        "Declare what ranks share of a sealed table, for all graphs that are built from now on.",
        shares_fields),
    MR_ENTRY(
        "buckets", p_buckets, "(): table[]",
        "Buckets {start, stop, chunk} of the trainable range; each rank owns a chunk of each."),
    MR_ENTRY("list", p_list, "(): table[]",
             "Rows {name, shape, cut, frozen, buffer, lookup, outside, model, block, offset, "
             "count, decay, lr_factor}: shape: of all ranks; count: elements of this rank."),
    MR_ENTRY("elements", p_elements, "(frozen?: boolean): integer",
             "Length of the trainable or frozen range, including gaps."),
    MR_ENTRY(
        "split", p_split, "(): integer",
        "The element of the trainable range from which on parameters are split between ranks."),
    MR_ENTRY("matrices", p_matrices, "(): integer",
             "The element of the trainable range at which the matrices begin."),
    MR_ENTRY("count", p_count, "(): integer", "The number of parameters."),
    MR_ENTRY("initial", p_initial, "(name: string, seed: integer): mr.Tensor",
             "Initial values, f32."),
    MR_ENTRY_END};
static const mr_bind_face params_face = {"mr.Params",
                                         "A table of parameters: names, shapes, initial values.",
                                         params_entries, free_params};

void mr_bind_params_type(lua_State *L)
{
    mr_bind_type(L, &params_face);
}
