/* bind: reads the arguments that several binding files share - tensors, graph values, graphs,
 * parameter tables, executors. Licence: Apache-2.0 */
#include "bind/room.h"

#include <stdio.h>
#include <string.h>

#define TENSOR "mr.Tensor"

const char mr_bind_index_type[] = "mr.Index", mr_bind_comm_type[] = "mr.Comm";
const char *const mr_bind_spaces[] = {
    [MR_SPACE_DEVICE] = "device", [MR_SPACE_PINNED] = "pinned", NULL};

bool mr_bind_to_tensor(lua_State *L, int arg)
{
    arg = lua_absindex(L, arg);
    if (luaL_testudata(L, arg, TENSOR))
        return true;
    if (luaL_getmetafield(L, arg, "__tensor") == LUA_TNIL)
        return false;
    lua_pushvalue(L, arg);
    lua_call(L, 1, 1);
    luaL_checkudata(L, -1, TENSOR);
    lua_replace(L, arg);
    return true;
}

mr_tensor *mr_bind_tensor(lua_State *L, int arg)
{
    mr_bind_to_tensor(L, arg);
    return mr_bind_unbox(L, arg, TENSOR);
}

/* Lua's collector only knows the few bytes of a tensor's box. So start a collection when the memory
 * of tensors has grown by a quarter, and by at least LET, since the minimum after the last one. */
static void collect(lua_State *L)
{
    enum { LET = 64 << 20 };
    static const char least;
    lua_rawgetp(L, LUA_REGISTRYINDEX, &least);
    const size_t then = (size_t)lua_tointeger(L, -1), now = mr_tensor_held();
    lua_pop(L, 1);
    const bool full = now > then + MR_MAX(then / 4, LET) && lua_gc(L, LUA_GCISRUNNING);
    if (full)
        lua_gc(L, LUA_GCCOLLECT);
    if (full || now < then) {
        lua_pushinteger(L, (lua_Integer)mr_tensor_held());
        lua_rawsetp(L, LUA_REGISTRYINDEX, &least);
    }
}

mr_tensor **mr_bind_new_tensor(lua_State *L)
{
    collect(L);
    return (mr_tensor **)mr_bind_box(L, TENSOR);
}

mr_dtype mr_bind_dtype(lua_State *L, int arg)
{
    const char *name = luaL_checkstring(L, arg);
    mr_dtype d = mr_dtype_from_name(name);
    if (d == MR_DTYPE_COUNT)
        mr_bind_raise(L, MR_E_USAGE,
                      "dtype '%s': expected f64, f32, bf16, i64, i32, u8, bool, f8_e4m3 or f8_e5m2",
                      name);
    return d;
}

mr_graph *mr_bind_graph(lua_State *L, int arg)
{
    return mr_bind_unbox(L, arg, "mr.Graph");
}

mr_params *mr_bind_params(lua_State *L, int arg)
{
    return mr_bind_unbox(L, arg, "mr.Params");
}

mr_exec *mr_bind_exec(lua_State *L, int arg)
{
    executor *e = mr_bind_unbox(L, arg, "mr.Exec");
    lua_getiuservalue(L, arg, 2);
    if (!lua_isnil(L, -1))
        mr_bind_params(L, -1);
    lua_pop(L, 1);
    return e->exec;
}

void mr_bind_set_origin(lua_State *L, mr_graph *g)
{
    char text[256] = "";
    lua_Debug ar;
    for (int level = 1; lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "Sl", &ar);
        bool own = strncmp(ar.source, "@moonreel/", 10) == 0 &&
                   strncmp(ar.source, "@moonreel/models/", 17) != 0;
        if (ar.currentline < 0 || own)
            continue;
        snprintf(text, sizeof text, "%s:%d", ar.short_src, ar.currentline);
        break;
    }
    mr_graph_set_origin(g, text);
}

void mr_bind_push_value(lua_State *L, int graph_at, mr_graph *g, mr_ref ref)
{
    graph_at = lua_absindex(L, graph_at);
    mr_bind_value *v = lua_newuserdatauv(L, sizeof *v, 1);
    v->graph = g, v->ref = ref;
    luaL_setmetatable(L, MR_VALUE);
    lua_pushvalue(L, graph_at);
    lua_setiuservalue(L, -2, 1);
}

mr_bind_value *mr_bind_value_at(lua_State *L, int arg)
{
    mr_bind_value *v = luaL_checkudata(L, arg, MR_VALUE);
    lua_getiuservalue(L, arg, 1);
    mr_bind_unbox(L, -1, "mr.Graph"); // raises if the graph is closed
    lua_pop(L, 1);
    return v;
}

mr_ref mr_bind_ref_of(lua_State *L, mr_graph *g, int arg)
{
    mr_bind_value *v = mr_bind_value_at(L, arg);
    if (v->graph != g)
        mr_bind_raise(L, MR_E_USAGE, "%s belongs to another graph", luaL_tolstring(L, arg, NULL));
    return v->ref;
}

mr_ref mr_bind_ref(lua_State *L, mr_graph *g, int arg)
{
    if (luaL_testudata(L, arg, MR_VALUE))
        return mr_bind_ref_of(L, g, arg);
    mr_ref ref;
    mr_bind_check(L, mr_graph_const(g, mr_tensor_view(mr_bind_tensor(L, arg)), &ref));
    return ref;
}
