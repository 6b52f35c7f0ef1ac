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
    MR_BIND_SET(L, o, run, fence, owned, dead, host, pid);
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

static const mr_bind_entry run_entries[] = {
    MR_ENTRY("create", r_create, "(outputs: string, name: string, staged?: boolean): string",
             "Create outputs/NNN-name; returns its path."),
    MR_ENTRY("stage", r_stage, "(run_dir: string, name: string): string",
             "Create RUN/stages/NAME, or use the existing one."),
    MR_ENTRY("lock", r_lock, "(run_dir: string): mr.RunLock",
             "Become the one writer of a run; raises MR_E_LOCK naming the owner."),
    MR_ENTRY("owner", r_owner, "(run_dir: string): table",
             "The owner of the lock: {run, fence, owned, dead, host, pid}."),
    MR_ENTRY_END};
static const mr_bind_face run_face = {
    "moonreel.core.run", "Run directories and their lock; use moonreel.run.", run_entries, NULL};

static const mr_bind_entry lock_entries[] = {
    MR_ENTRY("id", l_id, "(): string", "The id of the run."),
    MR_ENTRY("fence", l_fence, "(): integer", "The fencing number of this lock."),
    MR_ENTRY("dir", l_dir, "(): string", "The run directory."),
    MR_ENTRY("check", l_check, "()", "Raise MR_E_LOCK if another process has taken it."),
    MR_ENTRY_END};
static const mr_bind_face lock_face = {mr_bind_lock_type, "The lock of a run directory.",
                                       lock_entries, free_lock};

MR_BIND_ROOM(run)
{
    mr_bind_type(L, &lock_face);
    return mr_bind_module(L, &run_face);
}
