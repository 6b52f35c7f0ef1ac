/* index/column: numbers of rows are read back, in any chunk; damage and wrong usage are reported.
 * Covers: core/index/values.c */
#include "check.h"
#include "clips.h"
#include "index/builder.h"
#include "rows.h"

#include <math.h>

enum { ROWS = 5000 };
static const mr_number none = {.f = NAN};

// integers that f64 cannot hold exactly, and reals that f32 cannot hold
static mr_number value(uint64_t id, int column)
{
    if (column)
        return (mr_number){.f = -0.1 * (double)id};
    return (mr_number){.whole = true, .i = INT64_MAX - (int64_t)(id * 7 % 1000)};
}

static bool same(mr_number x, mr_number y)
{
    return x.whole == y.whole && x.i == y.i;
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
    CHECK_OK(mr_index_builder_column(b, "flow", MR_COLUMN_WHOLE, &column));
    CHECK_OK(mr_index_builder_column(b, "ocr_area", MR_COLUMN_REAL, &column));
    CHECK_INT(column, 1);
    CHECK_OK(mr_index_builder_column(b, "flow", MR_COLUMN_WHOLE, &column));
    CHECK_INT(column, 0);
    CHECK_INT(mr_index_builder_find(b, "ocr_area"), 1);
    CHECK_INT(mr_index_builder_find(b, "ocr"), -1);
    for (uint64_t i = 0; i < ROWS && st == MR_OK; i++) {
        mr_row row = rows_make(3, i, path, text, &caption, keys);
        const mr_number values[] = {i % 9 ? value(i, 0) : none, value(i, 1), none};
        row.columns = values, row.n_columns = i < 4200 ? 1 : 2;
        st = mr_index_builder_add(b, &row);
        row.n_columns = 3;
        CHECK_INT(mr_index_builder_add(b, &row), MR_E_USAGE);
    }
    // after the first row the kind is fixed
    CHECK_OK(mr_index_builder_column(b, "flow", MR_COLUMN_REAL, &column));
    CHECK_INT(mr_index_builder_column(b, "late", MR_COLUMN_REAL, &column), MR_E_USAGE);
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
        wrong += id % 9 ? !same(row.columns[0], value(id, 0)) : !mr_number_is_none(row.columns[0]);
        wrong +=
            id < 4200 ? !mr_number_is_none(row.columns[1]) : !same(row.columns[1], value(id, 1));
    }
    CHECK_INT(wrong, 0);
    mr_column_chunk chunk;
    CHECK_OK(mr_index_column(reader, 1, 1, &chunk));
    CHECK_INT(chunk.n, ROWS - MR_HOT_ROWS);
    CHECK_INT(chunk.kind, MR_COLUMN_REAL);
    CHECK_INT(mr_index_column_kind(ix, 0), MR_COLUMN_WHOLE);
    CHECK(same(mr_column_number(&chunk, ROWS - MR_HOT_ROWS - 1), value(ROWS - 1, 1)));
    CHECK_INT(mr_index_column(reader, 2, 0, &chunk), MR_E_RANGE);
    CHECK_INT(mr_index_column(reader, 0, 2, &chunk), MR_E_RANGE);
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
    CHECK_INT(mr_index_builder_column(b, "two words", MR_COLUMN_REAL, &column), MR_E_DATA);
    for (int i = 0; i < INDEX_COLUMNS; i++) {
        snprintf(name, sizeof name, "c%d", i);
        CHECK_OK(mr_index_builder_column(b, name, MR_COLUMN_REAL, &column));
    }
    CHECK_INT(mr_index_builder_column(b, "more", MR_COLUMN_REAL, &column), MR_E_DATA);
    CHECK(strstr(mr_error_last()->text, "at most 32 columns"));
    mr_index_builder_free(b);
}

// an index of one row with a value of that kind; the column is requested as both kinds
static mr_status put_one(mr_column_kind first, mr_column_kind second, mr_number value,
                         mr_number *back)
{
    mr_index_builder *b;
    mr_index *ix;
    mr_index_reader *reader;
    char path[64], text[64], file[300];
    mr_caption caption;
    int64_t keys[4];
    int32_t column;
    uint16_t root;
    snprintf(file, sizeof file, "%s", clips_path("one.mrx"));
    MR_TRY(mr_index_builder_new(file, NULL, &b));
    CHECK_OK(mr_index_builder_root(b, "/nowhere", &root));
    CHECK_OK(mr_index_builder_column(b, "uid", first, &column));
    CHECK_OK(mr_index_builder_column(b, "uid", second, &column));
    mr_row row = rows_make(3, 1, path, text, &caption, keys), got;
    row.columns = &value, row.n_columns = 1;
    mr_status st = mr_index_builder_add(b, &row);
    if (st == MR_OK)
        st = mr_index_builder_finish(b);
    mr_index_builder_free(b);
    if (st != MR_OK)
        return st;
    MR_TRY(mr_index_open(file, true, &ix));
    CHECK_OK(mr_index_reader_new(ix, &reader));
    CHECK_OK(mr_index_row(reader, 0, &got));
    *back = got.columns[0];
    mr_index_reader_free(reader);
    mr_index_unref(ix);
    return MR_OK;
}

// values that a column cannot represent exactly are refused, others are read back
static void exact(void)
{
    static const int64_t large = INT64_C(9007199254740993);
    mr_number back;
    CHECK_OK(
        put_one(MR_COLUMN_WHOLE, MR_COLUMN_WHOLE, (mr_number){.whole = true, .i = large}, &back));
    CHECK(back.whole && back.i == large);
    CHECK_OK(put_one(MR_COLUMN_WHOLE, MR_COLUMN_REAL, (mr_number){.whole = true, .i = large - 1},
                     &back));
    CHECK(!back.whole && back.f == 9007199254740992.0);
    CHECK_OK(put_one(MR_COLUMN_REAL, MR_COLUMN_WHOLE, (mr_number){.f = 0.1}, &back));
    CHECK(!back.whole && back.f == 0.1);
    CHECK_OK(put_one(MR_COLUMN_WHOLE, MR_COLUMN_WHOLE, none, &back));
    CHECK(mr_number_is_none(back));
    CHECK_OK(put_one(MR_COLUMN_WHOLE, MR_COLUMN_WHOLE, (mr_number){.whole = true, .i = -INT64_MAX},
                     &back));
    CHECK(back.whole && back.i == -INT64_MAX);
    CHECK_FAILS(
        put_one(MR_COLUMN_WHOLE, MR_COLUMN_REAL, (mr_number){.whole = true, .i = large}, &back),
        MR_E_DATA,
        "column 'uid' cannot represent 9007199254740993; expected numbers that a double");
    CHECK_FAILS(
        put_one(MR_COLUMN_REAL, MR_COLUMN_REAL, (mr_number){.whole = true, .i = INT64_MAX}, &back),
        MR_E_DATA, "cannot represent 9223372036854775807");
    CHECK_FAILS(put_one(MR_COLUMN_WHOLE, MR_COLUMN_WHOLE, (mr_number){.f = 0.5}, &back), MR_E_DATA,
                "column 'uid' cannot represent 0.5; expected whole numbers of 64 bits");
    CHECK_FAILS(put_one(MR_COLUMN_WHOLE, MR_COLUMN_WHOLE,
                        (mr_number){.whole = true, .i = INT64_MIN}, &back),
                MR_E_DATA, "cannot represent -9223372036854775808");
}

static void put(MDB_txn *txn, MDB_dbi table, const void *key, size_t n_key, const void *value,
                size_t n)
{
    MDB_val k = {n_key, (void *)(uintptr_t)key}, v = {n, (void *)(uintptr_t)value};
    CHECK_INT(mdb_put(txn, table, &k, &v, 0), 0);
}

/* Makes one.mrx an index of format 2, whose column holds f32. */
static void make_old(const char *dir, float value)
{
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi meta, column;
    uint32_t chunk = 0;
    char bytes[12];
    uint64_t hash = mr_hash64(&value, sizeof value);
    memcpy(bytes, &value, sizeof value);
    memcpy(bytes + sizeof value, &hash, sizeof hash);
    CHECK_INT(mdb_env_create(&env), 0);
    CHECK_INT(mdb_env_set_maxdbs(env, 64), 0);
    CHECK_INT(mdb_env_open(env, dir, MDB_NOLOCK, 0644), 0);
    CHECK_INT(mdb_txn_begin(env, NULL, 0, &txn), 0);
    CHECK_INT(mdb_dbi_open(txn, "meta", 0, &meta), 0);
    CHECK_INT(mdb_dbi_open(txn, "col:uid", MDB_INTEGERKEY, &column), 0);
    put(txn, meta, "format", 6, "moonreel index 2", 16);
    put(txn, meta, "columns", 7, "uid\n", 4);
    put(txn, column, &chunk, sizeof chunk, bytes, sizeof bytes);
    CHECK_INT(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
    CHECK_OK(index_sum_write(dir));
}

// values of f32 are those of the list before rounding
static void old_indexes(void)
{
    static const double said[] = {5.1,      0.1,     -3.25e-7, 16777216, 1e30,
                                  0.333333, 123.456, 1e-40,    -0.0,     3.4028235e38};
    char file[300];
    for (size_t i = 0; i <= MR_COUNT(said); i++) {
        mr_index *ix;
        mr_index_reader *reader;
        mr_row row;
        mr_number back;
        CHECK_OK(put_one(MR_COLUMN_REAL, MR_COLUMN_REAL, (mr_number){.f = 7}, &back));
        snprintf(file, sizeof file, "%s", clips_path("one.mrx"));
        make_old(file, i < MR_COUNT(said) ? (float)said[i] : NAN);
        if (!CHECK_OK(mr_index_open(file, true, &ix)) ||
            !CHECK_OK(mr_index_reader_new(ix, &reader)))
            return;
        CHECK_INT(mr_index_column_kind(ix, 0), MR_COLUMN_F32);
        if (CHECK_OK(mr_index_row(reader, 0, &row)))
            CHECK(i < MR_COUNT(said) ? row.columns[0].f == said[i]
                                     : mr_number_is_none(row.columns[0]));
        mr_index_reader_free(reader);
        mr_index_unref(ix);
    }
    // all digits of a value that has no short form, and the order of neighbours
    float x = 1.0f;
    double last = 0;
    for (int i = 0; i < 1000; i++, x = nextafterf(x, 2)) {
        mr_column_chunk chunk = {.kind = MR_COLUMN_F32, .n = 1, .values = &x};
        double now = mr_column_number(&chunk, 0).f;
        CHECK((float)now == x && now > last);
        last = now;
    }
}

// Damage is found when a chunk is read first, and again, whatever other chunks were read before.
static void damage(const char *path)
{
    static char bytes[(ROWS - MR_HOT_ROWS) * 8 + 8];
    mr_index *ix;
    mr_index_reader *reader;
    mr_row row;
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi column;
    uint32_t chunk = 1;
    CHECK_INT(mdb_env_create(&env), 0);
    CHECK_INT(mdb_env_set_maxdbs(env, 64), 0);
    CHECK_INT(mdb_env_open(env, path, MDB_NOLOCK, 0644), 0);
    CHECK_INT(mdb_txn_begin(env, NULL, 0, &txn), 0);
    CHECK_INT(mdb_dbi_open(txn, "col:flow", MDB_INTEGERKEY, &column), 0);
    put(txn, column, &chunk, sizeof chunk, bytes, sizeof bytes);
    CHECK_INT(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
    CHECK_OK(index_sum_write(path));
    if (!CHECK_OK(mr_index_open(path, true, &ix)) || !CHECK_OK(mr_index_reader_new(ix, &reader)))
        return;
    CHECK_OK(mr_index_row(reader, 0, &row));
    for (int i = 0; i < 2; i++)
        CHECK_FAILS(mr_index_row(reader, ROWS - 1, &row), MR_E_DATA,
                    "column flow, chunk 1 is damaged");
    CHECK_OK(mr_index_row(reader, 1, &row));
    mr_index_reader_free(reader);
    mr_index_unref(ix);
}

int main(void)
{
    char path[300];
    snprintf(path, sizeof path, "%s", clips_path("columns.mrx"));
    if (CHECK_OK(build(path)))
        round_trip(path);
    names();
    exact();
    old_indexes();
    damage(path);
    return check_done();
}
