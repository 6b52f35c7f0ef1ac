/* bind: moonreel.core.gpu - facts and readings of GPUs, from NVML. Licence: Apache-2.0
 *
 * open() -> gpus: gpus:count(), gpus:driver(), gpus:read(i) -> table, gpus:find(bus) -> i or nil,
 * gpus:close(). GPUs count from 0, as in "cuda:0". */
#include "bind/room.h"
#include "moonreel/gpu.h"

static const char type[] = "mr.Gpus";

static void free_gpus(void *object)
{
    mr_gpus_close(object);
}

static int g_open(lua_State *L)
{
    void **box = mr_bind_box(L, type);
    mr_gpus *gpus;
    mr_bind_check(L, mr_gpus_open(&gpus));
    *box = gpus;
    return 1;
}

static int g_count(lua_State *L)
{
    lua_pushinteger(L, mr_gpus_count(mr_bind_unbox(L, 1, type)));
    return 1;
}

static int g_driver(lua_State *L)
{
    lua_pushstring(L, mr_gpus_driver(mr_bind_unbox(L, 1, type)));
    return 1;
}

// set a field, unless the driver has no value
static void set_integer(lua_State *L, const char *name, int64_t value)
{
    if (value < 0)
        return;
    lua_pushinteger(L, value);
    lua_setfield(L, -2, name);
}

static void set_number(lua_State *L, const char *name, double value)
{
    if (value < 0)
        return;
    lua_pushnumber(L, value);
    lua_setfield(L, -2, name);
}

static void set_slow(lua_State *L, unsigned slow)
{
    static const struct {
        unsigned bit;
        const char *name;
    } reasons[] = {{MR_GPU_SLOW_POWER, "power"},
                   {MR_GPU_SLOW_HEAT, "heat"},
                   {MR_GPU_SLOW_BRAKE, "brake"},
                   {MR_GPU_SLOW_HARDWARE, "hardware"}};
    int n = 0;
    lua_newtable(L);
    for (size_t i = 0; i < MR_COUNT(reasons); i++)
        if (slow & reasons[i].bit) {
            lua_pushstring(L, reasons[i].name);
            lua_rawseti(L, -2, ++n);
        }
    lua_setfield(L, -2, "slow");
}

static void set_processes(lua_State *L, const mr_gpu_state *s)
{
    if (s->processes < 0)
        return;
    lua_newtable(L);
    for (int i = 0; i < MR_MIN(s->processes, MR_GPU_PROCESSES); i++) {
        lua_newtable(L);
        set_integer(L, "pid", s->pid[i]);
        set_integer(L, "bytes", s->pid_bytes[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "processes");
}

static int g_read(lua_State *L)
{
    mr_gpus *gpus = mr_bind_unbox(L, 1, type);
    mr_gpu_state s;
    mr_bind_check(L, mr_gpus_read(gpus, (int)luaL_checkinteger(L, 2), &s));
    lua_newtable(L);
    MR_BIND_SET(L, s, name, bus);
    set_integer(L, "memory_bytes", s.memory_bytes);
    set_integer(L, "free_bytes", s.free_bytes);
    set_number(L, "power_w", s.power_w);
    set_number(L, "limit_w", s.limit_w);
    set_integer(L, "clock_mhz", s.clock_mhz);
    set_integer(L, "most_mhz", s.most_mhz);
    set_integer(L, "temperature_c", s.temperature_c);
    set_integer(L, "busy_percent", s.busy_percent);
    set_integer(L, "memory_errors", s.memory_errors);
    set_slow(L, s.slow);
    set_processes(L, &s);
    return 1;
}

static int g_find(lua_State *L)
{
    int i = mr_gpus_find(mr_bind_unbox(L, 1, type), luaL_checkstring(L, 2));
    if (i < 0)
        lua_pushnil(L);
    else
        lua_pushinteger(L, i);
    return 1;
}

static const mr_bind_entry module_entries[] = {
    MR_ENTRY("open", g_open, "(): mr.Gpus",
             "The GPUs that NVIDIA's driver reports; raises MR_E_UNSUPPORTED without a driver. "
             "MOONREEL_NVML names another library."),
    MR_ENTRY_END};
static const mr_bind_face module_face = {"moonreel.core.gpu", "Facts and readings of GPUs.",
                                         module_entries, NULL};

static const mr_bind_entry rows[] = {
    MR_ENTRY("count", g_count, "(): integer", "How many there are."),
    MR_ENTRY("driver", g_driver, "(): string", "The version of the driver."),
    MR_ENTRY("read", g_read, "(i: integer): table",
             "Read GPU i, from 0: {name, bus, memory_bytes, free_bytes, power_w, limit_w, "
             "clock_mhz, most_mhz, temperature_c, busy_percent, memory_errors, slow = {why}, "
             "processes = {{pid, bytes}}}; fields that its driver does not report are absent."),
    MR_ENTRY("find", g_find, "(bus: string): integer|nil", "The one at a PCI address."),
    MR_ENTRY_END};
static const mr_bind_face face = {type, "The GPUs of this machine.", rows, free_gpus};

MR_BIND_ROOM(gpu)
{
    mr_bind_type(L, &face);
    return mr_bind_module(L, &module_face);
}
