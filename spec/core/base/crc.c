/* base/crc.c: check values of the two checksums. Ref: zlib; RFC 3720 B.4. */
#include "moonreel/base.h"
#include "check.h"

int main(void)
{
    static const char digits[] = "123456789";
    uint8_t zeros[32] = {0}, up[32];
    CHECK_INT(mr_crc32(0, digits, 9), 0xcbf43926);
    CHECK_INT(mr_crc32c(0, digits, 9), 0xe3069283);
    CHECK_INT(mr_crc32c(0, zeros, sizeof zeros), 0x8a9136aa);
    for (int i = 0; i < 32; i++)
        up[i] = (uint8_t)i;
    CHECK_INT(mr_crc32c(0, up, sizeof up), 0x46dd794e);
    CHECK_INT(mr_crc32(0, "", 0), 0);
    for (size_t i = 0; i <= 9; i++) {
        CHECK_INT(mr_crc32(mr_crc32(0, digits, i), digits + i, 9 - i), 0xcbf43926);
        CHECK_INT(mr_crc32c(mr_crc32c(0, digits, i), digits + i, 9 - i), 0xe3069283);
    }
    return check_done();
}
