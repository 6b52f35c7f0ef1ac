/* bind: moonreel.core.run - run directories and their lock. Licence: Apache-2.0
 *
 * create(outputs, name, staged) -> path. stage(run, name) -> path. lock(path) -> lock: lock:id(),
 * lock:fence(), lock:dir(), lock:check(), lock:close(). owner(path) -> {run, fence, owned, dead,
 * host, pid}. */
#include "bind/room.h"

const char mr_bind_lock_type[] = "mr.RunLock";

static void free_lock(void *object)
{
    mr_run_lock_release(object);
}

static int r_create(lua_State *L)
{
    const char *outputs = luaL_checkstring(L, 1), *name = luaL_checkstring(L, 2);
    char path[4096];
    mr_bind_check(L, mr_run_create(outputs, name, lua_toboolean(L, 3), path, sizeof path));
    lua_pushstring(L, path);
    return 1;
}

static int r_stage(lua_State *L)
{
    char path[4096];
    mr_bind_check(L,
                  mr_run_stage(luaL_checkstring(L, 1), luaL_checkstring(L, 2), path, sizeof path));
    lua_pushstring(L, path);
    return 1;
}

static int r_lock(lua_State *L)
{
    const char *dir = luaL_checkstring(L, 1);
    void **box = mr_bind_box(L, mr_bind_lock_type);
    mr_run_lock *lock;
    mr_bind_check(L, mr_run_lock_take(dir, &lock));
    *box = lock;
    return 1;
}

static int r_owner(lua_State *L)
{
    mr_run_owner o;
    mr_bind_check(L, mr_run_lock_peek(luaL_checkstring(L, 1), &o));
    lua_createtable(L, 0, 6);
    lua_pushstring(L, o.run), lua_setfield(L, -2, "run");
    lua_pushinteger(L, o.fence), lua_setfield(L, -2, "fence");
    lua_pushboolean(L, o.owned), lua_setfield(L, -2, "owned");
    lua_pushboolean(L, o.dead), lua_setfield(L, -2, "dead");
    lua_pushstring(L, o.host), lua_setfield(L, -2, "host");
    lua_pushinteger(L, o.pid), lua_setfield(L, -2, "pid");
    return 1;
}

static int l_id(lua_State *L)
{
    lua_pushstring(L, mr_run_lock_id(mr_bind_unbox(L, 1, mr_bind_lock_type)));
    return 1;
}

static int l_fence(lua_State *L)
{
    lua_pushinteger(L, mr_run_lock_fence(mr_bind_unbox(L, 1, mr_bind_lock_type)));
    return 1;
}

static int l_dir(lua_State *L)
{
    lua_pushstring(L, mr_run_lock_dir(mr_bind_unbox(L, 1, mr_bind_lock_type)));
    return 1;
}

static int l_check(lua_State *L)
{
    mr_bind_check(L, mr_run_lock_check(mr_bind_unbox(L, 1, mr_bind_lock_type)));
    return 0;
}

MR_BIND_ROOM(run)
{
    static const luaL_Reg rows[] = {{"create", r_create},
                                    {"stage", r_stage},
                                    {"lock", r_lock},
                                    {"owner", r_owner},
                                    {NULL, NULL}};
    static const luaL_Reg lock_rows[] = {
        {"id", l_id}, {"fence", l_fence}, {"dir", l_dir}, {"check", l_check}, {NULL, NULL}};
    mr_bind_type(L, mr_bind_lock_type, lock_rows, NULL, free_lock);
    luaL_newlib(L, rows);
    return 1;
}
