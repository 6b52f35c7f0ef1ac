/* data/cover: a length that no sample can enter is refused, with what keeps the rows out. */
#include "check.h"
#include "rows.h"

static mr_bucket_aspect one[] = {{1.0, 64, 64}};

static mr_status start(const mr_bucket_length *low, int n_low, const mr_bucket_length *high,
                       int n_high, bool allow, mr_loader **out)
{
    mr_bucket_resolution r[] = {{"low", 4096, one, 1, low, n_low},
                                {"high", 200000, one, 1, high, n_high}};
    mr_bucket_rule *rule;
    mr_index *ix;
    *out = NULL;
    MR_TRY(mr_bucket_rule_new(r, n_high ? 2 : 1, 1, false, &rule));
    MR_TRY(mr_index_open(clips_path("cover.mrx"), false, &ix));
    mr_status st = mr_loader_new(&(mr_source){.name = "", .index = ix}, 1, rule,
                                 &(mr_loader_options){.threads = 1, .allow_empty = allow}, out);
    mr_index_unref(ix);
    return st;
}

int main(void)
{
    mr_loader *l;
    // lengths 1 to 300, sizes from 100 x 90 to 1280 x 720
    if (!CHECK_OK(rows_build(clips_path("cover.mrx"), 1, 400, 0)))
        return check_done();
    const mr_bucket_length fine[] = {{1, 1, 1, 1, 0}, {16, 1, 1, 1, 0}},
                           never[] = {{16, 1, 1, 1, 0}, {400, 1, 1, 1, 0}},
                           all[] = {{4, 1, 1, 1, 0}};
    CHECK_OK(start(fine, 2, NULL, 0, false, &l));
    mr_loader_free(l);
    CHECK_FAILS(start(never, 2, NULL, 0, false, &l), MR_E_DATA,
                "bucket_config.low[400]: no sample fits");
    CHECK(strstr(mr_error_last()->text, "400 rows: shorter, or pictures") != NULL);
    CHECK(strstr(mr_error_last()->text, "allow_empty_buckets") != NULL);
    CHECK_OK(start(never, 2, NULL, 0, true, &l));
    mr_loader_free(l);

    // samples that a higher resolution always takes do not reach a lower one
    const mr_bucket_length shadowed[] = {{16, 1, 1, 1, 0}}, chance[] = {{4, 0.99, 1, 1, 0}},
                           rarely[] = {{4, 0.0001, 1, 1, 0}},
                           zero[] = {{300, 0, 1, 0, 0}, {4, 1, 1, 1, 0}};
    CHECK_OK(start(shadowed, 1, all, 1, false, &l)); // small pictures still get there
    mr_loader_free(l);
    mr_bucket_length longer[] = {{300, 1, 1, 1, 0}, {120, 1, 0.5, 1, 0}};
    CHECK_OK(start(longer, 2, zero, 2, false, &l)); // probability 0 is no error
    mr_loader_free(l);
    // a length that is only by chance empty in this epoch is accepted
    CHECK_OK(start(all, 1, rarely, 1, false, &l));
    mr_loader_free(l);
    CHECK_OK(start(all, 1, chance, 1, false, &l));
    mr_loader_free(l);

    // each row is large and long: the lower resolution can get none
    mr_index_builder *b;
    uint16_t root;
    CHECK_OK(mr_index_builder_new(clips_path("cover.mrx"), NULL, &b));
    CHECK_OK(mr_index_builder_root(b, "/nowhere", &root));
    for (uint64_t i = 0; i < 30; i++) {
        char path[64], text[64];
        mr_caption caption;
        int64_t keys[4];
        mr_row row = rows_make(2, i, path, text, &caption, keys);
        row.info.frames = 60, row.info.width = row.info.height = 800;
        CHECK_OK(mr_index_builder_add(b, &row));
    }
    CHECK_OK(mr_index_builder_finish(b));
    mr_index_builder_free(b);
    CHECK_FAILS(start(shadowed, 1, all, 1, false, &l), MR_E_DATA,
                "bucket_config.low[16]: no sample fits");
    CHECK(strstr(mr_error_last()->text, "30 rows: always taken by higher resolutions") != NULL);
    CHECK_OK(start(shadowed, 1, chance, 1, false, &l));
    mr_loader_free(l);
    mr_bucket_length pictures[] = {{1, 1, 1, 1, 0}, {16, 1, 1, 1, 0}};
    CHECK_FAILS(start(pictures, 2, NULL, 0, false, &l), MR_E_DATA,
                "bucket_config.low[1]: no sample fits");
    CHECK(strstr(mr_error_last()->text, "30 rows: no pictures") != NULL);
    return check_done();
}
