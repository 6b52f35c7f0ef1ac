/* bind: values of a graph: views, shape, text. Licence: Apache-2.0 */
#include "bind/room.h"

#include <string.h>

static int view_result(lua_State *L, mr_bind_value *v, mr_status st, const mr_ref *ref)
{
    mr_bind_check(L, st);
    lua_getiuservalue(L, 1, 1);
    mr_bind_push_value(L, -1, v->graph, *ref);
    return 1;
}

static int with_dims(lua_State *L,
                     mr_status (*view)(mr_graph *, mr_ref, int, const int64_t *, mr_ref *))
{
    mr_bind_value *v = mr_bind_value_at(L, 1);
    int64_t dim[MR_MAX_RANK];
    int n = mr_bind_dims(L, 2, dim);
    mr_ref out;
    mr_bind_set_origin(L, v->graph);
    return view_result(L, v, view(v->graph, v->ref, n, dim, &out), &out);
}
static int v_reshape(lua_State *L)
{
    return with_dims(L, mr_graph_reshape);
}
static int v_expand(lua_State *L)
{
    return with_dims(L, mr_graph_expand);
}

static int v_slice(lua_State *L)
{
    mr_bind_value *v = mr_bind_value_at(L, 1);
    mr_ref out;
    mr_bind_set_origin(L, v->graph);
    return view_result(L, v,
                       mr_graph_slice(v->graph, v->ref, (int)luaL_checkinteger(L, 2),
                                      luaL_checkinteger(L, 3), luaL_checkinteger(L, 4), &out),
                       &out);
}

static int v_permute(lua_State *L)
{
    mr_bind_value *v = mr_bind_value_at(L, 1);
    int64_t dim[MR_MAX_RANK];
    int n = mr_bind_dims(L, 2, dim), order[MR_MAX_RANK],
        rank = mr_graph_value(v->graph, v->ref)->desc.rank;
    if (n != rank)
        return mr_bind_raise(L, MR_E_SHAPE, "permute: %d axes for rank %d", n, rank);
    for (int i = 0; i < n; i++)
        order[i] = (int)dim[i];
    mr_ref out;
    mr_bind_set_origin(L, v->graph);
    return view_result(L, v, mr_graph_permute(v->graph, v->ref, order, &out), &out);
}

static int v_transpose(lua_State *L)
{
    mr_bind_value *v = mr_bind_value_at(L, 1);
    int order[MR_MAX_RANK];
    mr_bind_swap(L, 2, mr_graph_value(v->graph, v->ref)->desc.rank, order);
    mr_ref out;
    mr_bind_set_origin(L, v->graph);
    return view_result(L, v, mr_graph_permute(v->graph, v->ref, order, &out), &out);
}

/* split(axis, n) -> n equal slices */
static int v_split(lua_State *L)
{
    mr_bind_value *v = mr_bind_value_at(L, 1);
    int axis = (int)luaL_checkinteger(L, 2), n = (int)luaL_checkinteger(L, 3);
    const mr_desc d = mr_graph_value(v->graph, v->ref)->desc;
    if (axis < 0 || axis >= d.rank || n < 1 || d.dim[axis] % n)
        return mr_bind_raise(
            L, MR_E_SHAPE,
            "split into %d along axis %d: expected a length that is a multiple of the parts", n,
            axis);
    luaL_checkstack(L, n + 4, "too many parts");
    lua_getiuservalue(L, 1, 1);
    int graph_at = lua_gettop(L);
    mr_bind_set_origin(L, v->graph);
    for (int i = 0; i < n; i++) {
        mr_ref out;
        int64_t step = d.dim[axis] / n;
        mr_bind_check(L, mr_graph_slice(v->graph, v->ref, axis, i * step, (i + 1) * step, &out));
        mr_bind_push_value(L, graph_at, v->graph, out);
    }
    return n;
}

static int v_index(lua_State *L)
{
    mr_bind_value *v = mr_bind_value_at(L, 1);
    const mr_desc *d = &mr_graph_value(v->graph, v->ref)->desc;
    const char *key = luaL_checkstring(L, 2);
    if (strcmp(key, "shape") == 0) {
        lua_createtable(L, d->rank, 0);
        for (int i = 0; i < d->rank; i++)
            lua_pushinteger(L, d->dim[i]), lua_rawseti(L, -2, i + 1);
    } else if (strcmp(key, "dtype") == 0)
        lua_pushstring(L, mr_dtype_name(d->dtype));
    else
        lua_getfield(L, lua_upvalueindex(1), key);
    return 1;
}

static int v_tostring(lua_State *L)
{
    mr_bind_value *v = mr_bind_value_at(L, 1);
    char text[128];
    lua_pushfstring(L, "value %%%d %s", (int)v->ref,
                    mr_desc_text(&mr_graph_value(v->graph, v->ref)->desc, text, sizeof text));
    return 1;
}

static const mr_bind_entry value_entries[] = {
    MR_ENTRY_FIELD("shape", "integer[]", "Dimensions, outermost first."),
    MR_ENTRY_FIELD("dtype", "mr.Dtype", "Dtype of the elements."),
    MR_ENTRY("reshape", v_reshape, "(dims: integer[]): mr.Value",
             "The same elements with other dimensions; one can be -1."),
    MR_ENTRY("expand", v_expand, "(dims: integer[]): mr.Value", "Repeat dimensions of length 1."),
    MR_ENTRY("slice", v_slice, "(axis: integer, start: integer, stop: integer): mr.Value",
             "Positions start to stop - 1 of an axis."),
    MR_ENTRY("permute", v_permute, "(axes: integer[]): mr.Value", "Axes in another order."),
    MR_ENTRY("transpose", v_transpose, "(a?: integer, b?: integer): mr.Value",
             "Two axes swapped, by default the last two."),
    MR_ENTRY("split", v_split, "(axis: integer, n: integer): mr.Value ...",
             "n equal slices of an axis."),
    MR_ENTRY("__index", v_index, "(key: string): any", "shape, dtype, or a method."),
    MR_ENTRY("__tostring", v_tostring, "(): string", "Its number, shape and dtype."),
    MR_ENTRY_OPERATORS("mr.Value"),
    MR_ENTRY_END};
static const mr_bind_face value_face = {"mr.Value",
                                        "A value of a graph. Arithmetic with numbers, values and "
                                        "tensors adds nodes, with the broadcasting of numpy.",
                                        value_entries, NULL};

void mr_bind_value_type(lua_State *L)
{
    mr_bind_type(L, &value_face);
}
