/* bind: executors and their programs as exec.c and program.c see them. Licence: Apache-2.0 */
#ifndef MOONREEL_BIND_EXEC_H
#define MOONREEL_BIND_EXEC_H

#include "tensor.h"

typedef struct device {
    mr_device *dev;
    int refs;
} device;
typedef struct executor executor;
typedef struct program {
    mr_program *prog; /* NULL once the executor is closed */
    executor *of;
    struct program *next;
} program;
struct executor {
    mr_exec *exec;
    device *dev;
    program *programs;
};

/* User values of a box: 1 = the object it was made from (device, executor), 2 = params or graph. */

/* the executor at `arg`; its parameter table is still open */
mr_exec *mr_bind_exec(lua_State *L, int arg);
/* Lua: executor:compile(graph) */
int mr_bind_program_new(lua_State *L);
/* Register mr.Program. */
void mr_bind_program_type(lua_State *L);

#endif
