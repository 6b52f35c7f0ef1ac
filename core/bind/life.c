/* bind: moonreel.core.life - the state that each rank writes, and the shared page of a launch.
 * Licence: Apache-2.0 */
#include "moonreel/life.h"
#include "bind/room.h"

#include <stdio.h>
#include <string.h>

const char mr_bind_life_type[] = "mr.Life";

static void free_life(void *page)
{
    mr_life_free(page);
}

/* ---- publishing ---- */

void mr_bind_tell_where(lua_State *L)
{
    char text[LUA_IDSIZE + 16] = "";
    lua_Debug ar;
    if (!mr_life_publishes())
        return;
    for (int level = 0; lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "Sl", &ar);
        if (ar.currentline <= 0)
            continue;
        snprintf(text, sizeof text, "%s:%d", ar.short_src, ar.currentline);
        if (strncmp(ar.source, "@moonreel/comm/", 15) != 0)
            break;
    }
    mr_life_set_where(text);
}

/* Where Lua is: its frames with lines, nearest first. */
static void tell_frames(lua_State *L)
{
    enum { MOST = 12 };
    char text[1024];
    size_t n = 0;
    lua_Debug ar;
    text[0] = 0;
    for (int level = 0, printed = 0; printed < MOST && lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "Sln", &ar);
        if (ar.currentline <= 0)
            continue;
        int more =
            snprintf(text + n, sizeof text - n, "%s%s:%d%s%s", printed++ ? "\n" : "", ar.short_src,
                     ar.currentline, ar.name ? " in " : "", ar.name ? ar.name : "");
        if (more < 0 || (size_t)more >= sizeof text - n) {
            text[n] = 0;
            break;
        }
        n += (size_t)more;
    }
    mr_life_frames(text);
}

static int l_publish(lua_State *L)
{
    lua_Integer rank = luaL_optinteger(L, 1, 0), world = luaL_optinteger(L, 2, 1);
    const char *job = luaL_optstring(L, 3, "");
    luaL_argcheck(L, rank >= 0 && rank <= INT32_MAX, 1, "expected a rank");
    luaL_argcheck(L, world > rank && world <= INT32_MAX, 2, "expected a number of ranks");
    if (mr_life_publishes())
        return 0;
    // its file goes with the Lua state
    mr_life **page = (mr_life **)mr_bind_box(L, mr_bind_life_type);
    mr_bind_check(L, mr_life_new(1, (int)rank, (int)world, page));
    mr_life_take(*page, 0);
    mr_life_set_job(job);
    lua_setfield(L, LUA_REGISTRYINDEX, "mr.life.own");
    return 0;
}

static int l_set_run(lua_State *L)
{
    mr_life_set_run(luaL_checkstring(L, 1), luaL_checkstring(L, 2), luaL_checkinteger(L, 3));
    return 0;
}

static int l_phase(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    mr_phase phase = mr_phase_from_name(name);
    if (phase == MR_PHASE_COUNT)
        return mr_bind_raise(L, MR_E_USAGE, "phase: there is no phase '%s'", name);
    if (mr_life_publishes())
        tell_frames(L);
    lua_pushstring(L, mr_phase_name(mr_life_phase(phase)));
    return 1;
}

static int l_step(lua_State *L)
{
    mr_life_step(luaL_checkinteger(L, 1));
    return 0;
}

static int l_clip(lua_State *L)
{
    mr_life_clip(luaL_optstring(L, 1, ""));
    return 0;
}

/* ---- reading ---- */

static mr_life *page_at(lua_State *L)
{
    return mr_bind_unbox(L, 1, mr_bind_life_type);
}

/* The seat at argument 2, a rank. */
static int seat_at(lua_State *L, const mr_life *page)
{
    mr_life_launch about;
    mr_life_about(page, &about);
    lua_Integer rank = luaL_checkinteger(L, 2);
    luaL_argcheck(L, rank >= about.first && rank < about.first + about.ranks, 2,
                  "expected a rank of this page");
    return (int)(rank - about.first);
}

static int l_registry(lua_State *L)
{
    char path[4096];
    lua_pushstring(L, mr_life_registry(path, sizeof path) ? path : NULL);
    return 1;
}

static int l_open(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    mr_life **box = (mr_life **)mr_bind_box(L, mr_bind_life_type);
    mr_bind_check(L, mr_life_open(path, box));
    return 1;
}

static int p_about(lua_State *L)
{
    mr_life_launch a;
    mr_life_about(page_at(L), &a);
    lua_createtable(L, 0, 11);
    MR_BIND_SET(L, a, ranks, first, world, uid, pid, start, fence, token, host);
    mr_bind_set_str(L, "run", a.run[0] ? a.run : NULL);
    mr_bind_set_str(L, "dir", a.dir[0] ? a.dir : NULL);
    mr_bind_set_str(L, "job", a.job[0] ? a.job : NULL);
    return 1;
}

static void push_op(lua_State *L, const mr_life_op *op)
{
    lua_createtable(L, 0, 10);
    MR_BIND_SET(L, *op, number, group, seq, kind, count, bytes, began_s);
    mr_bind_set_str(L, "dtype", op->dtype[0] ? op->dtype : NULL);
    mr_bind_set_str(L, "where", op->where[0] ? op->where : NULL);
    if (op->ended_s > 0)
        MR_BIND_SET(L, *op, ended_s);
}

static int p_rank(lua_State *L)
{
    const mr_life *page = page_at(L);
    mr_life_rank r;
    mr_life_look(page, seat_at(L, page), &r);
    lua_createtable(L, 0, 12);
    if (r.pid) {
        char state[2] = "";
        mr_life_process_state(r.pid, r.start, state);
        MR_BIND_SET(L, r, pid, start);
        mr_bind_set_str(L, "state", state[0] ? state : NULL);
    }
    MR_BIND_SET(L, r, rank, step, steps, phase_s, beat_s, ops);
    mr_bind_set_str(L, "phase", mr_phase_name(r.phase));
    mr_bind_set_str(L, "clip", r.clip[0] ? r.clip : NULL);
    mr_bind_set_str(L, "frames", r.frames[0] ? r.frames : NULL);
    if (r.open.number)
        push_op(L, &r.open), lua_setfield(L, -2, "open");
    if (r.last.number)
        push_op(L, &r.last), lua_setfield(L, -2, "last");
    return 1;
}

static int p_ops(lua_State *L)
{
    const mr_life *page = page_at(L);
    const int seat = seat_at(L, page);
    mr_life_op *ops = mr_bind_scratch(L, MR_LIFE_OPS * sizeof *ops);
    const int n = mr_life_ops(page, seat, ops);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        push_op(L, &ops[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static int p_own_s(lua_State *L)
{
    const mr_life *page = page_at(L);
    double own_s = mr_life_own_s(page, seat_at(L, page), luaL_checkinteger(L, 3));
    if (own_s > 0)
        lua_pushnumber(L, own_s);
    else
        lua_pushnil(L);
    return 1;
}

static int p_quantile(lua_State *L)
{
    int64_t count;
    const mr_life *page = page_at(L);
    const char *name = luaL_checkstring(L, 2);
    mr_phase phase = mr_phase_from_name(name);
    luaL_argcheck(L, phase < MR_PHASE_COUNT, 2, "expected a phase");
    lua_pushnumber(L, mr_life_quantile_s(page, phase, luaL_checknumber(L, 3), &count));
    lua_pushinteger(L, count);
    return 2;
}

/* ---- processes ---- */

static uint32_t uid_at(lua_State *L, int arg)
{
    lua_Integer uid = luaL_checkinteger(L, arg);
    luaL_argcheck(L, uid >= 0 && uid <= UINT32_MAX, arg, "expected a user's number");
    return (uint32_t)uid;
}

static int l_signal(lua_State *L)
{
    lua_Integer number = luaL_checkinteger(L, 4);
    luaL_argcheck(L, number >= 0 && number <= 64, 4, "expected a signal");
    mr_status st =
        mr_life_signal(luaL_checkinteger(L, 1), luaL_checkinteger(L, 2), uid_at(L, 3), (int)number);
    lua_pushboolean(L, st == MR_OK);
    if (st == MR_OK)
        return 1;
    lua_pushstring(L, mr_error_last()->text);
    mr_error_clear();
    return 2;
}

static int l_state(lua_State *L)
{
    char state[2] = "";
    if (mr_life_process_state(luaL_checkinteger(L, 1), luaL_checkinteger(L, 2), state))
        lua_pushstring(L, state);
    else
        lua_pushnil(L);
    return 1;
}

static int l_processes(lua_State *L)
{
    enum { MOST = 4096 };
    const char *token = luaL_checkstring(L, 1);
    const uint32_t uid = uid_at(L, 2);
    mr_life_process *found = mr_bind_scratch(L, MOST * sizeof *found);
    const int n = mr_life_processes(token, uid, found, MOST);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        const char state[2] = {found[i].state, 0};
        lua_createtable(L, 0, 3);
        MR_BIND_SET(L, found[i], pid, start);
        mr_bind_set_str(L, "state", state);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static int l_work(lua_State *L)
{
    mr_life_work work;
    if (!mr_life_work_of(luaL_checkinteger(L, 1), &work))
        return 0;
    lua_pushnumber(L, work.cpu_s), lua_pushnumber(L, work.bytes);
    return 2;
}

/* ---- stacks ---- */

/* Append a frame to the list of its thread: the table of lists by thread is on top. */
static int add_frame(lua_State *L)
{
    lua_rawgeti(L, 1, lua_tointeger(L, 2));
    if (lua_istable(L, -1)) {
        lua_pushvalue(L, 3);
        lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
    }
    return 0;
}

static void take_frame(void *user, int64_t tid, const char *text)
{
    lua_State *L = user;
    // Lua may be out of memory: not across the frames of the plug-in
    if (!lua_checkstack(L, 6))
        return;
    lua_pushcfunction(L, add_frame);
    lua_pushvalue(L, -2);
    lua_pushinteger(L, tid);
    lua_pushstring(L, text);
    if (lua_pcall(L, 3, 0, 0) != LUA_OK)
        lua_pop(L, 1);
}

static int l_threads(lua_State *L)
{
    const lua_Integer pid = luaL_checkinteger(L, 1);
    mr_life_thread *threads = mr_bind_scratch(L, MR_LIFE_THREADS * sizeof *threads);
    const int n = mr_life_threads(pid, threads, MR_LIFE_THREADS);
    lua_createtable(L, n, 0);
    const int list = lua_gettop(L);
    lua_createtable(L, 0, n); // frames by thread
    for (int i = 0; i < n; i++) {
        const char state[2] = {threads[i].state, 0};
        lua_createtable(L, 0, 5);
        MR_BIND_SET(L, threads[i], tid, name);
        mr_bind_set_str(L, "state", state);
        mr_bind_set_str(L, "waits", threads[i].waits[0] ? threads[i].waits : NULL);
        lua_newtable(L);
        lua_pushvalue(L, -1);
        lua_rawseti(L, list + 1, threads[i].tid);
        lua_setfield(L, -2, "frames");
        lua_rawseti(L, list, i + 1);
    }
    mr_status st = mr_life_frames_of(pid, take_frame, L);
    lua_settop(L, list);
    lua_pushstring(L, st == MR_OK ? NULL : mr_error_last()->text);
    mr_error_clear();
    return 2;
}

static const mr_bind_entry module_entries[] = {
    MR_ENTRY("publish", l_publish, "(rank?: integer, ranks?: integer, job?: string)",
             "Tell of this process on a page of its own, unless its launcher has given it one; of "
             "another launcher: to which job it belongs."),
    MR_ENTRY("set_run", l_set_run, "(id: string, dir: string, fence: integer)",
             "Which run this process works for."),
    MR_ENTRY("phase", l_phase, "(name: string): string",
             "A phase begins: start, meet, open, device, index, weights, compile, load, forward, "
             "reduce, optimizer, snapshot or persist; the one that ends."),
    MR_ENTRY("step", l_step, "(step: integer)", "A step begins."),
    MR_ENTRY("clip", l_clip, "(name?: string)", "The clip that a batch waits for."),
    MR_ENTRY("registry", l_registry, "(): string?", "The folder of pages of this host and user."),
    MR_ENTRY("open", l_open, "(path: string): mr.Life", "A page of the registry."),
    MR_ENTRY("signal", l_signal,
             "(pid: integer, start: integer, uid: integer, number: integer): boolean, string?",
             "Send a signal to a process that still is the one it was; else false and why."),
    MR_ENTRY("state", l_state, "(pid: integer, start: integer): string?",
             "R, S or D: it lives; T: it is stopped; nil: it is gone."),
    MR_ENTRY("processes", l_processes, "(token: string, uid: integer): table[]",
             "What a launch has started, children of ranks too: {pid, start, state}."),
    MR_ENTRY("work", l_work, "(pid: integer): number?, number?",
             "What a process and all that it has started have done so far: seconds of processors, "
             "bytes read and written."),
    MR_ENTRY("threads", l_threads, "(pid: integer): table[], string?",
             "Threads of a process, also of a blocked or stopped one: {tid, name, state, waits, "
             "frames}; and why there are no frames."),
    MR_ENTRY_END};
static const mr_bind_face module_face = {
    "moonreel.core.life", "What ranks tell of themselves while they run.", module_entries, NULL};

static const mr_bind_entry rows[] = {
    MR_ENTRY(
        "about", p_about, "(): table",
        "The launch: {ranks, first, world, uid, pid, start, fence, token, host, run, dir, job}."),
    MR_ENTRY(
        "rank", p_rank, "(rank: integer): table",
        "A rank now: {rank, pid, start, state, step, steps, phase, phase_s, beat_s, ops, clip, "
        "frames, open, last}; times as base.now_s tells them."),
    MR_ENTRY("ops", p_ops, "(rank: integer): table[]",
             "Its last 2,048 operations with other ranks: {number, group, seq, kind, dtype, where, "
             "count, bytes, began_s, ended_s}."),
    MR_ENTRY("own_s", p_own_s, "(rank: integer, step: integer): number?",
             "Seconds of a step without those that it waited for others."),
    MR_ENTRY("quantile", p_quantile, "(phase: string, share: number): number, integer",
             "What that share of a phase's durations stays below, and how many there were."),
    MR_ENTRY_END};
static const mr_bind_face face = {mr_bind_life_type, "What the ranks of a launch tell.", rows,
                                  free_life};

MR_BIND_ROOM(life)
{
    mr_bind_type(L, &face);
    return mr_bind_module(L, &module_face);
}
