/* bind: mr.IndexBuilder - builds a new index from rows of other indexes, for moonreel.data.derive.
 * Licence: Apache-2.0 */
#include "bind/room.h"

#include "moonreel/index.h"

#include <math.h>
#include <string.h>

#define BUILDER "mr.IndexBuilder"

static void free_builder(void *b)
{
    mr_index_builder_free(b);
}

int mr_bind_builder_new(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    void **box = mr_bind_box(L, BUILDER);
    mr_index_builder *b;
    mr_bind_check(L, mr_index_builder_new(path, NULL, &b));
    *box = b;
    return 1;
}

static int builder_column(lua_State *L)
{
    static const char *const kinds[] = {"real", "whole", NULL};
    int32_t column;
    mr_column_kind kind = luaL_checkoption(L, 3, "real", kinds) ? MR_COLUMN_WHOLE : MR_COLUMN_REAL;
    mr_bind_check(L, mr_index_builder_column(mr_bind_unbox(L, 1, BUILDER), luaL_checkstring(L, 2),
                                             kind, &column));
    return 0;
}

static int builder_like(lua_State *L)
{
    mr_index_builder *b = mr_bind_unbox(L, 1, BUILDER);
    size_t n;
    const void *dict =
        mr_index_dictionary(mr_index_reader_index(mr_bind_unbox(L, 2, mr_bind_index_type)), &n);
    if (dict)
        mr_bind_check(L, mr_index_builder_dictionary(b, dict, n));
    return 0;
}

static int builder_meta(lua_State *L)
{
    mr_bind_check(L, mr_index_builder_meta(mr_bind_unbox(L, 1, BUILDER), luaL_checkstring(L, 2),
                                           luaL_checkstring(L, 3)));
    return 0;
}

/* Replace the captions of a row by the list `captions` in the table at `changes`. The list lends
 * the texts. Leaves a block on the stack. */
static void take_captions(lua_State *L, int changes, mr_row *row)
{
    if (lua_getfield(L, changes, "captions") == LUA_TNIL)
        return;
    if (!lua_istable(L, -1))
        mr_bind_raise(L, MR_E_USAGE, "%s: captions: expected a list of texts, got %s", row->path,
                      luaL_typename(L, -1));
    int list = lua_gettop(L), n = (int)lua_rawlen(L, list);
    if (n > UINT8_MAX)
        mr_bind_raise(L, MR_E_DATA, "%s: %d captions; expected at most %d", row->path, n,
                      UINT8_MAX);
    mr_caption *captions = mr_bind_scratch(L, sizeof *captions * (size_t)(n + 1));
    for (int i = 0; i < n; i++) {
        if (lua_rawgeti(L, list, i + 1) != LUA_TSTRING)
            mr_bind_raise(L, MR_E_USAGE, "%s: captions[%d]: expected text, got %s", row->path,
                          i + 1, luaL_typename(L, -1));
        captions[i] = (mr_caption){"", lua_tostring(L, -1)};
        lua_pop(L, 1);
    }
    row->captions = captions, row->n_captions = n;
}

// the index of a column; creates it with that kind if it does not exist
static int32_t column_of(lua_State *L, mr_index_builder *b, const char *name, mr_column_kind kind)
{
    int32_t column = mr_index_builder_find(b, name);
    if (column < 0)
        mr_bind_check(L, mr_index_builder_column(b, name, kind, &column));
    return column;
}

/* Set the value of each column of the builder: from the table `columns` at `changes`, else from the
 * row. */
static void take_values(lua_State *L, int changes, mr_index_builder *b, const mr_index *from,
                        mr_row *row, mr_number values[MR_INDEX_COLUMNS])
{
    int32_t n = 0, column;
    for (int32_t i = 0; i < MR_INDEX_COLUMNS; i++)
        values[i] = (mr_number){.f = NAN};
    for (int32_t i = 0; i < row->n_columns; i++) {
        column = column_of(L, b, mr_index_column_name(from, i), mr_index_column_kind(from, i));
        values[column] = row->columns[i];
        n = MR_MAX(n, column + 1);
    }
    if (!lua_isnil(L, changes) && lua_getfield(L, changes, "columns") == LUA_TTABLE) {
        int table = lua_gettop(L);
        for (lua_pushnil(L); lua_next(L, table); lua_pop(L, 1)) {
            if (lua_type(L, -2) != LUA_TSTRING || lua_type(L, -1) != LUA_TNUMBER)
                mr_bind_raise(L, MR_E_USAGE, "%s: columns: expected numbers by name, got %s of %s",
                              row->path, luaL_typename(L, -1), luaL_typename(L, -2));
            column = column_of(L, b, lua_tostring(L, -2), MR_COLUMN_REAL);
            values[column] = lua_isinteger(L, -1)
                                 ? (mr_number){.whole = true, .i = lua_tointeger(L, -1)}
                                 : (mr_number){.f = lua_tonumber(L, -1)};
            n = MR_MAX(n, column + 1);
        }
    }
    row->columns = values, row->n_columns = n;
}

// {part = {first, frames}} in the table at `changes`
static void take_part(lua_State *L, int changes, mr_row *row)
{
    if (lua_getfield(L, changes, "part") == LUA_TTABLE) {
        lua_rawgeti(L, -1, 1), lua_rawgeti(L, -2, 2);
        mr_bind_check(L, mr_row_cut(row, luaL_checkinteger(L, -2), luaL_checkinteger(L, -1)));
        lua_pop(L, 2);
    }
    lua_pop(L, 1);
}

// {keys = {times}} in the table at `changes`: the key frames of the row
static void take_keys(lua_State *L, int changes, mr_row *row)
{
    if (lua_getfield(L, changes, "keys") == LUA_TTABLE) {
        int list = lua_gettop(L), n = (int)lua_rawlen(L, list);
        int64_t *keys = mr_bind_scratch(L, sizeof *keys * (size_t)(n + 1));
        for (int i = 0; i < n; i++) {
            lua_rawgeti(L, list, i + 1);
            keys[i] = luaL_checkinteger(L, -1);
            lua_pop(L, 1);
            if (i && keys[i] <= keys[i - 1])
                mr_bind_raise(L, MR_E_USAGE, "%s: keys[%d]: expected times that grow", row->path,
                              i + 1);
        }
        row->info.key_pts = keys, row->info.n_keys = n;
    }
}

static int builder_copy(lua_State *L)
{
    mr_index_builder *b = mr_bind_unbox(L, 1, BUILDER);
    mr_index_reader *reader = mr_bind_unbox(L, 2, mr_bind_index_type);
    lua_Integer i = luaL_checkinteger(L, 3);
    const mr_index *from = mr_index_reader_index(reader);
    lua_settop(L, 4);
    if (!lua_isnil(L, 4))
        luaL_checktype(L, 4, LUA_TTABLE);
    mr_row row;
    mr_number values[MR_INDEX_COLUMNS];
    mr_bind_check(L, i < 1 ? mr_fail(MR_E_RANGE, "row %lld; rows are counted from 1", (long long)i)
                           : mr_index_row(reader, (uint64_t)i - 1, &row));
    mr_bind_check(L, mr_index_builder_root(b, mr_index_root(from, row.root), &row.root));
    take_values(L, 4, b, from, &row, values);
    if (!lua_isnil(L, 4)) {
        take_keys(L, 4, &row);
        take_part(L, 4, &row);
        take_captions(L, 4, &row);
    }
    mr_bind_check(L, mr_index_builder_add(b, &row));
    return 0;
}

typedef struct bare_row {
    const char *path, *text;
    int64_t frames;
    int32_t height, width;
    double fps;
} bare_row;

static const mr_bind_field bare_fields[] = {
    MR_BIND_STR("path", bare_row, path, "Path of the file, which need not exist; required."),
    MR_BIND_STR("text", bare_row, text, "Its caption."),
    MR_BIND_INT("frames", bare_row, frames, 1, 1, "1: a picture."),
    MR_BIND_INT("height", bare_row, height, 1, 1, "As shown."),
    MR_BIND_INT("width", bare_row, width, 1, 1, "As shown."),
    MR_BIND_NUM("fps", bare_row, fps, 0, "Kept to a thousandth; 0: not known."),
    MR_BIND_END};

static int builder_add(lua_State *L)
{
    mr_index_builder *b = mr_bind_unbox(L, 1, BUILDER);
    bare_row given = {0};
    mr_bind_options(L, 2, "builder:add", bare_fields, &given);
    luaL_argcheck(L, given.path, 2, "path is required");
    luaL_argcheck(L, given.fps >= 0 && given.fps < 1e6, 2, "fps is no rate");
    mr_caption caption = {"", given.text};
    mr_row row = {.path = given.path,
                  .end_us = -1,
                  .key = mr_sample_key("", given.path, 0, -1),
                  .n_captions = given.text != NULL,
                  .captions = &caption,
                  .info = {.frames = given.frames,
                           .tb_num = 1,
                           .tb_den = 1000,
                           .rate_num = (int32_t)(given.fps * 1000 + 0.5),
                           .rate_den = 1000,
                           .height = given.height,
                           .width = given.width,
                           .coded_height = given.height,
                           .coded_width = given.width,
                           .sar_num = 1,
                           .sar_den = 1,
                           .flags = given.frames == 1 ? MR_CLIP_IMAGE : 0,
                           .codec = ""}};
    mr_bind_check(L, mr_index_builder_root(b, ".", &row.root));
    mr_bind_check(L, mr_index_builder_add(b, &row));
    return 0;
}

static int builder_finish(lua_State *L)
{
    mr_bind_check(L, mr_index_builder_finish(mr_bind_unbox(L, 1, BUILDER)));
    return 0;
}

static const mr_bind_entry builder_entries[] = {
    MR_ENTRY("like", builder_like, "(index: mr.Index)",
             "Compress captions with the dictionary of an index; before the first row."),
    MR_ENTRY("column", builder_column, "(name: string, kind?: string)",
             "Add a column of numbers, \"real\" or \"whole\"; before the first row. If both kinds "
             "are declared, it is real."),
    MR_ENTRY("meta", builder_meta, "(name: string, text: string)", "A text about the whole index."),
    MR_ENTRY(
        "copy", builder_copy, "(index: mr.Index, i: integer, changes?: table)",
        "Append row i, from 1, of an index. Changes: captions, a list of texts; columns, numbers "
        "by name; keys, the times of its key frames; part, {first frame, frames}."),
    MR_ENTRY_OPTIONS("add", builder_add, "(options: table)",
                     "Append a row without reading its file, for orders that are only inspected.",
                     bare_fields),
    MR_ENTRY("finish", builder_finish, "()",
             "Write fingerprints, seal and checksums, and give the file its name. If closed "
             "before, nothing remains."),
    MR_ENTRY_END};
static const mr_bind_face builder_face = {"mr.IndexBuilder", "A new index from rows of others.",
                                          builder_entries, free_builder};

void mr_bind_builder_type(lua_State *L)
{
    mr_bind_type(L, &builder_face);
}
