/* token: normalizes a text: maps characters, and treats spaces as the flags of the model say.
 * Licence: Apache-2.0 */
#include "token/room.h"

#include <string.h>

enum { TEXT_MAX = 64 << 20, POLL = 4096 };

/* ---- one character ---- */

/* The length of the longest user-defined piece that a text begins with; 0 if there is no such
 * piece. */
static size_t user_piece(const mr_tokenizer *t, const char *s, size_t n)
{
    size_t longest = 0;
    mr_piece_range range = mr_pieces_all(t);
    for (size_t i = 0; i < n && mr_pieces_step(t, &range, (unsigned char)s[i]); i++) {
        int id = mr_pieces_here(t, &range);
        if (id >= 0 && t->pieces[id].kind == MR_PIECE_USER)
            longest = i + 1;
    }
    return longest;
}

/* Normalize the first character or user-defined piece of a text, except for spaces. *out is the
 * result; returns the number of bytes consumed. User-defined pieces do not change. */
static size_t front(const mr_tokenizer *t, const mr_normal_rules *rules, const char *s, size_t n,
                    mr_lent *out)
{
    uint32_t code;
    size_t taken = rules == &t->normal && t->has_user ? user_piece(t, s, n) : 0;
    if (!taken && (taken = mr_charmap_longest(&rules->map, s, n, out)))
        return taken;
    if (!taken && !(taken = mr_utf8(s, n, &code))) {
        *out = (mr_lent){MR_TOKEN_REPLACE, 3};
        return 1;
    }
    *out = (mr_lent){s, taken};
    return taken;
}

/* ---- the whole text ---- */

static void put_space(const mr_normal_rules *rules, mr_text *out)
{
    mr_text_put(out, rules->escape ? MR_TOKEN_SPACE : " ", rules->escape ? 3 : 1);
}

static void put(const mr_normal_rules *rules, mr_lent x, mr_text *out)
{
    for (; x.n; x.at++, x.n--) {
        if (*x.at == ' ')
            put_space(rules, out);
        else
            mr_text_put(out, x.at, 1);
    }
}

static void drop_spaces_behind(const mr_normal_rules *rules, mr_text *out)
{
    const char *space = rules->escape ? MR_TOKEN_SPACE : " ";
    size_t n = strlen(space);
    while (out->used >= n && memcmp(out->data + out->used - n, space, n) == 0)
        out->data[out->used -= n] = 0;
}

mr_status mr_normalize(const mr_tokenizer *t, const mr_normal_rules *rules, const char *text,
                       size_t bytes, mr_text *out)
{
    mr_lent x;
    size_t at = 0;
    if (bytes > TEXT_MAX)
        return mr_fail(MR_E_RANGE, "%s: cannot normalize a text of %zu bytes; expected at most %d",
                       t->path, bytes, TEXT_MAX);
    // skip leading spaces
    for (size_t n; rules->remove_extra && at < bytes; at += n) {
        n = front(t, rules, text + at, bytes - at, &x);
        if (x.n != 1 || *x.at != ' ')
            break;
    }
    if (at == bytes)
        return MR_OK;
    if (rules->prefix && !t->space_after)
        put_space(rules, out);
    bool after_space = rules->remove_extra;
    for (size_t n, k = 0; at < bytes; at += n, k++) {
        if (k % POLL == 0)
            MR_TRY(mr_interrupt_check());
        n = front(t, rules, text + at, bytes - at, &x);
        for (; after_space && x.n && *x.at == ' '; x.at++)
            x.n--;
        put(rules, x, out);
        // a character that maps to nothing does not change whether a space precedes
        if (x.n)
            after_space = rules->remove_extra && x.at[x.n - 1] == ' ';
    }
    if (rules->remove_extra)
        drop_spaces_behind(rules, out);
    if (rules->prefix && t->space_after)
        put_space(rules, out);
    return MR_OK;
}

mr_status mr_token_take(mr_text *text, mr_status st, char **out, size_t *n)
{
    *out = NULL, *n = 0;
    if (st != MR_OK) {
        mr_free(text->data);
        return st;
    }
    MR_TRY(mr_text_end(text, out));
    *n = text->used;
    return MR_OK;
}

mr_status mr_tokenizer_normal(const mr_tokenizer *t, const char *text, size_t bytes, char **out,
                              size_t *n)
{
    mr_text normal = {0};
    mr_status st = mr_normalize(t, &t->normal, text, bytes, &normal);
    return mr_token_take(&normal, st, out, n);
}
