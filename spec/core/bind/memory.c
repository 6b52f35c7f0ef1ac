/* The bindings when an allocation of Lua or of the core fails, and with the collector at each step:
 * an error or the right result, no crash; under the address sanitizer also no leak.
 * Covers: core/bind/bind.c core/bind/options.c core/bind/reduce.c core/bind/api.c */
#include "bind/room.h"
#include "check.h"

#include <lualib.h>
#include <stdlib.h>

/* Code for the bindings; each chunk returns a text. */
static const char *const chunks[] = {
    // views, reductions, arithmetic
    "local T = require 'moonreel.core.tensor'\n"
    "local t = T.from({2, 3}, {1, 2, 3, 4, 5, 6})\n"
    "local u = t:transpose():clone():reshape{2, 3}:to('f64')\n"
    "return table.concat({t:sum(), #t, t:max(0):totable()[3], t:mean(1, true).shape[2],\n"
    "  u['1, 0'], t:norm() // 1, tostring(t[0]), u:bytes():len()}, ' ')",
    // ops on tensors
    "local T, ops = require 'moonreel.core.tensor', require 'moonreel.core.op'\n"
    "local x = T.from({2, 2}, {1, 2, 3, 4})\n"
    "return table.concat((ops.linear(x, x) + x * 2 - x[0]):totable(), ' ')",
    // a graph with gradients, compiled and run
    "local T, G, E = require 'moonreel.core.tensor', require 'moonreel.core.graph',\n"
    "  require 'moonreel.core.exec'\n"
    "local p = G.params 'f32'\n"
    "p:add {name = 'w', shape = {2, 2}, init = {kind = 'ones'}}\n"
    "p:seal()\n"
    "local g = G.graph(p, {no_cheap = true})\n"
    "local x = g:input('x', 'f32', {2, 2})\n"
    "local y = require('moonreel.core.op').linear(x, g:param 'w', false)\n"
    "g:output('y', y * y)\n"
    "g:finish()\n"
    "local run = E.new(E.device('cpu', 1), p, {regions = {{name = 'grad', dtype = 'f32'},\n"
    "  {name = 'exact', dtype = 'f32', role = 'master', prefix = 'exact.'}}})\n"
    "run:init(1)\n"
    "local prog = run:compile(g)\n"
    "prog:set('x', T.from({2, 2}, {1, 2, 3, 4}))\n"
    "prog:run()\n"
    "return table.concat(prog:get('y'):totable(), ' ') .. #g:print() .. #prog:report()\n"
    "  .. run:regions()[4].prefix",
    // refused options, and proposed names
    "local ok, err = pcall(require('moonreel.core.graph').graph, nil, {no_inplce = true})\n"
    "local base = require 'moonreel.core.base'\n"
    "return err.message .. base.nearest('sede', {'steps', 'seed'}) .. base.printable('a\\27b')\n"
    "  .. #base.list_dir('core/bind') .. #base.read_file('README.md')",
    // JSON, entries of the bindings
    "local json, api = require 'moonreel.core.json', require 'moonreel.core.api'\n"
    "return json.encode(json.decode('{\"a\":[1,2.5,null]}'), {indent = 1})\n"
    "  .. api.faces()['moonreel.core.json'].rows[2].type .. #api.ops()",
};

/* A Lua allocator that fails from allocation number `refused` on (from 1; 0: never). A single
 * failure would not matter: Lua collects garbage and tries again. */
typedef struct heap {
    int64_t count, refused;
} heap;

static void *take(void *user, void *block, size_t old, size_t size)
{
    heap *h = user;
    if (size == 0) {
        free(block);
        return NULL;
    }
    bool grows = !block || size > old; // for a new block, `old` is the kind of object
    if (grows && ++h->count >= h->refused && h->refused)
        return NULL;
    return realloc(block, size);
}

static int run_chunk(lua_State *L)
{
    const char *code = lua_touserdata(L, 1);
    luaL_openlibs(L);
    mr_bind_open_all(L);
    if (luaL_loadstring(L, code) != LUA_OK)
        return lua_error(L);
    lua_call(L, 0, 1);
    luaL_checktype(L, -1, LUA_TSTRING);
    return 1;
}

enum { HARD = 1, AGAIN = 2 };
static int failures;

static char *try_chunk(lua_State *L, const char *code)
{
    lua_settop(L, 0);
    lua_pushcfunction(L, run_chunk);
    lua_pushlightuserdata(L, (void *)(uintptr_t)code);
    bool good = lua_pcall(L, 1, 1, 0) == LUA_OK;
    failures += !good;
    return good ? strdup(lua_tostring(L, -1)) : NULL;
}

/* Runs a chunk in a Lua state of its own. Returns its result, which the caller frees, or NULL when
 * it failed. AGAIN: a failed chunk is run once more in the same state, when the core has memory
 * again. */
static char *answer(const char *code, heap *h, int how)
{
    lua_State *L = lua_newstate(take, h);
    if (!L)
        return NULL;
    if (how == HARD)
        lua_gc(L, LUA_GCINC, 1, 1000, 1); // a step of the collector at each allocation
    char *text = try_chunk(L, code);
    if (!text && how == AGAIN) {
        mr_alloc_fail_at(0);
        text = try_chunk(L, code);
    }
    lua_close(L);
    return text;
}

/* Allocations of Lua fail from the n-th on. */
static void lua_runs_out(const char *code, const char *want)
{
    int64_t wrong = 0, failed = 0;
    heap probe = {0, 0};
    free(answer(code, &probe, 0));
    for (int64_t n = 1; n <= probe.count + 5; n++) {
        heap h = {0, n};
        char *got = answer(code, &h, 0);
        failed += got == NULL;
        wrong += got && strcmp(got, want) != 0;
        free(got);
        mr_error_clear();
    }
    CHECK_INT(wrong, 0);
    CHECK(failed > 100 && failed >= probe.count - 2); // some have no effect
}

/* The n-th allocation of the core fails: an error of memory, after which the same state returns the
 * result, or the result although it failed. */
static void core_runs_out(const char *code, const char *want)
{
    int64_t before = mr_alloc_count();
    heap h = {0, 0};
    free(answer(code, &h, 0));
    int64_t calls = mr_alloc_count() - before, wrong = 0;
    failures = 0;
    for (int64_t n = 1; n <= calls; n++) {
        h = (heap){0, 0};
        mr_alloc_fail_at(n);
        char *got = answer(code, &h, AGAIN);
        mr_alloc_fail_at(0);
        wrong += !got || strcmp(got, want) != 0;
        free(got);
        mr_error_clear();
    }
    CHECK_INT(wrong, 0);
    CHECK(calls == 0 || failures > 0);
}

int main(void)
{
    for (size_t i = 0; i < MR_COUNT(chunks); i++) {
        heap h = {0, 0};
        char *want = answer(chunks[i], &h, 0);
        if (!CHECK(want != NULL))
            continue;
        h = (heap){0, 0};
        char *hard = answer(chunks[i], &h, HARD);
        CHECK_STR(hard ? hard : "", want);
        free(hard);
        lua_runs_out(chunks[i], want);
        core_runs_out(chunks[i], want);
        free(want);
    }
    return check_done();
}
