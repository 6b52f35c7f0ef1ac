/* token/words: normal form, lower case, spaces, and ends of words. */
#include "tokencase.h"

static char *words_of(const char *text, size_t n)
{
    static char *words;
    size_t bytes;
    mr_free(words);
    CHECK_OK(mr_token_words(text, n, &words, &bytes));
    CHECK_INT(bytes, strlen(words));
    return words;
}

#define WORDS(text) words_of(text, sizeof(text) - 1)

int main(void)
{
    CHECK_STR(WORDS(""), "");
    CHECK_STR(WORDS(" \t\n\v\f\r\xc2\x85\xc2\xa0\xe3\x80\x80"), "");
    CHECK_STR(WORDS("A Red  circle."), "a red circle .");
    // each digit is a word, punctuation in a row is one
    CHECK_STR(WORDS("24fps 1/2 ...!?x"), "2 4 fps 1 / 2 ...!? x");
    CHECK_STR(WORDS("it's WE'LL don't 'twas '"), "it 's we 'll don 't 't was '");
    CHECK_STR(WORDS("!'s"), "!' s");
    // control characters that are no white space are punctuation
    CHECK_STR(WORDS("a\x1c\x1e"), "a \x1c\x1e");
    // e and its accent are one character; a capital whose lower case has two
    CHECK_STR(WORDS("e\xcc\x81"), "\xc3\xa9");
    CHECK_STR(WORDS("\xc4\xb0"), "i \xcc\x87");
    // compatibility forms stay
    CHECK_STR(WORDS("\xef\xac\x81"), "\xef\xac\x81");
    CHECK_STR(WORDS("a\xff z"), "a \xef\xbf\xbd z");
    size_t n;
    char *out;
    CHECK_OK(mr_token_words("a\0b", 3, &out, &n));
    CHECK_INT(n, 5);
    CHECK(memcmp(out, "a \0 b", 5) == 0);
    mr_free(out);
    CHECK_FAILS(mr_token_words("a", (size_t)65 << 20, &out, &n), MR_E_RANGE,
                "expected at most 67108864");
    for (int at = 1; at <= 3; at++) {
        mr_alloc_fail_at(at);
        CHECK_INT(mr_token_words("a b", 3, &out, &n), MR_E_MEMORY);
        mr_alloc_fail_at(0);
        CHECK(!out);
    }
    CHECK_STR(WORDS(""), "");
    return check_done();
}
