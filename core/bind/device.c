/* bind: mr.Device of moonreel.core.exec - a device and its properties. An executor that only plans
 * takes the properties of a device that is not present. Licence: Apache-2.0 */
#include "bind/room.h"
#include "cpu/cpu.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void mr_bind_device_unref(void *object)
{
    device *d = object;
    if (--d->refs)
        return;
    mr_device_close(d->dev);
    mr_free(d);
}

device *mr_bind_device(lua_State *L, int arg)
{
    return mr_bind_unbox(L, arg, "mr.Device");
}

/* device(name = MOONREEL_DEVICE or "cpu", threads = all) */
int mr_bind_device_open(lua_State *L)
{
    const char *env = getenv("MOONREEL_DEVICE"),
               *name = luaL_optstring(L, 1, env && *env ? env : "cpu");
    lua_Integer threads = luaL_optinteger(L, 2, 0);
    void **box = mr_bind_box(L, "mr.Device");
    device *d;
    if (!MR_NEW(d))
        mr_bind_check(L, mr_fail_memory(sizeof *d));
    d->refs = 1;
    mr_status st = mr_device_open(name, (int)MR_MAX(MR_MIN(threads, INT_MAX), INT_MIN), &d->dev);
    if (st != MR_OK)
        mr_free(d);
    mr_bind_check(L, st);
    *box = d;
    return 1;
}

/* ---- properties ---- */

static int d_facts(lua_State *L)
{
    const mr_facts *f = &mr_bind_device(L, 1)->dev->facts;
    lua_createtable(L, 0, 7);
    MR_BIND_SET(L, *f, device, isa, threads, bf16, amx, bf16_by_f32, host_refused);
    return 1;
}

static int d_refuse_host(lua_State *L)
{
    mr_device *dev = mr_bind_device(L, 1)->dev;
    // a CPU device refuses no host steps
    dev->facts.host_refused = strncmp(dev->facts.device, "cuda", 4) == 0;
    return 0;
}

// bus() -> PCI address, or nil
static int d_bus(lua_State *L)
{
    const char *bus = mr_bind_device(L, 1)->dev->bus;
    if (*bus)
        lua_pushstring(L, bus);
    else
        lua_pushnil(L);
    return 1;
}

/* rates(dtype) -> table, measured at the first call: per kind {operations, bytes} per second; step:
 * seconds per step */
static int d_rates(lua_State *L)
{
    mr_rates r;
    mr_bind_check(L, mr_device_rates(mr_bind_device(L, 1)->dev, mr_bind_dtype(L, 2), &r));
    lua_createtable(L, 0, MR_RATED + 1);
    for (int i = 0; i < MR_RATED; i++) {
        if (!(r.of[i].flop_s > 0))
            continue;
        lua_createtable(L, 2, 0);
        lua_pushnumber(L, r.of[i].flop_s), lua_seti(L, -2, 1);
        lua_pushnumber(L, r.of[i].bytes_s), lua_seti(L, -2, 2);
        lua_setfield(L, -2, mr_rates_kind(i));
    }
    lua_pushnumber(L, r.step_s), lua_setfield(L, -2, "step");
    return 1;
}

/* memory() -> free, total */
static int d_memory(lua_State *L)
{
    size_t free_bytes, total;
    mr_bind_check(L, mr_device_memory(mr_bind_device(L, 1)->dev, &free_bytes, &total));
    lua_pushinteger(L, (lua_Integer)free_bytes);
    lua_pushinteger(L, (lua_Integer)total);
    return 2;
}

static int d_compute(lua_State *L)
{
    lua_pushstring(
        L, mr_dtype_name(mr_device_compute(mr_bind_device(L, 1)->dev, mr_bind_dtype(L, 2))));
    return 1;
}

/* ---- properties given as a table ---- */

typedef struct facts_table {
    const char *device, *isa;
    int64_t threads;
    bool bf16, amx, bf16_by_f32, host_refused;
} facts_table;

static const mr_bind_field facts_fields[] = {
    MR_BIND_STR("device", facts_table, device, "cpu."),
    MR_BIND_STR("isa", facts_table, isa, "base, avx2 or avx512."),
    MR_BIND_INT("threads", facts_table, threads, 1, 1, "Threads of its team."),
    MR_BIND_BOOL("bf16", facts_table, bf16, "bf16 products are fast."),
    MR_BIND_BOOL("amx", facts_table, amx, "It has AMX tiles."),
    MR_BIND_BOOL("bf16_by_f32", facts_table, bf16_by_f32,
                 "bf16 products are faster with f32 instructions."),
    MR_BIND_BOOL("host_refused", facts_table, host_refused,
                 "A step that its kernels do not support is an error."),
    MR_BIND_END};

/* The facts in the table on top of the stack, or those of this processor. */
mr_facts mr_bind_facts(lua_State *L)
{
    facts_table t;
    mr_facts f = mr_cpu_facts("cpu", mr_isa(), 0);
    if (lua_isnil(L, -1))
        return f;
    mr_bind_options(L, lua_gettop(L), "exec.plan: facts", facts_fields, &t);
    f.threads = (int)MR_MIN(t.threads, (int64_t)INT_MAX), f.bf16 = t.bf16, f.amx = t.amx;
    f.bf16_by_f32 = t.bf16_by_f32, f.host_refused = t.host_refused;
    snprintf(f.device, sizeof f.device, "%s", t.device ? t.device : "cpu");
    snprintf(f.isa, sizeof f.isa, "%s", t.isa ? t.isa : "");
    return f;
}

static const mr_bind_entry device_entries[] = {
    MR_ENTRY("facts", d_facts, "(): table",
             "{device, isa, threads, bf16, amx, bf16_by_f32, host_refused}."),
    MR_ENTRY("refuse_host", d_refuse_host, "()",
             "From now on, compiling a graph is an error if no kernel of this GPU supports a step, "
             "which would run on the host."),
    MR_ENTRY("bus", d_bus, "(): string|nil", "The PCI address of a GPU."),
    MR_ENTRY("memory", d_memory, "(): integer, integer",
             "Free bytes and total bytes of its memory."),
    MR_ENTRY("rates", d_rates, "(compute: mr.Dtype): table",
             "Its rates in f32 or bf16, measured at the first call: per kind of step (linear, "
             "conv3d_dx, attention by lanes, ...; elementwise for all others) {operations, bytes} "
             "per second; step: fixed seconds per step."),
    MR_ENTRY("compute", d_compute, "(wish: mr.Dtype): mr.Dtype",
             "The dtype to compute in: bf16 only if it is fast."),
    MR_ENTRY_END};
static const mr_bind_face device_face = {"mr.Device", "A device that runs programs.",
                                         device_entries, mr_bind_device_unref};

void mr_bind_device_type(lua_State *L)
{
    mr_bind_type(L, &device_face);
}
