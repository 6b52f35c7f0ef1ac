/* bind: moonreel.core.generator - the random generators of the reference implementations, for
 * moonreel.data.generators. Licence: Apache-2.0 */
#include "bind/room.h"
#include "moonreel/generator.h"

#define TWISTER "mr.Twister"
#define PCG     "mr.Pcg64"

static mr_twister *push_twister(lua_State *L)
{
    void **box = mr_bind_box(L, TWISTER);
    mr_twister *t;
    mr_bind_check(L, MR_NEW(t) ? MR_OK : mr_fail_memory(sizeof *t));
    return *box = t;
}

static int l_torch(lua_State *L)
{
    uint64_t seed = (uint64_t)luaL_checkinteger(L, 1);
    mr_twister_seed(push_twister(L), (uint32_t)seed);
    return 1;
}

static int l_python(lua_State *L)
{
    lua_Integer given = luaL_checkinteger(L, 1);
    uint64_t seed = given < 0 ? -(uint64_t)given : (uint64_t)given;
    const uint32_t words[] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    mr_twister_seed_words(push_twister(L), words, words[1] ? 2 : 1);
    return 1;
}

static int l_numpy(lua_State *L)
{
    lua_Integer seed = luaL_checkinteger(L, 1);
    luaL_argcheck(L, seed >= 0, 1, "expected 0 or more");
    void **box = mr_bind_box(L, PCG);
    mr_pcg64 *p;
    mr_bind_check(L, MR_NEW(p) ? MR_OK : mr_fail_memory(sizeof *p));
    *box = p;
    mr_pcg64_seed(p, (uint64_t)seed);
    return 1;
}

static int twister_word(lua_State *L)
{
    lua_pushinteger(L, mr_twister_next(mr_bind_unbox(L, 1, TWISTER)));
    return 1;
}

static int pcg_random(lua_State *L)
{
    lua_pushnumber(L, mr_pcg64_next(mr_bind_unbox(L, 1, PCG)));
    return 1;
}

static const mr_bind_entry twister_entries[] = {
    MR_ENTRY("word", twister_word, "(): integer", "The next 32 bits."), MR_ENTRY_END};
static const mr_bind_face twister_face = {TWISTER, "A Mersenne twister.", twister_entries, mr_free};

static const mr_bind_entry pcg_entries[] = {
    MR_ENTRY("random", pcg_random, "(): number", "The next number in [0, 1), of 53 bits."),
    MR_ENTRY_END};
static const mr_bind_face pcg_face = {PCG, "A generator of numpy.", pcg_entries, mr_free};

static const mr_bind_entry module_entries[] = {
    MR_ENTRY("torch", l_torch, "(seed: integer): mr.Twister",
             "As torch's CPU generator after manual_seed."),
    MR_ENTRY("python", l_python, "(seed: integer): mr.Twister",
             "As Python's random after seed, which uses the absolute value."),
    MR_ENTRY("numpy", l_numpy, "(seed: integer): mr.Pcg64", "As numpy.random.default_rng."),
    MR_ENTRY_END};
static const mr_bind_face module_face = {
    "moonreel.core.generator",
    "Generators of the reference implementations; use moonreel.data.generators.", module_entries,
    NULL};

MR_BIND_ROOM(generator)
{
    mr_bind_type(L, &twister_face);
    mr_bind_type(L, &pcg_face);
    return mr_bind_module(L, &module_face);
}
