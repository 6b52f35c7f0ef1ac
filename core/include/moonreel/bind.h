/* bind: the core as Lua modules.
 *
 * Threads: one Lua state belongs to one thread.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_BIND_H
#define MOONREEL_BIND_H

#include <lua.h>

/* Preload every room of the core as "moonreel.core.<room>": `require` opens it. */
void mr_bind_open_all(lua_State *L);

#endif
