/* token/charmap: the longest matching text of a map, and maps whose offsets leave them. */
#include "tokencase.h"

/* Units: the byte that leads here, the offset of the children, whether a text ends here. */
static uint32_t unit(unsigned label, uint32_t offset, bool ends)
{
    return offset << 10 | (ends ? 0x100u : 0) | label;
}
static uint32_t place(uint32_t at)
{
    return 0x80000000u | at;
}

enum { UNITS = 1024 };
static uint32_t units[UNITS];

/* "a" -> "A", "ab" -> "XY", "abcd" -> "": children of the root at 256, of a at 512, of ab at 768,
 * of abc at 900 */
static void build(void)
{
    memset(units, 0, sizeof units);
    units[0] = unit(0, 256, false);
    units[256 ^ 'a'] = unit('a', (256 ^ 'a') ^ 512, true);
    units[512] = place(0);
    units[512 ^ 'b'] = unit('b', (512 ^ 'b') ^ 768, true);
    units[768] = place(2);
    units[768 ^ 'c'] = unit('c', (768 ^ 'c') ^ 900, false);
    units[900 ^ 'd'] = unit('d', (900 ^ 'd') ^ 640, true);
    units[640] = place(5);
}

static const char forms[] = "A\0XY\0"; // and a last zero: the empty form

static const char *open_map(size_t trie_bytes, size_t form_bytes, mr_charmap *map)
{
    static char blob[4 + sizeof units + sizeof forms];
    uint32_t report = (uint32_t)trie_bytes;
    memcpy(blob, &report, 4);
    memcpy(blob + 4, units, sizeof units);
    memcpy(blob + 4 + sizeof units, forms, sizeof forms);
    return mr_charmap_open((mr_lent){blob, 4 + sizeof units + form_bytes}, map);
}

static void check(const mr_charmap *map, const char *text, size_t taken, const char *form)
{
    mr_lent out = {"-", 1};
    CHECK_INT(mr_charmap_longest(map, text, strlen(text), &out), taken);
    CHECK(out.n == strlen(form) && memcmp(out.at, form, out.n) == 0);
}

int main(void)
{
    mr_charmap map;
    build();
    CHECK(!open_map(sizeof units, sizeof forms, &map));
    check(&map, "x", 0, "-");
    check(&map, "", 0, "-");
    check(&map, "a", 1, "A");
    check(&map, "az", 1, "A");
    check(&map, "ab", 2, "XY");
    check(&map, "abc", 2, "XY"); // continues, ends nowhere
    check(&map, "abcde", 4, "");
    mr_lent out;
    CHECK_INT(mr_charmap_longest(&map, "ab", 1, &out), 1);  // no further than the given length
    CHECK_INT(mr_charmap_longest(&map, "a\0", 2, &out), 1); // the place of a form is no child

    // an empty map
    CHECK(!mr_charmap_open((mr_lent){"", 0}, &map));
    check(&map, "a", 0, "-");

    // sizes that do not fit
    CHECK_STR(mr_charmap_open((mr_lent){"ab", 2}, &map), "is truncated");
    CHECK(open_map(sizeof units - 2, sizeof forms, &map) != NULL);
    CHECK(open_map(sizeof units + 100, sizeof forms, &map) != NULL);
    CHECK(open_map(0, sizeof forms, &map) != NULL);
    CHECK_STR(open_map(sizeof units, 2 + 2, &map), "does not end with a zero byte");
    CHECK_STR(open_map(sizeof units, 0, &map), "does not end with a zero byte");
    // a form after the last one
    units[640] = place(sizeof forms);
    CHECK_STR(open_map(sizeof units, sizeof forms, &map), "has an offset outside its texts");
    // children after the last unit are no children
    build();
    units[256 ^ 'a'] = unit('a', 1 << 20, true);
    CHECK(!open_map(sizeof units, sizeof forms, &map));
    check(&map, "ab", 0, "-");
    // not even when bytes follow that look like them
    build();
    CHECK(!open_map(900 * 4, sizeof forms, &map));
    CHECK_INT(mr_charmap_longest(&map, "abcd", 4, &out), 2);
    // far children: an offset with the ninth bit counts 256 times
    units[256 ^ 'a'] = 2u << 10 | 0x200u | 0x100u | 'a'; // 512 away
    units[(256 ^ 'a') ^ 512] = place(2);
    CHECK(!open_map(sizeof units, sizeof forms, &map));
    check(&map, "ab", 1, "XY");
    return check_done();
}
