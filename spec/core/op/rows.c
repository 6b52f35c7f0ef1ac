/* cpu/rows: positions by division and by carrying agree, orders are kept.
 * Covers: core/cpu/rows.c */
#include "check.h"
#include "cpu/rows.h"

int main(void)
{
    // [2, 3, 4, 5] with reversed strides, and a dense view of another row length
    mr_desc a = mr_desc_dense(MR_F32, 4, (int64_t[]){2, 3, 4, 5}),
            b = mr_desc_dense(MR_F32, 4, (int64_t[]){2, 3, 4, 7});
    a.stride[0] = 5, a.stride[1] = 10, a.stride[2] = 30, a.stride[3] = 1;
    mr_rows rows;
    mr_rows_init(&rows, (const mr_desc *[]){&a, &b}, 2);
    CHECK_INT(rows.count, 24);
    mr_rows_pos step, at;
    mr_rows_seek(&rows, 0, &step);
    bool seen[24] = {0};
    for (int64_t i = 0; i < rows.count; i++, mr_rows_next(&rows, &step)) {
        mr_rows_seek(&rows, i, &at);
        CHECK_INT(step.at[0], at.at[0]);
        CHECK_INT(step.at[1], at.at[1]);
        CHECK_INT(at.at[0], 5 * i); // memory order of the first view
        CHECK(at.at[1] % 7 == 0 && !seen[at.at[1] / 7]);
        seen[at.at[1] / 7] = true;
    }

    // a single row, and none
    mr_desc one = mr_desc_dense(MR_F32, 1, (int64_t[]){9}),
            none = mr_desc_dense(MR_F32, 2, (int64_t[]){0, 9});
    mr_rows_init(&rows, (const mr_desc *[]){&one}, 1);
    CHECK_INT(rows.count, 1);
    mr_rows_init(&rows, (const mr_desc *[]){&none}, 1);
    CHECK_INT(rows.count, 0);

    // dense strides in the order of another's, the last dimension innermost
    mr_desc out = a;
    mr_desc_dense_like(&a, &out);
    CHECK_INT(out.stride[3], 1);
    CHECK_INT(out.stride[0], 5);
    CHECK_INT(out.stride[1], 10);
    CHECK_INT(out.stride[2], 30);
    return check_done();
}
