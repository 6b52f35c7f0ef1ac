/* token/pieces: pieces with a common prefix are adjacent; each text finds its id, and no other. */
#include "tokencase.h"

static int find(const mr_tokenizer *t, const char *text)
{
    return mr_tokenizer_find(t, text, strlen(text));
}

int main(void)
{
    model m = {0};
    put_piece(&m, "<unk>", 0, MR_PIECE_UNKNOWN);
    static const char *const texts[] = {"b", "ab", "a", "\xff", "abcd", "b\x80", "ba"};
    for (size_t i = 0; i < MR_COUNT(texts); i++)
        put_piece(&m, texts[i], -1, MR_PIECE_NORMAL);
    put_piece(&m, "</s>", 0, MR_PIECE_CONTROL);
    put_piece(&m, "off", 0, MR_PIECE_UNUSED);
    // the same text may also be a control piece
    put_piece(&m, "ab", 0, MR_PIECE_CONTROL);
    put_flags(&m, 3, AS_IT_IS);
    mr_tokenizer *t = open_model(&m);
    if (!t)
        return check_done();

    CHECK_INT(mr_tokenizer_count(t), 11);
    CHECK_INT(find(t, "<unk>"), 0);
    CHECK_INT(mr_tokenizer_unknown(t), 0);
    CHECK_INT(find(t, "b"), 1);
    CHECK_INT(find(t, "a"), 3);
    CHECK_INT(find(t, "\xff"), 4);
    CHECK_INT(find(t, "abcd"), 5);
    CHECK_INT(find(t, "b\x80"), 6);
    CHECK_INT(find(t, "</s>"), 8);
    CHECK_INT(find(t, "off"), 9);
    CHECK_INT(find(t, "ab"), 10); // a control piece comes first
    CHECK_INT(find(t, "abc"), -1);
    CHECK_INT(find(t, "c"), -1);
    CHECK_INT(find(t, ""), -1);
    const mr_piece *p = mr_tokenizer_piece(t, 5);
    CHECK(p && p->bytes == 4 && memcmp(p->text, "abcd", 4) == 0 && p->score == -1);
    CHECK(!mr_tokenizer_piece(t, -1) && !mr_tokenizer_piece(t, 11));
    CHECK_INT(mr_tokenizer_piece(t, 8)->kind, MR_PIECE_CONTROL);

    // one byte after another
    mr_piece_range range = mr_pieces_all(t);
    CHECK(mr_pieces_step(t, &range, 'a'));
    CHECK_INT(mr_pieces_here(t, &range), 3);
    CHECK(mr_pieces_step(t, &range, 'b'));
    CHECK_INT(mr_pieces_here(t, &range), 2);
    CHECK(mr_pieces_step(t, &range, 'c'));
    CHECK_INT(mr_pieces_here(t, &range), -1);
    CHECK(!mr_pieces_step(t, &range, 'e'));
    mr_tokenizer_close(t);
    return check_done();
}
