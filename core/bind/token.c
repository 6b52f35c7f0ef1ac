/* bind: moonreel.core.token - turns texts into ids of SentencePiece pieces and back.
 * Licence: Apache-2.0
 *
 * open(path) -> tokenizer: encode, decode, normal, piece, find, count, unknown; words(text).
 * lua/moonreel/token adds ends, special tokens and lengths. */
#include "bind/room.h"
#include "moonreel/token.h"

static const char token_type[] = "mr.Pieces";

static void free_tokenizer(void *object)
{
    mr_tokenizer_close(object);
}

static int t_open(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    void **box = mr_bind_box(L, token_type);
    mr_tokenizer *t;
    mr_bind_check(L, mr_tokenizer_open(path, &t));
    *box = t;
    return 1;
}

static int t_words(lua_State *L)
{
    size_t bytes, n;
    const char *text = luaL_checklstring(L, 1, &bytes);
    char **words = (char **)mr_bind_hold(L);
    mr_bind_check(L, mr_token_words(text, bytes, words, &n));
    lua_pushlstring(L, *words, n);
    return 1;
}

static const mr_tokenizer *self(lua_State *L)
{
    return mr_bind_unbox(L, 1, token_type);
}

static int k_encode(lua_State *L)
{
    size_t bytes, n;
    const mr_tokenizer *t = self(L);
    const char *text = luaL_checklstring(L, 2, &bytes);
    int32_t **ids = (int32_t **)mr_bind_hold(L);
    mr_bind_check(L, mr_tokenizer_encode(t, text, bytes, ids, &n));
    lua_createtable(L, (int)n, 0);
    for (size_t i = 0; i < n; i++) {
        lua_pushinteger(L, (*ids)[i]);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    return 1;
}

static int k_decode(lua_State *L)
{
    const mr_tokenizer *t = self(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    size_t n = lua_rawlen(L, 2), bytes;
    int32_t *ids = mr_bind_scratch(L, sizeof *ids * (n + 1));
    for (size_t i = 0; i < n; i++) {
        int whole;
        lua_rawgeti(L, 2, (lua_Integer)i + 1);
        lua_Integer id = lua_tointegerx(L, -1, &whole);
        if (!whole || !mr_tokenizer_piece(t, id))
            return mr_bind_raise(L, MR_E_RANGE, "%s: id %zu is %s; expected 0 to %d",
                                 mr_tokenizer_path(t), i + 1, luaL_tolstring(L, -1, NULL),
                                 mr_tokenizer_count(t) - 1);
        ids[i] = (int32_t)id;
        lua_pop(L, 1);
    }
    char **text = (char **)mr_bind_hold(L);
    mr_bind_check(L, mr_tokenizer_decode(t, ids, n, text, &bytes));
    lua_pushlstring(L, *text, bytes);
    return 1;
}

static int k_normal(lua_State *L)
{
    size_t bytes, n;
    const mr_tokenizer *t = self(L);
    const char *text = luaL_checklstring(L, 2, &bytes);
    char **normal = (char **)mr_bind_hold(L);
    mr_bind_check(L, mr_tokenizer_normal(t, text, bytes, normal, &n));
    lua_pushlstring(L, *normal, n);
    return 1;
}

static int k_piece(lua_State *L)
{
    static const char *const kinds[] = {"",     "normal", "unknown", "control",
                                        "user", "unused", "byte"};
    const mr_piece *p = mr_tokenizer_piece(self(L), luaL_checkinteger(L, 2));
    if (!p)
        return 0;
    lua_pushlstring(L, p->text, p->bytes);
    lua_pushstring(L, kinds[p->kind]);
    lua_pushnumber(L, (lua_Number)p->score);
    return 3;
}

static int k_find(lua_State *L)
{
    size_t bytes;
    const mr_tokenizer *t = self(L);
    const char *text = luaL_checklstring(L, 2, &bytes);
    int id = mr_tokenizer_find(t, text, bytes);
    if (id < 0)
        return 0;
    lua_pushinteger(L, id);
    return 1;
}

static int k_path(lua_State *L)
{
    lua_pushstring(L, mr_tokenizer_path(self(L)));
    return 1;
}

static int k_unknown(lua_State *L)
{
    lua_pushinteger(L, mr_tokenizer_unknown(self(L)));
    return 1;
}

static int k_count(lua_State *L)
{
    lua_pushinteger(L, mr_tokenizer_count(self(L)));
    return 1;
}

static const mr_bind_entry token_module_entries[] = {
    MR_ENTRY("open", t_open, "(path: string): mr.Pieces",
             "Read a SentencePiece unigram model, as spiece.model of T5."),
    MR_ENTRY("words", t_words, "(text: string): string",
             "The words of a text in lower case, with one space between them, as CLIP splits a "
             "text before byte pair encoding."),
    MR_ENTRY_END};
static const mr_bind_face token_module_face = {"moonreel.core.token",
                                               "Texts as ids of pieces; use moonreel.token.",
                                               token_module_entries, NULL};

static const mr_bind_entry token_entries[] = {
    MR_ENTRY("encode", k_encode, "(text: string): integer[]",
             "Ids of the pieces of a text, without end and truncation."),
    MR_ENTRY("decode", k_decode, "(ids: integer[]): string", "The text of ids."),
    MR_ENTRY("normal", k_normal, "(text: string): string",
             "The normalized text, which is split into pieces."),
    MR_ENTRY("piece", k_piece, "(id: integer): string?, string?, number?",
             "Text, kind (normal, unknown, control, user, unused, byte) and score of a piece; nil: "
             "no such piece."),
    MR_ENTRY("find", k_find, "(text: string): integer?",
             "The id of a piece by its text; nil: no such piece."),
    MR_ENTRY("unknown", k_unknown, "(): integer", "The id of the unknown piece."),
    MR_ENTRY("path", k_path, "(): string", "The path of the model file."),
    MR_ENTRY("__len", k_count, "(): integer", "The number of pieces; ids start at 0."),
    MR_ENTRY_END};
static const mr_bind_face token_face = {"mr.Pieces", "The vocabulary of a tokenizer.",
                                        token_entries, free_tokenizer};

MR_BIND_ROOM(token)
{
    mr_bind_type(L, &token_face);
    return mr_bind_module(L, &token_module_face);
}
