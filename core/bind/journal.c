/* bind: moonreel.core.journal - append-only JSON lines. Licence: Apache-2.0
 *
 * open(path) -> journal: journal:append(text), journal:sync(), journal:close(), journal:waiting()
 * -> lines that wait for the disk, why, lines left out for good.
 * read(path) -> reader: reader:next() -> the next whole line or nil, reader:close(). */
#include "bind/room.h"
#include "moonreel/run.h"

static const char journal_type[] = "mr.Journal", reader_type[] = "mr.JournalReader";

static void free_journal(void *object)
{
    mr_journal_close(object);
}
static void free_reader(void *object)
{
    mr_journal_read_close(object);
}

static int j_open(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    void **box = mr_bind_box(L, journal_type);
    mr_journal *journal;
    mr_bind_check(L, mr_journal_open(path, &journal));
    *box = journal;
    return 1;
}

static int j_append(lua_State *L)
{
    size_t n;
    mr_journal *journal = mr_bind_unbox(L, 1, journal_type);
    const char *line = luaL_checklstring(L, 2, &n);
    mr_bind_check(L, mr_journal_append(journal, line, n));
    return 0;
}

static int j_sync(lua_State *L)
{
    mr_bind_check(L, mr_journal_sync(mr_bind_unbox(L, 1, journal_type)));
    return 0;
}

static int j_waiting(lua_State *L)
{
    int64_t left_out;
    const char *reason;
    lua_pushinteger(L, mr_journal_waiting(mr_bind_unbox(L, 1, journal_type), &left_out, &reason));
    lua_pushstring(L, reason);
    lua_pushinteger(L, left_out);
    return 3;
}

static int j_read(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    void **box = mr_bind_box(L, reader_type);
    mr_journal_reader *reader;
    mr_bind_check(L, mr_journal_read_open(path, &reader));
    *box = reader;
    return 1;
}

static int j_next(lua_State *L)
{
    const char *line;
    size_t n;
    mr_bind_check(L, mr_journal_read_next(mr_bind_unbox(L, 1, reader_type), &line, &n));
    if (!line)
        return 0;
    lua_pushlstring(L, line, n);
    return 1;
}

static const mr_bind_entry journal_module_entries[] = {
    MR_ENTRY("open", j_open, "(path: string): mr.Journal",
             "Open for append; removes an incomplete last line."),
    MR_ENTRY("read", j_read, "(path: string): mr.JournalReader", "Read from the start."),
    MR_ENTRY_END};
static const mr_bind_face journal_module_face = {
    "moonreel.core.journal", "Journals: append-only JSON lines.", journal_module_entries, NULL};

static const mr_bind_entry journal_entries[] = {
    MR_ENTRY("append", j_append, "(line: string)", "Append a line."),
    MR_ENTRY("sync", j_sync, "()", "Make all lines so far durable."),
    MR_ENTRY(
        "waiting", j_waiting, "(): integer, string?, integer",
        "Number of lines that wait for the disk, the reason, and the number of dropped lines."),
    MR_ENTRY_END};
static const mr_bind_face journal_face = {"mr.Journal", "A journal open for append.",
                                          journal_entries, free_journal};

static const mr_bind_entry reader_entries[] = {
    MR_ENTRY("next", j_next, "(): string?", "The next whole line; nil at the end."), MR_ENTRY_END};
static const mr_bind_face reader_face = {"mr.JournalReader", "A journal open for reading.",
                                         reader_entries, free_reader};

MR_BIND_ROOM(journal)
{
    mr_bind_type(L, &journal_face);
    mr_bind_type(L, &reader_face);
    return mr_bind_module(L, &journal_module_face);
}
