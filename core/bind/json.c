/* bind: moonreel.core.json - JSON text to Lua values and back. Licence: Apache-2.0
 *
 * decode(text [, name]) -> value. Objects become plain tables, arrays tables marked as by
 * json.array, null becomes json.null. Integers stay integers; a number with a point or an exponent
 * becomes a float. Errors (MR_E_DATA) name `name`, line and column.
 *
 * encode(value [, {indent = n}]) -> text. Keys are sorted, so equal values give equal text. A table
 * is an array if it is marked or holds exactly 1..n with n > 0; an empty unmarked table is {}.
 * Floats take the shortest of %.15g, %.16g and %.17g that reads back exactly and always show a
 * point or an exponent. Errors (MR_E_DATA) name the path: NaN, infinity, text that is not UTF-8,
 * other types.
 *
 * json.array(t) marks and returns t; json.is_array(t); json.null. */
#include "bind/room.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 128 };
static const char array_type[] = "mr.JsonArray";

/* ---- decode ---- */

static void free_json(void *object)
{
    json_decref(object);
}

static void push(lua_State *L, const json_t *v, int depth)
{
    if (depth > DEPTH_MAX)
        mr_bind_raise(L, MR_E_DATA, "JSON: nested deeper than %d", DEPTH_MAX);
    luaL_checkstack(L, 4, "JSON nested too deep");
    switch (json_typeof(v)) {
    case JSON_OBJECT: {
        lua_createtable(L, 0, (int)json_object_size(v));
        const char *key;
        json_t *item;
        json_object_foreach((json_t *)v, key, item)
        {
            push(L, item, depth + 1);
            lua_setfield(L, -2, key);
        }
        return;
    }
    case JSON_ARRAY:
        lua_createtable(L, (int)json_array_size(v), 0);
        luaL_setmetatable(L, array_type);
        for (size_t i = 0; i < json_array_size(v); i++) {
            push(L, json_array_get(v, i), depth + 1);
            lua_rawseti(L, -2, (lua_Integer)i + 1);
        }
        return;
    case JSON_STRING: lua_pushlstring(L, json_string_value(v), json_string_length(v)); return;
    case JSON_INTEGER: lua_pushinteger(L, json_integer_value(v)); return;
    case JSON_REAL: lua_pushnumber(L, json_real_value(v)); return;
    case JSON_TRUE: lua_pushboolean(L, 1); return;
    case JSON_FALSE: lua_pushboolean(L, 0); return;
    case JSON_NULL: lua_pushlightuserdata(L, NULL); return;
    }
}

static int j_decode(lua_State *L)
{
    size_t n;
    const char *text = luaL_checklstring(L, 1, &n), *name = luaL_optstring(L, 2, "JSON");
    json_error_t err;
    void **box = mr_bind_box(L, "mr.Json");
    json_t *v = *box =
        json_loadb(text, n, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &err);
    if (!v)
        return mr_bind_raise(L, MR_E_DATA, "%s: line %d, column %d: %s", name, err.line, err.column,
                             err.text);
    lua_toclose(L, -1);
    push(L, v, 0);
    return 1;
}

/* ---- encode ---- */

/* The text so far, owned by a box so that an error frees it; `path` is that of the value for
 * errors: .a.b[3]. */
typedef struct out {
    lua_State *L;
    char *data;
    size_t used, cap;
    int indent;
    size_t path_len;
    char path[512];
} out;

static void free_out(void *object)
{
    mr_free(((out *)object)->data);
    mr_free(object);
}

static void add(out *o, const char *s, size_t n)
{
    if (o->used + n > o->cap) {
        size_t cap = MR_MAX(o->cap * 2, o->used + n + 256);
        char *more = mr_realloc(o->data, cap);
        if (!more)
            mr_bind_check(o->L, mr_fail_memory(cap));
        o->data = more, o->cap = cap;
    }
    memcpy(o->data + o->used, s, n);
    o->used += n;
}

static void add_text(out *o, const char *s)
{
    add(o, s, strlen(s));
}

static int refuse(out *o, const char *what)
{
    return mr_bind_raise(o->L, MR_E_DATA, "JSON: value%s: %s", o->path, what);
}

static size_t enter(out *o, const char *fmt, ...) MR_PRINTF(2, 3);
static size_t enter(out *o, const char *fmt, ...)
{
    size_t keep = o->path_len;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(o->path + keep, sizeof o->path - keep, fmt, ap);
    va_end(ap);
    o->path_len = MR_MIN(keep + (size_t)MR_MAX(n, 0), sizeof o->path - 1);
    return keep;
}

static void leave(out *o, size_t keep)
{
    o->path_len = keep, o->path[keep] = 0;
}

static void put_line(out *o, int depth)
{
    if (!o->indent)
        return;
    add(o, "\n", 1);
    for (int i = 0; i < depth * o->indent; i++)
        add(o, " ", 1);
}

static void put_text(out *o, const char *s, size_t n)
{
    static const char special[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    add(o, "\"", 1);
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)s[i];
        const char *at = c ? strchr(special, c) : NULL;
        if (at) {
            add(o, (char[]){'\\', letters[at - special]}, 2);
            i++;
        } else if (c < 0x20 || c == 0x7f) {
            char hex[8];
            snprintf(hex, sizeof hex, "\\u%04x", c);
            add_text(o, hex);
            i++;
        } else {
            uint32_t code;
            size_t k = mr_utf8(s + i, n - i, &code);
            if (!k)
                refuse(o, "text is not UTF-8");
            add(o, s + i, k);
            i += k;
        }
    }
    add(o, "\"", 1);
}

static void put_float(out *o, double v)
{
    if (!isfinite(v))
        refuse(o, isnan(v) ? "NaN has no JSON form" : "infinity has no JSON form");
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    add_text(o, text);
    if (!strpbrk(text, ".e"))
        add_text(o, ".0");
}

/* Whether the table at `t` is an array; *n is its length. */
static bool is_array(lua_State *L, int t, lua_Integer *n)
{
    *n = (lua_Integer)lua_rawlen(L, t);
    if (lua_getmetatable(L, t)) {
        luaL_getmetatable(L, array_type);
        bool marked = lua_rawequal(L, -1, -2);
        lua_pop(L, 2);
        if (marked)
            return true;
    }
    if (*n == 0)
        return false;
    lua_Integer keys = 0;
    for (lua_pushnil(L); lua_next(L, t); lua_pop(L, 1))
        keys++;
    return keys == *n;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void put(out *o, int t, int depth);

static void put_object(out *o, int t, int depth)
{
    lua_State *L = o->L;
    size_t n = 0, i = 0;
    for (lua_pushnil(L); lua_next(L, t); lua_pop(L, 1), n++)
        if (lua_type(L, -2) != LUA_TSTRING)
            refuse(o, lua_type(L, -2) == LUA_TNUMBER
                          ? "a table with both list entries and names, or a list with holes"
                          : "a key is not text");
    if (!n) {
        add_text(o, "{}");
        return;
    }
    // the table keeps the keys alive, so their addresses stay valid
    const char **keys = lua_newuserdatauv(L, n * sizeof *keys, 0);
    int hold = lua_gettop(L);
    for (lua_pushnil(L); lua_next(L, t); lua_pop(L, 1)) {
        keys[i] = lua_tostring(L, -2);
        if (strlen(keys[i++]) != lua_rawlen(L, -2))
            refuse(o, "a key holds a zero byte");
    }
    qsort(keys, n, sizeof *keys, by_bytes);
    add(o, "{", 1);
    for (i = 0; i < n; i++) {
        size_t keep = enter(o, ".%s", keys[i]);
        if (i)
            add(o, ",", 1);
        put_line(o, depth + 1);
        put_text(o, keys[i], strlen(keys[i]));
        add_text(o, o->indent ? ": " : ":");
        lua_pushstring(L, keys[i]);
        lua_rawget(L, t);
        put(o, lua_gettop(L), depth + 1);
        lua_pop(L, 1);
        leave(o, keep);
    }
    put_line(o, depth);
    add(o, "}", 1);
    lua_remove(L, hold);
}

static void put_array(out *o, int t, lua_Integer n, int depth)
{
    lua_State *L = o->L;
    add(o, "[", 1);
    for (lua_Integer i = 1; i <= n; i++) {
        size_t keep = enter(o, "[%lld]", (long long)i);
        if (i > 1)
            add(o, ",", 1);
        put_line(o, depth + 1);
        lua_rawgeti(L, t, i);
        put(o, lua_gettop(L), depth + 1);
        lua_pop(L, 1);
        leave(o, keep);
    }
    if (n)
        put_line(o, depth);
    add(o, "]", 1);
}

static void put(out *o, int t, int depth)
{
    lua_State *L = o->L;
    if (depth > DEPTH_MAX)
        refuse(o, "nested too deep (a table inside itself?)");
    luaL_checkstack(L, 8, "JSON nested too deep");
    switch (lua_type(L, t)) {
    case LUA_TTABLE: {
        lua_Integer n;
        if (is_array(L, t, &n))
            put_array(o, t, n, depth);
        else
            put_object(o, t, depth);
        return;
    }
    case LUA_TSTRING: {
        size_t n;
        const char *s = lua_tolstring(L, t, &n);
        put_text(o, s, n);
        return;
    }
    case LUA_TBOOLEAN: add_text(o, lua_toboolean(L, t) ? "true" : "false"); return;
    case LUA_TNUMBER: {
        char text[32];
        if (!lua_isinteger(L, t)) {
            put_float(o, lua_tonumber(L, t));
            return;
        }
        snprintf(text, sizeof text, "%lld", (long long)lua_tointeger(L, t));
        add_text(o, text);
        return;
    }
    default:
        if (lua_type(L, t) == LUA_TLIGHTUSERDATA && !lua_touserdata(L, t)) {
            add_text(o, "null");
            return;
        }
        char what[80];
        snprintf(what, sizeof what, "a %s has no JSON form", luaL_typename(L, t));
        refuse(o, what);
    }
}

typedef struct encode_options {
    int indent;
} encode_options;

static const mr_bind_field encode_fields[] = {
    MR_BIND_INT("indent", encode_options, indent, 0, 0,
                "Spaces per level, at most 16; 0: all on one line."),
    MR_BIND_END};

static int j_encode(lua_State *L)
{
    luaL_checkany(L, 1);
    encode_options opt;
    mr_bind_options(L, 2, "json.encode", encode_fields, &opt);
    luaL_argcheck(L, opt.indent <= 16, 2, "indent: expected 0 to 16");
    void **box = mr_bind_box(L, "mr.JsonOut");
    lua_toclose(L, -1);
    out *o = mr_calloc(1, sizeof *o);
    if (!o)
        mr_bind_check(L, mr_fail_memory(sizeof *o));
    *box = o;
    o->L = L, o->indent = opt.indent;
    put(o, 1, 0);
    lua_pushlstring(L, o->data, o->used);
    return 1;
}

static int j_array(lua_State *L)
{
    if (lua_isnoneornil(L, 1)) {
        lua_settop(L, 0);
        lua_newtable(L);
    }
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    luaL_setmetatable(L, array_type);
    return 1;
}

static int j_is_array(lua_State *L)
{
    lua_Integer n;
    luaL_checkany(L, 1);
    lua_pushboolean(L, lua_istable(L, 1) && is_array(L, 1, &n));
    return 1;
}

static const mr_bind_entry json_entries[] = {
    MR_ENTRY_FIELD("null", "lightuserdata", "The value for null."),
    MR_ENTRY("decode", j_decode, "(text: string, name?: string): any",
             "Objects become tables, arrays marked lists, null json.null; errors name `name`, "
             "line and column."),
    MR_ENTRY_OPTIONS("encode", j_encode, "(value: any, options?: table): string",
                     "Keys are sorted, so equal values give equal text.", encode_fields),
    MR_ENTRY("array", j_array, "(list?: table): table",
             "Mark a list, also an empty one, as an array; returns it."),
    MR_ENTRY("is_array", j_is_array, "(value: any): boolean",
             "Whether it is marked as an array, or a list 1..n."),
    MR_ENTRY_END};
static const mr_bind_face json_face = {"moonreel.core.json", "JSON text to Lua values and back.",
                                       json_entries, NULL};

static const mr_bind_face tree_face = {"mr.Json", NULL, NULL, free_json};
static const mr_bind_face out_face = {"mr.JsonOut", NULL, NULL, free_out};

MR_BIND_ROOM(json)
{
    mr_bind_type(L, &tree_face);
    mr_bind_type(L, &out_face);
    luaL_newmetatable(L, array_type);
    lua_pop(L, 1);
    mr_bind_module(L, &json_face);
    lua_pushlightuserdata(L, NULL);
    lua_setfield(L, -2, "null");
    return 1;
}
