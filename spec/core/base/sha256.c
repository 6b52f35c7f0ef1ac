/* base/sha256.c: the examples of FIPS 180-4, in one call and in many. */
#include "moonreel/base.h"
#include "check.h"

#include <string.h>

static const char *hex(const char *text, size_t part)
{
    static char out[2 * MR_SHA256_BYTES + 1];
    uint8_t sum[MR_SHA256_BYTES];
    mr_sha256 s;
    mr_sha256_begin(&s);
    for (size_t at = 0, n = strlen(text); at < n; at += part)
        mr_sha256_add(&s, text + at, MR_MIN(part, n - at));
    mr_sha256_finish(&s, sum);
    for (size_t i = 0; i < sizeof sum; i++)
        snprintf(out + 2 * i, 3, "%02x", (unsigned)sum[i]);
    return out;
}

int main(void)
{
    static const char two[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    CHECK_STR(hex("", 1), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK_STR(hex("abc", 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    for (size_t part = 1; part <= sizeof two; part++)
        CHECK_STR(hex(two, part),
                  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    return check_done();
}
