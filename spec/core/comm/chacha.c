/* comm/chacha: ChaCha20-Poly1305 as in RFC 8439, and as libcrypto computes it: each of the two
 * opens what the other sealed.
 * Covers: core/comm/libcrypto.c */
#include "check.h"
#include "comm/seal.h"

enum { MOST = 1100 };

static void same(const uint8_t *got, size_t bytes, const char *want)
{
    char text[256];
    for (size_t i = 0; i < bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", got[i]);
    CHECK_STR(text, want);
}

static void from_hex(const char *hex, uint8_t *out)
{
    for (size_t i = 0; hex[2 * i]; i++) {
        const char two[3] = {hex[2 * i], hex[2 * i + 1], 0};
        out[i] = (uint8_t)strtoul(two, NULL, 16);
    }
}

static void tag_of(const char *key, const char *text, const char *want)
{
    uint8_t k[SEAL_KEY], t[64], tag[SEAL_TAG];
    poly1305 p;
    from_hex(key, k), from_hex(text, t);
    poly1305_begin(&p, k);
    // in two calls if there are two blocks
    const size_t bytes = strlen(text) / 2, first = bytes / 2 / 16 * 16;
    poly1305_add(&p, t, first), poly1305_add(&p, t + first, bytes - first);
    poly1305_end(&p, tag);
    same(tag, sizeof tag, want);
}

/* Ref: RFC 8439, A.3, numbers 1 and 7 to 11: sums at 2^130 - 5 and carries between limbs. */
static void sums(void)
{
    static const char zero[] = "0000000000000000000000000000000000000000000000000000000000000000",
                      one[] = "0100000000000000000000000000000000000000000000000000000000000000",
                      two[] = "0200000000000000000000000000000000000000000000000000000000000000",
                      pad[] = "02000000000000000000000000000000ffffffffffffffffffffffffffffffff",
                      four[] = "0100000000000000040000000000000000000000000000000000000000000000";
    tag_of(zero, zero, "00000000000000000000000000000000");
    tag_of(two, "ffffffffffffffffffffffffffffffff", "03000000000000000000000000000000");
    tag_of(pad, "02000000000000000000000000000000", "03000000000000000000000000000000");
    tag_of(one,
           "fffffffffffffffffffffffffffffffff0ffffffffffffffffffffffffffffff"
           "11000000000000000000000000000000",
           "05000000000000000000000000000000");
    tag_of(one,
           "fffffffffffffffffffffffffffffffffbfefefefefefefefefefefefefefefe"
           "01010101010101010101010101010101",
           "00000000000000000000000000000000");
    tag_of(two, "fdffffffffffffffffffffffffffffff", "faffffffffffffffffffffffffffffff");
    tag_of(four,
           "e33594d7505e43b900000000000000003394d7505e4379cd01000000000000000000000000000000"
           "000000000000000001000000000000000000000000000000",
           "14000000000000005500000000000000");
    tag_of(
        four,
        "e33594d7505e43b900000000000000003394d7505e4379cd010000000000000000000000000000000000000000"
        "000000",
        "13000000000000000000000000000000");
}

/* Ref: RFC 8439, 2.4.2; its tag, and that of an empty text, by OpenSSL 3.0. */
static void text(void)
{
    static const char said[] = "Ladies and Gentlemen of the class of '99: If I could offer you "
                               "only one tip for the future, sunscreen would be it.";
    uint8_t key[SEAL_KEY], out[sizeof said], tag[SEAL_TAG];
    static const uint8_t nonce[SEAL_NONCE] = {[7] = 0x4a};
    for (int i = 0; i < SEAL_KEY; i++)
        key[i] = (uint8_t)i;
    chacha_seal(key, nonce, said, sizeof said - 1, out, tag);
    same(out, sizeof said - 1,
         "6e2e359a2568f98041ba0728dd0d6981e97e7aec1d4360c20a27afccfd9fae0bf91b65c55247"
         "33ab8f593dabcd62b3571639d624e65152ab8f530c359f0861d807ca0dbf500d6a6156a38e08"
         "8a22b65e52bc514d16ccf806818ce91ab77937365af90bbf74a35be6b40b8eedf2785e42874d");
    same(tag, sizeof tag, "81db63fcb189a03121ae0ac72a3f1f36");
    CHECK(chacha_open(key, nonce, out, sizeof said - 1, true, tag));
    CHECK(memcmp(out, said, sizeof said - 1) == 0);
    chacha_seal(key, nonce, said, 0, out, tag);
    same(tag, sizeof tag, "e9dfc72a53d4cec416165db4717cb0c2");
}

/* In both directions: from our own cipher to libcrypto's, and back; then with a flipped bit.
 * `hidden`: encrypted, else only with a tag. */
static void both(size_t bytes, crypto_key *seals, crypto_key *opens, const uint8_t *key,
                 bool hidden)
{
    uint8_t nonce[SEAL_NONCE] = {(uint8_t)bytes, (uint8_t)(bytes >> 8)};
    uint8_t in[MOST], out[MOST], theirs[MOST], tag[SEAL_TAG], their_tag[SEAL_TAG];
    for (size_t i = 0; i < bytes; i++)
        in[i] = (uint8_t)(i * 31 + bytes);
    memcpy(out, in, bytes), memcpy(theirs, in, bytes);
    chacha_seal(key, nonce, in, bytes, hidden ? out : NULL, tag);
    CHECK(crypto_seal(seals, nonce, in, bytes, hidden ? theirs : NULL, their_tag));
    CHECK(memcmp(out, theirs, bytes) == 0 && memcmp(tag, their_tag, sizeof tag) == 0);
    CHECK(crypto_open(opens, nonce, out, bytes, hidden, tag) && memcmp(out, in, bytes) == 0);
    const size_t at = bytes / 2;
    their_tag[bytes % SEAL_TAG] ^= 1;
    CHECK(!chacha_open(key, nonce, theirs, bytes, hidden, their_tag));
    CHECK(!crypto_open(opens, nonce, out, bytes, hidden, their_tag));
    their_tag[bytes % SEAL_TAG] ^= 1;
    if (bytes) {
        theirs[at] ^= 0x40;
        CHECK(!chacha_open(key, nonce, theirs, bytes, hidden, tag));
        theirs[at] ^= 0x40;
    }
    // a refused text is unchanged
    CHECK(chacha_open(key, nonce, theirs, bytes, hidden, tag) && memcmp(theirs, in, bytes) == 0);
    nonce[SEAL_NONCE - 1]++;
    CHECK(!chacha_open(key, nonce, theirs, bytes, hidden, tag));
}

int main(void)
{
    uint8_t key[SEAL_KEY];
    for (int i = 0; i < SEAL_KEY; i++)
        key[i] = (uint8_t)(i * 5 + 1);
    sums();
    text();
    crypto_key *seals = crypto_new(key, true), *opens = crypto_new(key, false);
    for (size_t bytes = 0; bytes <= MOST && seals && opens; bytes++)
        both(bytes, seals, opens, key, true), both(bytes, seals, opens, key, false);
    if (!seals || !opens)
        printf("libcrypto is not here: nothing to compare with\n");
    crypto_free(seals), crypto_free(opens);
    return check_done();
}
