/* bind: moonreel.core.index - open a sample index, read rows, ingest. Licence: Apache-2.0 */
#include "bind/room.h"

#include "moonreel/data.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define INDEX  mr_bind_index_type
#define INGEST "mr.Ingest"

static void free_reader(void *reader)
{
    mr_index_reader_free(reader);
}

static void push_hex(lua_State *L, mr_hash128 h, const char *field)
{
    char hex[33];
    mr_hash128_hex(h, hex);
    lua_pushstring(L, hex);
    lua_setfield(L, -2, field);
}

void mr_bind_push_number(lua_State *L, mr_number value)
{
    if (value.whole)
        lua_pushinteger(L, (lua_Integer)value.i);
    else if (mr_number_is_none(value))
        lua_pushnil(L);
    else
        lua_pushnumber(L, value.f);
}

const char *mr_bind_column_kind(mr_column_kind kind)
{
    return kind == MR_COLUMN_WHOLE ? "whole" : "real";
}

typedef struct open_options {
    bool verify;
} open_options;

static const mr_bind_field open_fields[] = {
    MR_BIND_BOOL("verify", open_options, verify, "Check every block of the file first."),
    MR_BIND_END};

// open(path [, {verify}]) -> mr.Index. The box holds a reader, which keeps its index.
static int i_open(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    open_options o;
    mr_bind_options(L, 2, "index.open", open_fields, &o);
    void **box = mr_bind_box(L, INDEX);
    mr_index *index;
    mr_bind_check(L, mr_index_open(path, o.verify, &index));
    mr_index_reader *reader;
    mr_status st = mr_index_reader_new(index, &reader);
    mr_index_unref(index);
    mr_bind_check(L, st);
    *box = reader;
    return 1;
}

static int index_len(lua_State *L)
{
    lua_pushinteger(
        L, (lua_Integer)mr_index_get_facts(mr_index_reader_index(mr_bind_unbox(L, 1, INDEX))).rows);
    return 1;
}

// index:facts() -> {rows, fp_order, fp_set, path, roots, sources, columns, kinds}
static int index_facts(lua_State *L)
{
    mr_index *ix = mr_index_reader_index(mr_bind_unbox(L, 1, INDEX));
    mr_index_facts f = mr_index_get_facts(ix);
    lua_createtable(L, 0, 8);
    lua_pushinteger(L, (lua_Integer)f.rows);
    lua_setfield(L, -2, "rows");
    push_hex(L, f.fp_order, "fp_order");
    push_hex(L, f.fp_set, "fp_set");
    lua_pushstring(L, mr_index_path(ix));
    lua_setfield(L, -2, "path");
    const char *sources = mr_index_meta(ix, "sources");
    lua_pushstring(L, sources ? sources : "[]");
    lua_setfield(L, -2, "sources");
    lua_createtable(L, f.n_roots, 0);
    for (int i = 0; i < f.n_roots; i++) {
        lua_pushstring(L, mr_index_root(ix, i));
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "roots");
    lua_createtable(L, mr_index_columns(ix), 0);
    for (int i = 0; i < mr_index_columns(ix); i++) {
        lua_pushstring(L, mr_index_column_name(ix, i));
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "columns");
    lua_createtable(L, 0, mr_index_columns(ix));
    for (int i = 0; i < mr_index_columns(ix); i++)
        mr_bind_set_str(L, mr_index_column_name(ix, i),
                        mr_bind_column_kind(mr_index_column_kind(ix, i)));
    lua_setfield(L, -2, "kinds");
    return 1;
}

// index:find(key) -> i or nil; `key` as 32 hexadecimal digits
static int index_find(lua_State *L)
{
    mr_index_reader *reader = mr_bind_unbox(L, 1, INDEX);
    const char *hex = luaL_checkstring(L, 2);
    uint64_t id;
    unsigned long long hi, lo;
    luaL_argcheck(L,
                  strlen(hex) == 32 && strspn(hex, "0123456789abcdefABCDEF") == 32 &&
                      sscanf(hex, "%16llx%16llx", &hi, &lo) == 2,
                  2, "expected a key of 32 hexadecimal digits");
    mr_status st = mr_index_find(reader, (mr_hash128){lo, hi}, &id);
    if (st == MR_E_RANGE)
        return 0;
    mr_bind_check(L, st);
    lua_pushinteger(L, (lua_Integer)id + 1);
    return 1;
}

// the first frame of the row in its file
static int64_t first_frame(const mr_row *row)
{
    const mr_clip_info *c = &row->info;
    return c->rate_num ? llround((double)row->start_us * 1e-6 * c->rate_num / c->rate_den) : 0;
}

// index:row(i) -> table; i from 1, ids are from 0
static int index_row(lua_State *L)
{
    mr_index_reader *reader = mr_bind_unbox(L, 1, INDEX);
    lua_Integer i = luaL_checkinteger(L, 2);
    mr_row row;
    char file[8300];
    mr_bind_check(L, i < 1 ? mr_fail(MR_E_RANGE, "row %lld; rows are counted from 1", (long long)i)
                           : mr_index_row(reader, (uint64_t)i - 1, &row));
    mr_bind_check(L, mr_index_file(mr_index_reader_index(reader), &row, file, sizeof file));
    const mr_clip_info *c = &row.info;
    lua_createtable(L, 0, 29);
    MR_BIND_SET(L, row, id, root, start_us, end_us, path);
    MR_BIND_SET(L, *c, frames, width, height, duration_ms, bytes, flags, orient, rate_num, rate_den,
                mtime_ns, codec);
    mr_bind_set_int(L, "key_lo", (int64_t)row.key.lo);
    mr_bind_set_int(L, "keys", c->n_keys);
    mr_bind_set_int(L, "start", first_frame(&row));
    push_hex(L, row.key, "key");
    mr_bind_set_str(L, "file", file);
    mr_bind_set_str(L, "text", row.n_captions ? row.captions[0].text : "");
    mr_bind_set_num(L, "fps", c->rate_num ? (double)c->rate_num / c->rate_den : 0);
    mr_bind_set_bool(L, "image", c->flags & MR_CLIP_IMAGE);
    lua_createtable(L, row.n_captions, 0);
    for (int32_t k = 0; k < row.n_captions; k++) {
        lua_pushstring(L, row.captions[k].text);
        lua_rawseti(L, -2, k + 1);
    }
    lua_setfield(L, -2, "captions");
    lua_createtable(L, 0, row.n_columns);
    for (int32_t k = 0; k < row.n_columns; k++) {
        mr_bind_push_number(L, row.columns[k]);
        lua_setfield(L, -2, mr_index_column_name(mr_index_reader_index(reader), k));
    }
    lua_setfield(L, -2, "columns");
    return 1;
}

// Call the function at 2 with a row of a list as a table. Its error stays on the stack.
static int push_listed(lua_State *L)
{
    const mr_table *table = lua_touserdata(L, 2);
    const mr_table_row *row = lua_touserdata(L, 3);
    lua_settop(L, 1);
    lua_createtable(L, 0, 6);
    mr_bind_set_str(L, "path", row->path);
    mr_bind_set_int(L, "line", (int64_t)row->line);
    mr_bind_set_int(L, "start_us", row->start_us);
    mr_bind_set_int(L, "end_us", row->end_us);
    lua_createtable(L, row->n_captions, 0);
    const char *text = row->captions;
    for (int32_t i = 0; i < row->n_captions; i++, text += strlen(text) + 1) {
        lua_pushstring(L, text);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "captions");
    lua_createtable(L, 0, row->n_numbers);
    for (int32_t i = 0; i < row->n_numbers; i++) {
        mr_bind_push_number(L, row->numbers[i]);
        lua_setfield(L, -2, mr_table_name(table, i));
    }
    lua_setfield(L, -2, "columns");
    lua_call(L, 1, 0);
    return 0;
}

// a Lua error must not jump across the reader
static mr_status hand_row(void *user, const mr_table *table, const mr_table_row *row)
{
    lua_State *L = user;
    lua_pushcfunction(L, push_listed);
    lua_pushvalue(L, 2);
    lua_pushlightuserdata(L, (void *)(uintptr_t)table);
    lua_pushlightuserdata(L, (void *)(uintptr_t)row);
    return lua_pcall(L, 3, 0, 0) == LUA_OK ? MR_OK
                                           : mr_fail(MR_E_FAIL, "the function raised an error");
}

#define TABLE "mr.Table"

static void free_table(void *table)
{
    mr_table_free(table);
}

#define TABLE_FIELDS(of, at)                                                                       \
    MR_BIND_STR(                                                                                   \
        "columns", of, at.columns,                                                                 \
        "Meaning of the columns of a list: \"path=video,text=caption\"; '-' omits a column."),     \
        MR_BIND_STR("escape", of, at.escape,                                                       \
                    "CSV: the escape character before a quote; default: quotes are doubled.")

typedef struct table_options {
    mr_table_options table;
} table_options;

static const mr_bind_field table_fields[] = {TABLE_FIELDS(table_options, table), MR_BIND_END};

// read_table(file, fn, options) -> columns, notes, kinds; an error of fn ends it
static int i_read_table(lua_State *L)
{
    const char *file = luaL_checkstring(L, 1);
    luaL_checktype(L, 2, LUA_TFUNCTION);
    table_options o = {0};
    mr_bind_options(L, 3, "index.read_table", table_fields, &o);
    lua_settop(L, 3);
    mr_table **table = (mr_table **)mr_bind_box(L, TABLE);
    mr_status st = mr_table_read(file, &o.table, hand_row, L, table);
    if (lua_gettop(L) > 4)
        return lua_error(L);
    mr_bind_check(L, st);
    lua_newtable(L);
    lua_pushstring(L, mr_table_notes(*table));
    lua_newtable(L);
    for (int32_t i = 0; i < mr_table_numbers(*table); i++)
        if (mr_table_is_column(*table, i)) {
            const char *name = mr_table_name(*table, i);
            lua_pushstring(L, name);
            lua_rawseti(L, -4, (lua_Integer)lua_rawlen(L, -4) + 1);
            mr_bind_set_str(L, name, mr_bind_column_kind(mr_table_kind(*table, i)));
        }
    return 3;
}

static void free_ingest(void *g)
{
    mr_ingest_free(g);
}

static const mr_bind_field ingest_fields[] = {
    MR_BIND_STR("captions", mr_ingest_options, captions,
                "A file of captions for a folder of clips."),
    MR_BIND_STR("root", mr_ingest_options, root,
                "The folder that paths of a list are relative to."),
    MR_BIND_STR("source", mr_ingest_options, source, "The name of this source in the index."),
    MR_BIND_INT("threads", mr_ingest_options, threads, 0, 0, "0: one per processor."),
    MR_BIND_NUM("deadline_s", mr_ingest_options, deadline_s, 0, "Seconds for one clip; 0: 60."),
    TABLE_FIELDS(mr_ingest_options, table),
    MR_BIND_INT("part", mr_ingest_options, part, 0, 0, "This part of the input, from 1."),
    MR_BIND_INT("parts", mr_ingest_options, parts, 0, 0, "Number of parts; 0: the whole input."),
    MR_BIND_BOOL("isolated", mr_ingest_options, isolated,
                 "Each thread scans in a separate process."),
    MR_BIND_BOOL("resume", mr_ingest_options, resume,
                 "Continue an ingest of this input that was killed or stopped."),
    MR_BIND_INT("commit_rows", mr_ingest_options, commit_rows, 0, 0,
                "Most seconds of work that a kill can lose; 0: default."),
    MR_BIND_END};

// ingest(input, output, options) -> mr.Ingest
static int i_ingest(lua_State *L)
{
    const char *input = luaL_checkstring(L, 1), *output = luaL_checkstring(L, 2);
    mr_ingest_options o = {0};
    mr_bind_options(L, 3, "index.ingest", ingest_fields, &o);
    void **box = mr_bind_box(L, INGEST);
    mr_ingest *g;
    mr_bind_check(L, mr_ingest_new(input, output, &o, &g));
    *box = g;
    return 1;
}

// ingest:step(seconds) -> {listed, total, done, written, refused, without_caption, resumed,
// finished}
static int ingest_step(lua_State *L)
{
    mr_ingest_progress p;
    mr_bind_check(L, mr_ingest_step(mr_bind_unbox(L, 1, INGEST), luaL_optnumber(L, 2, 0.2), &p));
    lua_createtable(L, 0, 8);
    MR_BIND_SET(L, p, listed, total, done, written, refused, without_caption, resumed, finished);
    return 1;
}

static int ingest_keep(lua_State *L)
{
    uint64_t rows, total;
    mr_bind_check(L, mr_ingest_keep(mr_bind_unbox(L, 1, INGEST), &rows, &total));
    lua_pushinteger(L, (lua_Integer)rows);
    lua_pushinteger(L, (lua_Integer)total);
    return 2;
}

static int ingest_notes(lua_State *L)
{
    lua_pushstring(L, mr_ingest_notes(mr_bind_unbox(L, 1, INGEST)));
    return 1;
}

// synthetic(path or nil, rows [, seed])
static int i_synthetic(lua_State *L)
{
    const char *path = luaL_optstring(L, 1, NULL);
    lua_Integer rows = luaL_checkinteger(L, 2);
    luaL_argcheck(L, rows > 0, 2, "expected at least 1 row");
    mr_bind_check(L, mr_index_synthetic(path, (uint64_t)rows, (uint64_t)luaL_optinteger(L, 3, 0)));
    return 0;
}

static const mr_bind_entry index_module_entries[] = {
    MR_ENTRY_OPTIONS("open", i_open, "(path: string, options?: table): mr.Index",
                     "Open a sealed index.", open_fields),
    MR_ENTRY_OPTIONS(
        "ingest", i_ingest, "(input: string, output: string, options?: table): mr.Ingest",
        "Build an index from a folder of clips, a CSV or a JSON lines file.", ingest_fields),
    MR_ENTRY_OPTIONS(
        "read_table", i_read_table,
        "(file: string, fn: fun(row: table), options?: table): string[], string, table",
        "Call fn with each row of a CSV, TSV or JSON lines file: {path, line, captions, columns, "
        "start_us, end_us (0: to its end)}. Returns the columns of numbers, a line per skipped "
        "item, and per column \"whole\" or \"real\".",
        table_fields),
    MR_ENTRY_OPTIONS("sweep", mr_bind_sweep_new,
                     "(index: mr.Index, rows: integer[], options?: table): mr.Sweep",
                     "Check the files of rows by several threads.", mr_bind_sweep_fields),
    MR_ENTRY("synthetic", i_synthetic, "(path: string|nil, rows: integer, seed?: integer)",
             "Build an index without clips, for measurements; nil: only create its rows."),
    MR_ENTRY("builder", mr_bind_builder_new, "(path: string): mr.IndexBuilder",
             "Start a new index from rows of others; use moonreel.data.derive."),
    MR_ENTRY_END};
static const mr_bind_face index_module_face = {
    "moonreel.core.index", "Indexes of samples: build and open.", index_module_entries, NULL};

// index:visit(n, seed): look up n rows in random order
static int index_visit(lua_State *L)
{
    mr_index_reader *reader = mr_bind_unbox(L, 1, mr_bind_index_type);
    uint64_t n = (uint64_t)luaL_checkinteger(L, 2), seed = (uint64_t)luaL_optinteger(L, 3, 0),
             rows = mr_index_get_facts(mr_index_reader_index(reader)).rows;
    for (uint64_t i = 0; i < n; i++) {
        mr_row row;
        mr_bind_check(L, mr_index_row(reader, MR_MIX(seed, i) % rows, &row));
    }
    return 0;
}

// index:common(other) -> {both, vanished (only here), new (only there)}
static int index_common(lua_State *L)
{
    mr_index *a = mr_index_reader_index(mr_bind_unbox(L, 1, mr_bind_index_type)),
             *b = mr_index_reader_index(mr_bind_unbox(L, 2, mr_bind_index_type));
    mr_index_common c;
    mr_bind_check(L, mr_index_match(a, b, NULL, NULL, &c));
    lua_createtable(L, 0, 3);
    mr_bind_set_int(L, "both", (int64_t)c.both);
    mr_bind_set_int(L, "vanished", (int64_t)c.only_a);
    mr_bind_set_int(L, "new", (int64_t)c.only_b);
    return 1;
}

static const mr_bind_entry index_entries[] = {
    MR_ENTRY("row", index_row, "(i: integer): table",
             "Sample i, from 1: id, key, path, file, text, captions, start (its first frame in the "
             "file), frames, fps, width, height, columns, ..."),
    MR_ENTRY("find", index_find, "(key: string): integer?",
             "The number, from 1, of the sample with a key; nil if no sample has it."),
    MR_ENTRY("visit", index_visit, "(n: integer, seed?: integer)",
             "Look up n rows in random order, for measurements."),
    MR_ENTRY("common", index_common, "(other: mr.Index): table",
             "Compare samples by key: {both, vanished (missing in other), new (only in other)}."),
    MR_ENTRY("facts", index_facts, "(): table",
             "{rows, fp_order, fp_set, path, roots, sources, columns, kinds: for each column "
             "\"whole\" or \"real\"}."),
    MR_ENTRY("__len", index_len, "(): integer", "The number of samples."),
    MR_ENTRY_END};
static const mr_bind_face index_face = {
    "mr.Index", "A sealed index; #index is the number of its samples.", index_entries, free_reader};

static const mr_bind_face table_face = {TABLE, NULL, NULL, free_table};

static const mr_bind_entry ingest_entries[] = {
    MR_ENTRY("step", ingest_step, "(seconds?: number): table",
             "Work for some seconds: {listed, total, done, written, refused, without_caption, "
             "resumed, finished}."),
    MR_ENTRY("keep", ingest_keep, "(): integer, integer",
             "Stop before the end. Returns the rows that are done and kept for an ingest with "
             "resume (0: none), and all rows of the input."),
    MR_ENTRY("notes", ingest_notes, "(): string", "A line per skipped item of a folder."),
    MR_ENTRY_END};
static const mr_bind_face ingest_face = {"mr.Ingest", "An index under construction.",
                                         ingest_entries, free_ingest};

MR_BIND_ROOM(index)
{
    mr_bind_type(L, &index_face);
    mr_bind_type(L, &ingest_face);
    mr_bind_type(L, &table_face);
    mr_bind_builder_type(L);
    mr_bind_sweep_type(L);
    return mr_bind_module(L, &index_module_face);
}
