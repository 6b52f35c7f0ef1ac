/* bind: what moonreel.core.ckpt has of saver.c. Licence: Apache-2.0 */
#ifndef MOONREEL_BIND_SAVER_H
#define MOONREEL_BIND_SAVER_H

#include "bind/run.h"
#include "moonreel/ckpt.h"

/* Lua: write(path, tensors [, {key = text}]); saver(lock, {keep=, keep_every=, attempts=,
 * intervals_max=}) */
int mr_bind_ckpt_write(lua_State *L);
int mr_bind_saver_new(lua_State *L);
/* Register mr.Saver. */
void mr_bind_saver_type(lua_State *L);

#endif
