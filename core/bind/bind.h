/* bind: what every binding file shares. Only this room raises Lua errors.
 *
 * A failure of the C side becomes a Lua error value: a table with metatable "mr.Error" and fields
 * `code` ("MR_E_DATA"), `message` (the whole story) and `exit`; tostring() gives the message.
 * Order in a binding: check all arguments, call the core, push. Scratch memory that must survive a
 * raise sits in a to-be-closed userdata (mr_bind_scratch). Licence: Apache-2.0 */
#ifndef MOONREEL_BIND_H
#define MOONREEL_BIND_H

#include "moonreel/base.h"

#include <lauxlib.h>
#include <lua.h>

/* Raise this thread's error record when st is not MR_OK. With an empty origin it blames the
 * nearest Lua frame outside moonreel's own modules. */
void mr_bind_check(lua_State *L, mr_status st);
/* Raise an error of `code` with a printf text, blaming the same way. */
int mr_bind_raise(lua_State *L, mr_status code, const char *fmt, ...) MR_PRINTF(3, 4);
/* "file:line" of the nearest Lua frame whose source is not a moonreel module; "" when none.
 * Own modules have chunk names that start with "@moonreel/". */
void mr_bind_origin(lua_State *L, char *buf, size_t cap);
/* Push the present record as an mr.Error value without raising. */
void mr_bind_push_error(lua_State *L);

/* A block freed when it is closed, collected or left by an error; pushes one stack slot. */
void *mr_bind_scratch(lua_State *L, size_t bytes);

/* Box an opaque C object: userdata with the pointer, `free` runs from close(), __close and __gc,
 * once. `type` is the metatable name ("mr.Index"). */
typedef void mr_bind_free(void *object);
void **mr_bind_box(lua_State *L, const char *type); /* pushes an empty box */
/* raises when closed or of another type */
void *mr_bind_unbox(lua_State *L, int arg, const char *type);
/* Register `type`: methods (with __index), free function, tostring "mr.Index: 0x..." unless
 * given. */
void mr_bind_type(lua_State *L, const char *type, const luaL_Reg *methods, const luaL_Reg *meta,
                  mr_bind_free *free_object);

/* Fields of an options table at `arg` (nil table = all defaults); errors name the field. */
int64_t mr_bind_opt_int(lua_State *L, int arg, const char *field, int64_t def);
double mr_bind_opt_num(lua_State *L, int arg, const char *field, double def);
bool mr_bind_opt_bool(lua_State *L, int arg, const char *field, bool def);
/* lent while the table lives */
const char *mr_bind_opt_str(lua_State *L, int arg, const char *field, const char *def);

/* One opener per room; each leaves one table on the stack: moonreel.core.<room>. The list is
 * gathered from files core/bind/<room>.c that hold MR_BIND_ROOM(<room>). */
typedef struct mr_bind_room {
    const char *name;
    lua_CFunction open;
} mr_bind_room;
#define MR_BIND_ROOM(room)                                                                         \
    static int open_##room(lua_State *L);                                                          \
    static const mr_bind_room room_##room = {#room, open_##room};                                  \
    static const mr_bind_room *const room_ptr_##room __attribute__((used, section("mr_rooms"))) =  \
        &room_##room;                                                                              \
    static int open_##room(lua_State *L)

/* Preload every room as "moonreel.core.<room>". */
void mr_bind_open_all(lua_State *L);

#endif
