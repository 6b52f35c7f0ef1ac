/* bind: reads dimensions, axes and positions from Lua, for tensors and graph values.
 * Licence: Apache-2.0 */
#include "bind/room.h"

#include <ctype.h>
#include <stdlib.h>

int mr_bind_dims(lua_State *L, int arg, int64_t *dim)
{
    luaL_checktype(L, arg, LUA_TTABLE);
    lua_Integer n = luaL_len(L, arg);
    if (n > MR_MAX_RANK)
        mr_bind_raise(L, MR_E_SHAPE, "%d dimensions; expected at most %d", (int)n, MR_MAX_RANK);
    for (int i = 0; i < (int)n; i++) {
        int ok;
        lua_geti(L, arg, i + 1);
        dim[i] = lua_tointegerx(L, -1, &ok);
        if (!ok)
            mr_bind_raise(L, MR_E_SHAPE, "dimension %d: expected an integer, got %s", i + 1,
                          luaL_tolstring(L, -1, NULL));
        lua_pop(L, 1);
    }
    return (int)n;
}

static int axis_at(lua_State *L, int arg, int rank, int def)
{
    int64_t axis = luaL_optinteger(L, arg, def), k = axis < 0 ? axis + rank : axis;
    if (k < 0 || k >= rank)
        mr_bind_raise(L, MR_E_RANGE, "transpose: axis %lld is not inside 0:%d", (long long)axis,
                      rank);
    return (int)k;
}

void mr_bind_swap(lua_State *L, int arg, int rank, int *order)
{
    int a = axis_at(L, arg, rank, -2), b = axis_at(L, arg + 1, rank, -1);
    for (int i = 0; i < rank; i++)
        order[i] = i == a ? b : i == b ? a : i;
}

static int64_t range_number(lua_State *L, const char **s, int64_t def, int64_t n)
{
    while (isspace((unsigned char)**s))
        (*s)++;
    char *end;
    int64_t x = strtoll(*s, &end, 10);
    if (end == *s)
        return def;
    *s = end;
    while (isspace((unsigned char)**s))
        (*s)++;
    if (x < -n || x > n)
        mr_bind_raise(L, MR_E_RANGE, "position %lld is not inside 0..%lld", (long long)x,
                      (long long)n);
    return x < 0 ? x + n : x;
}

int mr_bind_ranges(lua_State *L, int arg, const mr_desc *d, mr_bind_range *ranges)
{
    if (lua_isinteger(L, arg)) {
        int64_t i = lua_tointeger(L, arg);
        if (d->rank < 1)
            mr_bind_raise(L, MR_E_RANGE, "a scalar has no positions");
        if (i < 0)
            i += d->dim[0];
        if (i < 0 || i >= d->dim[0])
            mr_bind_raise(L, MR_E_RANGE, "position %lld is not inside 0:%lld",
                          (long long)lua_tointeger(L, arg), (long long)d->dim[0]);
        ranges[0] = (mr_bind_range){true, i, i + 1};
        return 1;
    }
    const char *s = luaL_checkstring(L, arg);
    int n = 0;
    for (;; s++) {
        if (n == d->rank)
            return mr_bind_raise(L, MR_E_RANGE, "'%s': more parts than the %d dimensions",
                                 lua_tostring(L, arg), d->rank);
        mr_bind_range *r = &ranges[n];
        int64_t len = d->dim[n++];
        while (isspace((unsigned char)*s))
            s++;
        const char *part = s;
        r->start = range_number(L, &s, 0, len);
        if (s == part && *s != ':')
            return mr_bind_raise(L, MR_E_USAGE, "'%s': expected positions as \"0, :, 3:16\"",
                                 lua_tostring(L, arg));
        r->drop = *s != ':';
        r->stop = r->drop ? r->start + 1 : (s++, range_number(L, &s, len, len));
        if (r->stop > len || r->start > r->stop)
            return mr_bind_raise(L, MR_E_RANGE, "'%s': part %d is not inside 0:%lld",
                                 lua_tostring(L, arg), n, (long long)len);
        if (*s == 0)
            return n;
        if (*s != ',')
            return mr_bind_raise(L, MR_E_USAGE, "'%s': expected positions as \"0, :, 3:16\"",
                                 lua_tostring(L, arg));
    }
}
