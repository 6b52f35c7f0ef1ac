/* bind: values of a graph as the files about graphs, values, parameters and ops see them.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_BIND_VALUE_H
#define MOONREEL_BIND_VALUE_H

#include "tensor.h"

/* A value at the Lua side: its graph is kept alive in user value 1. */
typedef struct mr_bind_value {
    mr_graph *graph;
    mr_ref ref;
} mr_bind_value;
#define MR_VALUE "mr.Value"

/* `graph_at` is the stack index of the graph userdata. */
void mr_bind_push_value(lua_State *L, int graph_at, mr_graph *g, mr_ref ref);
/* lent; raises when the graph was closed */
mr_bind_value *mr_bind_value_at(lua_State *L, int arg);
/* The value at `arg` for graph g: itself, or an eager tensor as a constant. */
mr_ref mr_bind_ref(lua_State *L, mr_graph *g, int arg);
/* What a new node of g remembers: file:line of the nearest frame that is a model or the user's
 * own. */
void mr_bind_set_origin(lua_State *L, mr_graph *g);

/* Lua: params(dtype), op(name, {inputs}, {attrs}) */
int mr_bind_params_new(lua_State *L);
int mr_bind_op_by_name(lua_State *L);
/* Register the types mr.Value and mr.Params. */
void mr_bind_value_type(lua_State *L);
void mr_bind_params_type(lua_State *L);

#endif
