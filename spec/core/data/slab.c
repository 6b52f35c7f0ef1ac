/* data/slab: the number and size of slabs follow rule, prefetch and ranks, within a rank's share of
 * the memory.
 * Covers: core/data/slab.c */
#include "check.h"
#include "data/room.h"

#include <unistd.h>

static mr_bucket_aspect small = {1.0, 16, 24}, large = {1.0, 512, 512};

// buckets of `pairs` clips of 2 frames, and of `batch` clips of 1; the larger micro-batch counts
static bool make(mr_loader *l, mr_bucket_aspect *aspect, int pairs, int batch,
                 mr_loader_options options)
{
    mr_bucket_length lengths[] = {{2, 1, 1, pairs, 0}, {1, 1, 1, batch, 0}};
    mr_bucket_resolution r = {"low", 256, aspect, 1, lengths, 2};
    memset(l, 0, sizeof *l);
    l->options = options;
    l->options.parts = MR_MAX(options.parts, 1);
    l->batch_max = MR_MAX(batch, pairs);
    return CHECK_OK(mr_bucket_rule_new(&r, 1, 1, false, &l->rule));
}

static void end(mr_loader *l)
{
    slabs_close(l);
    CHECK(!l->slabs && !l->in_use && !l->pool.at);
    mr_bucket_rule_free(l->rule);
}

static void sizes(void)
{
    enum { CLIP = 3 * 16 * 24, PAGE = 4096 };
    static const struct {
        int batch, prefetch, parts;
        size_t bytes;
        int buffers, slabs;
    } cases[] = {{1, 0, 1, 4 * 2 * CLIP, 4, 4},   {7, 2, 1, 4 * 2 * CLIP, 4, 4},
                 {9, 3, 1, 9 * CLIP, 5, 5},       {9, 1, 1, 9 * CLIP, 4, 4},
                 {100, 8, 1, 100 * CLIP, 10, 10}, {9, 0, 3, 9 * CLIP, 4, 12}};
    for (size_t i = 0; i < MR_COUNT(cases); i++) {
        mr_loader l;
        size_t bytes = (cases[i].bytes + PAGE - 1) / PAGE * PAGE;
        if (!make(&l, &small, 4, cases[i].batch,
                  (mr_loader_options){.prefetch = cases[i].prefetch, .parts = cases[i].parts}))
            return;
        if (CHECK_OK(slabs_open(&l))) {
            CHECK_INT(l.facts.slab_bytes, bytes);
            CHECK_INT(l.facts.slabs, cases[i].buffers);
            CHECK_INT(l.n_slabs, cases[i].slabs);
            CHECK_INT(l.pool.bytes, bytes * (size_t)cases[i].buffers);
            // each has room for the largest batch, and starts with an empty caption
            for (int32_t k = 0; k < l.n_slabs; k++)
                CHECK_STR(l.slabs[k].captions[l.batch_max - 1], "");
        }
        end(&l);
    }
}

// A quarter of the rank's share is accepted, a clip more is not; the proposed size fits.
static void shares(void)
{
    enum { CLIP = 3 * 512 * 512, SLABS = 4 };
    double all = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    // enough ranks that some ten clips, or none, are a quarter of a slab's share
    int few = (int)(all / 4 / SLABS / CLIP / 10), many = few * 100;
    mr_loader l;
    mr_loader_options o = {.local_ranks = few};
    int most = (int)(all / few / 4 / SLABS / CLIP), said = 0;
    if (!make(&l, &large, 1, most + 1, o))
        return;
    CHECK_FAILS(slabs_open(&l), MR_E_MEMORY, "bucket_config.low[1]: 4 slabs");
    const char *advice = strstr(mr_error_last()->text, "a batch of at most ");
    CHECK(advice && sscanf(advice, "a batch of at most %d", &said) == 1);
    CHECK_INT(said, most);
    CHECK(!strstr(mr_error_last()->text, "a smaller prefetch"));
    // unwritten memory is not counted
    l.options.blind = true;
    CHECK_OK(slabs_open(&l));
    end(&l);
    if (make(&l, &large, 1, most, o)) {
        CHECK_OK(slabs_open(&l));
        end(&l);
    }
    o.prefetch = 3;
    if (make(&l, &large, 1, most, o)) {
        CHECK_FAILS(slabs_open(&l), MR_E_MEMORY, "or a smaller prefetch");
        end(&l);
    }
    o.local_ranks = many;
    if (make(&l, &large, 1, 1, o)) {
        CHECK_FAILS(slabs_open(&l), MR_E_MEMORY, "bucket_config.low[2]: ");
        CHECK(strstr(mr_error_last()->text, "fewer frames or smaller ones"));
        end(&l);
    }
}

int main(void)
{
    sizes();
    shares();
    return check_done();
}
