/* token: decodes ids to text. Licence: Apache-2.0 */
#include "token/room.h"

#include <string.h>

/* Append bytes as text; each byte that is not valid UTF-8 becomes U+FFFD. */
static void put_bytes(const mr_text *bytes, mr_text *out)
{
    uint32_t code;
    for (size_t at = 0, n; at < bytes->used; at += n ? n : 1) {
        n = mr_utf8(bytes->data + at, bytes->used - at, &code);
        mr_text_put(out, n ? bytes->data + at : MR_TOKEN_REPLACE, n ? n : 3);
    }
}

static bool begins_with_space(const char *s, size_t n)
{
    return n >= 3 && memcmp(s, MR_TOKEN_SPACE, 3) == 0;
}

/* Append the text of a piece, with U+2581 replaced by spaces. If `first`, its leading space was
 * added by the normal form and is dropped; *taken then says so. */
static void put_piece(const mr_tokenizer *t, const mr_piece *p, bool first, bool *taken,
                      mr_text *out)
{
    const char *s = p->text;
    size_t n = p->bytes;
    *taken = false;
    if (p->kind == MR_PIECE_CONTROL)
        return;
    if (p->kind == MR_PIECE_UNKNOWN) {
        mr_text_put(out, t->unknown_text.at, t->unknown_text.n);
        return;
    }
    if (first && (t->normal.prefix || t->normal.remove_extra) && begins_with_space(s, n)) {
        s += 3, n -= 3;
        // if the model strips all leading spaces, a space of the next piece is also leading
        *taken = !t->normal.remove_extra;
    }
    while (n) {
        bool space = begins_with_space(s, n);
        mr_text_put(out, space ? " " : s, 1);
        s += space ? 3 : 1, n -= space ? 3 : 1;
    }
}

static int byte_of(const mr_tokenizer *t, int32_t id)
{
    int byte = 0;
    while (byte < 256 && t->bytes[byte] != id)
        byte++;
    return byte;
}

static mr_status put_all(const mr_tokenizer *t, const int32_t *ids, size_t n, mr_text *bytes,
                         mr_text *out)
{
    bool first = true, taken = false;
    for (size_t i = 0; i < n; i++) {
        const mr_piece *p = mr_tokenizer_piece(t, ids[i]);
        if (i % 4096 == 0)
            MR_TRY(mr_interrupt_check());
        if (!p)
            return mr_fail(MR_E_RANGE, "%s: id %d; expected 0 to %d", t->path, ids[i], t->n - 1);
        if (p->kind == MR_PIECE_BYTE) {
            char byte = (char)byte_of(t, ids[i]);
            mr_text_put(bytes, &byte, 1);
            continue;
        }
        put_bytes(bytes, out);
        bytes->used = 0;
        first = first && !taken && !out->used;
        put_piece(t, p, first, &taken, out);
    }
    put_bytes(bytes, out);
    return bytes->failed ? mr_fail_memory(n) : MR_OK;
}

mr_status mr_tokenizer_decode(const mr_tokenizer *t, const int32_t *ids, size_t n, char **out,
                              size_t *bytes)
{
    mr_text text = {0}, spelled = {0}, plain = {0};
    mr_status st = put_all(t, ids, n, &spelled, &text);
    mr_free(spelled.data);
    if (!t->denormalizes || st != MR_OK)
        return mr_token_take(&text, st, out, bytes);
    st = text.failed ? mr_fail_memory(text.cap)
                     : mr_normalize(t, &t->denormal, text.data, text.used, &plain);
    mr_free(text.data);
    return mr_token_take(&plain, st, out, bytes);
}
