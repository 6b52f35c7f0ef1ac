/* data: measures the time and memory of planning an epoch, on synthetic rows in memory.
 * Licence: Apache-2.0 */
#include "data/order.h"

#include <string.h>
#include <time.h>

enum { PATTERNS = 8, SELECTS = 2000 };

/* A source of rows that repeats a few chunks, each time with other keys. */
typedef struct synthetic {
    mr_hot pattern[PATTERNS][MR_HOT_ROWS], chunk[MR_HOT_ROWS];
    uint64_t rows;
} synthetic;

// a row with sizes and lengths as in published data sets; one in eight is a picture
static mr_hot make_row(uint64_t r)
{
    static const uint16_t sizes[][2] = {{1280, 720},  {1920, 1080}, {854, 480}, {640, 360},
                                        {720, 1280},  {1080, 1920}, {640, 480}, {1024, 1024},
                                        {2560, 1080}, {3840, 2160}, {426, 240}, {256, 256},
                                        {1440, 1080}, {960, 540},   {320, 240}, {1200, 1600}};
    const uint16_t *size = sizes[r % MR_COUNT(sizes)];
    // one in eight has an unusual size, cropped from a common one
    bool odd = (r >> 60 & 7) == 0;
    return (mr_hot){.frames = r >> 8 & 7 ? 20 + (uint32_t)(r >> 16) % 600 : 1,
                    .fps_milli = 25000,
                    .width = (uint16_t)(size[0] - (odd ? (r >> 40) % 64 : 0)),
                    .height = (uint16_t)(size[1] - (odd ? (r >> 48) % 64 : 0))};
}

static mr_status read_synthetic(void *user, uint64_t chunk, const mr_hot **rows, int32_t *n)
{
    synthetic *s = user;
    const mr_hot *from = s->pattern[chunk % PATTERNS];
    uint64_t left = s->rows - chunk * MR_HOT_ROWS, key = chunk * 0x9e3779b97f4a7c15;
    *n = (int32_t)MR_MIN(left, (uint64_t)MR_HOT_ROWS);
    for (int32_t i = 0; i < *n; i++) {
        s->chunk[i] = from[i];
        s->chunk[i].key_lo ^= key;
    }
    *rows = s->chunk;
    return MR_OK;
}

// processor time of this thread, so that other load does not count
static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static mr_status draw_some(mr_order *o, mr_order_times *out)
{
    size_t most = (size_t)mr_order_batch_max(o);
    uint64_t *room = mr_calloc(2 * most, sizeof *room), samples = 0;
    if (!room)
        return mr_fail_memory(2 * most * sizeof *room);
    mr_draw d = {.ids = room, .keys = room + most};
    double began = cpu_s();
    mr_status st = MR_OK;
    while (samples < SELECTS && st == MR_OK) {
        st = mr_order_next(o, &d);
        samples += (uint64_t)d.n;
        if (d.last)
            break;
    }
    out->select_s = (cpu_s() - began) / (double)MR_MAX(samples, 1);
    mr_free(room);
    return st;
}

mr_status mr_order_measure(const mr_bucket_rule *rule, uint64_t rows, mr_order_times *out)
{
    synthetic *s;
    mr_order *o = NULL;
    char *text = NULL;
    if (!MR_NEW(s))
        return mr_fail_memory(sizeof *s);
    for (int p = 0; p < PATTERNS; p++)
        for (uint64_t i = 0; i < MR_HOT_ROWS; i++) {
            uint64_t key = MR_MIX((uint64_t)p, i);
            s->pattern[p][i] = make_row(key);
            s->pattern[p][i].key_lo = MR_MIX(key);
        }
    s->rows = rows;
    order_rows source = {.read = read_synthetic, .user = s, .name = "synthetic rows"};
    source.facts.rows = rows;
    memset(out, 0, sizeof *out);
    double began = cpu_s();
    mr_status st = order_new_of(source, rule, &(mr_order_options){.seed = 1}, &o);
    out->plan_s = cpu_s() - began;
    if (st == MR_OK) {
        for (int32_t b = 0; b < mr_bucket_rule_count(rule); b++)
            out->used += mr_order_samples(o, b) > 0;
        out->buckets = mr_bucket_rule_count(rule);
        // tables of buckets without samples are never touched
        out->bytes = (o->entered ? rows * 2 : 0) + lists_bytes(o);
        if (!o->lists)
            out->bytes += (size_t)out->used * (o->chunks + o->strides * 8);
        for (int32_t b = 0; b < out->buckets; b++)
            out->bytes += o->above[b] ? o->chunks : 0;
        st = draw_some(o, out);
    }
    if (st == MR_OK)
        st = mr_position_text(&o->at, o, true, &text);
    if (st == MR_OK)
        out->state_bytes = strlen(text);
    mr_free(text);
    mr_order_free(o);
    mr_free(s);
    return st;
}
