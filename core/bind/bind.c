/* bind: helpers shared by the binding files. Licence: Apache-2.0 */
#include "bind/room.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void mr_bind_origin(lua_State *L, char *buf, size_t cap)
{
    lua_Debug ar;
    buf[0] = 0;
    for (int level = 1; lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "Sl", &ar);
        if (ar.currentline < 0 || strncmp(ar.source, "@moonreel/", 10) == 0)
            continue;
        snprintf(buf, cap, "%s:%d", ar.short_src, ar.currentline);
        return;
    }
}

static void push_error(lua_State *L, mr_status code, const char *text)
{
    lua_createtable(L, 0, 3);
    lua_pushstring(L, mr_status_name(code));
    lua_setfield(L, -2, "code");
    lua_pushstring(L, text);
    lua_setfield(L, -2, "message");
    lua_pushinteger(L, mr_status_exit(code));
    lua_setfield(L, -2, "exit");
    luaL_setmetatable(L, "mr.Error");
}

void mr_bind_push_error(lua_State *L)
{
    char text[8192];
    const mr_error *err = mr_error_last();
    mr_error_format(err, text, sizeof text);
    push_error(L, err ? err->code : MR_E_INTERNAL, text);
}

void mr_bind_check(lua_State *L, mr_status st)
{
    if (st == MR_OK)
        return;
    char origin[256];
    mr_bind_origin(L, origin, sizeof origin);
    mr_fail_where(NULL, NULL, origin);
    mr_bind_push_error(L);
    lua_error(L);
}

int mr_bind_raise(lua_State *L, mr_status code, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    mr_bind_check(L, mr_fail(code, "%s", text));
    return 0;
}

static int scratch_free(lua_State *L)
{
    void **p = lua_touserdata(L, 1);
    mr_free(*p);
    *p = NULL;
    return 0;
}

void **mr_bind_hold(lua_State *L)
{
    void **p = lua_newuserdatauv(L, sizeof *p, 0);
    *p = NULL;
    if (luaL_newmetatable(L, "mr.Scratch")) {
        lua_pushcfunction(L, scratch_free);
        lua_setfield(L, -2, "__gc");
        lua_pushcfunction(L, scratch_free);
        lua_setfield(L, -2, "__close");
    }
    lua_setmetatable(L, -2);
    lua_toclose(L, -1);
    return p;
}

void *mr_bind_scratch(lua_State *L, size_t bytes)
{
    void **p = mr_bind_hold(L);
    *p = mr_calloc(1, bytes);
    if (!*p)
        mr_bind_check(L, mr_fail_memory(bytes));
    return *p;
}

void **mr_bind_box(lua_State *L, const char *type)
{
    void **box = lua_newuserdatauv(L, sizeof *box, 3);
    *box = NULL;
    luaL_setmetatable(L, type);
    return box;
}

void *mr_bind_unbox(lua_State *L, int arg, const char *type)
{
    void **box = luaL_checkudata(L, arg, type);
    if (!*box)
        mr_bind_raise(L, MR_E_USAGE, "%s is closed", type);
    return *box;
}

static int box_close(lua_State *L)
{
    void **box = lua_touserdata(L, 1);
    mr_bind_free *const *free_object = lua_touserdata(L, lua_upvalueindex(1));
    if (box && *box) {
        void *object = *box;
        *box = NULL;
        (*free_object)(object);
    }
    return 0;
}

static int box_tostring(lua_State *L)
{
    void **box = lua_touserdata(L, 1);
    const char *type = lua_tostring(L, lua_upvalueindex(1));
    lua_pushfstring(L, *box ? "%s" : "%s (closed)", type);
    return 1;
}

/* ---- modules and types ---- */

enum { MOST_NAMES = 128 }; // most fields and methods of a type

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Register a face for help and docs. */
static void keep_face(lua_State *L, const mr_bind_face *face)
{
    if (!face->doc)
        return;
    luaL_getsubtable(L, LUA_REGISTRYINDEX, MR_BIND_FACES);
    lua_pushlightuserdata(L, (void *)(uintptr_t)face);
    lua_setfield(L, -2, face->name);
    lua_pop(L, 1);
}

static bool is_meta(const mr_bind_entry *entry)
{
    return strncmp(entry->name, "__", 2) == 0;
}

/* Set those functions of `entries` in the table on top that are metamethods, or those that are
 * not. */
static void set_functions(lua_State *L, const mr_bind_entry *entries, bool meta)
{
    for (const mr_bind_entry *entry = entries; entry && entry->name; entry++) {
        if (!entry->call || is_meta(entry) != meta)
            continue;
        lua_pushcfunction(L, entry->call);
        lua_setfield(L, -2, entry->name);
    }
}

int mr_bind_module(lua_State *L, const mr_bind_face *face)
{
    keep_face(L, face);
    lua_newtable(L);
    set_functions(L, face->entries, false);
    return 1;
}

/* Push the function that closes a box, for close(), __close and __gc. */
static void push_close(lua_State *L, mr_bind_free *free_object)
{
    mr_bind_free **kept = lua_newuserdatauv(L, sizeof *kept, 0);
    *kept = free_object;
    lua_pushcclosure(L, box_close, 1);
}

/* Append the keys of the table at `arg` to `names`, which has `n` names; lent while the table
 * lives. Returns their number. */
static size_t add_keys(lua_State *L, int arg, const char **names, size_t n)
{
    for (lua_pushnil(L); lua_next(L, arg); lua_pop(L, 1))
        if (lua_type(L, -2) == LUA_TSTRING && n < MOST_NAMES)
            names[n++] = lua_tostring(L, -2);
    return n;
}

/* The fields and methods of a type whose methods are at 1, including those added in Lua; sorted,
 * ended by NULL. */
static void member_names(lua_State *L, const mr_bind_face *face, const char **names)
{
    size_t n = add_keys(L, 1, names, 0);
    for (const mr_bind_entry *entry = face->entries; entry && entry->name; entry++)
        if (!entry->call && n < MOST_NAMES)
            names[n++] = entry->name;
    if (luaL_getmetafield(L, 1, "__methods") != LUA_TNIL) {
        lua_call(L, 0, 1);
        n = add_keys(L, lua_gettop(L), names, n);
    }
    names[n] = NULL;
    qsort(names, n, sizeof *names, by_text);
}

/* __index of the methods of a type: raises, since the name does not exist. */
static int no_member(lua_State *L)
{
    const mr_bind_face *face = lua_touserdata(L, lua_upvalueindex(1));
    const char *names[MOST_NAMES + 1];
    const char *key = luaL_tolstring(L, 2, NULL);
    member_names(L, face, names);
    const char *nearest = mr_name_nearest(key, names);
    luaL_Buffer b;
    luaL_buffinit(L, &b);
    for (const char **name = names; *name; name++) {
        luaL_addstring(&b, name == names ? "" : ", ");
        luaL_addstring(&b, *name);
    }
    luaL_pushresult(&b);
    return mr_bind_raise(L, MR_E_USAGE, "%s has no field '%.60s'%s%s%s; expected one of: %s",
                         face->name, key, nearest ? ", did you mean '" : "", nearest ? nearest : "",
                         nearest ? "'?" : "", lua_tostring(L, -1));
}

/* Make a missing name in the table of methods on top an error. */
static void refuse_others(lua_State *L, const mr_bind_face *face)
{
    lua_createtable(L, 0, 1);
    lua_pushlightuserdata(L, (void *)(uintptr_t)face);
    lua_pushcclosure(L, no_member, 1);
    lua_setfield(L, -2, "__index");
    lua_setmetatable(L, -2);
}

/* Make the metatable on top look up keys in the table of methods below it, or by its own __index.
 * __methods lists the methods for help and completion. */
static void set_index(lua_State *L)
{
    lua_CFunction own = NULL;
    lua_pushvalue(L, -2);
    lua_setfield(L, -2, "__methods");
    if (lua_getfield(L, -1, "__index") == LUA_TFUNCTION)
        own = lua_tocfunction(L, -1);
    lua_pop(L, 1);
    lua_pushvalue(L, -2);
    if (own)
        lua_pushcclosure(L, own, 1);
    lua_setfield(L, -2, "__index");
}

void mr_bind_type(lua_State *L, const mr_bind_face *face)
{
    keep_face(L, face);
    lua_newtable(L);
    set_functions(L, face->entries, false);
    refuse_others(L, face);
    luaL_newmetatable(L, face->name);
    lua_pushstring(L, face->name);
    lua_pushcclosure(L, box_tostring, 1);
    lua_setfield(L, -2, "__tostring");
    if (face->free_object) {
        push_close(L, face->free_object);
        lua_pushvalue(L, -1);
        lua_setfield(L, -4, "close");
        lua_pushvalue(L, -1);
        lua_setfield(L, -3, "__close");
        lua_setfield(L, -2, "__gc");
    }
    set_functions(L, face->entries, true);
    set_index(L);
    lua_pop(L, 2);
}

/* ---- fields of the table on top ---- */

void mr_bind_set_int(lua_State *L, const char *field, int64_t x)
{
    lua_pushinteger(L, x);
    lua_setfield(L, -2, field);
}

void mr_bind_set_num(lua_State *L, const char *field, double x)
{
    lua_pushnumber(L, x);
    lua_setfield(L, -2, field);
}

void mr_bind_set_bool(lua_State *L, const char *field, bool x)
{
    lua_pushboolean(L, x);
    lua_setfield(L, -2, field);
}

void mr_bind_set_str(lua_State *L, const char *field, const char *x)
{
    lua_pushstring(L, x);
    lua_setfield(L, -2, field);
}

void mr_bind_set_ints(lua_State *L, const char *field, const int64_t *x, int n)
{
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++)
        lua_pushinteger(L, x[i]), lua_rawseti(L, -2, i + 1);
    lua_setfield(L, -2, field);
}

void mr_bind_set_members(lua_State *L, const mr_bind_member *members, const void *from)
{
    for (; members->type; members++) {
        const void *at = (const char *)from + members->at;
        switch (members->type) {
        case 'b': mr_bind_set_bool(L, members->name, *(const bool *)at); break;
        case 'c': mr_bind_set_int(L, members->name, *(const uint8_t *)at); break;
        case 'h': mr_bind_set_int(L, members->name, *(const uint16_t *)at); break;
        case 'i': mr_bind_set_int(L, members->name, *(const int *)at); break;
        case 'u': mr_bind_set_int(L, members->name, *(const unsigned *)at); break;
        case 'l': mr_bind_set_int(L, members->name, *(const int64_t *)at); break;
        case 'f': mr_bind_set_num(L, members->name, *(const float *)at); break;
        case 'd': mr_bind_set_num(L, members->name, *(const double *)at); break;
        case 's': mr_bind_set_str(L, members->name, *(const char *const *)at); break;
        case 't': mr_bind_set_str(L, members->name, at); break;
        }
    }
}

static int error_tostring(lua_State *L)
{
    lua_getfield(L, 1, "message");
    return 1;
}

extern const mr_bind_room *const __start_mr_rooms[], *const __stop_mr_rooms[];

void mr_bind_open_all(lua_State *L)
{
    luaL_newmetatable(L, "mr.Error");
    lua_pushcfunction(L, error_tostring);
    lua_setfield(L, -2, "__tostring");
    lua_pop(L, 1);
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    for (const mr_bind_room *const *r = __start_mr_rooms; r < __stop_mr_rooms; r++) {
        lua_pushcfunction(L, (*r)->open);
        lua_pushfstring(L, "moonreel.core.%s", (*r)->name);
        lua_insert(L, -2);
        lua_settable(L, -3);
    }
    lua_pop(L, 1);
}
