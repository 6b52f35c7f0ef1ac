/* bind: moonreel.core.base - hashes, files, clock, process facts for the Lua side.
 * Licence: Apache-2.0 */
#include "bind/room.h"

#include <errno.h>
#include <string.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#define FOLDER "mr.Folder"

static int b_mix(lua_State *L)
{
    uint64_t words[16];
    int n = lua_gettop(L);
    luaL_argcheck(L, n >= 1 && n <= 16, 1, "1 to 16 words");
    for (int i = 0; i < n; i++)
        words[i] = lua_type(L, i + 1) == LUA_TSTRING ? mr_name_word(lua_tostring(L, i + 1))
                                                     : (uint64_t)luaL_checkinteger(L, i + 1);
    lua_pushinteger(L, (lua_Integer)mr_mix(words, (size_t)n));
    return 1;
}

/* The purpose of a random stream: a short text, or its hash word. */
static uint64_t purpose_at(lua_State *L, int arg)
{
    return lua_type(L, arg) == LUA_TSTRING ? mr_name_word(lua_tostring(L, arg))
                                           : (uint64_t)luaL_checkinteger(L, arg);
}

static int b_name_word(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)mr_name_word(luaL_checkstring(L, 1)));
    return 1;
}

/* random_uniform(seed, purpose, key, epoch, element=0) in (0, 1) */
static int b_random_uniform(lua_State *L)
{
    lua_pushnumber(L, mr_random_uniform((uint64_t)luaL_checkinteger(L, 1), purpose_at(L, 2),
                                        (uint64_t)luaL_checkinteger(L, 3),
                                        (uint32_t)luaL_checkinteger(L, 4),
                                        (uint64_t)luaL_optinteger(L, 5, 0)));
    return 1;
}

/* random_normal(seed, purpose, key, epoch, element=0): standard normal */
static int b_random_normal(lua_State *L)
{
    lua_pushnumber(L, mr_random_normal((uint64_t)luaL_checkinteger(L, 1), purpose_at(L, 2),
                                       (uint64_t)luaL_checkinteger(L, 3),
                                       (uint32_t)luaL_checkinteger(L, 4),
                                       (uint64_t)luaL_optinteger(L, 5, 0)));
    return 1;
}

static int b_hash128(lua_State *L)
{
    size_t n;
    const char *s = luaL_checklstring(L, 1, &n);
    char hex[33];
    mr_hash128_hex(mr_hash128_of(s, n), hex);
    lua_pushstring(L, hex);
    return 1;
}

static int b_sha256(lua_State *L)
{
    size_t n;
    const char *text = luaL_checklstring(L, 1, &n);
    uint8_t out[MR_SHA256_BYTES];
    luaL_Buffer hex;
    mr_sha256 s;
    mr_sha256_begin(&s);
    mr_sha256_add(&s, text, n);
    mr_sha256_finish(&s, out);
    luaL_buffinit(L, &hex);
    for (int i = 0; i < MR_SHA256_BYTES; i++) {
        luaL_addchar(&hex, "0123456789abcdef"[out[i] >> 4]);
        luaL_addchar(&hex, "0123456789abcdef"[out[i] & 15]);
    }
    luaL_pushresult(&hex);
    return 1;
}

static int b_crc32(lua_State *L)
{
    size_t n;
    const char *text = luaL_checklstring(L, 1, &n);
    lua_pushinteger(L, mr_crc32(0, text, n));
    return 1;
}

static int b_crc32c(lua_State *L)
{
    size_t n;
    const char *text = luaL_checklstring(L, 1, &n);
    lua_pushinteger(L, mr_crc32c(0, text, n));
    return 1;
}

static int b_now(lua_State *L)
{
    lua_pushnumber(L, mr_now_s());
    return 1;
}

static int b_wall(lua_State *L)
{
    lua_pushnumber(L, (double)mr_clock_table()->wall_ns() * 1e-9);
    return 1;
}

/* sleep(seconds): block this thread. */
static int b_sleep(lua_State *L)
{
    double seconds = luaL_checknumber(L, 1);
    luaL_argcheck(L, seconds >= 0 && seconds <= 1e6, 1, "0 to 1e6 seconds");
    mr_clock_table()->sleep_ns((int64_t)(seconds * 1e9));
    return 0;
}

static int b_read_file(lua_State *L)
{
    enum { FILE_MAX = 256 << 20 }; // recipes, settings, lists of prompts
    const char *path = luaL_checkstring(L, 1);
    char **data = (char **)mr_bind_hold(L);
    size_t n;
    mr_bind_check(L, mr_file_read_small(path, FILE_MAX, data, &n));
    lua_pushlstring(L, *data, n);
    return 1;
}

static int b_replace_file(lua_State *L)
{
    size_t n;
    const char *path = luaL_checkstring(L, 1), *data = luaL_checklstring(L, 2, &n);
    mr_bind_check(L, mr_file_replace(path, data, n));
    return 0;
}

static int b_rename(lua_State *L)
{
    const char *from = luaL_checkstring(L, 1), *to = luaL_checkstring(L, 2);
    if (mr_io_table()->rename(from, to))
        return mr_bind_raise(L, MR_E_IO, "%s: cannot become %s: %s", from, to, strerror(errno));
    return 0;
}

static int b_make_dir(lua_State *L)
{
    mr_bind_check(L, mr_dir_make(luaL_checkstring(L, 1)));
    return 0;
}

/* new_dir(path) -> true; false: the path exists */
static int b_new_dir(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    bool made = mr_io_table()->mkdir(path, 0755) == 0;
    if (!made && errno != EEXIST)
        mr_bind_check(L,
                      mr_fail(MR_E_IO, "%s: cannot create directory: %s", path, strerror(errno)));
    lua_pushboolean(L, made);
    return 1;
}

/* link(from, to): add a hard link to a file. False if that is impossible: the file is gone, or the
 * file system does not support it. */
static int b_link(lua_State *L)
{
    lua_pushboolean(L, link(luaL_checkstring(L, 1), luaL_checkstring(L, 2)) == 0);
    return 1;
}

/* remove_dir(path): remove a folder with its content; a missing one is fine. */
static int b_remove_dir(lua_State *L)
{
    mr_bind_check(L, mr_dir_remove(luaL_checkstring(L, 1)));
    return 0;
}

/* The names in a folder; one object, so that an error frees all of them. */
typedef struct folder {
    char **names;
    int n;
} folder;

static void free_folder(void *object)
{
    folder *f = object;
    mr_dir_list_free(f->names, f->n);
    mr_free(f);
}

static int b_list_dir(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    void **box = mr_bind_box(L, FOLDER);
    lua_toclose(L, -1);
    folder *f;
    if (!MR_NEW(f))
        mr_bind_check(L, mr_fail_memory(sizeof *f));
    *box = f;
    mr_bind_check(L, mr_dir_list(path, &f->names, &f->n));
    lua_createtable(L, f->n, 0);
    for (int i = 0; i < f->n; i++) {
        lua_pushstring(L, f->names[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static int b_free_bytes(lua_State *L)
{
    int64_t bytes = mr_io_table()->free_bytes(luaL_checkstring(L, 1));
    if (bytes < 0)
        lua_pushnil(L);
    else
        lua_pushinteger(L, bytes);
    return 1;
}

static int b_exists(lua_State *L)
{
    lua_pushboolean(L, mr_path_exists(luaL_checkstring(L, 1)));
    return 1;
}

static int b_raise(lua_State *L)
{
    mr_status code = mr_status_from_name(luaL_checkstring(L, 1));
    luaL_argcheck(L, code < MR_STATUS_COUNT && code != MR_OK, 1, "unknown error code");
    return mr_bind_raise(L, code, "%s", luaL_checkstring(L, 2));
}

/* Whether a character must not reach a terminal: controls (C0, DEL, C1), marks that change the
 * direction of writing, the byte order mark. */
static bool is_hidden(uint32_t code)
{
    static const struct {
        uint32_t from, to;
    } ranges[] = {{0, 31},          {127, 159},       {0x200e, 0x200f},
                  {0x2028, 0x202e}, {0x2066, 0x2069}, {0xfeff, 0xfeff}};
    for (size_t i = 0; i < MR_COUNT(ranges); i++)
        if (code >= ranges[i].from && code <= ranges[i].to)
            return true;
    return false;
}

static void add_hex(luaL_Buffer *b, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char hex[8];
        snprintf(hex, sizeof hex, "\\x%02x", (unsigned)(unsigned char)bytes[i]);
        luaL_addlstring(b, hex, 4);
    }
}

static int b_printable(lua_State *L)
{
    enum { LOOK_EVERY = 1 << 16 };
    size_t n;
    const char *text = luaL_checklstring(L, 1, &n);
    luaL_Buffer b;
    luaL_buffinit(L, &b);
    for (size_t at = 0, look = LOOK_EVERY; at < n;) {
        if (at >= look) {
            mr_bind_check(L, mr_interrupt_check());
            look = at + LOOK_EVERY;
        }
        // copy printable ASCII in one piece
        size_t plain = at;
        while (plain < n && plain < look && text[plain] >= ' ' && text[plain] < 127)
            plain++;
        luaL_addlstring(&b, text + at, plain - at);
        if ((at = plain) >= n || at >= look)
            continue;
        uint32_t code = 0;
        size_t bytes = mr_utf8(text + at, n - at, &code);
        if (!bytes || is_hidden(code))
            add_hex(&b, text + at, bytes = MR_MAX(bytes, 1));
        else
            luaL_addlstring(&b, text + at, bytes);
        at += bytes;
    }
    luaL_pushresult(&b);
    return 1;
}

/* nearest(name, names): the name of a list that a mistyped name most likely means, or nil. */
static int b_nearest(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    luaL_checktype(L, 2, LUA_TTABLE);
    size_t n = lua_rawlen(L, 2), used = 0;
    const char **names = mr_bind_scratch(L, (n + 1) * sizeof *names);
    for (size_t i = 1; i <= n; i++) {
        if (lua_rawgeti(L, 2, (lua_Integer)i) == LUA_TSTRING)
            names[used++] = lua_tostring(L, -1); // the list keeps it alive
        lua_pop(L, 1);
    }
    lua_pushstring(L, mr_name_nearest(name, names));
    return 1;
}

static int b_is_terminal(lua_State *L)
{
    lua_pushboolean(L, isatty((int)luaL_optinteger(L, 1, 1)));
    return 1;
}

static int b_pid(lua_State *L)
{
    lua_pushinteger(L, getpid());
    return 1;
}

static int b_temporary_path(lua_State *L)
{
    char out[4200];
    mr_bind_check(L, mr_temporary_path(luaL_checkstring(L, 1), out, sizeof out));
    lua_pushstring(L, out);
    return 1;
}

static int b_hold(lua_State *L)
{
    luaL_Stream *stream = luaL_checkudata(L, 1, LUA_FILEHANDLE);
    luaL_argcheck(L, stream->closef, 1, "expected an open file");
    mr_temporary_hold(fileno(stream->f));
    return 0;
}

static int b_trim(lua_State *L)
{
    lua_gc(L, LUA_GCCOLLECT);
#ifdef __GLIBC__
    malloc_trim(0);
#endif
    return 0;
}

static const mr_bind_entry base_entries[] = {
    MR_ENTRY("mix", b_mix, "(...: integer|string): integer",
             "A hash word of 1 to 16 integers or names."),
    MR_ENTRY("name_word", b_name_word, "(name: string): integer",
             "The word of a name in mix() and in streams of random numbers."),
    MR_ENTRY("random_uniform", b_random_uniform,
             "(seed: integer, purpose: integer|string, key: integer, epoch: integer, element?: "
             "integer): number",
             "A number in (0, 1), always the same for the same arguments."),
    MR_ENTRY("random_normal", b_random_normal,
             "(seed: integer, purpose: integer|string, key: integer, epoch: integer, element?: "
             "integer): number",
             "A standard normal number, always the same for the same arguments."),
    MR_ENTRY("hash128", b_hash128, "(text: string): string",
             "XXH3-128 of a text, 32 hexadecimal digits."),
    MR_ENTRY("sha256", b_sha256, "(text: string): string",
             "SHA-256 of a text, 64 hexadecimal digits."),
    MR_ENTRY("crc32", b_crc32, "(text: string): integer", "CRC-32 of a text, as zlib has it."),
    MR_ENTRY("crc32c", b_crc32c, "(text: string): integer", "CRC-32C (Castagnoli) of a text."),
    MR_ENTRY("now_s", b_now, "(): number", "Seconds of a monotonic clock."),
    MR_ENTRY("wall_s", b_wall, "(): number", "Seconds since 1970, by the wall clock."),
    MR_ENTRY("sleep", b_sleep, "(seconds: number)", "Wait."),
    MR_ENTRY("read_file", b_read_file, "(path: string): string",
             "A whole file of at most 256 MiB."),
    MR_ENTRY("replace_file", b_replace_file, "(path: string, text: string)",
             "Write a file atomically: it exists completely or not at all."),
    MR_ENTRY("rename", b_rename, "(from: string, to: string)",
             "Rename a file or folder; never onto a device or a pipe."),
    MR_ENTRY("make_dir", b_make_dir, "(path: string)", "Create a folder, and those above it."),
    MR_ENTRY("new_dir", b_new_dir, "(path: string): boolean",
             "Create a folder; false: the path exists. If two processes call this, one gets true."),
    MR_ENTRY("link", b_link, "(from: string, to: string): boolean",
             "Add a hard link to a file; false: the file is gone, the new name exists, or the file "
             "system does not support links."),
    MR_ENTRY("remove_dir", b_remove_dir, "(path: string)",
             "Remove a folder with everything in it; a missing one is fine."),
    MR_ENTRY("list_dir", b_list_dir, "(path: string): string[]", "Names in a folder, sorted."),
    MR_ENTRY("free_bytes", b_free_bytes, "(path: string): integer?",
             "Bytes that are available for files in this folder; nil: unknown."),
    MR_ENTRY("trim", b_trim, "()",
             "Collect unused values, and give free memory back to the system."),
    MR_ENTRY("exists", b_exists, "(path: string): boolean", "Whether the path exists."),
    MR_ENTRY("raise", b_raise, "(code: string, text: string)",
             "Raise an error {code, message, exit} that blames the caller's line."),
    MR_ENTRY("printable", b_printable, "(text: string): string",
             "Text that is safe for a terminal: controls, invalid UTF-8 and marks that change the "
             "direction of writing become \\xHH."),
    MR_ENTRY("nearest", b_nearest, "(name: string, names: string[]): string?",
             "The name of a list that a mistyped name most likely means."),
    MR_ENTRY("is_terminal", b_is_terminal, "(fd?: integer): boolean",
             "Whether a file descriptor (default 1, standard output) is a terminal."),
    MR_ENTRY("temporary_path", b_temporary_path, "(path: string): string",
             "The temporary name of a file until it is complete; removes temporary files of the "
             "same path that killed writers have left."),
    MR_ENTRY("hold", b_hold, "(file: any)",
             "Lock an open temporary file, so that no other host removes it."),
    MR_ENTRY("pid", b_pid, "(): integer", "The id of this process."),
    MR_ENTRY_END};
static const mr_bind_face base_face = {
    "moonreel.core.base", "Hashes, random numbers, files, clocks, facts of this process.",
    base_entries, NULL};

static const mr_bind_face folder_face = {FOLDER, NULL, NULL, free_folder};

MR_BIND_ROOM(base)
{
    mr_bind_type(L, &folder_face);
    return mr_bind_module(L, &base_face);
}
