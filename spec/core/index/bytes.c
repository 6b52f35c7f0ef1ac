/* data/bytes: written values are read back; input that ends early and failed allocations are
 * remembered. */
#include "check.h"
#include "index/bytes.h"

int main(void)
{
    index_pack p = {0};
    index_put_int(&p, 0x0102030405060708, 8);
    CHECK_INT(p.bytes[0], 8); // little endian
    index_put_varint(&p, 300), index_put_varint(&p, UINT64_MAX);
    index_put(&p, "word", 4);
    index_view v = {.at = p.bytes, .end = p.bytes + p.n};
    CHECK_INT(index_get_int(&v, 8), 0x0102030405060708);
    CHECK_INT(index_get_varint(&v), 300);
    CHECK(index_get_varint(&v) == UINT64_MAX);
    CHECK(memcmp(index_get(&v, 4), "word", 4) == 0);
    CHECK(!v.failed && v.at == v.end);
    CHECK_INT(index_get_int(&v, 1), 0);
    CHECK(v.failed);

    // a number that never ends is damage
    uint8_t endless[11];
    memset(endless, 0xff, sizeof endless);
    v = (index_view){.at = endless, .end = endless + sizeof endless};
    index_get_varint(&v);
    CHECK(v.failed);
    for (int64_t i = -3; i <= 3; i++)
        CHECK_INT(index_unzigzag(index_zigzag(i)), i);
    CHECK(index_unzigzag(index_zigzag(INT64_MIN)) == INT64_MIN);

    // after a failed allocation nothing more is written
    static const char block[1000];
    size_t n = p.n;
    mr_alloc_fail_at(1);
    index_put(&p, block, sizeof block);
    mr_alloc_fail_at(0);
    index_put(&p, block, 1);
    CHECK(p.failed);
    CHECK_INT(p.n, n);
    mr_free(p.bytes);
    return check_done();
}
