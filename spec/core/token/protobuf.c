/* token/protobuf: fields are read one after another; a field that is cut off or of a deprecated
 * kind ends the message as damaged. */
#include "tokencase.h"

/* Number of fields until the end, negative when the message is damaged. */
static int fields(const char *text, size_t n)
{
    mr_lent rest = {text, n};
    mr_field f;
    bool damaged = false;
    int count = 0;
    while (mr_field_next(&rest, &f, &damaged))
        count++;
    return damaged ? -1 - count : count;
}

int main(void)
{
    model m = {0};
    mr_field f;
    bool damaged = false;
    put_int(&m, 1, 300);
    put_int(&m, 100000, UINT64_MAX);
    put_text(&m, 2, "ab", 2);
    put(&m, "\x1d\x00\x00\x20\xc1", 5);                 // field 3, f32 -10
    put(&m, "\x21\x01\x02\x03\x04\x05\x06\x07\x08", 9); // field 4, 8 bytes
    put_text(&m, 5, "", 0);
    mr_lent rest = {m.data, m.n};
    CHECK(mr_field_next(&rest, &f, &damaged));
    CHECK(f.number == 1 && f.wire_type == MR_WIRE_INT && f.value == 300);
    CHECK(mr_field_next(&rest, &f, &damaged));
    CHECK(f.number == 100000 && f.value == UINT64_MAX);
    CHECK(mr_field_next(&rest, &f, &damaged));
    CHECK(f.number == 2 && f.wire_type == MR_WIRE_TEXT && f.text.n == 2 && f.text.at[1] == 'b');
    CHECK(mr_field_next(&rest, &f, &damaged));
    CHECK(f.number == 3 && f.wire_type == MR_WIRE_4 && mr_field_float(&f) == -10);
    CHECK(mr_field_next(&rest, &f, &damaged));
    CHECK(f.wire_type == MR_WIRE_8 && f.value == 0x0807060504030201u);
    CHECK(mr_field_next(&rest, &f, &damaged) && f.text.n == 0);
    CHECK(!mr_field_next(&rest, &f, &damaged) && !damaged);

    CHECK_INT(fields("", 0), 0);
    CHECK_INT(fields("\x08", 1), -1);               // a missing number
    CHECK_INT(fields("\x08\x80", 2), -1);           // an incomplete number
    CHECK_INT(fields("\x08\x01\x12\x03xy", 6), -2); // a text longer than the message
    CHECK_INT(fields("\x0d\x01\x02\x03", 4), -1);   // 4 bytes of which 3 exist
    CHECK_INT(fields("\x09\x01\x02\x03", 4), -1);
    CHECK_INT(fields("\x0b\x0c", 2), -1); // a group
    CHECK_INT(fields("\x00\x01", 2), -1); // field 0
    CHECK_INT(fields("\x0e\x01", 2), -1); // no such wire type
    // a number of more than ten bytes, and a length beyond all memory
    CHECK_INT(fields("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12), -1);
    CHECK_INT(fields("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11), -1);
    return check_done();
}
