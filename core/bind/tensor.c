/* bind: moonreel.core.tensor - eager host tensors at the prompt and in scripts.
 * Licence: Apache-2.0 */
#include "base/mersenne.h"
#include "bind/room.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define TYPE "mr.Tensor"
enum { LOOK_EVERY = 1 << 16 }; /* values between two checks for Ctrl-C */

static const mr_view *view_at(lua_State *L, int arg)
{
    return mr_tensor_view(mr_bind_tensor(L, arg));
}

static int t_held(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)mr_tensor_held());
    return 1;
}

/* count(dims) -> number of elements of a shape of any rank. */
static int t_count(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_Unsigned n = 1;
    for (lua_Integer i = luaL_len(L, 1); i > 0; i--) {
        lua_geti(L, 1, i);
        n *= (lua_Unsigned)luaL_checkinteger(L, -1);
        lua_pop(L, 1);
    }
    lua_pushinteger(L, (lua_Integer)n);
    return 1;
}

/* ---- creation ---- */

static int t_new(lua_State *L)
{
    int64_t dim[MR_MAX_RANK];
    mr_dtype dtype = mr_bind_dtype(L, 1);
    int rank = mr_bind_dims(L, 2, dim);
    mr_tensor **t = mr_bind_new_tensor(L);
    mr_bind_check(L, mr_tensor_new(dtype, rank, dim, t));
    return 1;
}

/* from(dims, table|string, dtype="f32"): a flat list of numbers, or the raw bytes of `dtype`. */
static int t_from(lua_State *L)
{
    int64_t dim[MR_MAX_RANK];
    int rank = mr_bind_dims(L, 1, dim);
    lua_settop(L, 3);
    if (lua_isnil(L, 3))
        lua_pushstring(L, "f32"), lua_replace(L, 3);
    mr_dtype dtype = mr_bind_dtype(L, 3);
    mr_tensor **t = mr_bind_new_tensor(L);
    mr_bind_check(L, mr_tensor_new(dtype, rank, dim, t));
    const mr_view *v = mr_tensor_view(*t);
    int64_t n = mr_desc_count(&v->desc);
    if (lua_type(L, 2) == LUA_TSTRING) {
        size_t bytes;
        const char *s = lua_tolstring(L, 2, &bytes);
        if (bytes != (size_t)n * mr_dtype_bytes(dtype))
            return mr_bind_raise(L, MR_E_SHAPE, "%zu bytes for a tensor of %zu", bytes,
                                 (size_t)n * mr_dtype_bytes(dtype));
        memcpy(v->data, s, bytes);
        return 1;
    }
    luaL_checktype(L, 2, LUA_TTABLE);
    if (luaL_len(L, 2) != n)
        return mr_bind_raise(L, MR_E_SHAPE, "%d numbers for a tensor of %d elements",
                             (int)luaL_len(L, 2), (int)n);
    mr_view flat = {v->data, mr_desc_dense(dtype, 1, &n)};
    for (int64_t i = 0; i < n; i++) {
        if (i % LOOK_EVERY == 0)
            mr_bind_check(L, mr_interrupt_check());
        int kind = lua_geti(L, 2, i + 1);
        // all 64 bits
        if (dtype == MR_I64 && lua_isinteger(L, -1))
            ((int64_t *)v->data)[i] = lua_tointeger(L, -1);
        else if (kind == LUA_TBOOLEAN)
            mr_view_set(&flat, &i, lua_toboolean(L, -1));
        else if (kind == LUA_TNUMBER)
            mr_view_set(&flat, &i, lua_tonumber(L, -1));
        else
            return mr_bind_raise(L, MR_E_USAGE, "element %d: expected a number, got %s", (int)i + 1,
                                 luaL_typename(L, -1));
        lua_pop(L, 1);
    }
    return 1;
}

/* wrap(pointer, bytes, dtype, dims, owner): a tensor over foreign memory; keeps `owner` alive. */
static int t_nonfinite(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TLIGHTUSERDATA);
    lua_Integer bytes = luaL_checkinteger(L, 2);
    mr_dtype dtype = mr_bind_dtype(L, 3);
    luaL_argcheck(L, bytes >= 0, 2, "0 or more");
    int64_t n = bytes / (int64_t)mr_dtype_bytes(dtype);
    lua_pushinteger(L, mr_nonfinite(lua_touserdata(L, 1), dtype, n));
    return 1;
}

static int t_wrap(lua_State *L)
{
    int64_t dim[MR_MAX_RANK];
    luaL_checktype(L, 1, LUA_TLIGHTUSERDATA);
    size_t bytes = (size_t)luaL_checkinteger(L, 2);
    mr_dtype dtype = mr_bind_dtype(L, 3);
    mr_desc d = mr_desc_dense(dtype, mr_bind_dims(L, 4, dim), dim);
    if (mr_desc_span_bytes(&d) > bytes)
        return mr_bind_raise(L, MR_E_SHAPE, "wrap: %zu bytes are too few for %zu", bytes,
                             mr_desc_span_bytes(&d));
    mr_tensor **t = mr_bind_new_tensor(L);
    mr_bind_check(L, mr_tensor_wrap(&d, lua_touserdata(L, 1), NULL, NULL, t));
    lua_pushvalue(L, 5);
    lua_setiuservalue(L, -2, 1);
    return 1;
}

/* ---- views ---- */

static int push_view(lua_State *L, const mr_desc *d, int64_t offset)
{
    mr_tensor **v = mr_bind_new_tensor(L);
    mr_bind_check(L, mr_tensor_view_new(mr_bind_tensor(L, 1), d, offset, v));
    lua_getiuservalue(L, 1, 1); // the view keeps a foreign owner alive
    lua_setiuservalue(L, -2, 1);
    return 1;
}

static int t_to(lua_State *L)
{
    const mr_view *v = view_at(L, 1);
    mr_tensor **t = mr_bind_new_tensor(L);
    mr_bind_check(L, mr_tensor_new(mr_bind_dtype(L, 2), v->desc.rank, v->desc.dim, t));
    mr_bind_check(L, mr_view_copy(mr_tensor_view(*t), v));
    return 1;
}

static int t_clone(lua_State *L)
{
    lua_settop(L, 1);
    lua_pushstring(L, mr_dtype_name(view_at(L, 1)->desc.dtype));
    return t_to(L);
}

static int t_reshape(lua_State *L)
{
    int64_t dim[MR_MAX_RANK];
    int rank = mr_bind_dims(L, 2, dim);
    const mr_view *v = view_at(L, 1);
    mr_desc d;
    if (mr_desc_reshape(&v->desc, rank, dim, &d) != MR_OK) {
        // the strides do not allow it: use a dense copy, unless the shape itself is wrong
        mr_desc dense = mr_desc_dense(v->desc.dtype, v->desc.rank, v->desc.dim);
        mr_bind_check(L, mr_desc_reshape(&dense, rank, dim, &d));
        t_clone(L);
        lua_replace(L, 1);
    }
    return push_view(L, &d, 0);
}

static int t_slice(lua_State *L)
{
    mr_desc d;
    int64_t at = 0;
    mr_bind_check(L, mr_desc_slice(&view_at(L, 1)->desc, (int)luaL_checkinteger(L, 2),
                                   luaL_checkinteger(L, 3), luaL_checkinteger(L, 4), &d, &at));
    return push_view(L, &d, at);
}

static int t_permute(lua_State *L)
{
    int64_t dim[MR_MAX_RANK];
    int n = mr_bind_dims(L, 2, dim), order[MR_MAX_RANK];
    const mr_view *v = view_at(L, 1);
    if (n != v->desc.rank)
        return mr_bind_raise(L, MR_E_SHAPE, "permute: %d axes for rank %d", n, v->desc.rank);
    for (int i = 0; i < n; i++)
        order[i] = (int)dim[i];
    mr_desc d;
    mr_bind_check(L, mr_desc_permute(&v->desc, order, &d));
    return push_view(L, &d, 0);
}

static int t_transpose(lua_State *L)
{
    const mr_view *v = view_at(L, 1);
    int order[MR_MAX_RANK];
    mr_bind_swap(L, 2, v->desc.rank, order);
    mr_desc d;
    mr_bind_check(L, mr_desc_permute(&v->desc, order, &d));
    return push_view(L, &d, 0);
}

static int t_expand(lua_State *L)
{
    int64_t dim[MR_MAX_RANK];
    int n = mr_bind_dims(L, 2, dim);
    mr_desc d;
    mr_bind_check(L, mr_desc_expand(&view_at(L, 1)->desc, n, dim, &d));
    return push_view(L, &d, 0);
}

static int index_ranges(lua_State *L)
{
    mr_desc d = view_at(L, 1)->desc;
    mr_bind_range r[MR_MAX_RANK];
    int n = mr_bind_ranges(L, 2, &d, r);
    int64_t at = 0;
    mr_desc out = d;
    out.rank = 0;
    for (int i = 0; i < d.rank; i++) {
        if (i < n)
            at += r[i].start * d.stride[i];
        if (i < n && r[i].drop)
            continue;
        out.dim[out.rank] = i < n ? r[i].stop - r[i].start : d.dim[i];
        out.stride[out.rank++] = d.stride[i];
    }
    if (out.rank == 0) {
        mr_view one = {(char *)view_at(L, 1)->data + at * (int64_t)mr_dtype_bytes(d.dtype), out};
        lua_pushnumber(L, mr_view_get(&one, NULL));
        return 1;
    }
    return push_view(L, &out, at);
}

/* ---- reading ---- */

static void push_shape(lua_State *L, const mr_desc *d)
{
    lua_createtable(L, d->rank, 0);
    for (int i = 0; i < d->rank; i++) {
        lua_pushinteger(L, d->dim[i]);
        lua_rawseti(L, -2, i + 1);
    }
}

static int t_index(lua_State *L)
{
    const char *key = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "";
    if (strcmp(key, "shape") == 0)
        return push_shape(L, &view_at(L, 1)->desc), 1;
    if (strcmp(key, "dtype") == 0)
        return lua_pushstring(L, mr_dtype_name(view_at(L, 1)->desc.dtype)), 1;
    // a name is a method, even of a closed tensor, or an error; all else are positions
    if (isalpha((unsigned char)*key) || *key == '_') {
        lua_getfield(L, lua_upvalueindex(1), key);
        return 1;
    }
    return index_ranges(L);
}

static int t_len(lua_State *L)
{
    const mr_view *v = view_at(L, 1);
    if (v->desc.rank < 1)
        return mr_bind_raise(L, MR_E_RANGE, "a scalar has no length");
    lua_pushinteger(L, v->desc.dim[0]);
    return 1;
}

static int t_item(lua_State *L)
{
    const mr_view *v = view_at(L, 1);
    if (mr_desc_count(&v->desc) != 1)
        return mr_bind_raise(L, MR_E_SHAPE, "item(): the tensor has %d elements; expected one",
                             (int)mr_desc_count(&v->desc));
    int64_t zero[MR_MAX_RANK] = {0};
    if (v->desc.dtype == MR_I64)
        lua_pushinteger(L, *(int64_t *)v->data);
    else
        lua_pushnumber(L, mr_view_get(v, zero));
    return 1;
}

/* A dense tensor with the same values: t itself, or a copy that stays on the stack. */
static const mr_view *dense_at(lua_State *L)
{
    lua_settop(L, 1);
    if (!mr_desc_is_dense(&view_at(L, 1)->desc)) {
        t_clone(L);
        lua_replace(L, 1);
    }
    return view_at(L, 1);
}

static int t_totable(lua_State *L)
{
    const mr_view *v = dense_at(L);
    int64_t n = mr_desc_count(&v->desc);
    mr_view flat = {v->data, mr_desc_dense(v->desc.dtype, 1, &n)};
    lua_createtable(L, (int)MR_MIN(n, (int64_t)1 << 24), 0);
    for (int64_t i = 0; i < n; i++) {
        if (i % LOOK_EVERY == 0)
            mr_bind_check(L, mr_interrupt_check());
        if (v->desc.dtype == MR_I64)
            lua_pushinteger(L, ((int64_t *)v->data)[i]);
        else if (v->desc.dtype == MR_I32 || v->desc.dtype == MR_U8)
            lua_pushinteger(L, (lua_Integer)mr_view_get(&flat, &i));
        else if (v->desc.dtype == MR_BOOL)
            lua_pushboolean(L, mr_view_get(&flat, &i) != 0);
        else
            lua_pushnumber(L, mr_view_get(&flat, &i));
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static int t_bytes(lua_State *L)
{
    const mr_view *v = dense_at(L);
    lua_pushlstring(L, v->data, mr_desc_span_bytes(&v->desc));
    return 1;
}

static int t_ptr(lua_State *L)
{
    const mr_view *v = view_at(L, 1);
    if (!mr_desc_is_dense(&v->desc))
        return mr_bind_raise(L, MR_E_SHAPE, "ptr() of a strided view: try clone() first");
    lua_pushlightuserdata(L, v->data);
    lua_pushinteger(L, (lua_Integer)mr_desc_span_bytes(&v->desc));
    return 2;
}

static int t_copy_from(lua_State *L)
{
    mr_bind_check(L, mr_view_copy(view_at(L, 1), view_at(L, 2)));
    lua_settop(L, 1);
    return 1;
}

static int t_fill_normal(lua_State *L)
{
    const mr_view *v = view_at(L, 1);
    if (v->desc.dtype != MR_F32 || !mr_desc_is_dense(&v->desc))
        return mr_bind_raise(L, MR_E_SHAPE, "fill_normal: expected a dense f32 tensor");
    enum { PIECE = 1 << 18 };
    uint64_t seed = (uint64_t)luaL_checkinteger(L, 2),
             purpose = mr_name_word(luaL_checkstring(L, 3)),
             key = (uint64_t)luaL_optinteger(L, 4, 0);
    uint32_t epoch = (uint32_t)luaL_optinteger(L, 5, 0);
    int64_t n = mr_desc_count(&v->desc);
    for (int64_t at = 0; at < n; at += PIECE) {
        mr_random_fill_normal((float *)v->data + at, MR_MIN(n - at, (int64_t)PIECE), seed, purpose,
                              key, epoch, (uint64_t)at);
        mr_bind_check(L, mr_interrupt_check());
    }
    lua_settop(L, 1);
    return 1;
}

static int t_fill_torch_normal(lua_State *L)
{
    const mr_view *v = view_at(L, 1);
    lua_Integer seed = luaL_checkinteger(L, 2), draws = luaL_optinteger(L, 3, 0);
    if (v->desc.dtype != MR_F32 || !mr_desc_is_dense(&v->desc))
        return mr_bind_raise(L, MR_E_SHAPE, "fill_torch_normal: expected a dense f32 tensor");
    if (seed < 0 || seed > UINT32_MAX || draws < 0 || draws > 1 << 20)
        return mr_bind_raise(L, MR_E_RANGE,
                             "fill_torch_normal: seed %lld, draw %lld; expected a seed of 32 bits "
                             "and a draw from 0 to 2^20",
                             (long long)seed, (long long)draws);
    mr_bind_check(L, mr_torch_normal(v->data, mr_desc_count(&v->desc), (uint32_t)seed, draws));
    lua_settop(L, 1);
    return 1;
}

static int t_tostring(lua_State *L)
{
    void **box = luaL_checkudata(L, 1, TYPE);
    if (!*box) {
        lua_pushliteral(L, TYPE " (closed)");
        return 1;
    }
    const mr_view *v = view_at(L, 1);
    char shape[128];
    luaL_Buffer b;
    luaL_buffinit(L, &b);
    lua_pushfstring(L, "tensor %s cpu", mr_desc_text(&v->desc, shape, sizeof shape));
    luaL_addvalue(&b);
    // the first values, in order
    int64_t n = mr_desc_count(&v->desc), index[MR_MAX_RANK] = {0};
    for (int64_t i = 0; i < MR_MIN(n, 8); i++) {
        char text[32];
        snprintf(text, sizeof text, "%s%.5g", i ? ", " : ": ", mr_view_get(v, index));
        luaL_addstring(&b, text);
        for (int k = v->desc.rank - 1; k >= 0; k--) {
            if (++index[k] < v->desc.dim[k])
                break;
            index[k] = 0;
        }
    }
    if (n > 8)
        luaL_addstring(&b, ", ...");
    luaL_pushresult(&b);
    return 1;
}

static void free_tensor(void *t)
{
    mr_tensor_unref(t);
}

static const mr_bind_entry tensor_module_entries[] = {
    MR_ENTRY("new", t_new, "(dtype: mr.Dtype, dims: integer[]): mr.Tensor", "A tensor of zeros."),
    MR_ENTRY("from", t_from,
             "(dims: integer[], values: number[]|string, dtype?: mr.Dtype): mr.Tensor",
             "A tensor from a flat list of numbers, or from raw bytes; default dtype f32."),
    MR_ENTRY("wrap", t_wrap,
             "(pointer: lightuserdata, bytes: integer, dtype: mr.Dtype, dims: integer[], owner?: "
             "any): mr.Tensor",
             "A tensor over foreign memory; it keeps owner alive."),
    MR_ENTRY("nonfinite", t_nonfinite,
             "(pointer: lightuserdata, bytes: integer, dtype: mr.Dtype): integer",
             "The number of values in foreign memory that are infinite or NaN."),
    MR_ENTRY("held", t_held, "(): integer",
             "Bytes of all existing tensors, including unused ones that are not collected yet."),
    MR_ENTRY("count", t_count, "(dims: integer[]): integer", "Elements of a shape."),
    MR_ENTRY_FIELD("methods", "table", "Methods of all tensors; Lua modules can add some."),
    MR_ENTRY_END};
static const mr_bind_face tensor_module_face = {"moonreel.core.tensor", "Tensors in host memory.",
                                                tensor_module_entries, NULL};

// over all axes they return a number; with keep = true, reduced axes have length 1
#define REDUCED "(axes?: integer|integer[], keep?: boolean): number|mr.Tensor"

static const mr_bind_entry tensor_entries[] = {
    MR_ENTRY_FIELD("shape", "integer[]", "Dimensions, outermost first."),
    MR_ENTRY_FIELD("dtype", "mr.Dtype", "Dtype of the elements."),
    MR_ENTRY("to", t_to, "(dtype: mr.Dtype): mr.Tensor", "A dense copy in another dtype."),
    MR_ENTRY("clone", t_clone, "(): mr.Tensor", "A dense copy."),
    MR_ENTRY("reshape", t_reshape, "(dims: integer[]): mr.Tensor",
             "The same elements with other dimensions, one of which can be -1; a view if the "
             "strides allow it, else a copy."),
    MR_ENTRY("slice", t_slice, "(axis: integer, start: integer, stop: integer): mr.Tensor",
             "A view of positions start to stop - 1 of an axis."),
    MR_ENTRY("permute", t_permute, "(axes: integer[]): mr.Tensor",
             "A view with the axes in another order."),
    MR_ENTRY("transpose", t_transpose, "(a?: integer, b?: integer): mr.Tensor",
             "A view with two axes swapped, by default the last two."),
    MR_ENTRY("expand", t_expand, "(dims: integer[]): mr.Tensor",
             "A view that repeats dimensions of length 1."),
    MR_ENTRY("sum", mr_bind_reduce_sum, REDUCED, "Sum of all values, or over some axes."),
    MR_ENTRY("mean", mr_bind_reduce_mean, REDUCED, "Mean of all values, or over some axes."),
    MR_ENTRY("max", mr_bind_reduce_max, REDUCED, "Largest value of all, or over some axes."),
    MR_ENTRY("min", mr_bind_reduce_min, REDUCED, "Smallest value of all, or over some axes."),
    MR_ENTRY("norm", mr_bind_reduce_norm, REDUCED,
             "Root of the sum of squares of all values, or over some axes."),
    MR_ENTRY("item", t_item, "(): number", "The value of a tensor with one element."),
    MR_ENTRY("totable", t_totable, "(): any[]", "All values as a flat list."),
    MR_ENTRY("bytes", t_bytes, "(): string", "All values as raw bytes."),
    MR_ENTRY("ptr", t_ptr, "(): lightuserdata, integer",
             "Address and bytes of a dense tensor; valid while it lives."),
    MR_ENTRY("copy_from", t_copy_from, "(values: mr.Tensor): mr.Tensor",
             "Copy another tensor of this shape into it; returns itself."),
    MR_ENTRY("fill_normal", t_fill_normal,
             "(seed: integer, purpose: string, key?: integer, epoch?: integer): mr.Tensor",
             "Fill a dense f32 tensor with standard normal numbers; returns itself."),
    MR_ENTRY("fill_torch_normal", t_fill_torch_normal,
             "(seed: integer, draws?: integer): mr.Tensor",
             "Fill a dense f32 tensor of at least 16 values as torch.randn does on a CPU, after n "
             "draws of this size; returns itself."),
    MR_ENTRY("__index", t_index, "(key: integer|string): any",
             "A view t[0], t[\"0, :, 3:16\"], a field or a method."),
    MR_ENTRY("__len", t_len, "(): integer", "Length of the first axis."),
    MR_ENTRY("__tostring", t_tostring, "(): string", "Shape, dtype and the first values."),
    MR_ENTRY_OPERATORS("mr.Tensor"),
    MR_ENTRY_END};
static const mr_bind_face tensor_face = {
    "mr.Tensor",
    "A tensor in host memory. t[0] and t[\"0, :, 3:16\"] are views; positions count from 0. "
    "Arithmetic is element-wise, with the broadcasting of numpy.",
    tensor_entries, free_tensor};

MR_BIND_ROOM(tensor)
{
    mr_bind_type(L, &tensor_face);
    mr_bind_module(L, &tensor_module_face);
    luaL_getmetatable(L, TYPE);
    lua_getfield(L, -1, "__methods");
    lua_setfield(L, -3, "methods");
    lua_pop(L, 1);
    return 1;
}
