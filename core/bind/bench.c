/* bind: moonreel.core.bench - limits of this machine. Licence: Apache-2.0
 *
 * product_peak(dtype, threads, seconds=0.2) -> {tflops=, own=, m=, n=, k=, how=}
 * product_rate(dtype, threads, m, n, k, own=false, seconds=0.2) -> TFLOP/s, the mean of one shape
 * linear(form, dtype, threads, m, n, k, seconds=0.2) -> {seconds=, packing_s=, how=}
 * memory_rate(bytes, threads, seconds=0.2) -> bytes per second, the mean over buffers of that size
 * touch(bytes, threads=0) -> seconds that writing fresh memory once takes
 * resident(), max_resident() -> bytes
 * cpu_s() -> processor seconds of this process so far
 * forget_file(path): the page cache drops what it has of a file */
#include "bind/room.h"
#include "moonreel/bench.h"

#include <time.h>

static int threads_of(lua_State *L, int arg)
{
    lua_Integer threads = luaL_checkinteger(L, arg);
    luaL_argcheck(L, threads >= 1 && threads <= MR_MOST_THREADS, arg, "expected 1 to 4096 threads");
    return (int)threads;
}

static int b_product_peak(lua_State *L)
{
    mr_dtype dtype = mr_dtype_from_name(luaL_checkstring(L, 1));
    int threads = threads_of(L, 2);
    mr_bench_peak peak;
    luaL_argcheck(L, dtype == MR_F32 || dtype == MR_BF16, 1, "expected f32 or bf16");
    mr_bind_check(L, mr_bench_product_peak(dtype, threads, luaL_optnumber(L, 3, 0.2), &peak));
    lua_createtable(L, 0, 6);
    MR_BIND_SET(L, peak, own, tflops, m, n, k, how);
    return 1;
}

static int b_product_rate(lua_State *L)
{
    mr_dtype dtype = mr_dtype_from_name(luaL_checkstring(L, 1));
    int threads = threads_of(L, 2);
    lua_Integer m = luaL_checkinteger(L, 3), n = luaL_checkinteger(L, 4),
                k = luaL_checkinteger(L, 5);
    double tflops;
    luaL_argcheck(L, dtype == MR_F32 || dtype == MR_BF16, 1, "expected f32 or bf16");
    luaL_argcheck(L, m >= 1 && m <= 1 << 20, 3, "expected 1 to 2^20 rows");
    luaL_argcheck(L, n >= 1 && n <= 1 << 20, 4, "expected 1 to 2^20 columns");
    luaL_argcheck(L, k >= 1 && k <= 1 << 20, 5, "expected sums of 1 to 2^20");
    mr_bind_check(L, mr_bench_product_rate(dtype, threads, m, n, k, lua_toboolean(L, 6),
                                           luaL_optnumber(L, 7, 0.2), &tflops));
    lua_pushnumber(L, tflops);
    return 1;
}

static int b_linear(lua_State *L)
{
    static const char *const forms[] = {"forward", "dx", "dw", NULL};
    mr_bench_form form = (mr_bench_form)luaL_checkoption(L, 1, NULL, forms);
    mr_dtype dtype = mr_dtype_from_name(luaL_checkstring(L, 2));
    int threads = threads_of(L, 3);
    lua_Integer dim[3];
    mr_bench_linear r;
    luaL_argcheck(L, dtype == MR_F32 || dtype == MR_BF16, 2, "expected f32 or bf16");
    for (int i = 0; i < 3; i++) {
        dim[i] = luaL_checkinteger(L, 4 + i);
        luaL_argcheck(L, dim[i] >= 1 && dim[i] <= 1 << 20, 4 + i, "expected 1 to 2^20");
    }
    mr_bind_check(L, mr_bench_linear_of(form, dtype, threads, dim[0], dim[1], dim[2],
                                        luaL_optnumber(L, 7, 0.2), &r));
    lua_createtable(L, 0, 3);
    MR_BIND_SET(L, r, seconds, packing_s, how);
    return 1;
}

static int b_memory_rate(lua_State *L)
{
    lua_Integer bytes = luaL_checkinteger(L, 1);
    int threads = threads_of(L, 2);
    double rate;
    luaL_argcheck(L, bytes >= 1 && bytes <= (lua_Integer)1 << 40, 1, "expected 1 to 2^40 bytes");
    mr_bind_check(L, mr_bench_memory_rate(bytes, threads, luaL_optnumber(L, 3, 0.2), &rate));
    lua_pushnumber(L, rate);
    return 1;
}

static int b_touch(lua_State *L)
{
    lua_Integer bytes = luaL_checkinteger(L, 1), threads = luaL_optinteger(L, 2, 0);
    double seconds;
    luaL_argcheck(L, bytes >= 1 && bytes <= (lua_Integer)1 << 40, 1, "expected 1 to 2^40 bytes");
    luaL_argcheck(L, threads >= 0 && threads <= 256, 2, "expected 0 to 256 threads");
    mr_bind_check(L, mr_bench_touch(bytes, (int)threads, &seconds));
    lua_pushnumber(L, seconds);
    return 1;
}

static int b_resident(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)mr_bench_resident());
    return 1;
}

static int b_max_resident(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)mr_bench_max_resident());
    return 1;
}

static int b_cpu_s(lua_State *L)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    lua_pushnumber(L, (double)t.tv_sec + (double)t.tv_nsec * 1e-9);
    return 1;
}

static int b_forget_file(lua_State *L)
{
    mr_bind_check(L, mr_bench_forget_file(luaL_checkstring(L, 1)));
    return 0;
}

static const mr_bind_entry bench_entries[] = {
    MR_ENTRY("product_peak", b_product_peak,
             "(dtype: mr.Dtype, threads: integer, seconds?: number): table",
             "The fastest matrix product in f32 or bf16: {tflops, own, m, n, k, how}."),
    MR_ENTRY("product_rate", b_product_rate,
             "(dtype: mr.Dtype, threads: integer, m: integer, n: integer, k: integer, "
             "own?: boolean, seconds?: number): number",
             "TFLOP/s of the product of [m, k] by [k, n], averaged over the time."),
    MR_ENTRY(
        "linear", b_linear,
        "(form: string, dtype: mr.Dtype, threads: integer, m: integer, n: integer, k: integer, "
        "seconds?: number): table",
        "A product of a linear layer (forward, dx, dw) with m rows and weights [n, k] as a step "
        "runs it, and the packing of the weights only: {seconds, packing_s, how}."),
    MR_ENTRY("memory_rate", b_memory_rate,
             "(bytes: integer, threads: integer, seconds?: number): number",
             "Bytes per second of passes over buffers of this size, averaged over the time."),
    MR_ENTRY("touch", b_touch, "(bytes: integer, threads?: integer): number",
             "Seconds that this many threads (default: one per processor, at most 8) take to write "
             "new memory of this size once."),
    MR_ENTRY("resident", b_resident, "(): integer", "The memory that this process has, in bytes."),
    MR_ENTRY("max_resident", b_max_resident, "(): integer",
             "The peak memory of this process, in bytes."),
    MR_ENTRY("cpu_s", b_cpu_s, "(): number", "Processor seconds of this process so far."),
    MR_ENTRY("forget_file", b_forget_file, "(path: string)", "Drop a file from the page cache."),
    MR_ENTRY_END};
static const mr_bind_face bench_face = {"moonreel.core.bench", "Limits of this machine.",
                                        bench_entries, NULL};

MR_BIND_ROOM(bench)
{
    return mr_bind_module(L, &bench_face);
}
