/* bind: moonreel.core.edit - line input with history and completion, and Ctrl-C that stops running
 * code.
 * Licence: Apache-2.0
 *
 * line(prompt) -> text | nil, "end" | nil, "stopped": one line; edited where stdin and stdout are a
 * terminal and
 *   libedit is there. complete(f): f(line, from, to) -> list of words for bytes from..to (1-based,
 * as string.sub). history(path) -> lines loaded; remember(path or nil, line): one more, in memory
 * and in the file, which several
 *   sessions share: mode 0600, written under its lock.
 * guard(f, handler) -> as xpcall. While it runs, Ctrl-C raises MR_E_STOPPED from whatever Lua does
 * next, and
 *   again until guard is left, so that no pcall inside swallows it; C loops see mr_interrupt_get().
 * deaf(): outside guard Ctrl-C is ignored from now on. watch(co)
 *   does the same for a coroutine. size() -> columns, rows. ask(question, last, seconds) -> what
 * the terminal
 *   answers to a control sequence, or nil. */
#define _DEFAULT_SOURCE
#include "bind/room.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <termios.h>
#include <unistd.h>

#ifdef MR_HAVE_EDIT
#include <editline/readline.h>
#endif

enum { HISTORY_KEPT = 5000, WATCH_EVERY = 20000 };

static lua_State *running; // the Lua state inside guard; NULL outside
static volatile sig_atomic_t line_stopped;

/* ---- Ctrl-C ---- */

enum { EVERYTHING = LUA_MASKCALL | LUA_MASKRET | LUA_MASKLINE | LUA_MASKCOUNT };

static void stop_hook(lua_State *L, lua_Debug *ar)
{
    (void)ar;
    if (!mr_interrupt_get())
        return;
    // set the hook again: if a pcall catches this error, the next instruction raises again
    lua_sethook(L, stop_hook, EVERYTHING, 1);
    mr_interrupt_check();
    mr_bind_push_error(L);
    lua_error(L);
}

// while code runs: the next Lua instruction raises; long C loops check the flag
static void on_interrupt(int number)
{
    (void)number;
    mr_interrupt_set(true);
    if (running)
        lua_sethook(running, stop_hook, EVERYTHING, 1);
}

/* A signal between two reads would not end the next read: a timer repeats it. */
static void on_line_interrupt(int number)
{
    (void)number;
    line_stopped = 1;
    struct itimerval soon = {.it_interval = {.tv_usec = 20000}, .it_value = {.tv_usec = 20000}};
    setitimer(ITIMER_REAL, &soon, NULL);
}
static void on_clock(int number)
{
    (void)number;
}

// no SA_RESTART: a waiting read ends
static void catch_signal(int number, void (*handler)(int), struct sigaction *before)
{
    struct sigaction action = {.sa_handler = handler};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, before);
}

static int e_deaf(lua_State *L)
{
    (void)L;
    catch_signal(SIGINT, SIG_IGN, NULL);
    return 0;
}

static int e_guard(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TFUNCTION);
    luaL_checktype(L, 2, LUA_TFUNCTION);
    lua_settop(L, 2);
    lua_insert(L, 1);
    lua_State *outer = running;
    struct sigaction before;
    mr_interrupt_set(false);
    running = L;
    catch_signal(SIGINT, on_interrupt, &before);
    int st = lua_pcall(L, 0, LUA_MULTRET, 1);
    sigaction(SIGINT, &before, NULL);
    running = outer;
    lua_sethook(L, NULL, 0, 0);
    mr_interrupt_set(false);
    lua_pushboolean(L, st == LUA_OK);
    lua_replace(L, 1);
    return lua_gettop(L);
}

static int e_watch(lua_State *L)
{
    lua_State *co = lua_tothread(L, 1);
    luaL_argexpected(L, co, 1, "thread");
    lua_sethook(co, stop_hook, LUA_MASKCOUNT, WATCH_EVERY);
    return 0;
}

/* ---- a line ---- */

static bool on_terminal(void)
{
    return isatty(0) && isatty(1);
}

// plain input of any length, without editing
static int plain_line(lua_State *L, const char *prompt)
{
    if (isatty(0))
        fputs(prompt, stdout), fflush(stdout);
    luaL_Buffer b;
    luaL_buffinit(L, &b);
    bool any = false;
    int c;
    errno = 0;
    while ((c = getc(stdin)) != EOF && c != '\n')
        luaL_addchar(&b, (char)c), any = true;
    if (c == EOF && line_stopped) {
        clearerr(stdin);
        return lua_pushnil(L), lua_pushliteral(L, "stopped"), 2;
    }
    if (c == EOF && !any)
        return lua_pushnil(L), lua_pushliteral(L, "end"), 2;
    luaL_pushresult(&b);
    return 1;
}

#ifdef MR_HAVE_EDIT
static const char complete_key = 0;
static lua_State *editing;
static bool prepared;

// copy the words of a Lua list for libedit, which frees them; the first is their common prefix
static char **matches_of(lua_State *L)
{
    size_t n = lua_rawlen(L, -1), shared = 0;
    if (n == 0)
        return NULL;
    char **list = calloc(n + 2, sizeof *list);
    if (!list)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        lua_rawgeti(L, -1, (lua_Integer)i + 1);
        const char *word = lua_tostring(L, -1);
        list[i + 1] = strdup(word ? word : "");
        lua_pop(L, 1);
        if (i == 0)
            shared = strlen(list[1]);
        for (size_t k = 0; k < shared; k++)
            if (list[i + 1][k] != list[1][k])
                shared = k;
    }
    list[0] = strndup(list[1], shared);
    return list;
}

static int call_completer(lua_State *L)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &complete_key);
    lua_insert(L, 1);
    lua_call(L, 3, 1);
    luaL_checktype(L, -1, LUA_TTABLE);
    return 1;
}

static char **complete(const char *text, int start, int end)
{
    (void)text;
    lua_State *L = editing;
    rl_attempted_completion_over = 1; // never complete file names
    rl_completion_append_character = 0;
    int top = lua_gettop(L);
    lua_pushcfunction(L, call_completer);
    lua_pushstring(L, rl_line_buffer);
    lua_pushinteger(L, start + 1);
    lua_pushinteger(L, end);
    char **list = lua_pcall(L, 3, 1, 0) == LUA_OK ? matches_of(L) : NULL;
    lua_settop(L, top);
    return list;
}

static void prepare(void)
{
    if (prepared)
        return;
    prepared = true;
    rl_readline_name = "moonreel";
    rl_initialize();
    using_history();
    stifle_history(HISTORY_KEPT);
    rl_attempted_completion_function = complete;
    // dots and colons belong to words, as in `ckpt:ls` or blocks.3.attn
    rl_completer_word_break_characters = " \t\n\"'`(){}[],;=+-*/%^<>~&|#";
    rl_basic_word_break_characters = rl_completer_word_break_characters;
    rl_completion_append_character = 0;
}

static int edited_line(lua_State *L, const char *prompt)
{
    prepare();
    editing = L;
    char *text = readline(prompt);
    editing = NULL;
    if (line_stopped) {
        free(text);
        fputs("\n", stdout);
        return lua_pushnil(L), lua_pushliteral(L, "stopped"), 2;
    }
    if (!text)
        return lua_pushnil(L), lua_pushliteral(L, "end"), 2;
    lua_pushstring(L, text);
    free(text);
    return 1;
}
#endif

static int e_line(lua_State *L)
{
    const char *prompt = luaL_checkstring(L, 1);
    struct sigaction before, clock_before;
    line_stopped = 0;
    catch_signal(SIGALRM, on_clock, &clock_before);
    catch_signal(SIGINT, on_line_interrupt, &before);
#ifdef MR_HAVE_EDIT
    int n = on_terminal() ? edited_line(L, prompt) : plain_line(L, prompt);
#else
    int n = plain_line(L, prompt);
#endif
    sigaction(SIGINT, &before, NULL);
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    sigaction(SIGALRM, &clock_before, NULL);
    return n;
}

static int e_complete(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TFUNCTION);
#ifdef MR_HAVE_EDIT
    lua_settop(L, 1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &complete_key);
#endif
    return 0;
}

/* ---- history ---- */

static void recall(const char *line)
{
#ifdef MR_HAVE_EDIT
    if (!on_terminal())
        return;
    prepare();
    add_history(line);
#else
    (void)line;
#endif
}

// open the file and lock it against other sessions; -1 and errno on failure
static int open_history(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0 && (fchmod(fd, 0600) || flock(fd, LOCK_EX))) {
        close(fd);
        return -1;
    }
    return fd;
}

// load the last HISTORY_KEPT lines; a file with twice as many is truncated to them
static int take_lines(int fd, char *text, size_t bytes)
{
    size_t from = bytes;
    int lines = 0, kept = 0;
    for (size_t i = 0; i < bytes; i++)
        lines += text[i] == '\n';
    while (from > 0 && kept <= HISTORY_KEPT)
        kept += text[--from] == '\n';
    if (kept > HISTORY_KEPT)
        from++;
    if (lines > 2 * HISTORY_KEPT && ftruncate(fd, 0) == 0)
        (void)mr_file_write_full(fd, text + from, bytes - from, "history");
    int n = 0;
    for (char *p = text + from, *end; (end = strchr(p, '\n')); p = end + 1, n++) {
        *end = 0;
        recall(p);
    }
    return n;
}

static int e_history(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    int fd = open_history(path), n = 0;
    if (fd < 0)
        return mr_bind_raise(L, MR_E_IO, "%s: cannot open the history: %s", path, strerror(errno));
    char *text;
    size_t bytes;
    mr_status st = mr_file_read_all(path, &text, &bytes);
    if (st == MR_OK) {
        n = take_lines(fd, text, bytes);
        mr_free(text);
    }
    close(fd);
    mr_bind_check(L, st);
    lua_pushinteger(L, n);
    return 1;
}

static int e_remember(lua_State *L)
{
    const char *path = luaL_optstring(L, 1, NULL), *line = luaL_checkstring(L, 2);
    recall(line);
    if (!path)
        return 0;
    const char *row = lua_pushfstring(L, "%s\n", line);
    int fd = open_history(path);
    if (fd < 0)
        return mr_bind_raise(L, MR_E_IO, "%s: cannot open the history: %s", path, strerror(errno));
    mr_status st = mr_file_write_full(fd, row, strlen(row), path);
    close(fd);
    mr_bind_check(L, st);
    return 0;
}

/* ---- the terminal ---- */

static int e_size(lua_State *L)
{
    struct winsize w;
    bool known = ioctl(1, TIOCGWINSZ, &w) == 0 && w.ws_col > 0;
    lua_pushinteger(L, known ? w.ws_col : 80);
    lua_pushinteger(L, known && w.ws_row > 0 ? w.ws_row : 24);
    return 2;
}

// return input that is not the answer to the terminal, if the system permits it
static void put_back(const char *text, size_t n)
{
    for (size_t i = 0; i < n && ioctl(0, TIOCSTI, &text[i]) == 0; i++)
        ;
}

/* Read a control sequence that ends in `last` within a time; other bytes are typed or pasted.
 * Returns the length of the answer; 0: none. */
static size_t hear(char answer[256], char last, int left_ms)
{
    char other[4096], c;
    size_t got = 0, n = 0;
    bool answered = false;
    struct pollfd p = {.fd = 0, .events = POLLIN};
    while (!answered && n < sizeof other - 256 && poll(&p, 1, left_ms) > 0 && read(0, &c, 1) == 1) {
        if (got || c == '\33')
            answer[got++] = c;
        else
            other[n++] = c;
        bool ends = got > 2 && c >= '@' && c <= '~';
        answered = ends && c == last;
        if ((ends && !answered) || got == 256) {
            memcpy(other + n, answer, got);
            n += got, got = 0;
        }
    }
    put_back(other, n);
    return answered ? got : 0;
}

static int e_ask(lua_State *L)
{
    size_t n;
    const char *question = luaL_checklstring(L, 1, &n);
    char last = *luaL_checkstring(L, 2);
    int left_ms = (int)(luaL_optnumber(L, 3, 0.2) * 1000);
    struct termios before, raw;
    if (!on_terminal() || tcgetattr(0, &before))
        return 0;
    raw = before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    tcsetattr(0, TCSANOW, &raw);
    char answer[256];
    size_t got = 0;
    // pasted lines are pending: the answer would follow them
    bool busy = poll(&(struct pollfd){.fd = 0, .events = POLLIN}, 1, 0) > 0;
    if (!busy && write(1, question, n) == (ssize_t)n)
        got = hear(answer, last, left_ms);
    tcsetattr(0, TCSANOW, &before);
    if (busy)
        return lua_pushboolean(L, false), 1;
    if (!got)
        return 0;
    lua_pushlstring(L, answer, got);
    return 1;
}

static const mr_bind_entry edit_entries[] = {
    MR_ENTRY("line", e_line, "(prompt: string): string?, string?",
             "Read a line, with editing on a terminal; nil and \"end\" or \"stopped\"."),
    MR_ENTRY("complete", e_complete, "(f: fun(line: string, from: integer, to: integer): string[])",
             "Set the completion function: it returns words for the bytes from..to of a line."),
    MR_ENTRY("history", e_history, "(path: string): integer",
             "Load the lines of earlier sessions; returns their number."),
    MR_ENTRY("remember", e_remember, "(path: string?, line: string)",
             "Add a line in memory and to the file that sessions share."),
    MR_ENTRY("guard", e_guard, "(f: fun(), handler: fun(failure: any): any): boolean, any",
             "Like xpcall. Meanwhile Ctrl-C raises MR_E_STOPPED in the running code, through every "
             "pcall inside."),
    MR_ENTRY("deaf", e_deaf, "()", "Ignore Ctrl-C outside of guard from now on."),
    MR_ENTRY("watch", e_watch, "(co: thread)", "Make Ctrl-C stop a coroutine, too."),
    MR_ENTRY("size", e_size, "(): integer, integer", "Columns and rows of the terminal."),
    MR_ENTRY("ask", e_ask, "(question: string, last: string, seconds?: number): string|false|nil",
             "The answer of the terminal to a control sequence, up to its last letter; false: not "
             "sent, because input is pending; nil: no answer."),
    MR_ENTRY_END};
static const mr_bind_face edit_face = {
    "moonreel.core.edit", "Line input with history, and Ctrl-C that stops running code.",
    edit_entries, NULL};

MR_BIND_ROOM(edit)
{
    return mr_bind_module(L, &edit_face);
}
