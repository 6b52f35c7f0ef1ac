/* bind: moonreel.core.look - numbers of tensors for people. Licence: Apache-2.0
 *
 * summary(t) -> {n, zeros, nonfinite, min, max, mean, rms}; histogram(t, lo, hi, bins) -> list of
 * counts; ops() -> list of {name, doc, ref, inputs, outputs, attrs} of the op table, in name
 * order. */
#include "bind/room.h"

#include <stdlib.h>
#include <string.h>

static int l_summary(lua_State *L)
{
    mr_summary s = {0};
    mr_bind_check(L, mr_view_summary(mr_tensor_view(mr_bind_tensor(L, 1)), &s));
    const struct {
        const char *name;
        int64_t value;
    } counts[] = {{"n", s.n}, {"zeros", s.zeros}, {"nonfinite", s.nonfinite}};
    const struct {
        const char *name;
        double value;
    } numbers[] = {
        {"min", s.min}, {"max", s.max}, {"mean", mr_summary_mean(&s)}, {"rms", mr_summary_rms(&s)}};
    lua_createtable(L, 0, 7);
    for (size_t i = 0; i < MR_COUNT(counts); i++)
        lua_pushinteger(L, counts[i].value), lua_setfield(L, -2, counts[i].name);
    for (size_t i = 0; i < MR_COUNT(numbers); i++)
        lua_pushnumber(L, numbers[i].value), lua_setfield(L, -2, numbers[i].name);
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

static void set_text(lua_State *L, const char *field, const char *text)
{
    lua_pushstring(L, text);
    lua_setfield(L, -2, field);
}

static void push_op(lua_State *L, const mr_op *op)
{
    lua_createtable(L, 0, 6);
    set_text(L, "name", op->name);
    set_text(L, "doc", op->doc);
    set_text(L, "ref", op->ref);
    lua_newtable(L);
    for (int i = 0; i < mr_op_n_in(op); i++) {
        lua_newtable(L);
        set_text(L, "name", op->in[i].name);
        set_text(L, "type", op->in[i].type);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "inputs");
    lua_newtable(L);
    for (int i = 0; i < mr_op_n_out(op); i++) {
        lua_newtable(L);
        set_text(L, "name", op->out[i].name);
        set_text(L, "type", op->out[i].type);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "outputs");
    lua_newtable(L);
    for (int i = 0; i < MR_MAX_ATTR && op->attr[i].name; i++) {
        lua_newtable(L);
        set_text(L, "name", op->attr[i].name);
        lua_pushnumber(L, op->attr[i].def), lua_setfield(L, -2, "default");
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "attrs");
}

static int l_ops(lua_State *L)
{
    int n = 0;
    lua_newtable(L);
    for (int i = 0; i < mr_op_count(); i++) {
        const mr_op *op = mr_op_at(i);
        if (op->hidden)
            continue;
        push_op(L, op);
        lua_rawseti(L, -2, ++n);
    }
    return 1;
}

MR_BIND_ROOM(look)
{
    static const luaL_Reg rows[] = {
        {"summary", l_summary}, {"histogram", l_histogram}, {"ops", l_ops}, {NULL, NULL}};
    luaL_newlib(L, rows);
    return 1;
}
