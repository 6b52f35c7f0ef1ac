/* bind: moonreel.core.op - calls ops, arithmetic included, on graph values and on eager tensors.
 * Licence: Apache-2.0 */
#include "bind/room.h"

#include <stdlib.h>

static void close_device(void *dev)
{
    mr_device_close(dev);
}

mr_device *mr_bind_eager_device(lua_State *L)
{
    static const char key = 0;
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &key) == LUA_TNIL) {
        lua_pop(L, 1);
        static const mr_bind_face face = {"mr.EagerDevice", NULL, NULL, close_device};
        mr_bind_type(L, &face);
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

/* Read the attribute table at `arg` into attrs; integer lists are stored in ints[]. */
static int read_attrs(lua_State *L, const mr_op *op, int arg, mr_attr *attrs, mr_ints *ints)
{
    int n = 0;
    lua_pushnil(L);
    while (lua_next(L, arg)) {
        if (lua_type(L, -2) != LUA_TSTRING)
            mr_bind_raise(L, MR_E_USAGE, "op '%s': attribute names are text", op->name);
        if (n == MR_MAX_ATTR)
            mr_bind_raise(L, MR_E_USAGE, "op '%s': more than %d attributes", op->name, MR_MAX_ATTR);
        mr_attr *a = &attrs[n];
        *a = (mr_attr){.name = lua_tostring(L, -2)};
        switch (lua_type(L, -1)) {
        case LUA_TNUMBER: a->f = lua_tonumber(L, -1), a->i = (int64_t)lua_tonumber(L, -1); break;
        case LUA_TBOOLEAN: a->i = lua_toboolean(L, -1), a->f = (double)a->i; break;
        case LUA_TTABLE:
            ints[n].n = mr_bind_dims(L, lua_gettop(L), ints[n].v), a->ints = &ints[n];
            break;
        case LUA_TSTRING: // dtype = "bf16"
            a->i = mr_dtype_from_name(lua_tostring(L, -1));
            if (a->i < MR_DTYPE_COUNT)
                break; // fall through
        default:
            mr_bind_raise(
                L, MR_E_USAGE,
                "op '%s': attribute '%s' is %s, expected a number, boolean, dtype or list",
                op->name, a->name, luaL_tolstring(L, -1, NULL));
        }
        if (lua_isinteger(L, -1))
            a->i = lua_tointeger(L, -1);
        n++;
        lua_pop(L, 1);
    }
    return n;
}

int mr_bind_call_op(lua_State *L, const char *name, int first, int last)
{
    const mr_op *op = mr_op_find(name);
    if (!op)
        return mr_bind_raise(L, MR_E_USAGE, "no op '%s'; the nearest is '%s'", name,
                             mr_op_nearest(name));
    mr_attr attrs[MR_MAX_ATTR];
    mr_ints ints[MR_MAX_ATTR];
    int n_attrs = 0, graph_of = 0;
    for (int i = first; i <= last; i++)
        mr_bind_to_tensor(L, i);
    if (last >= first && lua_istable(L, last))
        n_attrs = read_attrs(L, op, last, attrs, ints), last--;
    int n = last - first + 1;
    if (n > mr_op_n_in(op))
        return mr_bind_raise(L, MR_E_USAGE, "op '%s' takes %d inputs, got %d", name, mr_op_n_in(op),
                             n);
    for (int i = first; i <= last; i++) {
        if (luaL_testudata(L, i, MR_VALUE))
            mr_bind_value_at(L, i), graph_of = graph_of ? graph_of : i;
        else if (lua_toboolean(L, i) && !luaL_testudata(L, i, "mr.Tensor"))
            return mr_bind_raise(
                L, MR_E_USAGE,
                "op '%s': input %d '%s' is a %s, expected a tensor, a value of a graph, or false",
                name, i - first + 1, op->in[i - first].name, luaL_typename(L, i));
    }
    int n_out = mr_op_n_out(op);
    luaL_checkstack(L, n_out + 4, "too many outputs");
    if (graph_of) {
        mr_bind_value *v = lua_touserdata(L, graph_of);
        mr_ref in[MR_MAX_IN], out[MR_MAX_OUT];
        mr_bind_set_origin(L, v->graph);
        for (int i = 0; i < n; i++)
            in[i] = lua_toboolean(L, first + i) ? mr_bind_ref(L, v->graph, first + i) : MR_NONE;
        mr_bind_check(L, mr_graph_add(v->graph, name, attrs, n_attrs, in, n, out));
        lua_getiuservalue(L, graph_of, 1);
        int graph_at = lua_gettop(L);
        for (int i = 0; i < n_out; i++)
            if (out[i] == MR_NONE)
                lua_pushnil(L);
            else
                mr_bind_push_value(L, graph_at, v->graph, out[i]);
        return n_out;
    }
    mr_tensor *in[MR_MAX_IN] = {0}, *out[MR_MAX_OUT] = {0}, **box[MR_MAX_OUT];
    for (int i = 0; i < n; i++)
        in[i] = lua_toboolean(L, first + i) ? mr_bind_tensor(L, first + i) : NULL;
    mr_device *dev = mr_bind_eager_device(L);
    for (int i = 0; i < n_out; i++)
        box[i] = mr_bind_new_tensor(L);
    mr_bind_check(L, mr_eager(dev, name, attrs, n_attrs, in, n, out));
    for (int i = 0; i < n_out; i++) {
        *box[i] = out[i];
        if (out[i])
            continue;
        lua_pushnil(L); // an output that does not exist for these inputs
        lua_replace(L, -(n_out - i) - 1);
    }
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
    if (!mr_op_find(name))
        return mr_bind_raise(L, MR_E_USAGE, "no op '%s'; the nearest is '%s'", name,
                             mr_op_nearest(name));
    lua_pushvalue(L, 2);
    lua_pushcclosure(L, op_closure, 1);
    lua_pushvalue(L, 2);
    lua_pushvalue(L, -2);
    lua_rawset(L, 1);
    return 1;
}

int mr_bind_op_by_name(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 3);
    const mr_op *op = mr_op_find(name);
    int n = 0, base = lua_gettop(L);
    // a list with holes: read all inputs of the op
    for (int i = 1; op && i <= mr_op_n_in(op); i++)
        if (lua_geti(L, 2, i) != LUA_TNIL)
            n = i;
    lua_settop(L, base + n);
    if (lua_istable(L, 3))
        lua_pushvalue(L, 3);
    return mr_bind_call_op(L, name, base + 1, lua_gettop(L));
}

/* ---- arithmetic on tensors and values ---- */

static const mr_desc *desc_at(lua_State *L, int arg)
{
    mr_bind_value *v = luaL_testudata(L, arg, MR_VALUE);
    return v ? &mr_graph_value(v->graph, v->ref)->desc
             : &mr_tensor_view(mr_bind_tensor(L, arg))->desc;
}

/* Expand the operand at `arg` to shape d, in place on the stack. */
static void expand_to(lua_State *L, int arg, const mr_desc *d)
{
    if (mr_desc_same_shape(desc_at(L, arg), d))
        return;
    lua_getfield(L, arg, "expand");
    lua_pushvalue(L, arg);
    lua_createtable(L, d->rank, 0);
    for (int i = 0; i < d->rank; i++)
        lua_pushinteger(L, d->dim[i]), lua_rawseti(L, -2, i + 1);
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
    if (left || right)
        switch (*op) {
        case 'a': return with_number(L, left ? 2 : 1, 1, c);
        case 's': return left ? with_number(L, 2, -1, c) : with_number(L, 1, 1, -c);
        case 'm': return with_number(L, left ? 2 : 1, c, 0);
        default:
            if (right)
                return with_number(L, 1, 1 / c, 0);
            return mr_bind_raise(L, MR_E_USAGE,
                                 "number / tensor: make a tensor of the number first");
        }
    // numpy broadcasting: align at the last dimension, length 1 repeats
    mr_desc a = *desc_at(L, 1), b = *desc_at(L, 2), d = a.rank >= b.rank ? a : b;
    for (int i = 1; i <= MR_MIN(a.rank, b.rank); i++)
        d.dim[d.rank - i] = MR_MAX(a.dim[a.rank - i], b.dim[b.rank - i]);
    expand_to(L, 1, &d);
    expand_to(L, 2, &d);
    return mr_bind_call_op(L, op, 1, 2);
}

int mr_bind_add(lua_State *L)
{
    return arithmetic(L, "add");
}

int mr_bind_sub(lua_State *L)
{
    return arithmetic(L, "sub");
}

int mr_bind_mul(lua_State *L)
{
    return arithmetic(L, "mul");
}

int mr_bind_div(lua_State *L)
{
    return arithmetic(L, "div");
}

int mr_bind_unm(lua_State *L)
{
    return with_number(L, 1, -1, 0);
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
