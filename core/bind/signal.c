/* bind: moonreel.core.signal - stop requests. Licence: Apache-2.0
 *
 * catch(calls) -> true, or false when that is so already: from now on the first SIGINT, SIGTERM or
 * SIGHUP is remembered, and ends long calls of the core where `calls`; the second ends the process
 * at once. SIGHUP stays ignored where it was (nohup), and is never a second one: a terminal that
 * closes and its shell send one each. Nor is the same signal within 0.2 s: `timeout` sends one to
 * the program and one to its group. pending() -> 1, 2, 15 or nil: the signal that came first.
 * take() -> the same, and it is forgotten. raises(on): while it is on, the first one also raises
 * MR_E_STOPPED, from whatever Lua does next. release(): the former handling is back, but for a
 * hangup where one has come.
 */
#define _XOPEN_SOURCE 700
#include "bind/room.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t first;
static volatile sig_atomic_t last; // the last one
static volatile double last_s;     // its time
static struct sigaction before[3];
static const int numbers[3] = {SIGINT, SIGTERM, SIGHUP};
static bool caught, calls;
static lua_State *volatile raises; // the Lua state that raises; NULL: none

enum { EVERYTHING = LUA_MASKCALL | LUA_MASKRET | LUA_MASKLINE | LUA_MASKCOUNT };

// raise once, so that closing functions run undisturbed
static void stop_hook(lua_State *L, lua_Debug *ar)
{
    (void)ar;
    lua_sethook(L, NULL, 0, 0);
    if (!raises)
        return;
    mr_fail(MR_E_STOPPED, "stopped by a signal");
    mr_bind_push_error(L);
    lua_error(L);
}

static void handle(int number)
{
    const double now = mr_now_s();
    const bool again = mr_stop_again(last, number, now - last_s) || (first && number == SIGHUP);
    last = number, last_s = now;
    if (again)
        return;
    if (first)
        _exit(128 + number);
    first = number;
    if (calls || raises)
        mr_interrupt_set(true);
    if (raises)
        lua_sethook(raises, stop_hook, EVERYTHING, 1);
}

static int s_catch(lua_State *L)
{
    const bool ends = lua_toboolean(L, 1); // read before the result overwrites the argument
    lua_pushboolean(L, !caught);
    if (caught)
        return 1;
    first = 0;
    calls = ends;
    // restart system calls
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < MR_COUNT(numbers); i++) {
        sigaction(numbers[i], NULL, &before[i]);
        if (numbers[i] != SIGHUP || before[i].sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    }
    caught = true;
    return 1;
}

static int s_pending(lua_State *L)
{
    if (!first)
        return 0;
    lua_pushinteger(L, first);
    return 1;
}

static int s_take(lua_State *L)
{
    const int number = first;
    first = 0;
    if (!number)
        return 0;
    lua_pushinteger(L, number);
    return 1;
}

static int s_raises(lua_State *L)
{
    raises = caught && lua_toboolean(L, 1) ? L : NULL;
    if (raises && first) // the signal came before
        lua_sethook(L, stop_hook, EVERYTHING, 1);
    if (!raises && !calls)
        mr_interrupt_set(false);
    return 0;
}

static int s_release(lua_State *L)
{
    (void)L;
    if (!caught)
        return 0;
    for (size_t i = 0; i < MR_COUNT(numbers); i++)
        sigaction(numbers[i], &before[i], NULL);
    // a second hangup of the terminal must not end a process that is ending because of the first
    if (last == SIGHUP)
        signal(SIGHUP, SIG_IGN);
    if (calls || raises)
        mr_interrupt_set(false);
    raises = NULL;
    caught = calls = false;
    first = 0;
    return 0;
}

static const mr_bind_entry signal_entries[] = {
    MR_ENTRY("catch", s_catch, "(calls?: boolean): boolean",
             "From now on, record the first SIGINT, SIGTERM or SIGHUP. It ends long calls of the "
             "core with MR_E_STOPPED if `calls` is true. The second SIGINT or SIGTERM ends the "
             "process. An ignored SIGHUP stays ignored. False: signals were caught already."),
    MR_ENTRY("pending", s_pending, "(): integer?", "The signal that came first: 1, 2 or 15."),
    MR_ENTRY("take", s_take, "(): integer?",
             "The signal that came first. It is cleared, so the next one counts as the first."),
    MR_ENTRY("raises", s_raises, "(on: boolean)",
             "Whether the first signal also raises MR_E_STOPPED and ends long calls of the core."),
    MR_ENTRY("release", s_release, "()", "Restore the former handling."),
    MR_ENTRY_END};
static const mr_bind_face signal_face = {"moonreel.core.signal", "Stop requests from outside.",
                                         signal_entries, NULL};

MR_BIND_ROOM(signal)
{
    return mr_bind_module(L, &signal_face);
}
