/* bind: moonreel.core.launch - ranks of this host that this process starts. Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "bind/room.h"
#include "moonreel/comm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LAUNCH "mr.Launch"

static void free_launch(void *l)
{
    mr_ranks_free(l);
}

static mr_ranks *launch_at(lua_State *L)
{
    return mr_bind_unbox(L, 1, LAUNCH);
}

typedef struct start_options {
    double grace_s;
    int first, world;
} start_options;

static const mr_bind_field start_fields[] = {
    MR_BIND_NUM("grace_s", start_options, grace_s, 2,
                "Seconds between the message, SIGTERM and SIGKILL."),
    MR_BIND_INT("first", start_options, first, 0, 0, "Number of the first rank in the run."),
    MR_BIND_INT("world", start_options, world, 0, 0, "Ranks of the run; 0: only these."),
    MR_BIND_END};

static int b_start(lua_State *L)
{
    lua_Integer ranks = luaL_checkinteger(L, 2);
    luaL_argcheck(L, ranks >= 1 && ranks <= INT32_MAX, 2, "expected a number of ranks");
    luaL_checktype(L, 1, LUA_TTABLE);
    start_options o;
    mr_bind_options(L, 3, "launch.start", start_fields, &o);
    int count = (int)lua_rawlen(L, 1);
    char **argv = mr_bind_scratch(L, ((size_t)count + 1) * sizeof *argv);
    for (int i = 0; i < count; i++) {
        lua_rawgeti(L, 1, i + 1);
        if (lua_type(L, -1) != LUA_TSTRING)
            return mr_bind_raise(L, MR_E_USAGE, "start: word %d is not a string", i + 1);
        argv[i] = (char *)(uintptr_t)lua_tostring(L, -1);
        lua_pop(L, 1);
    }
    mr_ranks **box = (mr_ranks **)mr_bind_box(L, LAUNCH);
    mr_bind_check(L, mr_ranks_start(argv, (int)ranks, o.first, o.world ? o.world : (int)ranks,
                                    o.grace_s, box));
    return 1;
}

static int b_listen(lua_State *L)
{
    int fd, port;
    mr_bind_check(L, mr_tcp_listen(luaL_optstring(L, 1, NULL), 0, 1, &fd, &port));
    fcntl(fd, F_SETFD, 0); // inherited by ranks
    lua_pushinteger(L, fd), lua_pushinteger(L, port);
    return 2;
}

static int b_allow_files(lua_State *L)
{
    mr_bind_check(L, mr_allow_files(luaL_checkinteger(L, 1), luaL_checkstring(L, 2)));
    return 0;
}

static int b_hide(lua_State *L)
{
    size_t n;
    const char *text = luaL_checklstring(L, 1, &n);
    int fd = memfd_create("moonreel-secret", 0);
    if (fd < 0 || write(fd, text, n) != (ssize_t)n)
        return mr_bind_raise(L, MR_E_NODE, "cannot hold a secret: %s", strerror(errno));
    lua_pushinteger(L, fd);
    return 1;
}

static int r_stop(lua_State *L)
{
    mr_ranks_stop(launch_at(L), luaL_checkstring(L, 2));
    return 0;
}

static int r_signal(lua_State *L)
{
    lua_Integer number = luaL_checkinteger(L, 2);
    luaL_argcheck(L, number == SIGINT || number == SIGTERM || number == SIGHUP, 2,
                  "expected 1, 2 or 15");
    mr_ranks_signal(launch_at(L), (int)number);
    return 0;
}

static int r_look(lua_State *L)
{
    lua_pushinteger(L, mr_ranks_look(launch_at(L), (int)luaL_optinteger(L, 2, 100)));
    return 1;
}

static int r_fail(lua_State *L)
{
    mr_ranks *l = launch_at(L);
    mr_life_launch about;
    mr_life_about(mr_ranks_page(l), &about);
    lua_Integer rank = luaL_checkinteger(L, 2);
    luaL_argcheck(L, rank >= about.first && rank < about.first + about.ranks, 2,
                  "expected a rank of this host");
    mr_ranks_fail(l, (int)rank - about.first, luaL_checkstring(L, 3));
    return 0;
}

static int r_page(lua_State *L)
{
    const mr_life *page = mr_ranks_page(launch_at(L));
    mr_life **box = (mr_life **)mr_bind_box(L, mr_bind_life_type);
    mr_bind_check(L, mr_life_view(page, box));
    return 1;
}

static int r_ended(lua_State *L)
{
    mr_ranks_end end;
    mr_ranks_ended(launch_at(L), &end);
    lua_createtable(L, 0, 4);
    mr_bind_set_int(L, "exit", end.exit);
    if (mr_ranks_asked(launch_at(L)))
        mr_bind_set_int(L, "asked", mr_ranks_asked(launch_at(L)));
    if (end.rank >= 0) {
        mr_bind_set_int(L, "rank", end.rank);
        mr_bind_set_str(L, "text", end.text);
    }
    return 1;
}

/* ---- entries ---- */

static const mr_bind_entry methods[] = {
    MR_ENTRY("look", r_look, "(ms?: integer): integer",
             "Wait at most this long for an event; returns the number of running ranks. If one "
             "fails, the others are ended."),
    MR_ENTRY("fail", r_fail, "(rank: integer, text: string)",
             "End a rank that hangs, and the others, which get the reason."),
    MR_ENTRY("signal", r_signal, "(number: integer)",
             "Forward a signal, 2 or 15; the second one ends the ranks."),
    MR_ENTRY("stop", r_stop, "(text: string)", "End all ranks, which get the reason."),
    MR_ENTRY("page", r_page, "(): mr.Life", "The page of their published states."),
    MR_ENTRY("ended", r_ended, "(): table",
             "The outcome: {exit, rank and text of the rank that failed first, asked: a signal}."),
    MR_ENTRY_END};
static const mr_bind_face type = {LAUNCH, "Ranks that this process has started on this host.",
                                  methods, free_launch};

static const mr_bind_entry rows[] = {
    MR_ENTRY_OPTIONS("start", b_start,
                     "(words: string[], ranks: integer, options?: table): mr.Launch",
                     "Start this program as `ranks` processes on this host.", start_fields),
    MR_ENTRY("listen", b_listen, "(where?: string): integer, integer",
             "A listening socket at a free port of an interface or address (default: all), for a "
             "rank 0 that this process starts: descriptor, port."),
    MR_ENTRY("allow_files", b_allow_files, "(count: integer, who: string)",
             "Raise the limit of open files to this number; an error, which names `who`, if the "
             "system allows fewer."),
    MR_ENTRY("hide", b_hide, "(text: string): integer",
             "A descriptor with a text that ranks inherit and other processes cannot read."),
    MR_ENTRY_END};
static const mr_bind_face face = {"moonreel.core.launch",
                                  "Ranks of this host, as processes of this program.", rows, NULL};

MR_BIND_ROOM(launch)
{
    mr_bind_type(L, &type);
    // load the type of the page
    lua_getglobal(L, "require");
    lua_pushliteral(L, "moonreel.core.life");
    lua_call(L, 1, 0);
    return mr_bind_module(L, &face);
}
