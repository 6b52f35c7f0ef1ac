/* index/column: numbers of rows come back, in any chunk; damage and wrong use are told. */
#include "check.h"
#include "index/room.h"
#include "rows.h"

#include <math.h>

enum { ROWS = 5000 };

static float value(uint64_t id, int column)
{
    return column ? -0.25f * (float)id : (float)(id * 7 % 1000);
}

// the second column begins to have values late, and every ninth row has none of the first
static mr_status build(const char *name)
{
    mr_index_builder *b;
    char path[64], text[64];
    mr_caption caption;
    int64_t keys[4];
    uint16_t root;
    int32_t column;
    MR_TRY(mr_index_builder_new(name, NULL, &b));
    mr_status st = mr_index_builder_root(b, "/nowhere", &root);
    CHECK_OK(mr_index_builder_column(b, "flow", &column));
    CHECK_OK(mr_index_builder_column(b, "ocr_area", &column));
    CHECK_INT(column, 1);
    CHECK_OK(mr_index_builder_column(b, "flow", &column));
    CHECK_INT(column, 0);
    for (uint64_t i = 0; i < ROWS && st == MR_OK; i++) {
        mr_row row = rows_make(3, i, path, text, &caption, keys);
        const float values[] = {i % 9 ? value(i, 0) : NAN, value(i, 1), 0};
        row.columns = values, row.n_columns = i < 4200 ? 1 : 2;
        st = mr_index_builder_add(b, &row);
        row.n_columns = 3;
        CHECK_INT(mr_index_builder_add(b, &row), MR_E_USAGE);
    }
    CHECK_INT(mr_index_builder_column(b, "late", &column), MR_E_USAGE);
    CHECK(
        strstr(mr_error_last()->text, "column 'late' after 5000 rows; expected before the first"));
    if (st == MR_OK)
        st = mr_index_builder_finish(b);
    mr_index_builder_free(b);
    return st;
}

static void round_trip(const char *path)
{
    mr_index *ix;
    mr_index_reader *reader;
    if (!CHECK_OK(mr_index_open(path, true, &ix)) || !CHECK_OK(mr_index_reader_new(ix, &reader)))
        return;
    CHECK_INT(mr_index_columns(ix), 2);
    CHECK_STR(mr_index_column_name(ix, 0), "flow");
    CHECK_STR(mr_index_column_name(ix, 1), "ocr_area");
    CHECK(!mr_index_column_name(ix, 2));
    int wrong = 0;
    // from the end, so that chunks change
    for (uint64_t i = ROWS; i-- > 0;) {
        mr_row row;
        if (!CHECK_OK(mr_index_row(reader, i * 11 % ROWS, &row)) || !CHECK_INT(row.n_columns, 2))
            break;
        uint64_t id = row.id;
        wrong += id % 9 ? row.columns[0] != value(id, 0) : !isnan(row.columns[0]);
        wrong += id < 4200 ? !isnan(row.columns[1]) : row.columns[1] != value(id, 1);
    }
    CHECK_INT(wrong, 0);
    const float *values;
    int32_t n;
    CHECK_OK(mr_index_column(reader, 1, 1, &values, &n));
    CHECK_INT(n, ROWS - MR_HOT_ROWS);
    CHECK(values[ROWS - MR_HOT_ROWS - 1] == value(ROWS - 1, 1));
    CHECK_INT(mr_index_column(reader, 2, 0, &values, &n), MR_E_RANGE);
    CHECK_INT(mr_index_column(reader, 0, 2, &values, &n), MR_E_RANGE);
    mr_index_reader_free(reader);
    mr_index_unref(ix);
}

static void names(void)
{
    char long_name[INDEX_COLUMN_NAME + 1];
    memset(long_name, 'a', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    const char *bad[] = {"", "two words", "1st", "a\nb", "\xc3\xa4", long_name};
    for (size_t i = 0; i < MR_COUNT(bad); i++)
        CHECK(!index_column_name_good(bad[i]));
    CHECK(index_column_name_good("vmaf_motion2"));
    CHECK(index_column_name_good(long_name + 1));
    mr_index_builder *b;
    int32_t column;
    char name[16];
    if (!CHECK_OK(mr_index_builder_new(clips_path("many.mrx"), NULL, &b)))
        return;
    CHECK_INT(mr_index_builder_column(b, "two words", &column), MR_E_DATA);
    for (int i = 0; i < INDEX_COLUMNS; i++) {
        snprintf(name, sizeof name, "c%d", i);
        CHECK_OK(mr_index_builder_column(b, name, &column));
    }
    CHECK_INT(mr_index_builder_column(b, "more", &column), MR_E_DATA);
    CHECK(strstr(mr_error_last()->text, "at most 32 columns"));
    mr_index_builder_free(b);
}

int main(void)
{
    char path[300];
    snprintf(path, sizeof path, "%s", clips_path("columns.mrx"));
    if (CHECK_OK(build(path)))
        round_trip(path);
    names();
    return check_done();
}
