/* bind: moonreel.core.bench - limits of this machine. Licence: Apache-2.0
 *
 * product_peak(dtype, threads, seconds=0.2) -> {tflops=, m=, n=, k=, how=}
 * memory_rate(threads, seconds=0.2) -> bytes per second
 * max_resident() -> bytes
 * cpu_s() -> processor seconds of this process so far
 * forget_file(path): the page cache drops what it has of a file */
#include "bind/room.h"
#include "moonreel/bench.h"

#include <time.h>

static int b_product_peak(lua_State *L)
{
    mr_dtype dtype = mr_dtype_from_name(luaL_checkstring(L, 1));
    lua_Integer threads = luaL_checkinteger(L, 2);
    mr_bench_peak peak;
    luaL_argcheck(L, dtype == MR_F32 || dtype == MR_BF16, 1, "expected f32 or bf16");
    luaL_argcheck(L, threads >= 1 && threads <= 4096, 2, "expected 1 to 4096 threads");
    mr_bind_check(L, mr_bench_product_peak(dtype, (int)threads, luaL_optnumber(L, 3, 0.2), &peak));
    lua_createtable(L, 0, 5);
    lua_pushnumber(L, peak.tflops), lua_setfield(L, -2, "tflops");
    lua_pushinteger(L, peak.m), lua_setfield(L, -2, "m");
    lua_pushinteger(L, peak.n), lua_setfield(L, -2, "n");
    lua_pushinteger(L, peak.k), lua_setfield(L, -2, "k");
    lua_pushstring(L, peak.how), lua_setfield(L, -2, "how");
    return 1;
}

static int b_memory_rate(lua_State *L)
{
    lua_Integer threads = luaL_checkinteger(L, 1);
    double rate;
    luaL_argcheck(L, threads >= 1 && threads <= 4096, 1, "expected 1 to 4096 threads");
    mr_bind_check(L, mr_bench_memory_rate((int)threads, luaL_optnumber(L, 2, 0.2), &rate));
    lua_pushnumber(L, rate);
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

static const mr_bind_row bench_rows[] = {
    MR_ROW("product_peak", b_product_peak,
           "(dtype: mr.Dtype, threads: integer, seconds?: number): table",
           "The fastest product of matrices in f32 or bf16: {tflops, m, n, k, how}."),
    MR_ROW("memory_rate", b_memory_rate, "(threads: integer, seconds?: number): number",
           "Bytes per second that the threads read together."),
    MR_ROW("max_resident", b_max_resident, "(): integer",
           "The most memory that this process had, in bytes."),
    MR_ROW("cpu_s", b_cpu_s, "(): number", "Processor seconds of this process so far."),
    MR_ROW("forget_file", b_forget_file, "(path: string)",
           "The page cache drops what it has of a file."),
    MR_ROW_END};
static const mr_bind_face bench_face = {"moonreel.core.bench", "Limits of this machine.",
                                        bench_rows, NULL};

MR_BIND_ROOM(bench)
{
    return mr_bind_module(L, &bench_face);
}
