/* bind: tensors, values, graphs and parameter tables as other binding files see them. Licence:
 * Apache-2.0 */
#ifndef MOONREEL_BIND_TENSOR_H
#define MOONREEL_BIND_TENSOR_H

#include "bind.h"
#include "moonreel/exec.h"

/* lent; raises when arg is no tensor */
mr_tensor *mr_bind_tensor(lua_State *L, int arg);
/* takes the reference; lost when Lua is out of memory */
void mr_bind_push_tensor(lua_State *L, mr_tensor *t);
mr_dtype mr_bind_dtype(lua_State *L, int arg); /* "f32" ...; raises naming the choices */
/* A list of integers at `arg` (table) into dim[MR_MAX_RANK]; returns its length. */
int mr_bind_dims(lua_State *L, int arg, int64_t *dim);

mr_graph *mr_bind_graph(lua_State *L, int arg);   /* type "mr.Graph" */
mr_params *mr_bind_params(lua_State *L, int arg); /* type "mr.Params" */
/* Device of prompt arithmetic: MOONREEL_DEVICE or "cpu", opened at first use; lent. */
mr_device *mr_bind_eager_device(lua_State *L);

/* Call op `name` on the arguments first..last (tensors, values, false or nil for an absent input;
 * a last plain table holds attributes). Pushes the outputs, returns their number. */
int mr_bind_call_op(lua_State *L, const char *name, int first, int last);

/* mr_bind_type for what ops work on, tensors and values: with arithmetic, and `index` as __index,
 * whose first upvalue is the table of methods. */
void mr_bind_operand_type(lua_State *L, const char *type, const luaL_Reg *methods,
                          const luaL_Reg *meta, mr_bind_free *free_object, lua_CFunction index);

/* Shared by tensors and values: "0, :, 3:16" or an integer at `arg`; calls slice for each part. */
typedef struct mr_bind_range {
    bool drop;
    int64_t start, stop;
} mr_bind_range;
int mr_bind_ranges(lua_State *L, int arg, const mr_desc *d, mr_bind_range *ranges);

#endif
