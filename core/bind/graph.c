/* bind: moonreel.core.graph and moonreel.core.op - parameter tables, graphs, values; ops on values
 * and on eager tensors through one door. Licence: Apache-2.0 */
#include "tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>


/* A value at the Lua side: its graph is kept alive in user value 1. */
typedef struct value { mr_graph *graph; mr_ref ref; } value;
#define VALUE "mr.Value"

mr_graph *mr_bind_graph(lua_State *L, int arg) { return mr_bind_unbox(L, arg, "mr.Graph"); }
mr_params *mr_bind_params(lua_State *L, int arg) { return mr_bind_unbox(L, arg, "mr.Params"); }

/* file:line of the nearest frame that is a model or the user's own: what a graph node remembers. */
static void set_origin(lua_State *L, mr_graph *g)
{
    char text[256] = "";
    lua_Debug ar;
    for (int level = 1; lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "Sl", &ar);
        bool own = strncmp(ar.source, "@moonreel/", 10) == 0 && strncmp(ar.source, "@moonreel/models/", 17) != 0;
        if (ar.currentline < 0 || own) continue;
        snprintf(text, sizeof text, "%s:%d", ar.short_src, ar.currentline);
        break;
    }
    mr_graph_set_origin(g, text);
}

/* `graph_at` is the stack index of the graph userdata. */
static void push_value(lua_State *L, int graph_at, mr_graph *g, mr_ref ref)
{
    graph_at = lua_absindex(L, graph_at);
    value *v = lua_newuserdatauv(L, sizeof *v, 1);
    v->graph = g, v->ref = ref;
    luaL_setmetatable(L, VALUE);
    lua_pushvalue(L, graph_at);
    lua_setiuservalue(L, -2, 1);
}

static value *check_value(lua_State *L, int arg)
{
    value *v = luaL_checkudata(L, arg, VALUE);
    lua_getiuservalue(L, arg, 1);
    mr_bind_unbox(L, -1, "mr.Graph");  // raises when the graph was closed
    lua_pop(L, 1);
    return v;
}

/* ---- the one door for ops ---------------------------------------------------------------------------- */

static void close_device(void *dev) { mr_device_close(dev); }

mr_device *mr_bind_eager_device(lua_State *L)
{
    static const char key = 0;
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &key) == LUA_TNIL) {
        lua_pop(L, 1);
        static const luaL_Reg none[] = {{NULL, NULL}};
        mr_bind_type(L, "mr.EagerDevice", none, NULL, close_device);
        void **box = mr_bind_box(L, "mr.EagerDevice");
        const char *name = getenv("MOONREEL_DEVICE");
        mr_device *dev;
        mr_bind_check(L, mr_device_open(name && *name ? name : "cpu", 0, &dev));
        *box = dev;
        lua_pushvalue(L, -1);
        lua_rawsetp(L, LUA_REGISTRYINDEX, &key);
    }
    mr_device *dev = mr_bind_unbox(L, -1, "mr.EagerDevice");
    lua_pop(L, 1);
    return dev;
}

/* The attribute table at `arg` -> attrs; integer lists live in ints[]. */
static int read_attrs(lua_State *L, const mr_op *op, int arg, mr_attr *attrs, mr_ints *ints)
{
    int n = 0;
    lua_pushnil(L);
    while (lua_next(L, arg)) {
        if (lua_type(L, -2) != LUA_TSTRING) mr_bind_raise(L, MR_E_USAGE, "op '%s': attribute names are text", op->name);
        if (n == MR_MAX_ATTR) mr_bind_raise(L, MR_E_USAGE, "op '%s': more than %d attributes", op->name, MR_MAX_ATTR);
        mr_attr *a = &attrs[n];
        *a = (mr_attr){.name = lua_tostring(L, -2)};
        switch (lua_type(L, -1)) {
        case LUA_TNUMBER: a->f = lua_tonumber(L, -1), a->i = (int64_t)lua_tonumber(L, -1); break;
        case LUA_TBOOLEAN: a->i = lua_toboolean(L, -1), a->f = (double)a->i; break;
        case LUA_TTABLE: ints[n].n = mr_bind_dims(L, lua_gettop(L), ints[n].v), a->ints = &ints[n]; break;
        case LUA_TSTRING:  // dtype = "bf16"
            a->i = mr_dtype_from_name(lua_tostring(L, -1));
            if (a->i < MR_DTYPE_COUNT) break;  // fall through
        default:
            mr_bind_raise(L, MR_E_USAGE, "op '%s': attribute '%s' is %s, expected a number, boolean, dtype or list", op->name, a->name, luaL_tolstring(L, -1, NULL));
        }
        if (lua_isinteger(L, -1)) a->i = lua_tointeger(L, -1);
        n++;
        lua_pop(L, 1);
    }
    return n;
}

/* The value at `arg` for graph g: itself, or an eager tensor as a constant. */
static mr_ref as_ref(lua_State *L, mr_graph *g, int arg)
{
    value *v = luaL_testudata(L, arg, VALUE);
    if (v) {
        if (v->graph != g) mr_bind_raise(L, MR_E_USAGE, "argument %d belongs to another graph", arg);
        return v->ref;
    }
    mr_ref ref;
    mr_bind_check(L, mr_graph_const(g, mr_tensor_view(mr_bind_tensor(L, arg)), &ref));
    return ref;
}

int mr_bind_call_op(lua_State *L, const char *name, int first, int last)
{
    const mr_op *op = mr_op_find(name);
    if (!op) return mr_bind_raise(L, MR_E_USAGE, "no op '%s'; the nearest is '%s'", name, mr_op_nearest(name));
    mr_attr attrs[MR_MAX_ATTR];
    mr_ints ints[MR_MAX_ATTR];
    int n_attrs = 0, graph_of = 0;
    if (last >= first && lua_istable(L, last)) n_attrs = read_attrs(L, op, last, attrs, ints), last--;
    int n = last - first + 1;
    if (n > mr_op_n_in(op)) return mr_bind_raise(L, MR_E_USAGE, "op '%s' takes %d inputs, got %d", name, mr_op_n_in(op), n);
    for (int i = first; i <= last; i++) {
        if (luaL_testudata(L, i, VALUE)) check_value(L, i), graph_of = graph_of ? graph_of : i;
        else if (lua_toboolean(L, i) && !luaL_testudata(L, i, "mr.Tensor"))
            return mr_bind_raise(L, MR_E_USAGE, "op '%s': input %d '%s' is a %s, expected a tensor, a value of a graph, or false", name,
                                 i - first + 1, op->in[i - first].name, luaL_typename(L, i));
    }
    int n_out = mr_op_n_out(op);
    luaL_checkstack(L, n_out + 4, "too many outputs");
    if (graph_of) {
        value *v = lua_touserdata(L, graph_of);
        mr_ref in[MR_MAX_IN], out[MR_MAX_OUT];
        set_origin(L, v->graph);
        for (int i = 0; i < n; i++) in[i] = lua_toboolean(L, first + i) ? as_ref(L, v->graph, first + i) : MR_NONE;
        mr_bind_check(L, mr_graph_add(v->graph, name, attrs, n_attrs, in, n, out));
        lua_getiuservalue(L, graph_of, 1);
        int graph_at = lua_gettop(L);
        for (int i = 0; i < n_out; i++)
            if (out[i] == MR_NONE) lua_pushnil(L);
            else push_value(L, graph_at, v->graph, out[i]);
        return n_out;
    }
    mr_tensor *in[MR_MAX_IN] = {0}, *out[MR_MAX_OUT] = {0};
    for (int i = 0; i < n; i++) in[i] = lua_toboolean(L, first + i) ? mr_bind_tensor(L, first + i) : NULL;
    mr_bind_check(L, mr_eager(mr_bind_eager_device(L), name, attrs, n_attrs, in, n, out));
    for (int i = 0; i < n_out; i++)
        if (out[i]) mr_bind_push_tensor(L, out[i]);
        else lua_pushnil(L);
    return n_out;
}

static int op_closure(lua_State *L)
{
    return mr_bind_call_op(L, lua_tostring(L, lua_upvalueindex(1)), 1, lua_gettop(L));
}

/* ops.NAME -> function; kept in the table after first use. */
static int op_index(lua_State *L)
{
    const char *name = luaL_checkstring(L, 2);
    if (!mr_op_find(name)) return mr_bind_raise(L, MR_E_USAGE, "no op '%s'; the nearest is '%s'", name, mr_op_nearest(name));
    lua_pushvalue(L, 2);
    lua_pushcclosure(L, op_closure, 1);
    lua_pushvalue(L, 2);
    lua_pushvalue(L, -2);
    lua_rawset(L, 1);
    return 1;
}

/* op(name, {inputs}, {attrs}) */
static int g_op(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 3);
    const mr_op *op = mr_op_find(name);
    int n = 0, base = lua_gettop(L);
    // a list with holes: as long as the op has inputs
    for (int i = 1; op && i <= mr_op_n_in(op); i++)
        if (lua_geti(L, 2, i) != LUA_TNIL) n = i;
    lua_settop(L, base + n);
    if (lua_istable(L, 3)) lua_pushvalue(L, 3);
    return mr_bind_call_op(L, name, base + 1, lua_gettop(L));
}

/* ---- arithmetic: tensors and values alike ------------------------------------------------------------ */

static const mr_desc *desc_at(lua_State *L, int arg)
{
    value *v = luaL_testudata(L, arg, VALUE);
    return v ? &mr_graph_value(v->graph, v->ref)->desc : &mr_tensor_view(mr_bind_tensor(L, arg))->desc;
}

/* Expand the operand at `arg` to shape d, in place on the stack. */
static void expand_to(lua_State *L, int arg, const mr_desc *d)
{
    if (mr_desc_same_shape(desc_at(L, arg), d)) return;
    lua_getfield(L, arg, "expand");
    lua_pushvalue(L, arg);
    lua_createtable(L, d->rank, 0);
    for (int i = 0; i < d->rank; i++) lua_pushinteger(L, d->dim[i]), lua_rawseti(L, -2, i + 1);
    lua_call(L, 2, 1);
    lua_replace(L, arg);
}

static int with_number(lua_State *L, int operand, double scale, double shift)
{
    lua_pushvalue(L, operand);
    lua_createtable(L, 0, 2);
    lua_pushnumber(L, scale), lua_setfield(L, -2, "scale");
    lua_pushnumber(L, shift), lua_setfield(L, -2, "shift");
    return mr_bind_call_op(L, "affine", lua_gettop(L) - 1, lua_gettop(L));
}

static int arithmetic(lua_State *L, const char *op)
{
    lua_settop(L, 2);
    bool left = lua_type(L, 1) == LUA_TNUMBER, right = lua_type(L, 2) == LUA_TNUMBER;
    double c = left ? lua_tonumber(L, 1) : right ? lua_tonumber(L, 2) : 0;
    if (left || right) switch (*op) {
        case 'a': return with_number(L, left ? 2 : 1, 1, c);
        case 's': return left ? with_number(L, 2, -1, c) : with_number(L, 1, 1, -c);
        case 'm': return with_number(L, left ? 2 : 1, c, 0);
        default:
            if (right) return with_number(L, 1, 1 / c, 0);
            return mr_bind_raise(L, MR_E_USAGE, "number / tensor: make a tensor of the number first");
    }
    // numpy broadcasting: align at the last dimension, length 1 repeats
    mr_desc a = *desc_at(L, 1), b = *desc_at(L, 2), d = a.rank >= b.rank ? a : b;
    for (int i = 1; i <= MR_MIN(a.rank, b.rank); i++) d.dim[d.rank - i] = MR_MAX(a.dim[a.rank - i], b.dim[b.rank - i]);
    expand_to(L, 1, &d);
    expand_to(L, 2, &d);
    return mr_bind_call_op(L, op, 1, 2);
}

static int m_add(lua_State *L) { return arithmetic(L, "add"); }
static int m_sub(lua_State *L) { return arithmetic(L, "sub"); }
static int m_mul(lua_State *L) { return arithmetic(L, "mul"); }
static int m_div(lua_State *L) { return arithmetic(L, "div"); }
static int m_unm(lua_State *L) { return with_number(L, 1, -1, 0); }

const luaL_Reg mr_bind_operators[] = {{"__add", m_add}, {"__sub", m_sub}, {"__mul", m_mul}, {"__div", m_div}, {"__unm", m_unm}, {NULL, NULL}};

/* ---- values --------------------------------------------------------------------------------------------- */

static int view_result(lua_State *L, value *v, mr_status st, const mr_ref *ref)
{
    mr_bind_check(L, st);
    lua_getiuservalue(L, 1, 1);
    push_value(L, -1, v->graph, *ref);
    return 1;
}

static int v_reshape(lua_State *L)
{
    value *v = check_value(L, 1);
    int64_t dim[MR_MAX_RANK];
    int n = mr_bind_dims(L, 2, dim);
    mr_ref out;
    set_origin(L, v->graph);
    return view_result(L, v, mr_graph_reshape(v->graph, v->ref, n, dim, &out), &out);
}

static int v_slice(lua_State *L)
{
    value *v = check_value(L, 1);
    mr_ref out;
    set_origin(L, v->graph);
    return view_result(L, v, mr_graph_slice(v->graph, v->ref, (int)luaL_checkinteger(L, 2), luaL_checkinteger(L, 3), luaL_checkinteger(L, 4), &out), &out);
}

static int v_permute(lua_State *L)
{
    value *v = check_value(L, 1);
    int64_t dim[MR_MAX_RANK];
    int n = mr_bind_dims(L, 2, dim), order[MR_MAX_RANK], rank = mr_graph_value(v->graph, v->ref)->desc.rank;
    if (n != rank) return mr_bind_raise(L, MR_E_SHAPE, "permute: %d axes for rank %d", n, rank);
    for (int i = 0; i < n; i++) order[i] = (int)dim[i];
    mr_ref out;
    set_origin(L, v->graph);
    return view_result(L, v, mr_graph_permute(v->graph, v->ref, order, &out), &out);
}

static int v_expand(lua_State *L)
{
    value *v = check_value(L, 1);
    int64_t dim[MR_MAX_RANK];
    int n = mr_bind_dims(L, 2, dim);
    mr_ref out;
    set_origin(L, v->graph);
    return view_result(L, v, mr_graph_expand(v->graph, v->ref, n, dim, &out), &out);
}

/* split(axis, n) -> n equal slices */
static int v_split(lua_State *L)
{
    value *v = check_value(L, 1);
    int axis = (int)luaL_checkinteger(L, 2), n = (int)luaL_checkinteger(L, 3);
    const mr_desc d = mr_graph_value(v->graph, v->ref)->desc;
    if (axis < 0 || axis >= d.rank || n < 1 || d.dim[axis] % n)
        return mr_bind_raise(L, MR_E_SHAPE, "split into %d along axis %d: the length does not divide", n, axis);
    luaL_checkstack(L, n + 4, "too many parts");
    lua_getiuservalue(L, 1, 1);
    int graph_at = lua_gettop(L);
    set_origin(L, v->graph);
    for (int i = 0; i < n; i++) {
        mr_ref out;
        int64_t step = d.dim[axis] / n;
        mr_bind_check(L, mr_graph_slice(v->graph, v->ref, axis, i * step, (i + 1) * step, &out));
        push_value(L, graph_at, v->graph, out);
    }
    return n;
}

static int v_index(lua_State *L)
{
    value *v = check_value(L, 1);
    const mr_desc *d = &mr_graph_value(v->graph, v->ref)->desc;
    const char *key = luaL_checkstring(L, 2);
    if (strcmp(key, "shape") == 0) {
        lua_createtable(L, d->rank, 0);
        for (int i = 0; i < d->rank; i++) lua_pushinteger(L, d->dim[i]), lua_rawseti(L, -2, i + 1);
    } else if (strcmp(key, "dtype") == 0) lua_pushstring(L, mr_dtype_name(d->dtype));
    else lua_getfield(L, lua_upvalueindex(1), key);
    return 1;
}

static int v_tostring(lua_State *L)
{
    value *v = check_value(L, 1);
    char text[128];
    lua_pushfstring(L, "value %%%d %s", (int)v->ref, mr_desc_text(&mr_graph_value(v->graph, v->ref)->desc, text, sizeof text));
    return 1;
}

/* ---- parameters ------------------------------------------------------------------------------------------ */

static int p_new(lua_State *L)
{
    mr_dtype dtype = mr_bind_dtype(L, 1);
    void **box = mr_bind_box(L, "mr.Params");
    mr_params *p;
    mr_bind_check(L, mr_params_new(dtype, &p));
    *box = p;
    return 1;
}

static int p_add(lua_State *L)
{
    static const char *const kinds[] = {"zeros", "ones", "normal", "uniform", "xavier", "values", NULL};
    mr_params *p = mr_bind_params(L, 1);
    luaL_checktype(L, 2, LUA_TTABLE);
    mr_param row = {.name = mr_bind_opt_str(L, 2, "name", NULL), .frozen = mr_bind_opt_bool(L, 2, "frozen", false),
                    .buffer = mr_bind_opt_bool(L, 2, "buffer", false), .decay = (float)mr_bind_opt_num(L, 2, "decay", 1),
                    .lr_factor = (float)mr_bind_opt_num(L, 2, "lr_factor", 1)};
    if (!row.name) return mr_bind_raise(L, MR_E_USAGE, "params:add: a name is missing");
    int64_t dim[MR_MAX_RANK];
    lua_getfield(L, 2, "shape");
    row.desc = mr_desc_dense(mr_params_compute(p), mr_bind_dims(L, -1, dim), dim);
    lua_getfield(L, 2, "init");
    if (!lua_istable(L, -1)) return mr_bind_raise(L, MR_E_USAGE, "parameter '%s': init = {kind = ...} is missing", row.name);
    int init = lua_gettop(L), kind = 0;
    const char *name = mr_bind_opt_str(L, init, "kind", "");
    while (kinds[kind] && strcmp(kinds[kind], name)) kind++;
    if (!kinds[kind]) return mr_bind_raise(L, MR_E_USAGE, "parameter '%s': init kind '%s', expected zeros, ones, normal, uniform, xavier or values", row.name, name);
    row.init = (mr_init){.kind = (mr_init_kind)kind, .scale = mr_bind_opt_num(L, init, "scale", 1)};
    if (kind == MR_INIT_VALUES) {
        lua_getfield(L, init, "values");
        const mr_view *v = mr_tensor_view(mr_bind_tensor(L, -1));
        if (v->desc.dtype != MR_F32 || !mr_desc_is_dense(&v->desc) || mr_desc_count(&v->desc) != mr_desc_count(&row.desc))
            return mr_bind_raise(L, MR_E_SHAPE, "parameter '%s': init values must be a dense f32 tensor of its size", row.name);
        row.init.values = v->data;
    }
    int id;
    mr_bind_check(L, mr_params_add(p, &row, &id));
    lua_pushinteger(L, id);
    return 1;
}

static int p_seal(lua_State *L)
{
    mr_bind_check(L, mr_params_seal(mr_bind_params(L, 1)));
    lua_settop(L, 1);
    return 1;
}

static int p_list(lua_State *L)
{
    const mr_params *p = mr_bind_params(L, 1);
    int n = mr_params_count(p);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        const mr_param *row = mr_params_at(p, i);
        lua_createtable(L, 0, 9);
        lua_pushstring(L, row->name), lua_setfield(L, -2, "name");
        lua_createtable(L, row->desc.rank, 0);
        for (int k = 0; k < row->desc.rank; k++) lua_pushinteger(L, row->desc.dim[k]), lua_rawseti(L, -2, k + 1);
        lua_setfield(L, -2, "shape");
        lua_pushboolean(L, row->frozen), lua_setfield(L, -2, "frozen");
        lua_pushboolean(L, row->buffer), lua_setfield(L, -2, "buffer");
        lua_pushinteger(L, row->offset), lua_setfield(L, -2, "offset");
        lua_pushinteger(L, mr_desc_count(&row->desc)), lua_setfield(L, -2, "count");
        lua_pushnumber(L, row->decay), lua_setfield(L, -2, "decay");
        lua_pushnumber(L, row->lr_factor), lua_setfield(L, -2, "lr_factor");
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* elements(frozen=false): length of a whole range, pads included */
static int p_elements(lua_State *L)
{
    lua_pushinteger(L, mr_params_elements(mr_bind_params(L, 1), lua_toboolean(L, 2)));
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
    if (id < 0) return mr_bind_raise(L, MR_E_USAGE, "no parameter '%s'", name);
    const mr_desc *d = &mr_params_at(p, id)->desc;
    mr_tensor *t;
    mr_bind_check(L, mr_tensor_new(MR_F32, d->rank, d->dim, &t));
    mr_bind_push_tensor(L, t);
    mr_bind_check(L, mr_params_init(p, id, (uint64_t)luaL_checkinteger(L, 3), mr_tensor_view(t)->data));
    return 1;
}

/* ---- graphs ------------------------------------------------------------------------------------------------ */

static int g_new(lua_State *L)
{
    mr_params *params = lua_isnoneornil(L, 1) ? NULL : mr_bind_params(L, 1);
    mr_graph_options o = {.no_inplace = mr_bind_opt_bool(L, 2, "no_inplace", false), .no_cheap = mr_bind_opt_bool(L, 2, "no_cheap", false)};
    void **box = mr_bind_box(L, "mr.Graph");
    mr_graph *g;
    mr_bind_check(L, mr_graph_new(params, &o, &g));
    *box = g;
    if (params) lua_pushvalue(L, 1), lua_setiuservalue(L, -2, 1);
    return 1;
}

static int g_input(lua_State *L)
{
    mr_graph *g = mr_bind_graph(L, 1);
    int64_t dim[MR_MAX_RANK];
    int n = mr_bind_dims(L, 4, dim);
    mr_ref out;
    mr_bind_check(L, mr_graph_input(g, luaL_checkstring(L, 2), mr_bind_dtype(L, 3), n, dim, &out));
    push_value(L, 1, g, out);
    return 1;
}

static int g_param(lua_State *L)
{
    mr_graph *g = mr_bind_graph(L, 1);
    const char *name = luaL_checkstring(L, 2);
    mr_params *p = mr_graph_params(g);
    int id = p ? mr_params_find(p, name) : -1;
    if (id < 0) return mr_bind_raise(L, MR_E_USAGE, "no parameter '%s' in the graph's table", name);
    mr_ref out;
    mr_bind_check(L, mr_graph_param(g, id, &out));
    push_value(L, 1, g, out);
    return 1;
}

static int g_const(lua_State *L)
{
    mr_graph *g = mr_bind_graph(L, 1);
    push_value(L, 1, g, as_ref(L, g, 2));
    return 1;
}

static int g_region(lua_State *L)
{
    mr_graph *g = mr_bind_graph(L, 1);
    int64_t dim[MR_MAX_RANK];
    int n = mr_bind_dims(L, 5, dim);
    mr_ref out;
    mr_bind_check(L, mr_graph_region(g, luaL_checkstring(L, 2), mr_bind_dtype(L, 3), luaL_checkinteger(L, 4), n, dim, &out));
    push_value(L, 1, g, out);
    return 1;
}

static int g_output(lua_State *L)
{
    mr_graph *g = mr_bind_graph(L, 1);
    mr_bind_check(L, mr_graph_output(g, luaL_checkstring(L, 2), check_value(L, 3)->ref));
    lua_settop(L, 1);
    return 1;
}

/* block(name, recompute, function() ... end): returns what the function returns. */
static int g_block(lua_State *L)
{
    mr_graph *g = mr_bind_graph(L, 1);
    luaL_checktype(L, 4, LUA_TFUNCTION);
    lua_settop(L, 4);
    mr_bind_check(L, mr_graph_block_begin(g, luaL_checkstring(L, 2), lua_toboolean(L, 3)));
    int st = lua_pcall(L, 0, LUA_MULTRET, 0);
    mr_status end = mr_graph_block_end(g);
    if (st != LUA_OK) return lua_error(L);
    mr_bind_check(L, end);
    return lua_gettop(L) - 3;
}

static int g_save(lua_State *L)
{
    mr_graph_save(mr_bind_graph(L, 1), check_value(L, 2)->ref);
    lua_settop(L, 2);
    return 1;
}

/* backward(loss, {x, y}) -> {dx, dy}; an absent gradient is false */
static int g_backward(lua_State *L)
{
    mr_graph *g = mr_bind_graph(L, 1);
    value *loss = check_value(L, 2);
    mr_ref wrt[64], grad[64];
    int n = lua_isnoneornil(L, 3) ? 0 : (int)luaL_len(L, 3);
    luaL_argcheck(L, n <= 64, 3, "at most 64 values");
    for (int i = 0; i < n; i++) {
        lua_geti(L, 3, i + 1);
        wrt[i] = check_value(L, -1)->ref;
        lua_pop(L, 1);
    }
    set_origin(L, g);
    mr_bind_check(L, mr_graph_backward(g, loss->ref, wrt, n, grad));
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        if (grad[i] == MR_NONE) lua_pushboolean(L, 0);
        else push_value(L, 1, g, grad[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static int g_finish(lua_State *L)
{
    mr_bind_check(L, mr_graph_finish(mr_bind_graph(L, 1)));
    lua_settop(L, 1);
    return 1;
}

static int g_print(lua_State *L)
{
    char *text;
    mr_bind_check(L, mr_graph_print(mr_bind_graph(L, 1), &text));
    lua_pushstring(L, text);
    mr_free(text);
    return 1;
}

static int g_outputs(lua_State *L)
{
    mr_graph *g = mr_bind_graph(L, 1);
    int n = mr_graph_outputs(g);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        const char *name;
        mr_graph_output_at(g, i, &name);
        lua_pushstring(L, name);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static int g_nodes(lua_State *L)
{
    lua_pushinteger(L, mr_graph_nodes(mr_bind_graph(L, 1)));
    return 1;
}

/* concat({v1, v2, ...}, axis): values, or eager tensors. */
static int g_concat(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    int n = (int)luaL_len(L, 1);
    int64_t axis = luaL_checkinteger(L, 2);
    lua_settop(L, 2);
    if (n < 1) return mr_bind_raise(L, MR_E_USAGE, "concat of nothing");
    lua_geti(L, 1, 1);
    value *v = luaL_testudata(L, 3, VALUE);
    if (!v) {  // eager: pairs of joins keep within an op's inputs
        for (int i = 2; i <= n; i++) {
            lua_settop(L, 3);
            lua_geti(L, 1, i);
            lua_createtable(L, 0, 1);
            lua_pushinteger(L, axis), lua_setfield(L, -2, "axis");
            mr_bind_call_op(L, "concat", 3, 5);
            lua_replace(L, 3);
        }
        lua_settop(L, 3);
        return 1;
    }
    check_value(L, 3);
    mr_ref *parts = mr_bind_scratch(L, sizeof *parts * (size_t)n), out;
    set_origin(L, v->graph);
    for (int i = 0; i < n; i++) {
        lua_geti(L, 1, i + 1);
        parts[i] = as_ref(L, v->graph, lua_gettop(L));
        lua_pop(L, 1);
    }
    mr_bind_check(L, mr_graph_concat(v->graph, parts, n, (int)axis, &out));
    lua_getiuservalue(L, 3, 1);
    push_value(L, -1, v->graph, out);
    return 1;
}

static void free_graph(void *g) { mr_graph_free(g); }
static void free_params(void *p) { mr_params_free(p); }

MR_BIND_ROOM(graph)
{
    static const luaL_Reg params[] = {{"add", p_add}, {"seal", p_seal}, {"list", p_list}, {"elements", p_elements},
                                      {"count", p_count}, {"initial", p_initial}, {NULL, NULL}};
    static const luaL_Reg graph[] = {{"input", g_input}, {"param", g_param}, {"const", g_const}, {"region", g_region},
                                     {"output", g_output}, {"block", g_block}, {"save", g_save}, {"backward", g_backward},
                                     {"finish", g_finish}, {"print", g_print}, {"outputs", g_outputs}, {"nodes", g_nodes}, {NULL, NULL}};
    static const luaL_Reg values[] = {{"reshape", v_reshape}, {"slice", v_slice}, {"permute", v_permute}, {"expand", v_expand},
                                      {"split", v_split}, {NULL, NULL}};
    static const luaL_Reg value_meta[] = {{"__tostring", v_tostring}, {NULL, NULL}};
    mr_bind_type(L, "mr.Params", params, NULL, free_params);
    mr_bind_type(L, "mr.Graph", graph, NULL, free_graph);
    mr_bind_type(L, VALUE, values, value_meta, NULL);
    luaL_getmetatable(L, VALUE);
    lua_getfield(L, -1, "__index");
    lua_pushcclosure(L, v_index, 1);
    lua_setfield(L, -2, "__index");
    luaL_setfuncs(L, mr_bind_operators, 0);
    lua_pop(L, 1);
    static const luaL_Reg rows[] = {{"params", p_new}, {"graph", g_new}, {"op", g_op}, {"concat", g_concat}, {NULL, NULL}};
    luaL_newlib(L, rows);
    return 1;
}

MR_BIND_ROOM(op)
{
    lua_newtable(L);
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, op_index);
    lua_setfield(L, -2, "__index");
    lua_setmetatable(L, -2);
    return 1;
}
