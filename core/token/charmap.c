/* token: maps characters to their normal form. Each unit of the trie contains the byte that leads
 * to it (its label), the position of its children, and whether a text ends there. If so, its child
 * with label zero contains the offset of the normal form. Licence: Apache-2.0 */
#include "token/room.h"

#include <string.h>

static uint32_t word_at(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

// parts of a unit
static uint32_t label(uint32_t unit)
{
    return unit & 0x800000ffu;
}
static size_t children(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & 0x200) >> 6);
}
static bool ends_text(uint32_t unit)
{
    return unit & 0x100;
}
static bool is_place(uint32_t unit)
{
    return unit & 0x80000000u;
}
static size_t place(uint32_t unit)
{
    return unit & 0x7fffffffu;
}

const char *mr_charmap_open(mr_lent bytes, mr_charmap *out)
{
    *out = (mr_charmap){0};
    if (!bytes.n)
        return NULL;
    if (bytes.n < 4)
        return "is truncated";
    size_t trie = word_at((const unsigned char *)bytes.at);
    if (trie < 4 || trie % 4 || trie > bytes.n - 4)
        return "has a trie whose size does not fit the file";
    out->units = (const unsigned char *)bytes.at + 4, out->n_units = trie / 4;
    out->texts = bytes.at + 4 + trie, out->n_texts = bytes.n - 4 - trie;
    if (!out->n_texts || out->texts[out->n_texts - 1])
        return "does not end with a zero byte";
    for (size_t i = 0; i < out->n_units; i++) {
        uint32_t unit = word_at(out->units + 4 * i);
        if (is_place(unit) && place(unit) >= out->n_texts)
            return "has an offset outside its texts";
    }
    return NULL;
}

size_t mr_charmap_longest(const mr_charmap *map, const char *s, size_t n, mr_lent *out)
{
    size_t longest = 0, at = 0;
    if (!map->n_units)
        return 0;
    at = children(word_at(map->units));
    for (size_t i = 0; i < n; i++) {
        at ^= (unsigned char)s[i];
        uint32_t unit = at < map->n_units ? word_at(map->units + 4 * at) : 0x80000000u;
        if (label(unit) != (unsigned char)s[i])
            break;
        at ^= children(unit);
        uint32_t end = at < map->n_units ? word_at(map->units + 4 * at) : 0;
        if (ends_text(unit) && is_place(end)) {
            longest = i + 1;
            *out = (mr_lent){map->texts + place(end), strlen(map->texts + place(end))};
        }
    }
    return longest;
}
