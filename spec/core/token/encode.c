/* token/encode: the segmentation with the best score wins; ties, user-defined pieces, characters
 * outside all pieces. The scores at which segmentations change places were measured with the
 * library (0.2.3). */
#include "tokencase.h"

static mr_tokenizer *of(const model *pieces)
{
    model m = {0};
    put_piece(&m, "<unk>", 0, MR_PIECE_UNKNOWN);
    put(&m, pieces->data, pieces->n);
    put_flags(&m, 3, AS_IT_IS);
    return open_model(&m);
}

static void check(const mr_tokenizer *t, const char *text, const char *ids)
{
    CHECK_STR(ids_of(t, text, strlen(text)), ids);
}

static void best_way(void)
{
    model m = {0};
    put_piece(&m, "a", -1, MR_PIECE_NORMAL);        // 1
    put_piece(&m, "b", -1, MR_PIECE_NORMAL);        // 2
    put_piece(&m, "ab", -1.5f, MR_PIECE_NORMAL);    // 3
    put_piece(&m, "abc", -9, MR_PIECE_NORMAL);      // 4
    put_piece(&m, "bc", -3, MR_PIECE_NORMAL);       // 5
    put_piece(&m, "aa", -2, MR_PIECE_NORMAL);       // 6: as good as two times a
    put_piece(&m, "abab", 0, MR_PIECE_UNUSED);      // 7: never
    put_piece(&m, "</s>", 5, MR_PIECE_CONTROL);     // 8: never
    put_piece(&m, "\xc3\xa9", -2, MR_PIECE_NORMAL); // 9
    mr_tokenizer *t = of(&m);
    check(t, "", "");
    check(t, "a", "1");
    check(t, "ab", "3");
    check(t, "abc", "1 5");
    check(t, "abab", "3 3");
    // of equal segmentations the one whose last piece begins further left wins
    check(t, "aa", "6");
    check(t, "aaa", "1 6");
    check(t, "\xc3\xa9z", "9 0");
    // neighbouring unknown characters are one id; others are not
    check(t, "zzz", "0");
    check(t, "zazz", "0 1 0");
    check(t, "</s>", "0");
    check(t, "\xe6\x97\xa5\xe6\x9c\xac", "0");
    CHECK_STR(ids_of(t, "a\0b", 3), "1 0 2");
    mr_tokenizer_close(t);
}

/* A character outside all pieces costs ten more than the worst piece. */
static void unknown(void)
{
    for (int above = 0; above < 2; above++) {
        model m = {0};
        put_piece(&m, "x", 12, MR_PIECE_NORMAL);
        put_piece(&m, "w", -5, MR_PIECE_NORMAL);
        put_piece(&m, "xy", above ? -2.5f : -3.5f, MR_PIECE_NORMAL);
        mr_tokenizer *t = of(&m);
        check(t, "xy", above ? "3" : "1 0"); // 12 - 15 against it
        mr_tokenizer_close(t);
    }
}

/* A user-defined piece of n bytes scores 0.1 n - 0.1, whatever its own score. */
static void user_pieces(void)
{
    static const char *const texts[] = {"U", "UV", "UVW", "UVWXYZ"};
    for (size_t i = 0; i < MR_COUNT(texts); i++) {
        float gain = (float)(0.1 * (double)strlen(texts[i]) - 0.1);
        for (int above = 0; above < 2; above++) {
            char whole[16];
            model m = {0};
            snprintf(whole, sizeof whole, "x%s", texts[i]);
            put_piece(&m, "x", -5, MR_PIECE_NORMAL);
            // above: just better than x and the user-defined piece
            put_piece(&m, whole, above ? -5 + gain : nextafterf(-5 + gain, -9), MR_PIECE_NORMAL);
            put_piece(&m, texts[i], -3, MR_PIECE_USER);
            mr_tokenizer *t = of(&m);
            check(t, whole, above ? "2" : "1 3");
            mr_tokenizer_close(t);
        }
    }
}

static void in_bytes(void)
{
    model m = {0};
    for (int i = 0; i < 256; i++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", i);
        put_piece(&m, name, 0, MR_PIECE_BYTE);
    }
    put_piece(&m, "a", -1, MR_PIECE_NORMAL);
    put_flags(&m, 2, FLAGS({35, 1}));
    mr_tokenizer *t = of(&m);
    check(t, "a\xc3\xa9z", "257 196 170 123");
    check(t, "<0x41>", "61 49 121 53 50 63");
    mr_tokenizer_close(t);
}

int main(void)
{
    best_way();
    unknown();
    user_pieces();
    in_bytes();

    model m = {0};
    put_piece(&m, "a", -1, MR_PIECE_NORMAL);
    mr_tokenizer *t = of(&m);
    mr_status st = MR_E_MEMORY;
    int32_t *ids;
    size_t n;
    for (int64_t at = 1; st == MR_E_MEMORY && at < 9; at++) {
        mr_alloc_fail_at(at);
        st = mr_tokenizer_encode(t, "aaa", 3, &ids, &n);
        mr_alloc_fail_at(0);
        CHECK(st == MR_OK || (st == MR_E_MEMORY && !ids && !n));
    }
    CHECK_INT(st, MR_OK);
    mr_free(ids);
    mr_tokenizer_close(t);
    return check_done();
}
