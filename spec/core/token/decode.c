/* token/decode: sequences of pieces, spaces, bytes, and pieces that stand for a control token. */
#include "tokencase.h"

#define S MR_TOKEN_SPACE

static const char *text_of(const mr_tokenizer *t, size_t n, const int32_t *ids)
{
    static char out[256];
    char *s;
    size_t bytes;
    *out = 0;
    if (CHECK_OK(mr_tokenizer_decode(t, ids, n, &s, &bytes)))
        snprintf(out, sizeof out, "%s", s);
    mr_free(s);
    return out;
}
#define TEXT(t, ...)                                                                               \
    text_of(t, MR_COUNT(((int32_t[]){__VA_ARGS__})), (const int32_t[]){__VA_ARGS__})

static mr_tokenizer *with(uint64_t prefix, uint64_t remove_extra, bool more)
{
    model m = {0};
    put_piece(&m, "<unk>", 0, MR_PIECE_UNKNOWN);
    put_piece(&m, S "a", 0, MR_PIECE_NORMAL);   // 1
    put_piece(&m, "b" S, 0, MR_PIECE_NORMAL);   // 2
    put_piece(&m, S, 0, MR_PIECE_NORMAL);       // 3
    put_piece(&m, "</s>", 0, MR_PIECE_CONTROL); // 4
    put_piece(&m, "<0xC3>", 0, MR_PIECE_BYTE);  // 5
    put_piece(&m, "<0xA9>", 0, MR_PIECE_BYTE);  // 6
    put_piece(&m, "<me>", 0, MR_PIECE_USER);    // 7
    put_flags(&m, 3, FLAGS({3, prefix}, {4, remove_extra}, {5, 1}));
    if (more) {
        put_text(&m, 2, "\xe2\x02\x03(?)", 6);
        put_flags(&m, 5, FLAGS({3, 0}, {4, 1}, {5, 0}));
    }
    return open_model(&m);
}

int main(void)
{
    mr_tokenizer *t = with(1, 1, false);
    CHECK_STR(text_of(t, 0, NULL), "");
    CHECK_STR(TEXT(t, 1, 1), "a a");
    CHECK_STR(TEXT(t, 3, 3, 1), "a"); // all leading spaces are removed
    CHECK_STR(TEXT(t, 4, 1, 4), "a");
    CHECK_STR(TEXT(t, 2, 1), "b  a");
    CHECK_STR(TEXT(t, 0, 1), " \xe2\x81\x87  a");
    CHECK_STR(TEXT(t, 7, 7), "<me><me>");
    // bytes become characters when they form some
    CHECK_STR(TEXT(t, 5, 6, 1), "\xc3\xa9 a");
    CHECK_STR(TEXT(t, 1, 6, 5, 5, 6), "a" MR_TOKEN_REPLACE MR_TOKEN_REPLACE "\xc3\xa9");
    mr_tokenizer_close(t);

    t = with(1, 0, false);
    CHECK_STR(TEXT(t, 3, 3, 1), "  a"); // the added one is removed
    mr_tokenizer_close(t);
    t = with(0, 0, false);
    CHECK_STR(TEXT(t, 3, 1), "  a");
    mr_tokenizer_close(t);

    t = with(1, 1, true);
    CHECK_STR(TEXT(t, 0, 3, 3, 1), "(?) a"); // rules of its own for the output
    char *s;
    size_t n;
    CHECK_FAILS(mr_tokenizer_decode(t, (int32_t[]){1, 8}, 2, &s, &n), MR_E_RANGE,
                "id 8; expected 0 to 7");
    CHECK(!s);
    CHECK_INT(mr_tokenizer_decode(t, (int32_t[]){-1}, 1, &s, &n), MR_E_RANGE);
    mr_alloc_fail_at(1);
    CHECK_INT(mr_tokenizer_decode(t, (int32_t[]){5}, 1, &s, &n), MR_E_MEMORY);
    mr_alloc_fail_at(0);
    mr_tokenizer_close(t);
    return check_done();
}
