/* bind: moonreel.core.api - the descriptions of ops and bindings. help(), completion, docs/api.md
 * and the editor stubs are made from them. Licence: Apache-2.0 */
#include "bind/room.h"

#include <string.h>

/* ---- ops ---- */

static void push_op(lua_State *L, const mr_op *op)
{
    lua_createtable(L, 0, 6);
    mr_bind_set_str(L, "name", op->name);
    mr_bind_set_str(L, "doc", op->doc);
    mr_bind_set_str(L, "ref", op->ref);
    lua_newtable(L);
    for (int i = 0; i < mr_op_n_in(op); i++) {
        lua_newtable(L);
        mr_bind_set_str(L, "name", op->in[i].name);
        mr_bind_set_str(L, "type", op->in[i].type);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "inputs");
    lua_newtable(L);
    for (int i = 0; i < mr_op_n_out(op); i++) {
        lua_newtable(L);
        mr_bind_set_str(L, "name", op->out[i].name);
        mr_bind_set_str(L, "type", op->out[i].type);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "outputs");
    lua_newtable(L);
    for (int i = 0; i < MR_MAX_ATTR && op->attr[i].name; i++) {
        lua_newtable(L);
        mr_bind_set_str(L, "name", op->attr[i].name);
        mr_bind_set_num(L, "default", op->attr[i].def);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "attrs");
}

static int a_ops(lua_State *L)
{
    int n = 0;
    lua_newtable(L);
    for (int i = 0; i < mr_op_count(); i++) {
        const mr_op *op = mr_op_at(i);
        if (op->hidden)
            continue;
        push_op(L, op);
        lua_rawseti(L, -2, ++n);
    }
    return 1;
}

/* ---- modules and types ---- */

static void push_field(lua_State *L, const mr_bind_field *f)
{
    static const char *const types[] = {[MR_BIND_INTEGER] = "integer",
                                        [MR_BIND_NUMBER] = "number",
                                        [MR_BIND_BOOLEAN] = "boolean",
                                        [MR_BIND_TEXT] = "string"};
    lua_createtable(L, 0, 4);
    mr_bind_set_str(L, "name", f->name);
    mr_bind_set_str(L, "doc", f->doc);
    mr_bind_set_str(L, "type", f->kind == MR_BIND_OTHER ? f->type : types[f->kind]);
    switch (f->kind) {
    case MR_BIND_INTEGER: mr_bind_set_int(L, "default", (int64_t)f->def); break;
    case MR_BIND_NUMBER: mr_bind_set_num(L, "default", f->def); break;
    case MR_BIND_BOOLEAN: mr_bind_set_bool(L, "default", f->def != 0); break;
    case MR_BIND_TEXT:
    case MR_BIND_OTHER: break;
    }
}

static void push_entry(lua_State *L, const mr_bind_entry *entry)
{
    lua_createtable(L, 0, 5);
    mr_bind_set_str(L, "name", entry->name);
    mr_bind_set_str(L, "type", entry->type);
    mr_bind_set_str(L, "doc", entry->doc);
    if (entry->call) {
        lua_pushcfunction(L, entry->call);
        lua_setfield(L, -2, "call");
    }
    if (!entry->options)
        return;
    lua_newtable(L);
    for (int i = 0; entry->options[i].name; i++) {
        push_field(L, &entry->options[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "options");
}

/* Describe close(), which every type of boxes has in addition to its entries. */
static void push_close_row(lua_State *L, const mr_bind_face *face)
{
    static const mr_bind_entry entry =
        MR_ENTRY("close", NULL, "()",
                 "Free its resources now; a second call does nothing. Also by <close>.");
    push_entry(L, &entry);
    luaL_getmetatable(L, face->name);
    lua_getfield(L, -1, "__close");
    lua_remove(L, -2);
    lua_setfield(L, -2, "call");
}

static void push_face(lua_State *L, const mr_bind_face *face)
{
    int n = 0;
    lua_createtable(L, 0, 3);
    mr_bind_set_str(L, "name", face->name);
    mr_bind_set_str(L, "doc", face->doc);
    lua_newtable(L);
    for (const mr_bind_entry *entry = face->entries; entry && entry->name; entry++) {
        push_entry(L, entry);
        lua_rawseti(L, -2, ++n);
    }
    if (face->free_object) {
        push_close_row(L, face);
        lua_rawseti(L, -2, ++n);
    }
    lua_setfield(L, -2, "rows");
}

static int a_faces(lua_State *L)
{
    lua_newtable(L);
    luaL_getsubtable(L, LUA_REGISTRYINDEX, MR_BIND_FACES);
    for (lua_pushnil(L); lua_next(L, 2); lua_pop(L, 1)) {
        push_face(L, lua_touserdata(L, -1));
        lua_setfield(L, 1, lua_tostring(L, -3));
    }
    lua_settop(L, 1);
    return 1;
}

static const mr_bind_entry api_entries[] = {
    MR_ENTRY("ops", a_ops, "(): table[]",
             "Rows {name, doc, ref, inputs, outputs, attrs} of all ops, by name."),
    MR_ENTRY("faces", a_faces, "(): table",
             "Descriptions of every module and type opened so far: name -> {name, doc, rows}; rows "
             "{name, type, doc, call, options}."),
    MR_ENTRY_END};
static const mr_bind_face api_face = {"moonreel.core.api", "Descriptions of ops and bindings.",
                                      api_entries, NULL};

MR_BIND_ROOM(api)
{
    return mr_bind_module(L, &api_face);
}
