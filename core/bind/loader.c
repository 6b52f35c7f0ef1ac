/* bind: moonreel.core.loader - batches of decoded clips. Bucket rules come in the form that
 * moonreel.data.buckets makes. Licence: Apache-2.0 */
#include "bind/room.h"

#include "moonreel/data.h"

#include <string.h>

#define LOADER "mr.Loader"

static void free_loader(void *l)
{
    mr_loader_free(l);
}

// t[i] of the table on top as a number
static double number_at(lua_State *L, int i)
{
    int ok;
    lua_rawgeti(L, -1, i);
    double v = lua_tonumberx(L, -1, &ok);
    lua_pop(L, 1);
    if (!ok)
        mr_bind_raise(L, MR_E_RECIPE, "bucket rule: entry %d is no number", i);
    return v;
}

static int list_field(lua_State *L, const char *name)
{
    if (lua_getfield(L, -1, name) != LUA_TTABLE)
        mr_bind_raise(L, MR_E_RECIPE, "bucket rule: no list '%s'", name);
    return (int)lua_rawlen(L, -1);
}

// the resolution table on top; its arrays are scratch that dies with the caller's frame
static void read_resolution(lua_State *L, mr_bucket_resolution *r, void *memory)
{
    lua_getfield(L, -1, "name");
    r->name = lua_tostring(L, -1); // lent by the table
    lua_pop(L, 1);
    if (!r->name)
        mr_bind_raise(L, MR_E_RECIPE, "bucket rule: a resolution without a name");
    r->pixels = mr_bind_opt_num(L, -1, "pixels", 0);
    mr_bucket_aspect *aspects = memory;
    r->n_aspects = list_field(L, "aspects");
    for (int i = 0; i < r->n_aspects; i++) {
        lua_rawgeti(L, -1, i + 1);
        aspects[i] =
            (mr_bucket_aspect){number_at(L, 1), (int32_t)number_at(L, 2), (int32_t)number_at(L, 3)};
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    mr_bucket_length *lengths = (void *)(aspects + r->n_aspects);
    r->n_lengths = list_field(L, "lengths");
    for (int i = 0; i < r->n_lengths; i++) {
        lua_rawgeti(L, -1, i + 1);
        lengths[i] = (mr_bucket_length){(int32_t)number_at(L, 1), number_at(L, 2), number_at(L, 3),
                                        (int32_t)number_at(L, 4)};
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    r->aspects = aspects, r->lengths = lengths;
}

// options.buckets -> rule
static mr_bucket_rule *make_rule(lua_State *L, int arg)
{
    lua_getfield(L, arg, "buckets");
    luaL_checktype(L, -1, LUA_TTABLE);
    int list = lua_gettop(L), n = (int)lua_rawlen(L, list);
    mr_bucket_resolution *res = mr_bind_scratch(L, sizeof *res * (size_t)(n + 1));
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, list, i + 1);
        luaL_checktype(L, -1, LUA_TTABLE);
        size_t rows = (size_t)list_field(L, "aspects");
        lua_pop(L, 1);
        rows += (size_t)list_field(L, "lengths");
        lua_pop(L, 1);
        void *memory = mr_bind_scratch(L, rows * sizeof(mr_bucket_length) + 64);
        lua_rawgeti(L, list, i + 1);
        read_resolution(L, &res[i], memory);
    }
    mr_bucket_rule *rule;
    mr_bind_check(L,
                  mr_bucket_rule_new(res, n, (int32_t)mr_bind_opt_int(L, arg, "frame_interval", 1),
                                     mr_bind_opt_bool(L, arg, "compat", false), &rule));
    return rule;
}

// new(index, {buckets, frame_interval, compat, seed, threads, prefetch, epochs, state, excluded,
// quarantine, deadline_s, allow_empty})
static int l_new(lua_State *L)
{
    mr_index_reader *reader = mr_bind_unbox(L, 1, "mr.Index");
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 2);
    mr_loader_options o = {.seed = (uint64_t)mr_bind_opt_int(L, 2, "seed", 0),
                           .threads = (int32_t)mr_bind_opt_int(L, 2, "threads", 0),
                           .prefetch = (int32_t)mr_bind_opt_int(L, 2, "prefetch", 0),
                           .epochs = mr_bind_opt_int(L, 2, "epochs", 0),
                           .state = mr_bind_opt_str(L, 2, "state", NULL),
                           .excluded = mr_bind_opt_str(L, 2, "excluded", NULL),
                           .quarantine = mr_bind_opt_str(L, 2, "quarantine", NULL),
                           .deadline_s = mr_bind_opt_num(L, 2, "deadline_s", 0),
                           .allow_empty = mr_bind_opt_bool(L, 2, "allow_empty", false)};
    void **box = mr_bind_box(L, LOADER);
    int at = lua_gettop(L);
    mr_bucket_rule *rule = make_rule(L, 2);
    mr_loader *l;
    mr_bind_check(L, mr_loader_new(mr_index_reader_index(reader), rule, &o, &l));
    *box = l;
    lua_pushvalue(L, at);
    return 1;
}

static void push_numbers(lua_State *L, const char *field, int32_t n, const void *values, char kind)
{
    lua_createtable(L, n, 0);
    for (int32_t i = 0; i < n; i++) {
        if (kind == 'u')
            lua_pushinteger(L, (lua_Integer)((const uint64_t *)values)[i]);
        else if (kind == 'l')
            lua_pushinteger(L, ((const int64_t *)values)[i]);
        else if (kind == 'i')
            lua_pushinteger(L, ((const int32_t *)values)[i]);
        else
            lua_pushnumber(L, ((const float *)values)[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, field);
}

// loader:next() -> table, or nil after the last epoch
static int loader_next(lua_State *L)
{
    const mr_batch *b;
    mr_bind_check(L, mr_loader_next(mr_bind_unbox(L, 1, LOADER), &b));
    if (!b)
        return 0;
    const struct {
        const char *name;
        int64_t value;
    } rows[] = {{"epoch", (int64_t)b->epoch},
                {"draw", (int64_t)b->draw},
                {"bucket", b->bucket + 1},
                {"size", b->size},
                {"n", b->n},
                {"frames", b->shape.frames},
                {"height", b->shape.height},
                {"width", b->shape.width},
                {"bytes", (int64_t)b->bytes}};
    lua_createtable(L, 0, 28);
    for (size_t i = 0; i < MR_COUNT(rows); i++) {
        lua_pushinteger(L, rows[i].value);
        lua_setfield(L, -2, rows[i].name);
    }
    lua_pushstring(L, b->shape.resolution);
    lua_setfield(L, -2, "resolution");
    lua_pushboolean(L, b->last);
    lua_setfield(L, -2, "last");
    lua_pushnumber(L, b->wait_s);
    lua_setfield(L, -2, "wait_s");
    lua_pushlightuserdata(L, b->pixels);
    lua_setfield(L, -2, "pointer");
    lua_pushlightuserdata(L, (void *)(uintptr_t)b);
    lua_setfield(L, -2, "handle");
    push_numbers(L, "weights", b->size, b->weights, 'f');
    push_numbers(L, "ids", b->size, b->ids, 'u');
    push_numbers(L, "keys", b->size, b->keys, 'u');
    push_numbers(L, "starts", b->size, b->starts, 'l');
    push_numbers(L, "fps", b->size, b->fps, 'f');
    push_numbers(L, "native_fps", b->size, b->native_fps, 'f');
    push_numbers(L, "native_heights", b->size, b->native_height, 'i');
    push_numbers(L, "native_widths", b->size, b->native_width, 'i');
    lua_createtable(L, b->size, 0);
    for (int32_t i = 0; i < b->size; i++) {
        lua_pushstring(L, b->captions[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "captions");
    return 1;
}

// loader:release(handle)
static int loader_release(lua_State *L)
{
    mr_loader *l = mr_bind_unbox(L, 1, LOADER);
    luaL_checktype(L, 2, LUA_TLIGHTUSERDATA);
    mr_loader_release(l, lua_touserdata(L, 2));
    return 0;
}

static int loader_state(lua_State *L)
{
    char *text;
    mr_bind_check(L, mr_loader_state(mr_bind_unbox(L, 1, LOADER), &text));
    lua_pushstring(L, text); // an out-of-memory raise here loses 4 KB
    mr_free(text);
    return 1;
}

// loader:excluded() -> text
static int loader_excluded(lua_State *L)
{
    char *text;
    mr_bind_check(L, mr_loader_excluded(mr_bind_unbox(L, 1, LOADER), &text));
    lua_pushstring(L, text); // an out-of-memory raise here loses the text
    mr_free(text);
    return 1;
}

// loader:order(n) -> ids of the next n samples
static int loader_order(lua_State *L)
{
    mr_loader *l = mr_bind_unbox(L, 1, LOADER);
    int64_t n = luaL_checkinteger(L, 2), got;
    luaL_argcheck(L, n >= 1 && n <= 100000000, 2, "expected 1 or more");
    uint64_t *ids = mr_bind_scratch(L, sizeof *ids * (size_t)n);
    mr_bind_check(L, mr_loader_peek(l, ids, n, &got));
    lua_createtable(L, (int)got, 0);
    for (int64_t i = 0; i < got; i++) {
        lua_pushinteger(L, (lua_Integer)ids[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

// loader:facts() -> counters, plan per bucket, dropped rows by rule
static int loader_facts(lua_State *L)
{
    mr_loader *l = mr_bind_unbox(L, 1, LOADER);
    mr_loader_facts f = mr_loader_get_facts(l);
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {{"epoch", f.epoch},           {"samples", f.samples},
                {"batches", f.batches},       {"slab_bytes", f.slab_bytes},
                {"slabs", (uint64_t)f.slabs}, {"threads", (uint64_t)f.threads},
                {"delivered", f.delivered},   {"failed", f.failed}};
    lua_createtable(L, 0, 12);
    for (size_t i = 0; i < MR_COUNT(rows); i++) {
        lua_pushinteger(L, (lua_Integer)rows[i].value);
        lua_setfield(L, -2, rows[i].name);
    }
    lua_pushnumber(L, f.wait_s);
    lua_setfield(L, -2, "wait_s");
    lua_createtable(L, 0, MR_DROP_COUNT);
    for (int why = 1; why < MR_DROP_COUNT; why++) {
        if (!f.dropped[why])
            continue;
        lua_pushinteger(L, (lua_Integer)f.dropped[why]);
        lua_setfield(L, -2, mr_drop_text(why));
    }
    lua_setfield(L, -2, "dropped");
    lua_newtable(L);
    for (int32_t b = 0; b < mr_loader_buckets(l); b++) {
        uint64_t n;
        mr_bucket k = mr_loader_bucket(l, b, &n);
        lua_createtable(L, 0, 8);
        const struct {
            const char *name;
            uint64_t value;
        } cells[] = {{"bucket", (uint64_t)b + 1},
                     {"frames", (uint64_t)k.frames},
                     {"height", (uint64_t)k.height},
                     {"width", (uint64_t)k.width},
                     {"batch", (uint64_t)k.batch},
                     {"samples", n},
                     {"batches", k.batch ? (n + (uint64_t)k.batch - 1) / (uint64_t)k.batch : 0}};
        for (size_t i = 0; i < MR_COUNT(cells); i++) {
            lua_pushinteger(L, (lua_Integer)cells[i].value);
            lua_setfield(L, -2, cells[i].name);
        }
        lua_pushstring(L, k.resolution);
        lua_setfield(L, -2, "resolution");
        lua_rawseti(L, -2, b + 1);
    }
    lua_setfield(L, -2, "buckets");
    return 1;
}

MR_BIND_ROOM(loader)
{
    static const luaL_Reg methods[] = {{"next", loader_next},
                                       {"release", loader_release},
                                       {"state", loader_state},
                                       {"order", loader_order},
                                       {"excluded", loader_excluded},
                                       {"facts", loader_facts},
                                       {NULL, NULL}};
    static const luaL_Reg rows[] = {{"new", l_new}, {NULL, NULL}};
    mr_bind_type(L, LOADER, methods, NULL, free_loader);
    luaL_newlib(L, rows);
    return 1;
}
