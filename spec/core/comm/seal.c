/* comm/seal: SipHash-2-4 as its authors have it. */
#include "check.h"
#include "comm/room.h"

int main(void)
{
    // Ref: Aumasson & Bernstein 2012, appendix A, and vectors.h of their reference code
    static const uint64_t want[16] = {
        0x726fdb47dd0e0e31, 0x74f839c593dc67fd, 0x0d6c8009d9a94f5a, 0x85676696d7fb7e2d,
        0xcf2794e0277187b7, 0x18765564cd99a68d, 0xcbc9466e58fee3ce, 0xab0200f58b01d137,
        0x93f5f5799a932462, 0x9e0082df0ba9e4b0, 0x7a5dbbc594ddb9f3, 0xf4b32f46226bada7,
        0x751e8fbc860ee5fb, 0x14ea5627c0843d90, 0xf723ca908e7af2ee, 0xa129ca6149be45e5};
    const uint64_t key[2] = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
    uint8_t data[16];
    for (int i = 0; i < 16; i++)
        data[i] = (uint8_t)i;
    for (size_t n = 0; n < 16; n++)
        CHECK(comm_seal(key, data, n) == want[n]);
    return check_done();
}
