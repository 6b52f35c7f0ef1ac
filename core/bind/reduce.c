/* bind: t:sum(axes, keep) and similar methods. Licence: Apache-2.0 */
#include "bind/room.h"

/* Mark the axes at `arg` (a number, a list, or nothing: all) in over[rank]; false: all axes. */
static bool read_axes(lua_State *L, int arg, const char *who, int rank, bool *over)
{
    for (int i = 0; i < rank; i++)
        over[i] = lua_isnoneornil(L, arg);
    if (lua_isnoneornil(L, arg))
        return false;
    int64_t axis[MR_MAX_RANK];
    int n = 1;
    if (lua_isinteger(L, arg))
        axis[0] = lua_tointeger(L, arg);
    else
        n = mr_bind_dims(L, arg, axis);
    for (int i = 0; i < n; i++) {
        int64_t k = axis[i] < 0 ? axis[i] + rank : axis[i];
        if (k < 0 || k >= rank)
            mr_bind_raise(L, MR_E_RANGE, "%s: axis %lld is not inside 0:%d", who,
                          (long long)axis[i], rank);
        if (over[k])
            mr_bind_raise(L, MR_E_USAGE, "%s: axis %lld is named twice", who, (long long)k);
        over[k] = true;
    }
    return true;
}

/* Push the only value of a tensor, as an integer if its dtype is one. */
static void push_only(lua_State *L, const mr_view *v)
{
    if (v->desc.dtype == MR_I64)
        lua_pushinteger(L, *(const int64_t *)v->data);
    else if (v->desc.dtype == MR_I32 || v->desc.dtype == MR_U8)
        lua_pushinteger(L, (lua_Integer)mr_view_get(v, NULL));
    else if (v->desc.dtype == MR_BOOL)
        lua_pushboolean(L, mr_view_get(v, NULL) != 0);
    else
        lua_pushnumber(L, mr_view_get(v, NULL));
}

/* Reduce over all axes: a number. Over some axes: a tensor without these axes, or, if argument 3 is
 * true, with length 1 there. */
static int reduce(lua_State *L, const char *who, mr_reduction kind)
{
    const mr_view *x = mr_tensor_view(mr_bind_tensor(L, 1));
    bool over[MR_MAX_RANK], keep = lua_toboolean(L, 3);
    bool named = read_axes(L, 2, who, x->desc.rank, over);
    int64_t left[MR_MAX_RANK], kept[MR_MAX_RANK];
    int n = 0;
    for (int i = 0; i < x->desc.rank; i++) {
        kept[i] = over[i] ? 1 : x->desc.dim[i];
        if (!over[i])
            left[n++] = x->desc.dim[i];
    }
    mr_dtype dtype = mr_reduction_dtype(kind, x->desc.dtype);
    mr_tensor **t = mr_bind_new_tensor(L);
    mr_bind_check(L, keep ? mr_tensor_new(dtype, x->desc.rank, kept, t)
                          : mr_tensor_new(dtype, n, left, t));
    mr_bind_check(L, mr_view_reduce(kind, x, over, mr_tensor_view(*t)));
    if (!named && !keep)
        push_only(L, mr_tensor_view(*t));
    return 1;
}

int mr_bind_reduce_sum(lua_State *L)
{
    return reduce(L, "sum", MR_REDUCE_SUM);
}

int mr_bind_reduce_mean(lua_State *L)
{
    return reduce(L, "mean", MR_REDUCE_MEAN);
}

int mr_bind_reduce_max(lua_State *L)
{
    return reduce(L, "max", MR_REDUCE_MAX);
}

int mr_bind_reduce_min(lua_State *L)
{
    return reduce(L, "min", MR_REDUCE_MIN);
}

int mr_bind_reduce_norm(lua_State *L)
{
    return reduce(L, "norm", MR_REDUCE_NORM);
}
