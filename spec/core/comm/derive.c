/* comm/derive: HMAC-SHA-256 and HKDF as in their RFCs. */
#include "check.h"
#include "comm/seal.h"

static void same(const uint8_t *got, size_t bytes, const char *want)
{
    char text[256];
    for (size_t i = 0; i < bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", got[i]);
    CHECK_STR(text, want);
}

static void fill(uint8_t *at, int value, size_t bytes)
{
    memset(at, value, bytes);
}

/* Ref: RFC 4231, test cases 1, 2 and 6 (a key that is longer than a block). */
static void hmac(void)
{
    static const char ask[] = "what do ya want for nothing?",
                      larger[] = "Test Using Larger Than Block-Size Key - Hash Key First";
    uint8_t key[131], out[SEAL_HASH];
    fill(key, 0x0b, 20);
    seal_hmac(key, 20, "Hi There", 8, out);
    same(out, sizeof out, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    seal_hmac("Jefe", 4, ask, sizeof ask - 1, out);
    same(out, sizeof out, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    fill(key, 0xaa, sizeof key);
    seal_hmac(key, sizeof key, larger, sizeof larger - 1, out);
    same(out, sizeof out, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

/* Lengths at which the padding of SHA-256 needs another block: each is the key of the next, so one
 * wrong value makes the last one wrong. Ref: Python 3.11, hmac. */
static void lengths(void)
{
    uint8_t data[200], key[SEAL_HASH] = {0};
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 7);
    for (size_t n = 0; n <= sizeof data; n++)
        seal_hmac(key, sizeof key, data, n, key);
    same(key, sizeof key, "c8d11ba73dfc614699980ba9c7db2b5d34dc255916fbda962595e03ec241ec35");
}

/* Ref: RFC 5869, A.1 and A.3. */
static void hkdf(void)
{
    static const uint8_t salt[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    uint8_t secret[22], key[SEAL_HASH], out[42];
    fill(secret, 0x0b, sizeof secret);
    seal_hmac(salt, sizeof salt, secret, sizeof secret, key);
    same(key, sizeof key, "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5");
    seal_expand(key, "\xf0\xf1\xf2\xf3\xf4\xf5\xf6\xf7\xf8\xf9", out, sizeof out);
    same(out, sizeof out,
         "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865");
    seal_hmac(NULL, 0, secret, sizeof secret, key);
    seal_expand(key, "", out, sizeof out);
    same(out, sizeof out,
         "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8");
}

int main(void)
{
    hmac();
    lengths();
    hkdf();
    return check_done();
}
