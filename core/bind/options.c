/* bind: reads options tables by the fields that a function declares. Licence: Apache-2.0 */
#include "bind/room.h"

#include <stdio.h>
#include <string.h>

enum { FIELDS_MAX = 32 };

/* Raise for an unknown key, with the nearest name or all names. */
static void refuse_key(lua_State *L, const char *who, const mr_bind_field *fields)
{
    if (lua_type(L, -1) != LUA_TSTRING)
        mr_bind_raise(L, MR_E_USAGE, "%s: options have names, got [%s]", who,
                      luaL_tolstring(L, -1, NULL));
    const char *names[FIELDS_MAX + 1] = {NULL}, *key = lua_tostring(L, -1);
    for (int i = 0; fields[i].name && i < FIELDS_MAX; i++)
        names[i] = fields[i].name;
    const char *near = mr_name_nearest(key, names);
    if (near)
        mr_bind_raise(L, MR_E_USAGE, "%s: no option '%s', did you mean '%s'?", who, key, near);
    char list[512] = "";
    for (size_t i = 0, used = 0; names[i] && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", names[i]);
    mr_bind_raise(L, MR_E_USAGE, "%s: no option '%s'; it takes %s", who, key, list);
}

static void check_keys(lua_State *L, int arg, const char *who, const mr_bind_field *fields)
{
    for (lua_pushnil(L); lua_next(L, arg);) {
        lua_pop(L, 1); // pop the value; lua_next needs the key
        const mr_bind_field *f = fields;
        while (f->name && (lua_type(L, -1) != LUA_TSTRING || strcmp(f->name, lua_tostring(L, -1))))
            f++;
        if (!f->name)
            refuse_key(L, who, fields);
    }
}

/* The type of the given value in error messages. */
static const char *came(lua_State *L)
{
    return lua_type(L, -1) == LUA_TSTRING ? "text" : luaL_typename(L, -1);
}

static void set_integer(const mr_bind_field *f, char *place, int64_t x)
{
    if (f->bytes == sizeof(int32_t))
        memcpy(place, &(int32_t){(int32_t)x}, sizeof(int32_t));
    else
        memcpy(place, &x, sizeof x);
}

static void set_number(const mr_bind_field *f, char *place, double x)
{
    if (f->bytes == sizeof(float))
        memcpy(place, &(float){(float)x}, sizeof(float));
    else
        memcpy(place, &x, sizeof x);
}

static void set_text(char *place, const char *x)
{
    memcpy(place, &x, sizeof x);
}

static void set_default(const mr_bind_field *f, char *place)
{
    switch (f->kind) {
    case MR_BIND_INTEGER: set_integer(f, place, (int64_t)f->def); break;
    case MR_BIND_NUMBER: set_number(f, place, f->def); break;
    case MR_BIND_BOOLEAN: *(bool *)place = f->def != 0; break;
    case MR_BIND_TEXT: set_text(place, NULL); break;
    case MR_BIND_OTHER: break;
    }
}

static void read_integer(lua_State *L, const char *who, const mr_bind_field *f, char *place)
{
    int whole;
    int64_t x = lua_tointegerx(L, -1, &whole);
    if (!whole)
        mr_bind_raise(L, MR_E_USAGE, "%s: %s: expected integer, got %s", who, f->name,
                      luaL_tolstring(L, -1, NULL));
    int64_t most = f->bytes == sizeof(int32_t) ? INT32_MAX : INT64_MAX;
    if (x < f->least || x > most)
        mr_bind_raise(L, MR_E_USAGE, "%s: %s: %lld; expected %lld to %lld", who, f->name,
                      (long long)x, (long long)f->least, (long long)most);
    set_integer(f, place, x);
}

/* Read the value of field f from the top of the stack. */
static void read_field(lua_State *L, const char *who, const mr_bind_field *f, char *place)
{
    static const struct {
        int type;
        const char *name;
    } wanted[] = {[MR_BIND_INTEGER] = {LUA_TNUMBER, "integer"},
                  [MR_BIND_NUMBER] = {LUA_TNUMBER, "number"},
                  [MR_BIND_BOOLEAN] = {LUA_TBOOLEAN, "boolean"},
                  [MR_BIND_TEXT] = {LUA_TSTRING, "text"}};
    if (f->kind == MR_BIND_OTHER)
        return;
    if (lua_isnil(L, -1)) {
        set_default(f, place);
        return;
    }
    if (lua_type(L, -1) != wanted[f->kind].type)
        mr_bind_raise(L, MR_E_USAGE, "%s: %s: expected %s, got %s", who, f->name,
                      wanted[f->kind].name, came(L));
    switch (f->kind) {
    case MR_BIND_INTEGER: read_integer(L, who, f, place); break;
    case MR_BIND_NUMBER: set_number(f, place, lua_tonumber(L, -1)); break;
    case MR_BIND_BOOLEAN: *(bool *)place = lua_toboolean(L, -1); break;
    case MR_BIND_TEXT: set_text(place, lua_tostring(L, -1)); break;
    case MR_BIND_OTHER: break;
    }
}

void mr_bind_options(lua_State *L, int arg, const char *who, const mr_bind_field *fields, void *out)
{
    bool given = !lua_isnoneornil(L, arg);
    if (given && !lua_istable(L, arg))
        mr_bind_raise(L, MR_E_USAGE, "%s: expected a table of options, got %s", who,
                      luaL_typename(L, arg));
    if (given) {
        arg = lua_absindex(L, arg);
        check_keys(L, arg, who, fields);
    }
    for (const mr_bind_field *f = fields; f->name; f++) {
        if (given)
            lua_getfield(L, arg, f->name);
        else
            lua_pushnil(L);
        read_field(L, who, f, (char *)out + f->at);
        lua_pop(L, 1);
    }
}
