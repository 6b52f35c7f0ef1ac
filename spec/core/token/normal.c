/* token/normal: spaces by the flags of a model, invalid UTF-8, user-defined pieces. */
#include "tokencase.h"

static mr_tokenizer *with(const uint64_t (*trainer)[2], const uint64_t (*rules)[2])
{
    model m = {0};
    put_piece(&m, "<unk>", 0, MR_PIECE_UNKNOWN);
    put_piece(&m, "a", -1, MR_PIECE_NORMAL);
    put_piece(&m, "b  b", -1, MR_PIECE_USER);
    if (trainer)
        put_flags(&m, 2, trainer);
    put_flags(&m, 3, rules);
    return open_model(&m);
}

#define S MR_TOKEN_SPACE

int main(void)
{
    mr_tokenizer *t = with(NULL, FLAGS({3, 1}, {4, 1}, {5, 1}));
    CHECK_STR(normal_of(t, ""), "");
    CHECK_STR(normal_of(t, "  "), "");
    CHECK_STR(normal_of(t, "a"), S "a");
    CHECK_STR(normal_of(t, "  a   c "), S "a" S "c");
    // user-defined pieces keep their spaces
    CHECK_STR(normal_of(t, "b  b  c"), S "b" S S "b" S "c");
    // only spaces: a tab has no mapping here
    CHECK_STR(normal_of(t, "a\tc"), S "a\tc");
    CHECK_STR(normal_of(t, "a\xff\xc3z\xed\xa0\x80"),
              S "a" MR_TOKEN_REPLACE MR_TOKEN_REPLACE
                "z" MR_TOKEN_REPLACE MR_TOKEN_REPLACE MR_TOKEN_REPLACE);
    mr_tokenizer_close(t);

    t = with(NULL, FLAGS({3, 1}, {4, 0}, {5, 1}));
    CHECK_STR(normal_of(t, "  a  c "), S S S "a" S S "c" S);
    CHECK_STR(normal_of(t, " "), S S);
    mr_tokenizer_close(t);

    t = with(NULL, FLAGS({3, 0}, {4, 1}, {5, 0}));
    CHECK_STR(normal_of(t, "  a  c "), "a c");
    mr_tokenizer_close(t);

    t = with(FLAGS({24, 1}), FLAGS({3, 1}, {4, 1}, {5, 1}));
    CHECK_STR(normal_of(t, " a  c "), "a" S "c" S);
    mr_tokenizer_close(t);

    t = with(NULL, AS_IT_IS);
    CHECK_STR(normal_of(t, " a  c "), " a  c ");
    // too long, stopped, out of memory
    char *s;
    size_t n;
    CHECK_FAILS(mr_tokenizer_normal(t, "a", (size_t)65 << 20, &s, &n), MR_E_RANGE,
                "expected at most 67108864");
    mr_interrupt_set(true);
    CHECK_INT(mr_tokenizer_normal(t, "a", 1, &s, &n), MR_E_STOPPED);
    mr_interrupt_set(false);
    CHECK(!s);
    mr_alloc_fail_at(1);
    CHECK_INT(mr_tokenizer_normal(t, "a", 1, &s, &n), MR_E_MEMORY);
    mr_alloc_fail_at(0);
    mr_tokenizer_close(t);
    return check_done();
}
