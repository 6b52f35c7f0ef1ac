/* bind: moonreel.core.store - values under keys, written once and sealed. Licence: Apache-2.0 */
#include "bind/room.h"
#include "moonreel/index.h"

#include <string.h>

#define STORE  "mr.Store"
#define WRITER "mr.StoreWriter"

static void free_store(void *store)
{
    mr_store_free(store);
}

static void free_writer(void *writer)
{
    mr_store_writer_free(writer);
}

/* ---- writing ---- */

static int s_create(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    void **box = mr_bind_box(L, WRITER);
    mr_store_writer *w;
    mr_bind_check(L, mr_store_writer_new(path, &w));
    *box = w;
    return 1;
}

static mr_store_writer *writer(lua_State *L)
{
    return mr_bind_unbox(L, 1, WRITER);
}

static int w_text(lua_State *L)
{
    mr_store_writer *w = writer(L);
    const char *name = luaL_checkstring(L, 2);
    char **text = (char **)mr_bind_hold(L);
    mr_bind_check(L, mr_store_writer_get_text(w, name, text));
    lua_pushstring(L, *text);
    return 1;
}

static int w_has(lua_State *L)
{
    bool has;
    size_t n;
    mr_store_writer *w = writer(L);
    const char *key = luaL_checklstring(L, 2, &n);
    mr_bind_check(L, mr_store_writer_has(w, key, n, &has));
    lua_pushboolean(L, has);
    return 1;
}

static int w_put(lua_State *L)
{
    size_t n, bytes;
    mr_store_writer *w = writer(L);
    const char *key = luaL_checklstring(L, 2, &n);
    const void *value;
    if (lua_type(L, 3) == LUA_TSTRING)
        value = lua_tolstring(L, 3, &bytes);
    else {
        const mr_view *v = mr_tensor_view(mr_bind_tensor(L, 3));
        if (!mr_desc_is_dense(&v->desc))
            return mr_bind_raise(L, MR_E_SHAPE, "put: expected a dense tensor; try: t:clone()");
        value = v->data;
        bytes = (size_t)mr_desc_count(&v->desc) * mr_dtype_bytes(v->desc.dtype);
    }
    mr_bind_check(L, mr_store_writer_put(w, key, n, value, bytes));
    return 0;
}

static int w_waiting(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)mr_store_writer_waiting(writer(L)));
    return 1;
}

static int w_commit(lua_State *L)
{
    mr_store_writer *w = writer(L);
    mr_bind_check(L, mr_store_writer_commit(w, luaL_checkstring(L, 2), luaL_checkstring(L, 3)));
    return 0;
}

static int w_finish(lua_State *L)
{
    mr_bind_check(L, mr_store_writer_finish(writer(L)));
    return 0;
}

static int w_len(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)mr_store_writer_values(writer(L)));
    return 1;
}

/* ---- reading ---- */

typedef struct open_options {
    bool verify;
} open_options;

static const mr_bind_field open_fields[] = {
    MR_BIND_BOOL("verify", open_options, verify, "Compare every block of the file first."),
    MR_BIND_END};

static int s_open(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    open_options o;
    mr_bind_options(L, 2, "store.open", open_fields, &o);
    void **box = mr_bind_box(L, STORE);
    mr_store *s;
    mr_bind_check(L, mr_store_open(path, o.verify, &s));
    *box = s;
    return 1;
}

static mr_store *store(lua_State *L)
{
    return mr_bind_unbox(L, 1, STORE);
}

static int k_text(lua_State *L)
{
    mr_store *s = store(L);
    lua_pushstring(L, mr_store_text(s, luaL_checkstring(L, 2)));
    return 1;
}

static const void *value_of(lua_State *L, size_t *bytes)
{
    size_t n;
    mr_store *s = store(L);
    const char *key = luaL_checklstring(L, 2, &n);
    const void *value;
    mr_bind_check(L, mr_store_get(s, key, n, &value, bytes));
    return value;
}

static int k_get(lua_State *L)
{
    size_t bytes;
    const void *value = value_of(L, &bytes);
    if (!value)
        return 0;
    lua_pushlstring(L, value, bytes);
    return 1;
}

// returns the size, so that the caller sees how much was copied
static int k_read(lua_State *L)
{
    size_t have;
    const void *value = value_of(L, &have);
    const mr_view *v = mr_tensor_view(mr_bind_tensor(L, 3));
    if (!mr_desc_is_dense(&v->desc))
        return mr_bind_raise(L, MR_E_SHAPE, "read: expected a dense tensor");
    if (!value)
        return 0;
    size_t room = (size_t)mr_desc_count(&v->desc) * mr_dtype_bytes(v->desc.dtype);
    memcpy(v->data, value, MR_MIN(room, have));
    lua_pushinteger(L, (lua_Integer)have);
    return 1;
}

static int k_seek(lua_State *L)
{
    size_t n, found_bytes;
    mr_store *s = store(L);
    const char *key = luaL_checklstring(L, 2, &n);
    const void *found;
    mr_bind_check(L, mr_store_seek(s, key, n, &found, &found_bytes));
    if (!found)
        return 0;
    lua_pushlstring(L, found, found_bytes);
    return 1;
}

static int k_fingerprint(lua_State *L)
{
    char hex[33];
    mr_hash128_hex(mr_store_fingerprint(store(L)), hex);
    lua_pushstring(L, hex);
    return 1;
}

static int k_len(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)mr_store_values(store(L)));
    return 1;
}

/* ---- entries ---- */

static const mr_bind_entry store_module_entries[] = {
    MR_ENTRY("create", s_create, "(path: string): mr.StoreWriter",
             "Create a store, or continue an unfinished one."),
    MR_ENTRY_OPTIONS("open", s_open, "(path: string, options?: table): mr.Store",
                     "Read a sealed store.", open_fields),
    MR_ENTRY_END};
static const mr_bind_face store_module_face = {
    "moonreel.core.store", "Values under keys, written once and sealed; moonreel.cache uses it.",
    store_module_entries, NULL};

static const mr_bind_entry writer_entries[] = {
    MR_ENTRY("text", w_text, "(name: string): string?", "A text of the last commit."),
    MR_ENTRY("has", w_has, "(key: string): boolean", "Whether the key has a value."),
    MR_ENTRY("put", w_put, "(key: string, value: string|mr.Tensor)",
             "Add a value: bytes, or those of a dense tensor. It waits for the next commit."),
    MR_ENTRY("waiting", w_waiting, "(): integer", "Bytes that wait for the next commit."),
    MR_ENTRY("commit", w_commit, "(name: string, text: string)",
             "Write all waiting values and a text to the disk, atomically."),
    MR_ENTRY("finish", w_finish, "()",
             "Commit, seal, and give the file its name; close the store then."),
    MR_ENTRY("__len", w_len, "(): integer", "Number of committed values."),
    MR_ENTRY_END};
static const mr_bind_face writer_face = {"mr.StoreWriter", "A store open for writing.",
                                         writer_entries, free_writer};

static const mr_bind_entry store_entries[] = {
    MR_ENTRY("text", k_text, "(name: string): string?", "A named text."),
    MR_ENTRY("get", k_get, "(key: string): string?",
             "The bytes of a value; nil if no value has the key."),
    MR_ENTRY("read", k_read, "(key: string, into: mr.Tensor): integer?",
             "Copy a value into a dense tensor, up to the smaller size. Returns the bytes of the "
             "value; nil: no such value."),
    MR_ENTRY("seek", k_seek, "(key: string): string?",
             "The first key >= this one; nil if all keys are smaller."),
    MR_ENTRY("fingerprint", k_fingerprint, "(): string",
             "A fingerprint of the values, independent of the order in which they were put."),
    MR_ENTRY("__len", k_len, "(): integer", "Values."),
    MR_ENTRY_END};
static const mr_bind_face store_face = {"mr.Store", "Values under keys, sealed.", store_entries,
                                        free_store};

MR_BIND_ROOM(store)
{
    mr_bind_type(L, &writer_face);
    mr_bind_type(L, &store_face);
    return mr_bind_module(L, &store_module_face);
}
