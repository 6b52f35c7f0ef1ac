/* comm/seal: records of one direction of a connection, with libcrypto and without, as the
 * environment says. chacha.c shows that both give the same bytes. */
#include "check.h"
#include "comm/seal.h"

enum { BYTES = 100, RECORD = BYTES + SEAL_TAG };

static uint8_t from[SEAL_HASH] = "the secret of one way";

static mr_status opens(seal_way *w, const uint8_t *record, uint8_t *out)
{
    memcpy(out, record, BYTES);
    return seal_open(w, out, BYTES, record + BYTES);
}

static mr_status seals(seal_way *w, const uint8_t *text, uint8_t *record)
{
    memcpy(record, text, BYTES);
    return seal_record(w, text, BYTES, record, record + BYTES);
}

static void records(bool hides)
{
    seal_way out, in;
    uint8_t text[BYTES], record[3][RECORD], got[BYTES];
    memset(text, 'x', sizeof text);
    seal_begin(&out, from, true, hides), seal_begin(&in, from, false, hides);
    for (int i = 0; i < 3; i++)
        CHECK_OK(seals(&out, text, record[i]));
    // the same text makes another record each time, and is readable when it is not encrypted
    CHECK(memcmp(record[0], record[1], RECORD) != 0);
    CHECK(memcmp(record[0] + BYTES, record[1] + BYTES, SEAL_TAG) != 0);
    CHECK_INT(memcmp(record[0], text, BYTES) == 0, !hides);
    CHECK_INT(memcmp(record[0], record[1], BYTES) == 0, !hides);
    CHECK_OK(opens(&in, record[0], got));
    CHECK(memcmp(got, text, BYTES) == 0);
    // repeated, left out, of the other direction; each attempt uses up a number
    const seal_way at_one = in;
    CHECK_FAILS(opens(&in, record[0], got), MR_E_NODE, "record 1 was changed");
    in = at_one;
    CHECK_FAILS(opens(&in, record[2], got), MR_E_NODE, "dropped");
    seal_way other;
    from[0]++;
    seal_begin(&other, from, false, hides);
    from[0]--;
    CHECK_FAILS(opens(&other, record[0], got), MR_E_NODE, "record 0 was");
    in = at_one;
    for (size_t bit = 0; bit < RECORD * 8; bit += 41) {
        record[1][bit / 8] ^= (uint8_t)(1 << bit % 8);
        CHECK_FAILS(opens(&in, record[1], got), MR_E_NODE, "changed");
        record[1][bit / 8] ^= (uint8_t)(1 << bit % 8);
        in = at_one;
    }
    CHECK_OK(opens(&in, record[1], got));
    CHECK_OK(opens(&in, record[2], got));
    seal_end(&out), seal_end(&in), seal_end(&other);
}

/* The nonce combines the iv and the number, big-endian, as in RFC 8446 5.3: two numbers that differ
 * in any byte give different records. */
static void numbers(void)
{
    seal_way w;
    uint8_t nonce[SEAL_NONCE], out[SEAL_TAG], want[SEAL_TAG];
    seal_begin(&w, from, true, false);
    for (int byte = 0; byte < 8; byte++) {
        w.number = 5ull << 8 * byte;
        memcpy(nonce, w.iv, sizeof nonce);
        nonce[SEAL_NONCE - 1 - byte] ^= 5;
        CHECK_OK(seal_record(&w, "", 0, NULL, out));
        chacha_seal(w.key, nonce, "", 0, NULL, want);
        CHECK(memcmp(out, want, sizeof out) == 0);
        CHECK(w.number == (5ull << 8 * byte) + 1);
    }
    seal_end(&w);
}

int main(void)
{
    uint8_t a[2] = {1, 2}, b[2] = {1, 3};
    CHECK(seal_equal(a, b, 1) && !seal_equal(a, b, 2) && seal_equal(a, b, 0));
    records(false);
    records(true);
    numbers();
    return check_done();
}
