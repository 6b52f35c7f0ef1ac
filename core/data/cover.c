/* data: refuses a bucket that no sample can enter, and reports what excludes the samples.
 * Licence: Apache-2.0 */
#include "data/blend.h"

#include <stdio.h>
#include <string.h>

// counts of rows that cannot enter a length of a resolution for any draw, by reason
typedef struct cover {
    uint64_t small, unfit, taken, open;
} cover;

// whether some draw lets a row that reaches this length enter it
static bool is_open(const mr_bucket_rule *r, const bucket_length *len)
{
    bool passed_over =
        r->follows == MR_REFERENCE_20 ? len->pair && len->tries >= 1 : len->tries <= 0;
    return len->keep > 0 && !passed_over;
}

// whether every draw tries this length for a row that reaches it
static bool is_surely_tried(const mr_bucket_rule *r, const bucket_length *len)
{
    return r->follows == MR_REFERENCE_20 ? !len->pair || len->tries <= 0 : len->tries >= 1;
}

// follow the rule as the assignment does, but take every branch that a draw can take
static void visit(const mr_bucket_rule *r, const mr_hot *hot, cover *covers)
{
    double pixels = (double)hot->width * hot->height;
    bool reaches = true; // some draw leads to this resolution
    for (int32_t i = 0, at = 0; i < r->n; at += r->resolutions[i++].n_lengths) {
        const bucket_resolution *res = &r->resolutions[i];
        bool walks = reaches; // some draw leads to this length
        for (int32_t l = 0; l < res->n_lengths; l++) {
            const bucket_length *len = &res->lengths[l];
            cover *c = &covers[at + l];
            if (pixels < 0.8 * res->pixels)
                c->small++;
            else if (!bucket_fits(len, bucket_frames(r, hot)))
                c->unfit++;
            else if (!walks)
                c->taken++;
            else {
                c->open++;
                // a row that is always tried here never reaches shorter lengths; one that is also
                // always kept never reaches lower resolutions
                bool surely = is_surely_tried(r, len);
                walks = !surely;
                if (surely && len->keep >= 1)
                    reaches = false;
            }
        }
    }
}

static mr_status fail_uncovered(const mr_bucket_rule *r, const bucket_resolution *res,
                                const bucket_length *len, const cover *c)
{
    char text[400] = "";
    size_t n = 0;
    const char *picture = len->frames == 1 ? "no pictures" : "shorter, or pictures";
    if (c->small)
        n += (size_t)snprintf(text + n, sizeof text - n,
                              "\n  %llu rows: below 0.8 of its %.0f pixels",
                              (unsigned long long)c->small, res->pixels);
    if (c->unfit)
        n += (size_t)snprintf(text + n, sizeof text - n, "\n  %llu rows: %s (frame_interval %d)",
                              (unsigned long long)c->unfit, picture, r->interval);
    if (c->taken)
        snprintf(text + n, sizeof text - n,
                 "\n  %llu rows: always taken by higher resolutions or longer lengths",
                 (unsigned long long)c->taken);
    return mr_fail(MR_E_DATA,
                   "bucket_config.%s[%d]: no sample fits; what removed them:%s\n  try: leave it "
                   "out of bucket_config, or allow_empty_buckets = true",
                   res->name, len->frames, text);
}

// count which lengths the rows of one source can enter
static mr_status visit_source(mr_order *o, cover *covers)
{
    for (uint64_t c = 0; c < o->chunks; c++) {
        const mr_hot *rows;
        int32_t n = 0;
        MR_TRY(mr_index_hot(o->reader, c, &rows, &n));
        for (int32_t k = 0; k < n; k++)
            visit(o->rule, &rows[k], covers);
    }
    return MR_OK;
}

mr_status blend_check_cover(mr_blend *m)
{
    const mr_bucket_rule *r = m->sources[0].order->rule;
    int32_t entries = 0, empty = 0;
    for (int32_t i = 0; i < r->n; i++)
        for (int32_t l = 0; l < r->resolutions[i].n_lengths; l++, entries++) {
            const bucket_length *len = &r->resolutions[i].lengths[l];
            uint64_t samples = 0;
            for (int32_t a = 0; a < r->resolutions[i].n_aspects * m->n; a++)
                samples += m->sources[a % m->n].order->samples[len->first + a / m->n];
            empty += !samples && is_open(r, len);
        }
    // usually all lengths have samples, and no second pass is needed
    if (!empty)
        return MR_OK;
    cover *covers = mr_calloc((size_t)entries, sizeof *covers);
    if (!covers)
        return mr_fail_memory((size_t)entries * sizeof *covers);
    mr_status st = MR_OK;
    for (int32_t i = 0; i < m->n && st == MR_OK; i++)
        st = visit_source(m->sources[i].order, covers);
    for (int32_t i = 0, at = 0; i < r->n; i++)
        for (int32_t l = 0; l < r->resolutions[i].n_lengths && st == MR_OK; l++, at++) {
            const bucket_length *len = &r->resolutions[i].lengths[l];
            if (is_open(r, len) && !covers[at].open)
                st = fail_uncovered(r, &r->resolutions[i], len, &covers[at]);
        }
    mr_free(covers);
    return st;
}
