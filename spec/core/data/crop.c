/* data/crop: frames of a sample, by our rule and by the reference's. */
#include "check.h"
#include "data/bucket.h"

static mr_bucket_rule *rule(int interval, bool compat)
{
    mr_bucket_aspect square = {1, 32, 32};
    mr_bucket_length length = {1, 1, 1, 1, 0};
    mr_bucket_resolution r = {"tiny", 1024, &square, 1, &length, 1};
    mr_bucket_rule *out = NULL;
    CHECK_OK(mr_bucket_rule_new(&r, 1, interval, compat, &out));
    return out;
}

int main(void)
{
    // ours: even steps, each start that fits
    for (int interval = 1; interval < 4; interval++) {
        mr_bucket_rule *r = rule(interval, false);
        for (int frames = 1; frames < 9; frames++)
            for (int have = (frames - 1) * interval + 1; have < 40; have++) {
                mr_crop c = mr_bucket_rule_crop(r, frames, have, mr_bucket_rule_interval(r, 0));
                for (int i = 0; i < frames; i++)
                    CHECK_INT(mr_crop_frame(&c, 3, i), 3 + i * interval);
                // the last start ends with the last frame
                CHECK_INT(mr_crop_frame(&c, c.starts - 1, frames - 1), have - 1);
            }
        mr_bucket_rule_free(r);
    }
    // the reference: a span of 8 for 4 frames, spread; its last start is never used
    mr_bucket_rule *r = rule(2, true);
    mr_crop c = mr_bucket_rule_crop(r, 4, 20, mr_bucket_rule_interval(r, 0));
    CHECK_INT(c.starts, 12);
    static const int64_t frames[] = {5, 7, 9, 12};
    for (int i = 0; i < 4; i++)
        CHECK_INT(mr_crop_frame(&c, 5, i), frames[i]);
    // shorter than its span: from the first frame to the last
    c = mr_bucket_rule_crop(r, 4, 7, mr_bucket_rule_interval(r, 0));
    CHECK_INT(c.starts, 1);
    CHECK_INT(mr_crop_frame(&c, 0, 3), 6);
    c = mr_bucket_rule_crop(r, 1, 1, mr_bucket_rule_interval(r, 0));
    CHECK_INT(c.starts, 1);
    CHECK_INT(mr_crop_frame(&c, 0, 0), 0);
    mr_bucket_rule_free(r);
    return check_done();
}
