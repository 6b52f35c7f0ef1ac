/* data: chooses the frames that a sample takes from a clip. Ref: dataplane 1.3; Open-Sora 1.2
 * temporal_random_crop, which under `compat` is followed frame by frame. Licence: Apache-2.0 */
#include "data/bucket.h"

mr_crop mr_bucket_rule_crop(const mr_bucket_rule *r, int32_t frames, int64_t have, int32_t interval)
{
    mr_crop c = {.frames = frames, .step = interval};
    // the reference uses a span of whole intervals, and never the last possible start
    int64_t span = r->compat ? (int64_t)frames * interval : (int64_t)(frames - 1) * interval + 1;
    c.starts = MR_MAX(have - span + !r->compat, 1);
    if (r->compat)
        c.spread = MR_MIN(span, have) - 1;
    return c;
}

int64_t mr_crop_frame(const mr_crop *c, int64_t start, int32_t i)
{
    return mr_clip_frame(start, c->step, c->spread, c->frames, i);
}
