/* bind: moonreel.core.ckpt - checkpoints: open, read, compare, convert; saver.c writes them.
 * lua/moonreel/ckpt is the interface for users. Licence: Apache-2.0
 *
 * open(path) -> ckpt; open_newest(run_dir, lock or nil, report or nil) -> ckpt, lines;
 * steps(run_dir) -> list; write(path, tensors, meta); dtypes -> list of {name, bytes}; saver(owner,
 * options) -> saver. */
#include "bind/room.h"
#include "moonreel/ckpt.h"

#include <string.h>

static const char ckpt_type[] = "mr.Ckpt";

static void free_ckpt(void *object)
{
    mr_ckpt_close(object);
}

// the error of a damaged checkpoint says which others there are
static void check(lua_State *L, const char *path, mr_status st)
{
    if (st == MR_OK)
        return;
    char hint[600];
    const char *step = strstr(path, "/ckpt/step-");
    if (step)
        snprintf(hint, sizeof hint, "another step; moonreel ckpt ls %.*s", (int)(step - path),
                 path);
    mr_bind_check(L, mr_fail_try(st, step ? hint : "copy it again"));
}

static int c_open(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    void **box = mr_bind_box(L, ckpt_type);
    mr_ckpt *ckpt;
    check(L, path, mr_ckpt_open(path, &ckpt));
    *box = ckpt;
    return 1;
}

/* Lines reported during the search for the newest checkpoint, in a fixed buffer, so that no Lua
 * error crosses C frames. */
typedef struct lines {
    int n;
    char text[16][1024];
} lines;

static void keep_line(void *user, const char *line)
{
    lines *l = user;
    if (l->n == (int)MR_COUNT(l->text))
        return;
    size_t n = MR_MIN(strlen(line), sizeof l->text[0] - 1);
    memcpy(l->text[l->n], line, n);
    l->text[l->n++][n] = 0;
}

static int c_open_newest(lua_State *L)
{
    const char *dir = luaL_checkstring(L, 1);
    mr_run_lock *lock = lua_isnoneornil(L, 2) ? NULL : mr_bind_unbox(L, 2, mr_bind_lock_type);
    lines *report = mr_bind_scratch(L, sizeof *report);
    void **box = mr_bind_box(L, ckpt_type);
    mr_ckpt *ckpt;
    mr_bind_check(L, mr_ckpt_open_newest(dir, lock, keep_line, report, &ckpt));
    *box = ckpt;
    lua_createtable(L, report->n, 0);
    for (int i = 0; i < report->n; i++) {
        lua_pushstring(L, report->text[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 2;
}

static int c_steps(lua_State *L)
{
    int64_t **steps = (int64_t **)mr_bind_hold(L);
    int n;
    mr_bind_check(L, mr_ckpt_steps(luaL_checkstring(L, 1), steps, &n));
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        lua_pushinteger(L, (*steps)[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static int c_drop_after(lua_State *L)
{
    const mr_run_lock *lock = mr_bind_unbox(L, 1, mr_bind_lock_type);
    mr_bind_check(L, mr_ckpt_drop_after(lock, luaL_checkinteger(L, 2)));
    return 0;
}

static mr_ckpt *self(lua_State *L)
{
    return mr_bind_unbox(L, 1, ckpt_type);
}

static int k_names(lua_State *L)
{
    mr_ckpt *c = self(L);
    lua_createtable(L, mr_ckpt_count(c), 0);
    for (int i = 0; i < mr_ckpt_count(c); i++) {
        lua_pushstring(L, mr_ckpt_at(c, i)->name);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static int k_info(lua_State *L)
{
    const mr_st_tensor *t = mr_ckpt_find(self(L), luaL_checkstring(L, 2));
    if (!t)
        return 0;
    lua_createtable(L, 0, 4);
    MR_BIND_SET(L, *t, name, bytes);
    mr_bind_set_str(L, "dtype", mr_st_dtype_name(t->dtype));
    mr_bind_set_ints(L, "shape", t->shape, t->rank);
    return 1;
}

/* refused() -> {{name, why}, ...}: tensors that exist but cannot be read */
static int k_refused(lua_State *L)
{
    mr_ckpt *c = self(L);
    lua_createtable(L, mr_ckpt_refused_count(c), 0);
    for (int i = 0; i < mr_ckpt_refused_count(c); i++) {
        lua_createtable(L, 0, 2);
        MR_BIND_SET(L, *mr_ckpt_refused_at(c, i), name, why);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static int64_t bytes_of(lua_State *L, mr_ckpt *c, const char *name)
{
    const mr_st_tensor *t = mr_ckpt_find(c, name);
    if (!t)
        mr_bind_check(L, mr_ckpt_missing(c, name));
    return t->bytes;
}

/* read(name [, offset, n]) -> text of raw bytes */
static int k_read(lua_State *L)
{
    mr_ckpt *c = self(L);
    const char *name = luaL_checkstring(L, 2);
    int64_t all = bytes_of(L, c, name), offset = luaL_optinteger(L, 3, 0),
            n = luaL_optinteger(L, 4, all - offset);
    if (offset < 0 || n < 0 || n > all || offset > all - n)
        return mr_bind_raise(L, MR_E_RANGE, "%s: tensor '%s' has %lld bytes", mr_ckpt_path(c), name,
                             (long long)all);
    luaL_Buffer buf;
    char *dst = luaL_buffinitsize(L, &buf, (size_t)n);
    check(L, mr_ckpt_path(c), mr_ckpt_read(c, name, dst, offset, n));
    luaL_pushresultsize(&buf, (size_t)n);
    return 1;
}

/* read_into(name, pointer, bytes): the whole tensor, whose size must be `bytes` */
static int k_read_into(lua_State *L)
{
    mr_ckpt *c = self(L);
    const char *name = luaL_checkstring(L, 2);
    luaL_checktype(L, 3, LUA_TLIGHTUSERDATA);
    int64_t n = luaL_checkinteger(L, 4), all = bytes_of(L, c, name);
    if (n != all)
        return mr_bind_raise(L, MR_E_SHAPE, "%s: tensor '%s' has %lld bytes, its place has %lld",
                             mr_ckpt_path(c), name, (long long)all, (long long)n);
    check(L, mr_ckpt_path(c), mr_ckpt_read(c, name, lua_touserdata(L, 3), 0, n));
    return 0;
}

/* read_slices({{name =, range = or box =, ptr = lightuserdata, bytes =}, ...}) */
static int k_read_slices(lua_State *L)
{
    mr_ckpt *c = self(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    int n = (int)lua_rawlen(L, 2);
    mr_ckpt_want *wants = mr_bind_scratch(L, sizeof *wants * (size_t)(n + 1));
    for (int i = 0; i < n; i++) {
        // the caller's table keeps the texts alive
        if (lua_rawgeti(L, 2, i + 1) != LUA_TTABLE)
            return mr_bind_raise(L, MR_E_USAGE, "slices[%d]: expected a table", i + 1);
        int row = lua_gettop(L);
        lua_getfield(L, row, "name"), lua_getfield(L, row, "ptr"), lua_getfield(L, row, "bytes");
        const mr_st_tensor *t = mr_ckpt_find(c, luaL_checkstring(L, row + 1));
        if (!t)
            mr_bind_check(L, mr_ckpt_missing(c, lua_tostring(L, row + 1)));
        luaL_checktype(L, row + 2, LUA_TLIGHTUSERDATA);
        wants[i] = (mr_ckpt_want){.name = t->name,
                                  .dst = lua_touserdata(L, row + 2),
                                  .bytes = luaL_checkinteger(L, row + 3)};
        mr_bind_slice(L, row, t->name, t->rank, &wants[i].slice);
        lua_settop(L, row - 1);
    }
    check(L, mr_ckpt_path(c), mr_ckpt_read_slices(c, wants, n));
    return 0;
}

/* read_f32(name, tensor, first = 0): read elements from `first` on into the whole dense f32
 * tensor */
static int k_read_f32(lua_State *L)
{
    enum { PIECE = 16384 };
    mr_ckpt *c = self(L);
    const char *name = luaL_checkstring(L, 2);
    const mr_view *v = mr_tensor_view(mr_bind_tensor(L, 3));
    int64_t first = luaL_optinteger(L, 4, 0), n = mr_desc_count(&v->desc),
            all = bytes_of(L, c, name);
    const mr_st_tensor *t = mr_ckpt_find(c, name);
    int64_t size = (int64_t)mr_st_dtype_bytes(t->dtype);
    if (v->desc.dtype != MR_F32 || !mr_desc_is_dense(&v->desc))
        return mr_bind_raise(L, MR_E_SHAPE, "read_f32: expected a dense f32 tensor");
    if (first < 0 || n > all / size || first > all / size - n)
        return mr_bind_raise(L, MR_E_RANGE, "%s: tensor '%s' has %lld elements", mr_ckpt_path(c),
                             name, (long long)(all / size));
    char *raw = mr_bind_scratch(L, (size_t)(PIECE * size));
    double *x = mr_bind_scratch(L, PIECE * sizeof *x);
    float *out = v->data;
    for (int64_t at = 0; at < n; at += PIECE) {
        int64_t piece = MR_MIN(n - at, (int64_t)PIECE);
        check(L, mr_ckpt_path(c), mr_ckpt_read(c, name, raw, (first + at) * size, piece * size));
        mr_st_to_f64(t->dtype, raw, piece, x);
        for (int64_t i = 0; i < piece; i++)
            out[at + i] = (float)x[i];
    }
    return 0;
}

/* verify([part, parts]): everything, or the part (from 1) of one of several readers */
static int k_verify(lua_State *L)
{
    mr_ckpt *c = self(L);
    if (lua_isnoneornil(L, 2))
        check(L, mr_ckpt_path(c), mr_ckpt_verify(c));
    else {
        lua_Integer part = luaL_checkinteger(L, 2), parts = luaL_checkinteger(L, 3);
        luaL_argcheck(L, parts >= 1 && parts <= 1 << 20, 3, "expected 1 to 2^20 parts");
        luaL_argcheck(L, part >= 1 && part <= parts, 2, "expected a part from 1 to their number");
        check(L, mr_ckpt_path(c),
              mr_ckpt_verify_share(c, (mr_ckpt_share){(int)part - 1, (int)parts}));
    }
    return 0;
}

static int k_touch(lua_State *L)
{
    mr_bind_check(L, mr_ckpt_touch(self(L)));
    return 0;
}

static int k_path(lua_State *L)
{
    lua_pushstring(L, mr_ckpt_path(self(L)));
    return 1;
}

static int k_step(lua_State *L)
{
    int64_t step = mr_ckpt_step(self(L));
    if (step < 0)
        return 0;
    lua_pushinteger(L, step);
    return 1;
}

static int k_bytes(lua_State *L)
{
    lua_pushinteger(L, mr_ckpt_bytes(self(L)));
    return 1;
}

static int k_bytes_read(lua_State *L)
{
    lua_pushinteger(L, mr_ckpt_bytes_read(self(L)));
    return 1;
}

static int k_manifest(lua_State *L)
{
    lua_pushstring(L, mr_ckpt_manifest(self(L))); // nil for plain files
    return 1;
}

static int k_metadata(lua_State *L)
{
    mr_ckpt *c = self(L);
    lua_newtable(L);
    for (int i = 0; i < mr_ckpt_meta_count(c); i++) {
        const char *key, *value;
        mr_ckpt_meta_at(c, i, &key, &value);
        lua_pushstring(L, value);
        lua_setfield(L, -2, key);
    }
    return 1;
}

static int k_stats(lua_State *L)
{
    mr_ckpt_stats s;
    check(L, mr_ckpt_path(self(L)), mr_ckpt_stats_of(self(L), luaL_checkstring(L, 2), &s));
    lua_createtable(L, 0, 7);
    MR_BIND_SET(L, s, n, zeros, nonfinite, min, max, mean, rms);
    return 1;
}

/* compare(other, name, name there = name) -> {n, differing, first, max_abs, distance} */
static int k_compare(lua_State *L)
{
    mr_ckpt_delta d;
    check(L, mr_ckpt_path(self(L)),
          mr_ckpt_compare(self(L), luaL_checkstring(L, 3), mr_bind_unbox(L, 2, ckpt_type),
                          luaL_optstring(L, 4, lua_tostring(L, 3)), &d));
    lua_createtable(L, 0, 5);
    MR_BIND_SET(L, d, n, differing, first, max_abs, distance);
    return 1;
}

typedef struct origin {
    mr_ckpt *ckpt;
    const char *name;
} origin;

static mr_status copy_from(void *user, void *dst, int64_t offset, int64_t n)
{
    const origin *o = user;
    return mr_ckpt_read(o->ckpt, o->name, dst, offset, n);
}

/* ckpt:convert(path, {{name =, from =}, ...}, metadata): write tensors under new names to one file,
 * piece by piece */
static int k_convert(lua_State *L)
{
    mr_ckpt *c = self(L);
    const char *path = luaL_checkstring(L, 2);
    luaL_checktype(L, 3, LUA_TTABLE);
    int n = (int)lua_rawlen(L, 3);
    mr_ckpt_item *items = mr_bind_scratch(L, sizeof *items * (size_t)(n + 1));
    origin *from = mr_bind_scratch(L, sizeof *from * (size_t)(n + 1));
    for (int i = 0; i < n; i++) {
        // the caller's table keeps the texts alive
        lua_rawgeti(L, 3, i + 1);
        luaL_checktype(L, -1, LUA_TTABLE);
        lua_getfield(L, -1, "name");
        lua_getfield(L, -2, "from");
        const mr_st_tensor *t = mr_ckpt_find(c, luaL_checkstring(L, -1));
        if (!t)
            mr_bind_check(L, mr_ckpt_missing(c, lua_tostring(L, -1)));
        from[i] = (origin){c, t->name};
        items[i] = (mr_ckpt_item){.name = luaL_checkstring(L, -2),
                                  .dtype = t->dtype,
                                  .rank = t->rank,
                                  .copy = copy_from,
                                  .user = &from[i]};
        memcpy(items[i].shape, t->shape, sizeof t->shape);
        lua_pop(L, 3);
    }
    mr_st_pair *meta;
    int n_meta = mr_bind_metadata(L, 4, &meta);
    mr_bind_check(L, mr_safetensors_write(path, items, n, meta, n_meta));
    return 0;
}

static const mr_bind_entry ckpt_module_entries[] = {
    MR_ENTRY("open", c_open, "(path: string): mr.Ckpt",
             "Open a checkpoint folder, weights, or an index of weights. Reads no tensor."),
    MR_ENTRY("open_newest", c_open_newest,
             "(run_dir: string, lock?: mr.RunLock): mr.Ckpt, string[]",
             "The newest valid checkpoint of a run, and a line for each one that was skipped. With "
             "the lock, damaged ones are set aside."),
    MR_ENTRY("steps", c_steps, "(run_dir: string): integer[]",
             "Steps committed in a run, newest first."),
    MR_ENTRY("drop_after", c_drop_after, "(lock: mr.RunLock, step: integer)",
             "Remove the checkpoints of later steps."),
    MR_ENTRY("write", mr_bind_ckpt_write, "(path: string, tensors: table[], metadata?: table)",
             "Write rows {name, dtype, shape, ptr, bytes} to one safetensors file; ptr is a "
             "pointer or the raw bytes."),
    MR_ENTRY_OPTIONS(
        "saver", mr_bind_saver_new, "(owner: mr.RunLock|string, options?: table): mr.Saver",
        "A thread that writes the checkpoints of a run: of rank 0 with the lock of the "
        "run, of other ranks with its directory.",
        mr_bind_saver_fields),
    MR_ENTRY_END};
static const mr_bind_face ckpt_module_face = {
    "moonreel.core.ckpt", "Checkpoints: open, read, write; moonreel.ckpt is what people use.",
    ckpt_module_entries, NULL};

static const mr_bind_entry ckpt_entries[] = {
    MR_ENTRY("names", k_names, "(): string[]", "Names of all tensors, in file order."),
    MR_ENTRY("refused", k_refused, "(): table[]",
             "{name, why} of tensors that exist but cannot be read."),
    MR_ENTRY("info", k_info, "(name: string): table?",
             "{name, dtype, shape, bytes} of a tensor; nil if no tensor has the name."),
    MR_ENTRY("read", k_read, "(name: string, offset?: integer, n?: integer): string",
             "Raw bytes of a tensor; those of a checkpoint are checked against their hash first."),
    MR_ENTRY("read_into", k_read_into, "(name: string, pointer: lightuserdata, bytes: integer)",
             "Read a whole tensor into memory."),
    MR_ENTRY("read_slices", k_read_slices, "(slices: table[])",
             "Read slices {name, range or box, ptr, bytes} in the order of the files; without "
             "range and box the whole tensor."),
    MR_ENTRY("read_f32", k_read_f32, "(name: string, out: mr.Tensor, first?: integer)",
             "Read elements from first on as f32 into the whole dense tensor."),
    MR_ENTRY("verify", k_verify, "(part?: integer, parts?: integer)",
             "Read everything and check all hashes or CRCs; raises if one differs. With part and "
             "parts, the share of one of several readers."),
    MR_ENTRY("touch", k_touch, "()",
             "Read everything as verify does, but check nothing: the time of reading only."),
    MR_ENTRY("path", k_path, "(): string", "What was opened."),
    MR_ENTRY("step", k_step, "(): integer?", "Its step; nil for plain weights."),
    MR_ENTRY("bytes", k_bytes, "(): integer", "Size of all tensors."),
    MR_ENTRY("bytes_read", k_bytes_read, "(): integer",
             "Bytes read from the files of a checkpoint since it was opened."),
    MR_ENTRY("manifest", k_manifest, "(): string?",
             "The manifest without files and tensors, as JSON; nil for plain weights."),
    MR_ENTRY("metadata", k_metadata, "(): table", "Texts in the head of a plain file."),
    MR_ENTRY("stats", k_stats, "(name: string): table",
             "{n, zeros, nonfinite, min, max, mean, rms} of a tensor."),
    MR_ENTRY("compare", k_compare, "(other: mr.Ckpt, name: string, name_there?: string): table",
             "Compare bit for bit: {n, differing, first, max_abs, distance}; distance is the norm "
             "of a - b."),
    MR_ENTRY("convert", k_convert, "(path: string, tensors: table[], metadata?: table)",
             "Write tensors {name, from} under new names to one file, piece by piece."),
    MR_ENTRY_END};
static const mr_bind_face ckpt_face = {"mr.Ckpt", "An open checkpoint.", ckpt_entries, free_ckpt};

MR_BIND_ROOM(ckpt)
{
    mr_bind_type(L, &ckpt_face);
    mr_bind_saver_type(L);
    return mr_bind_module(L, &ckpt_module_face);
}
