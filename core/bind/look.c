/* bind: moonreel.core.look - statistics of tensors, for people to read. Licence: Apache-2.0 */
#include "bind/room.h"

#include <stdlib.h>
#include <string.h>

static int l_summary(lua_State *L)
{
    mr_summary s = {0};
    mr_bind_check(L, mr_view_summary(mr_tensor_view(mr_bind_tensor(L, 1)), &s));
    lua_createtable(L, 0, 7);
    MR_BIND_SET(L, s, n, zeros, nonfinite, min, max);
    mr_bind_set_num(L, "mean", mr_summary_mean(&s));
    mr_bind_set_num(L, "rms", mr_summary_rms(&s));
    return 1;
}

static int l_histogram(lua_State *L)
{
    const mr_tensor *t = mr_bind_tensor(L, 1);
    double lo = luaL_checknumber(L, 2), hi = luaL_checknumber(L, 3);
    lua_Integer bins = luaL_optinteger(L, 4, 32);
    luaL_argcheck(L, bins >= 1 && bins <= 65536, 4, "expected 1 to 65536 bins");
    int64_t *counts = mr_bind_scratch(L, sizeof *counts * (size_t)bins);
    mr_bind_check(L, mr_view_histogram(mr_tensor_view(t), lo, hi, (int)bins, counts));
    lua_createtable(L, (int)bins, 0);
    for (int i = 0; i < (int)bins; i++) {
        lua_pushinteger(L, counts[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static const mr_bind_entry look_entries[] = {
    MR_ENTRY("summary", l_summary, "(t: mr.Tensor): table",
             "{n, zeros, nonfinite, min, max, mean, rms}; the last four over the finite values."),
    MR_ENTRY("histogram", l_histogram,
             "(t: mr.Tensor, lo: number, hi: number, bins?: integer): integer[]",
             "Counts of the finite values in equal bins."),
    MR_ENTRY_END};
static const mr_bind_face look_face = {"moonreel.core.look", "Statistics of tensors.", look_entries,
                                       NULL};

MR_BIND_ROOM(look)
{
    return mr_bind_module(L, &look_face);
}
