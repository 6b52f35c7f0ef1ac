/* data: tries the lengths of a rule for one sample in order, and returns the first that accepts it.
 * Rules that follow a reference draw as it does: numpy's generator seeded by row number, again for
 * each length (1.2) or once for the sample (2.0). bucket.c does the same for our own draws of many
 * rows at once. Ref: opensora-1.2.md 4.5, opensora-2.0.md 10.2. Licence: Apache-2.0
 */
#include "data/bucket.h"
#include "moonreel/generator.h"

#include <math.h>

typedef struct walk {
    const mr_bucket_rule *rule;
    uint64_t seed, epoch, row;
    const mr_hot *hot;
    int32_t entry; /* number of the current length, from 0 over all resolutions */
    const bucket_resolution *resolution;
    mr_pcg64 numbers;
    bool seeded;
    mr_asked *asked; /* answer for the current length */
} walk;

// the distance of the frames that are taken of a clip
int32_t mr_bucket_rule_interval(const mr_bucket_rule *r, uint32_t fps_milli)
{
    double fps = fps_milli / 1000.0;
    if (r->follows != MR_REFERENCE_20)
        return r->interval;
    return !fps_milli || r->fps_max <= 0 || fps < r->fps_max ? 1 : (int32_t)ceil(fps / r->fps_max);
}

int64_t bucket_frames(const mr_bucket_rule *r, const mr_hot *hot)
{
    // 2.0 counts the frames that remain after a fast clip is thinned
    return r->follows == MR_REFERENCE_20 ? hot->frames / mr_bucket_rule_interval(r, hot->fps_milli)
                                         : hot->frames;
}

uint64_t bucket_word(const char *purpose, const bucket_resolution *res, int32_t frames)
{
    return MR_MIX(mr_name_word(purpose), mr_name_word(res->name), (uint64_t)frames);
}

bool bucket_fits(const bucket_length *l, int64_t have)
{
    return have == 1 || l->frames == 1 ? have == l->frames : have >= l->needs;
}

uint64_t mr_bucket_rule_draws(const mr_bucket_rule *r, uint64_t epoch)
{
    return r->repeat ? epoch % r->repeat : epoch;
}

static double draw(walk *w, const bucket_length *len, const char *purpose)
{
    double u;
    if (!w->rule->follows) {
        u = mr_fraction(MR_MIX(w->seed, w->epoch, bucket_word(purpose, w->resolution, len->frames),
                               w->hot->key_lo));
    } else {
        if (!w->seeded)
            mr_pcg64_seed(&w->numbers,
                          w->seed + w->epoch + w->row * (uint64_t)w->rule->count +
                              (w->rule->follows == MR_REFERENCE_12 ? (uint64_t)w->entry : 0));
        w->seeded = true;
        u = mr_pcg64_next(&w->numbers);
    }
    w->asked->draws[w->asked->n_draws++] = u;
    return u;
}

// Whether the draw skips a length that fits. The second number of a pair is the probability to try
// the length; in 2.0, the probability to skip it.
static bool is_passed_over(walk *w, const bucket_length *len)
{
    switch (w->rule->follows) {
    case MR_REFERENCE_12: return len->pair && draw(w, len, NULL) > len->tries;
    case MR_REFERENCE_20: return len->pair && (len->tries >= 1 || draw(w, len, NULL) <= len->tries);
    default: return len->tries < 1 && draw(w, len, "bucket.try") >= len->tries;
    }
}

static bool is_kept(walk *w, const bucket_length *len)
{
    bool picture = len->frames == 1;
    if (w->rule->follows == MR_REFERENCE_20)
        return picture ? draw(w, len, NULL) < len->keep
                       : len->keep >= 1 || draw(w, len, NULL) <= len->keep;
    return len->keep >= 1 || draw(w, len, "bucket.keep") < len->keep;
}

static mr_said ask(walk *w, const bucket_length *len, int64_t have, bool large)
{
    if (!large)
        return MR_SAID_SMALL;
    if (!bucket_fits(len, have))
        return MR_SAID_UNFIT;
    if (is_passed_over(w, len))
        return MR_SAID_NOT_TRIED;
    return is_kept(w, len) ? MR_SAID_TAKES : MR_SAID_NOT_KEPT;
}

const bucket_length *bucket_walk(const mr_bucket_rule *r, uint64_t seed, uint64_t epoch,
                                 uint64_t row, const mr_hot *hot, mr_asked *asked, mr_drop *why)
{
    walk w = {.rule = r, .seed = seed, .epoch = epoch, .row = row, .hot = hot};
    int64_t have = bucket_frames(r, hot);
    double pixels = (double)hot->width * hot->height;
    mr_drop unfit = have == 1 ? MR_DROP_IMAGE : MR_DROP_SHORT;
    *why = MR_DROP_SMALL;
    for (int32_t i = 0, first = 0; i < r->n; first += r->resolutions[i++].n_lengths) {
        w.resolution = &r->resolutions[i];
        bool large = pixels >= 0.8 * w.resolution->pixels;
        mr_said said = MR_SAID_NOTHING;
        // a sample that is tried but not kept continues with the next resolution
        for (int32_t l = 0; l < w.resolution->n_lengths && said != MR_SAID_NOT_KEPT; l++) {
            const bucket_length *len = &w.resolution->lengths[l];
            mr_asked one = {0};
            w.entry = first + l;
            w.asked = asked ? &asked[w.entry] : &one;
            w.seeded &= r->follows == MR_REFERENCE_20;
            w.asked->said = said = ask(&w, len, have, large);
            if (said == MR_SAID_TAKES) {
                *why = MR_DROP_NONE;
                return len;
            }
            if (said > MR_SAID_UNFIT)
                *why = MR_DROP_CHANCE;
            else if (said == MR_SAID_UNFIT && *why == MR_DROP_SMALL)
                *why = unfit;
        }
    }
    return NULL;
}

int32_t mr_bucket_rule_lengths(const mr_bucket_rule *r)
{
    int32_t n = 0;
    for (int32_t i = 0; i < r->n; i++)
        n += r->resolutions[i].n_lengths;
    return n;
}

void mr_bucket_rule_ask(const mr_bucket_rule *r, uint64_t seed, uint64_t epoch, uint64_t row,
                        const mr_hot *hot, mr_asked *asked)
{
    mr_drop why;
    int32_t at = 0;
    for (int32_t i = 0; i < r->n; i++)
        for (int32_t l = 0; l < r->resolutions[i].n_lengths; l++) {
            const bucket_length *len = &r->resolutions[i].lengths[l];
            asked[at++] = (mr_asked){.resolution = r->resolutions[i].name,
                                     .frames = len->frames,
                                     .keep = len->keep,
                                     .tries = len->tries};
        }
    bucket_walk(r, seed, mr_bucket_rule_draws(r, epoch), row, hot, asked, &why);
}
