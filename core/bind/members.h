/* members: fields of a Lua table from members of a C struct. Licence: Apache-2.0 */
#ifndef MR_BIND_MEMBERS_H
#define MR_BIND_MEMBERS_H

#include <lua.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Set fields of the table on top of the stack from members of a struct with the same names:
 * MR_BIND_SET(L, stats, n, min, max), at most 16. A member is an integer, a float, a bool or a
 * text. */
typedef struct mr_bind_member {
    const char *name;
    char type; /* as in MR_BIND_TYPE; 0 ends the list */
    size_t at;
} mr_bind_member;
void mr_bind_set_members(lua_State *L, const mr_bind_member *members, const void *from);
// clang-format off
#define MR_BIND_SET(L, s, ...)                                                                     \
    mr_bind_set_members(L, (const mr_bind_member[]){                                               \
        MR_BIND_PICK(__VA_ARGS__, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)        \
            (s, __VA_ARGS__), {NULL, 0, 0}}, &(s))
#define MR_BIND_TYPE(x)                                                                            \
    _Generic(&(x), bool *: 'b', const bool *: 'b', uint8_t *: 'c', const uint8_t *: 'c',           \
        uint16_t *: 'h', const uint16_t *: 'h', int *: 'i', const int *: 'i',                      \
        unsigned *: 'u', const unsigned *: 'u', int64_t *: 'l', const int64_t *: 'l',              \
        uint64_t *: 'l', const uint64_t *: 'l', float *: 'f', const float *: 'f',                  \
        double *: 'd', const double *: 'd', const char **: 's', const char *const *: 's',          \
        char **: 's', char *const *: 's',                                                          \
        default: _Generic((x), char *: 't', const char *: 't', default: '?'))
#define MR_BIND_MEMBER(s, m)                                                                       \
    {#m, MR_BIND_TYPE((s).m), offsetof(__typeof__(s), m) + 0 * sizeof(struct {                     \
        _Static_assert(MR_BIND_TYPE((s).m) != '?', #m " is no number, bool or text"); int none; })}
#define MR_BIND_PICK(...) MR_BIND_PICK_(__VA_ARGS__)
#define MR_BIND_PICK_(_1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, _13, _14, _15, _16, n,    \
                      ...)                                                                         \
    MR_BIND_EACH_##n
#define MR_BIND_EACH_1(s, m)      MR_BIND_MEMBER(s, m)
#define MR_BIND_EACH_2(s, m, ...) MR_BIND_MEMBER(s, m), MR_BIND_EACH_1(s, __VA_ARGS__)
#define MR_BIND_EACH_3(s, m, ...) MR_BIND_MEMBER(s, m), MR_BIND_EACH_2(s, __VA_ARGS__)
#define MR_BIND_EACH_4(s, m, ...) MR_BIND_MEMBER(s, m), MR_BIND_EACH_3(s, __VA_ARGS__)
#define MR_BIND_EACH_5(s, m, ...) MR_BIND_MEMBER(s, m), MR_BIND_EACH_4(s, __VA_ARGS__)
#define MR_BIND_EACH_6(s, m, ...) MR_BIND_MEMBER(s, m), MR_BIND_EACH_5(s, __VA_ARGS__)
#define MR_BIND_EACH_7(s, m, ...) MR_BIND_MEMBER(s, m), MR_BIND_EACH_6(s, __VA_ARGS__)
#define MR_BIND_EACH_8(s, m, ...) MR_BIND_MEMBER(s, m), MR_BIND_EACH_7(s, __VA_ARGS__)
#define MR_BIND_EACH_9(s, m, ...) MR_BIND_MEMBER(s, m), MR_BIND_EACH_8(s, __VA_ARGS__)
#define MR_BIND_EACH_10(s, m, ...) MR_BIND_MEMBER(s, m), MR_BIND_EACH_9(s, __VA_ARGS__)
#define MR_BIND_EACH_11(s, m, ...) MR_BIND_MEMBER(s, m), MR_BIND_EACH_10(s, __VA_ARGS__)
#define MR_BIND_EACH_12(s, m, ...) MR_BIND_MEMBER(s, m), MR_BIND_EACH_11(s, __VA_ARGS__)
#define MR_BIND_EACH_13(s, m, ...) MR_BIND_MEMBER(s, m), MR_BIND_EACH_12(s, __VA_ARGS__)
#define MR_BIND_EACH_14(s, m, ...) MR_BIND_MEMBER(s, m), MR_BIND_EACH_13(s, __VA_ARGS__)
#define MR_BIND_EACH_15(s, m, ...) MR_BIND_MEMBER(s, m), MR_BIND_EACH_14(s, __VA_ARGS__)
#define MR_BIND_EACH_16(s, m, ...) MR_BIND_MEMBER(s, m), MR_BIND_EACH_15(s, __VA_ARGS__)
// clang-format on

#endif
