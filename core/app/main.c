/* app: starts Lua and calls moonreel.cli. Licence: Apache-2.0 */
#include "app/room.h"
#include "base/process.h"
#include "moonreel/bind.h"
#include "commit.h"
#include "moonreel/life.h"

#include <langinfo.h>
#include <lauxlib.h>
#include <lualib.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The folder to read files from instead; NULL: the embedded files count. */
static const char *tree_of(void)
{
    const char *tree = getenv("MOONREEL_LUA");
    return tree && *tree ? tree : NULL;
}

static const mr_embedded_file *find(const char *path)
{
    const mr_embedded_file *f = mr_embedded;
    while (f->path && strcmp(f->path, path) != 0)
        f++;
    return f->path ? f : NULL;
}

/* moonreel.embedded(path) -> text or nil: a file embedded in the program. With MOONREEL_LUA=DIR,
 * reads files from that folder instead. */
static int embedded(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1), *tree = tree_of();
    if (tree) {
        const char *full = lua_pushfstring(L, "%s/%s", tree, path);
        char *text;
        size_t n;
        if (mr_file_read_all(full, &text, &n) != MR_OK) {
            mr_error_clear();
            return 0;
        }
        lua_pushlstring(L, text, n);
        mr_free(text);
        return 1;
    }
    const mr_embedded_file *f = find(path);
    if (f)
        lua_pushlstring(L, (const char *)f->bytes, f->size);
    return f != NULL;
}

/* moonreel.embedded_list() -> paths of all embedded files, sorted. */
static int embedded_list(lua_State *L)
{
    lua_newtable(L);
    int n = 0;
    for (const mr_embedded_file *f = mr_embedded; f->path; f++) {
        lua_pushstring(L, f->path);
        lua_rawseti(L, -2, ++n);
    }
    return 1;
}

/* Push the function of the module in file `path`; false: no such file. Only the release of Lua that
 * made the bytecode can run it; another one compiles the text. */
static bool load(lua_State *L, const char *path, const char *chunk)
{
    const mr_embedded_file *f = tree_of() ? NULL : find(path);
    int status;
    if (f && f->code && strstr(lua_ident, mr_embedded_lua)) {
        status = luaL_loadbufferx(L, (const char *)f->code, f->code_size, chunk, "b");
    } else {
        lua_pushcfunction(L, embedded);
        lua_pushstring(L, path);
        lua_call(L, 1, 1);
        if (lua_isnil(L, -1))
            return lua_pop(L, 1), false;
        size_t n;
        const char *text = lua_tolstring(L, -1, &n);
        status = luaL_loadbufferx(L, text, n, chunk, "t");
    }
    if (status != LUA_OK)
        lua_error(L);
    return true;
}

/* package.searchers entry: "moonreel.nn" -> lua/moonreel/nn.lua or lua/moonreel/nn/init.lua;
 * "datasets.demo.world" -> datasets/demo/world.lua. */
static int searcher(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    const char *base = luaL_gsub(L, name, ".", "/");
    static const char *const forms[] = {"lua/%s.lua", "lua/%s/init.lua", "%s.lua"};
    bool scripts = strncmp(name, "datasets.", 9) == 0;
    for (int i = scripts ? 2 : 0; i < (scripts ? 3 : 2); i++) {
        const char *path = lua_pushfstring(L, forms[i], base);
        // chunk names of own modules start with "@moonreel/": error locations skip them
        if (!load(L, path, lua_pushfstring(L, "@%s", scripts ? path : path + 4)))
            continue;
        lua_pushstring(L, path);
        return 2;
    }
    lua_pushfstring(L, "no module '%s' inside moonreel", name);
    return 1;
}

static int traceback(lua_State *L)
{
    if (luaL_testudata(L, 1, "mr.Error") || lua_istable(L, 1))
        return 1; // an error object, not a text
    const char *msg = lua_tostring(L, 1);
    luaL_traceback(L, L, msg ? msg : "error without a message", 1);
    return 1;
}

/* start(args): open everything, run moonreel.cli.main(args), return its exit code. */
static int start(lua_State *L)
{
    luaL_openlibs(L);
    mr_bind_open_all(L);
    lua_getglobal(L, "package");
    lua_getfield(L, -1, "searchers");
    // right after the preload searcher: a folder moonreel/ in the working directory must not
    // replace our modules
    for (lua_Integer i = (lua_Integer)lua_rawlen(L, -1); i >= 2; i--) {
        lua_rawgeti(L, -1, i);
        lua_rawseti(L, -2, i + 1);
    }
    lua_pushcfunction(L, searcher);
    lua_rawseti(L, -2, 2);
    lua_getfield(L, -2, "loaded");
    lua_newtable(L);
    lua_pushcfunction(L, embedded);
    lua_setfield(L, -2, "embedded");
    lua_pushcfunction(L, embedded_list);
    lua_setfield(L, -2, "embedded_list");
    lua_pushstring(L, MR_VERSION MR_COMMIT);
    lua_setfield(L, -2, "version");
    lua_pushstring(L, MR_LIBRARIES);
    lua_setfield(L, -2, "libraries");
    lua_setfield(L, -2, "moonreel.app");
    lua_getglobal(L, "require");
    lua_pushstring(L, "moonreel.cli");
    lua_call(L, 1, 1);
    lua_getfield(L, -1, "main");
    lua_pushvalue(L, 1);
    lua_call(L, 1, 1);
    return 1;
}

/* Two libraries read environment variables when they are loaded. Sets these and executes the
 * program again, once. A variable that the user has set keeps its value. MOONREEL_OWN names the
 * variables set here (bind/process.c).
 *
 * - libgomp: after a call, oneDNN's threads spin for some 15 ms by default. Meanwhile our own
 *   kernels (cpu/threads.c) and other work do not get these processors. 2,000 rounds are 0.1 ms.
 * - glibc: oneDNN allocates an aligned buffer for many products. If a thread caches small blocks
 *   inside freed buffers, glibc cannot reuse the buffers, and a run grew by several MB a second. So
 *   the thread caches are off. */
static void set_libraries(char **argv)
{
    static const char *const wanted[][2] = {{"GOMP_SPINCOUNT", "2000"},
                                            {"GLIBC_TUNABLES", "glibc.malloc.tcache_count=0"}};
    char own[64] = "";
    for (size_t i = getenv("OMP_WAIT_POLICY") ? 1 : 0; i < MR_COUNT(wanted); i++)
        if (!getenv(wanted[i][0])) {
            setenv(wanted[i][0], wanted[i][1], 1);
            strcat(strcat(own, own[0] ? " " : ""), wanted[i][0]);
        }
    if (!own[0])
        return;
    setenv("MOONREEL_OWN", own, 1);
    char file[4096];
    mr_program_file(file);
    execv(file, argv); // on failure, continue with the defaults
}

/* A rank publishes its state on the page of its launcher. Children that inherit the variable do
 * not. */
static void join_page(void)
{
    const char *page = getenv("MOONREEL_PAGE"), *seat = getenv("MOONREEL_LOCAL_RANK");
    if (page && seat && mr_life_join(atoi(page), atoi(seat)) != MR_OK)
        mr_error_clear();
}

/* Put the rank into the process name, which ps and top show. */
static void name_process(void)
{
    const char *rank = getenv("MOONREEL_RANK");
    char part[16];
    snprintf(part, sizeof part, "r%.8s", rank ? rank : "");
    mr_process_name(rank ? part : NULL);
}

/* Fails if output could not be written, for example to a full disk. */
static int end_output(int code)
{
    bool lost = ferror(stdout);
    if (fflush(stdout) == 0 && !lost)
        return code;
    fprintf(stderr,
            "moonreel: cannot write standard output; try: check that the disk is not full\n");
    return code ? code : 8;
}

/* Uses the character encoding of the terminal, for lines at the prompt, but the letter rules of the
 * C locale. In a Turkish locale the lower case of I is not i, which would change captions and
 * names. */
static void take_characters(void)
{
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0 || !setlocale(LC_CTYPE, "C.UTF-8"))
        setlocale(LC_CTYPE, "C");
}

int main(int argc, char **argv)
{
    mr_streams_hold();
    signal(SIGXFSZ, SIG_IGN); // past a file size limit, write() then fails instead of killing the
                              // process
    signal(SIGCHLD, SIG_DFL); // if ignored, the kernel would discard how a child ended
    take_characters();
    // the simplest commands need no Lua
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("moonreel %s\n", MR_VERSION MR_COMMIT);
        return end_output(0);
    }
    set_libraries(argv);
    name_process();
    join_page();
    lua_State *L = luaL_newstate();
    if (!L) {
        fprintf(stderr, "moonreel: cannot allocate the Lua state\n");
        return 5;
    }
    lua_pushcfunction(L, traceback);
    lua_pushcfunction(L, start);
    lua_createtable(L, argc, 0);
    for (int i = 0; i < argc; i++) {
        lua_pushstring(L, argv[i]);
        lua_rawseti(L, -2, i);
    }
    int code = 1;
    if (lua_pcall(L, 1, 1, 1) == LUA_OK)
        code = (int)lua_tointeger(L, -1);
    else
        fprintf(stderr, "moonreel: %s\n",
                lua_tostring(L, -1) ? lua_tostring(L, -1) : luaL_tolstring(L, -1, NULL));
    lua_close(L);
    return end_output(code);
}
