/* data/loader, quarantine: equal batches for any number of threads, right frames, samples that
 * fail, limits, restarts, ends at any moment. */
#include "check.h"
#include "clipset.h"
#include "data/room.h"

#include <fcntl.h>
#include <semaphore.h>
#include <sys/stat.h>
#include <time.h>

enum { H = 32, W = 48 };

static mr_bucket_aspect aspect[] = {{0.67, H, W}, {1.5, W, H}};

static mr_status make_rule(int interval, mr_bucket_rule **out)
{
    mr_bucket_length lengths[] = {{1, 1, 1, 3, 0}, {4, 1, 0.7, 4, 0}, {9, 1, 0.5, 2, 0}};
    mr_bucket_resolution r = {"small", H * W, aspect, 2, lengths, 3};
    return mr_bucket_rule_new(&r, 1, interval, false, out);
}

typedef struct opened {
    mr_index *index;
    mr_loader *l;
} opened;

static mr_status start(opened *o, const char *index, const mr_loader_options *options, int interval)
{
    mr_bucket_rule *rule;
    o->index = NULL, o->l = NULL;
    MR_TRY(make_rule(interval, &rule));
    mr_status st = mr_index_open(index, false, &o->index);
    if (st != MR_OK) {
        mr_bucket_rule_free(rule);
        return st;
    }
    return mr_loader_new(&(mr_source){.name = "", .index = o->index}, 1, rule, options, &o->l);
}

static void stop(opened *o)
{
    mr_loader_free(o->l);
    mr_index_unref(o->index);
}

static uint64_t hash_batch(const mr_batch *b)
{
    uint64_t h = MR_MIX(b->epoch, b->draw, (uint64_t)b->bucket, (uint64_t)b->n,
                        mr_hash64(b->pixels, b->bytes));
    size_t n = (size_t)b->size;
    h = MR_MIX(h, mr_hash64(b->weights, n * 4), mr_hash64(b->ids, n * 8),
               mr_hash64(b->starts, n * 8), mr_hash64(b->fps, n * 4));
    for (int i = 0; i < b->size; i++)
        h = MR_MIX(h, mr_name_word(b->captions[i]));
    return h;
}

// The expected start of a sample: seed, epoch and key choose one of the starts that fit.
static int64_t start_of(const mr_batch *b, uint64_t id, uint64_t key, int interval)
{
    int64_t have = id % 6 == 5 ? 1 : 8 + (int64_t)id,
            starts = have - (int64_t)(b->shape.frames - 1) * interval;
    return (int64_t)(mr_fraction(MR_MIX(5, b->epoch, key, mr_name_word("sample.start"))) *
                     (double)starts);
}

static void frames_are_right(const mr_batch *b, int interval)
{
    size_t one = 3 * H * W;
    for (int i = 0; i < b->n; i++) {
        int number = -1;
        CHECK_INT(sscanf(b->captions[i], "clip number %d", &number), 1);
        CHECK_INT(b->starts[i], start_of(b, (uint64_t)number, b->keys[i], interval));
    }
    if (b->shape.height != H)
        return;
    for (int i = 0; i < b->n; i++)
        for (int t = 0; t < b->shape.frames; t++)
            CHECK_INT(bars_read(b->pixels + ((size_t)i * (size_t)b->shape.frames + (size_t)t) * one,
                                H, W),
                      b->starts[i] + t * interval);
}

// two epochs; returns the hash of all batches
static uint64_t run_all(const char *index, int threads, int prefetch, int interval,
                        int64_t *samples)
{
    opened o;
    uint64_t h = 0;
    const mr_batch *b;
    *samples = 0;
    if (!CHECK_OK(start(
            &o, index,
            &(mr_loader_options){.seed = 5, .threads = threads, .prefetch = prefetch, .epochs = 2},
            interval)))
        return 0;
    CHECK_INT(mr_loader_source(o.l, 0).rows, mr_index_get_facts(o.index).rows);
    uint64_t ids[200];
    int64_t coming;
    CHECK_OK(mr_loader_peek(o.l, ids, 200, &coming));
    while (mr_loader_next(o.l, &b) == MR_OK && b) {
        if (threads == 2)
            frames_are_right(b, interval);
        for (int i = 0; i < b->n; i++, ++*samples)
            CHECK(*samples < coming && ids[*samples] == b->ids[i]);
        for (int i = 0; i < b->size; i++)
            CHECK_NEAR(b->weights[i], i < b->n, 0);
        for (int i = 0; i < b->n; i++)
            CHECK_NEAR(b->fps[i], b->shape.frames == 1 ? 120 : 25 / interval, 0);
        h = MR_MIX(h, hash_batch(b));
        mr_loader_release(o.l, b);
    }
    CHECK_INT(*samples, coming);
    CHECK_INT(mr_loader_get_facts(o.l).failed, 0);
    stop(&o);
    return h;
}

static void any_number_of_threads(void)
{
    for (int interval = 1; interval <= 2; interval++) {
        int64_t samples, n;
        uint64_t one = run_all(clips_path("set.mrx"), 1, 1, interval, &samples);
        CHECK(samples > 30);
        for (int threads = 2; threads <= 8; threads *= 2) {
            CHECK(run_all(clips_path("set.mrx"), threads, threads, interval, &n) == one);
            CHECK_INT(n, samples);
        }
    }
}

// the batches after a state do not depend on where the run was stopped, nor on batches decoded
// ahead
static void restarts(void)
{
    enum { BATCHES = 30 };
    opened o;
    const mr_batch *b;
    uint64_t h[BATCHES];
    char *state[BATCHES];
    mr_loader_options options = {.seed = 8, .threads = 2, .prefetch = 6};
    if (!CHECK_OK(start(&o, clips_path("set.mrx"), &options, 1)))
        return;
    for (int i = 0; i < BATCHES; i++) {
        CHECK_OK(mr_loader_state(o.l, &state[i]));
        if (!CHECK_OK(mr_loader_next(o.l, &b)))
            return;
        h[i] = hash_batch(b);
        mr_loader_release(o.l, b);
    }
    stop(&o);
    for (int cut = 0; cut < BATCHES; cut += 3) {
        options.state = state[cut], options.threads = 1 + cut % 3;
        if (!CHECK_OK(start(&o, clips_path("set.mrx"), &options, 1)))
            return;
        for (int i = cut; i < BATCHES && i < cut + 6; i++) {
            if (!CHECK_OK(mr_loader_next(o.l, &b)))
                return;
            CHECK(hash_batch(b) == h[i]);
            mr_loader_release(o.l, b);
        }
        stop(&o);
    }
    for (int i = 0; i < BATCHES; i++)
        mr_free(state[i]);
}

// overwrites pictures of a clip without the index's knowledge: size and time stay
static void hurt(const char *name)
{
    char *data;
    size_t n;
    struct stat s;
    const char *path = clips_path(name);
    CHECK_INT(stat(path, &s), 0);
    CHECK_OK(mr_file_read_all(path, &data, &n));
    for (size_t i = 60; i < n / 3; i++)
        data[i] = (char)MR_MIX(i);
    int fd = open(path, O_WRONLY);
    CHECK_INT(write(fd, data, n), (long long)n);
    struct timespec times[2] = {s.st_atim, s.st_mtim};
    CHECK_INT(futimens(fd, times), 0);
    close(fd);
    mr_free(data);
}

// one clip is missing, one is damaged, one was replaced: their slots stay, with weight 0
static void samples_that_fail(void)
{
    opened o;
    const mr_batch *b;
    char *state = NULL, *excluded = NULL;
    char list[300];
    snprintf(list, sizeof list, "%s", clips_path("quarantine.jsonl"));
    CHECK_INT(rename(clips_path("set/01.mp4"), clips_path("away.mp4")), 0);
    hurt("set/03.mp4");
    CHECK_OK(mr_file_replace(clips_path("set/07.mp4"), "another file", 12));
    mr_loader_options options = {.seed = 5, .threads = 3, .epochs = 3, .quarantine = list};
    if (!CHECK_OK(start(&o, clips_path("set.mrx"), &options, 1)))
        return;
    int bad[3] = {0}, samples[3] = {0};
    uint64_t tail = 0;
    while (CHECK_OK(mr_loader_next(o.l, &b)) && b) {
        size_t one = b->bytes / (size_t)b->size;
        int good = -1;
        for (int i = 0; i < b->n; i++)
            if (b->weights[i] > 0)
                good = i;
        for (int i = 0; i < b->size; i++) {
            samples[b->epoch] += i < b->n, bad[b->epoch] += i < b->n && b->weights[i] == 0;
            if (b->weights[i] > 0)
                continue;
            int same = 0;
            for (int k = 0; k < b->n; k++)
                same |= b->weights[k] > 0 &&
                        memcmp(b->pixels + (size_t)i * one, b->pixels + (size_t)k * one, one) == 0;
            CHECK(same || good < 0);
        }
        if (b->epoch == 2)
            tail = MR_MIX(tail, hash_batch(b));
        bool at_border = b->last && b->epoch == 1;
        mr_loader_release(o.l, b);
        if (at_border) {
            CHECK_OK(mr_loader_state(o.l, &state));
            CHECK_OK(mr_loader_excluded(o.l, &excluded));
        }
    }
    // the missing clip fails again and again, the other two are left out after their first epoch
    CHECK(bad[0] >= 1 && bad[0] <= 3);
    CHECK(bad[2] <= 1);
    CHECK(samples[2] >= CLIPS - 8);
    CHECK_INT(mr_loader_get_facts(o.l).failed, bad[0] + bad[1] + bad[2]);
    stop(&o);
    CHECK_INT(clipset_count(list, "\"class\":\"stale\""), 2);
    CHECK_INT(clipset_count(list, "\"class\":\"corrupt\""), 2);
    CHECK_INT(clipset_count(list, "\"class\":\"io\""), bad[0] + bad[1] + bad[2] - 2);
    // the list in force is part of the state
    uint64_t again = 0;
    options.state = state;
    if (CHECK_OK(start(&o, clips_path("set.mrx"), &options, 1))) {
        while (CHECK_OK(mr_loader_next(o.l, &b)) && b) {
            again = MR_MIX(again, hash_batch(b));
            mr_loader_release(o.l, b);
        }
        CHECK(again == tail);
    }
    stop(&o);
    // at the end of epoch 1 the state is still of it, with what was left out of it
    options.quarantine = NULL;
    CHECK_FAILS(start(&o, clips_path("set.mrx"), &options, 1), MR_E_DATA, "quarantine");
    stop(&o);
    // the checkpoint's own list replaces a lost, a torn and an emptied file
    static const char *const files[] = {NULL, "{\"key\":\"00", ""};
    for (size_t i = 0; i < MR_COUNT(files); i++) {
        options.quarantine = files[i] ? clips_path("other.jsonl") : NULL;
        if (files[i])
            CHECK_OK(mr_file_replace(options.quarantine, files[i], strlen(files[i])));
        options.excluded = excluded, again = 0;
        if (CHECK_OK(start(&o, clips_path("set.mrx"), &options, 1))) {
            while (CHECK_OK(mr_loader_next(o.l, &b)) && b) {
                again = MR_MIX(again, hash_batch(b));
                mr_loader_release(o.l, b);
            }
            CHECK(again == tail);
        }
        stop(&o);
    }
    options.excluded = "";
    CHECK_FAILS(start(&o, clips_path("set.mrx"), &options, 1), MR_E_DATA, "excludes 0 samples");
    stop(&o);
    mr_free(state);
    mr_free(excluded);
}

// Passes the failures of each of `n` loaders to the others.
static void agree(opened *all, int n)
{
    char *text[8], others[4096];
    for (int r = 0; r < n; r++)
        CHECK_OK(mr_loader_failures(all[r].l, &text[r]));
    for (int to = 0; to < n; to++) {
        others[0] = 0;
        for (int r = 0; r < n; r++)
            if (r != to)
                strncat(others, text[r], sizeof others - strlen(others) - 1);
        CHECK_OK(mr_loader_agree(all[to].l, others));
    }
    for (int r = 0; r < n; r++)
        mr_free(text[r]);
}

// Ranks decode a share each: together the clips that one rank decodes, with the same states and the
// same samples left out. The clips that samples_that_fail has damaged are still damaged.
static void ranks_share_an_order(void)
{
    enum { RANKS = 3, GROUP = 4, DRAWS = 400 };
    opened alone, o[RANKS];
    const mr_batch *b, *one;
    char *state, *other;
    mr_loader_options options = {.seed = 5, .threads = 1, .prefetch = 1, .epochs = 2};
    if (!CHECK_OK(start(&alone, clips_path("set.mrx"), &options, 1)))
        return;
    options.parts = RANKS, options.group = GROUP;
    for (options.part = 0; options.part < RANKS; options.part++)
        if (!CHECK_OK(start(&o[options.part], clips_path("set.mrx"), &options, 1)))
            return;
    int failed = 0, decoded[RANKS] = {0};
    for (int at = 0; at < DRAWS && CHECK_OK(mr_loader_next(alone.l, &one)) && one; at++) {
        bool last = one->last;
        for (int r = 0; r < RANKS; r++) {
            if (!CHECK_OK(mr_loader_next(o[r].l, &b)) || !CHECK(b))
                return;
            CHECK_INT(b->other, at % GROUP % RANKS != r);
            CHECK_INT(b->draw, one->draw);
            CHECK(memcmp(b->ids, one->ids, sizeof *b->ids * (size_t)b->n) == 0);
            CHECK(b->other ? !b->pixels && !b->bytes : hash_batch(b) == hash_batch(one));
            decoded[r] += !b->other;
            mr_loader_release(o[r].l, b);
        }
        mr_loader_release(alone.l, one);
        if (last && one->epoch == 0)
            CHECK_FAILS(mr_loader_next(o[1].l, &b), MR_E_USAGE, "epoch 0 is over");
        if (last)
            agree(o, RANKS);
        for (int r = 0; r < RANKS; r++) {
            CHECK_OK(mr_loader_state(alone.l, &state));
            CHECK_OK(mr_loader_state(o[r].l, &other));
            CHECK_STR(other, state);
            mr_free(state), mr_free(other);
        }
    }
    for (int r = 0; r < RANKS; r++) {
        CHECK(decoded[r] > 3);
        failed += (int)mr_loader_get_facts(o[r].l).failed;
        CHECK_OK(mr_loader_excluded(alone.l, &state));
        CHECK_OK(mr_loader_excluded(o[r].l, &other));
        CHECK(*state != 0);
        CHECK_STR(other, state);
        mr_free(state), mr_free(other);
        CHECK_FAILS(mr_loader_agree(o[r].l, "0123456789abcdef 0 1 odd\n"), MR_E_FORMAT, "odd");
    }
    CHECK_INT(failed, mr_loader_get_facts(alone.l).failed);
    for (int r = 0; r < RANKS; r++)
        stop(&o[r]);
    stop(&alone);
    CHECK_FAILS(start(&alone, clips_path("set.mrx"),
                      &(mr_loader_options){.part = 2, .parts = 2, .threads = 1}, 1),
                MR_E_USAGE, "part 2 of 2");
    stop(&alone);
}

// Ctrl-C ends the wait for a batch; no sample is blamed, and the next call returns the same batch
static void interruptions(void)
{
    opened o;
    const mr_batch *b;
    char list[300];
    snprintf(list, sizeof list, "%s", clips_path("untouched.jsonl"));
    mr_io io = *mr_io_table();
    io.pread = clipset_pread;
    uint64_t h[2] = {0};
    int stopped = 0;
    for (int round = 0; round < 2; round++) {
        mr_loader_options options = {.seed = 5, .threads = 3, .epochs = 1, .quarantine = list};
        clipset_reads = -1;
        mr_io_replace(&io);
        if (!CHECK_OK(start(&o, clips_path("set.mrx"), &options, 1)))
            return;
        clipset_reads = round - 1;
        for (;;) {
            mr_status st = mr_loader_next(o.l, &b);
            if (st == MR_E_STOPPED) {
                stopped++;
                mr_interrupt_set(false);
                continue;
            }
            if (!CHECK_OK(st) || !b)
                break;
            h[round] = MR_MIX(h[round], hash_batch(b));
            mr_loader_release(o.l, b);
        }
        CHECK_INT(mr_loader_get_facts(o.l).failed, 0);
        stop(&o);
        mr_io_replace(NULL);
        mr_interrupt_set(false);
    }
    CHECK(stopped > 2);
    CHECK(h[0] == h[1]);
    CHECK_INT(mr_path_exists(list), 0);
}

// a folder that disappears stops the run instead of excluding all samples
static void lost_disk(void)
{
    opened o;
    const mr_batch *b;
    CHECK_INT(rename(clips_path("set"), clips_path("unmounted")), 0);
    if (!CHECK_OK(
            start(&o, clips_path("set.mrx"), &(mr_loader_options){.seed = 5, .threads = 4}, 1)))
        return;
    mr_status st;
    while ((st = mr_loader_next(o.l, &b)) == MR_OK)
        mr_loader_release(o.l, b);
    CHECK_FAILS(st, MR_E_DATA, "samples in a row cannot be read from");
    CHECK_FAILS(mr_loader_next(o.l, &b), MR_E_DATA, "No such file");
    CHECK_INT(mr_status_exit(st), 4);
    stop(&o);
    CHECK_INT(rename(clips_path("unmounted"), clips_path("set")), 0);
}

static void ends_at_any_moment(void)
{
    for (int round = 0; round < 30; round++) {
        opened o;
        const mr_batch *b;
        if (!CHECK_OK(start(&o, clips_path("set.mrx"),
                            &(mr_loader_options){
                                .seed = 1, .threads = 1 + round % 5, .prefetch = 1 + round % 7},
                            1)))
            return;
        for (int i = 0; i < round % 4; i++)
            CHECK_OK(mr_loader_next(o.l, &b));
        struct timespec t = {0, 300000L * (round % 9)};
        nanosleep(&t, NULL);
        stop(&o);
    }
    // all slabs are in use: an error instead of an endless wait
    opened o;
    const mr_batch *b;
    if (!CHECK_OK(
            start(&o, clips_path("set.mrx"), &(mr_loader_options){.seed = 1, .threads = 2}, 1)))
        return;
    for (int i = 0; i < 4; i++)
        CHECK_OK(mr_loader_next(o.l, &b));
    CHECK_FAILS(mr_loader_next(o.l, &b), MR_E_USAGE, "release batches first");
    stop(&o);
}

/* ---- planning in parallel with the work ---- */

static mr_loader *watched; // set before the first draw is released
static sem_t may_draw, second_draw;
static int draws, held, begun_at_second;

// looks at the loader while its only worker takes a draw
static mr_status watching_draw(mr_blend *blend, mr_draw *draw)
{
    if (draws == 2)
        return mr_blend_next(blend, draw);
    if (draws == 0)
        sem_wait(&may_draw);
    if (pthread_mutex_trylock(&watched->lock) == 0) {
        if (draws == 1)
            begun_at_second = watched->slabs[0].started;
        pthread_mutex_unlock(&watched->lock);
    } else {
        held++;
    }
    if (draws++ == 1)
        sem_post(&second_draw);
    return mr_blend_next(blend, draw);
}

// A worker plans without the lock, and as soon as the newest batch is begun.
static void planning_needs_no_lock(void)
{
    opened o;
    sem_init(&may_draw, 0, 0);
    sem_init(&second_draw, 0, 0);
    loader_draw = watching_draw;
    if (CHECK_OK(
            start(&o, clips_path("set.mrx"), &(mr_loader_options){.seed = 3, .threads = 1}, 1))) {
        watched = o.l;
        sem_post(&may_draw);
        // no other thread requests the lock meanwhile
        sem_wait(&second_draw);
        CHECK_INT(held, 0);
        CHECK_INT(begun_at_second, 1);
        CHECK(o.l->slabs[0].draw.n > 1);
    }
    stop(&o);
    loader_draw = mr_blend_next;
}

// a draw that fails ends the loader with its error
static mr_status failing_draw(mr_blend *blend, mr_draw *draw)
{
    (void)blend, (void)draw;
    return mr_fail(MR_E_DATA, "no draw today");
}

static void planning_that_fails(void)
{
    opened o;
    const mr_batch *b;
    loader_draw = failing_draw;
    if (CHECK_OK(
            start(&o, clips_path("set.mrx"), &(mr_loader_options){.seed = 3, .threads = 3}, 1))) {
        CHECK_FAILS(mr_loader_next(o.l, &b), MR_E_DATA, "no draw today");
        stop(&o);
    }
    loader_draw = mr_blend_next;
}

static void failing_memory(void)
{
    int failures = 0;
    for (int n = 1; n < 4000; n += 1 + n / 40) {
        opened o = {0};
        const mr_batch *b;
        mr_alloc_fail_at(n);
        mr_status st =
            start(&o, clips_path("set.mrx"), &(mr_loader_options){.seed = 1, .threads = 2}, 1);
        for (int i = 0; i < 3 && st == MR_OK; i++)
            if ((st = mr_loader_next(o.l, &b)) == MR_OK)
                mr_loader_release(o.l, b);
        mr_alloc_fail_at(0);
        stop(&o);
        if (st != MR_OK)
            CHECK_INT(st, MR_E_MEMORY);
        failures += st != MR_OK;
    }
    CHECK(failures > 20);
}

int main(void)
{
    const mr_media *m;
    mr_ingest_progress p;
    if (!CHECK_OK(mr_media_get(&m)) || !clipset_make(m) ||
        !CHECK_OK(clipset_ingest(clips_path("set"), clips_path("set.mrx"), 4, &p)))
        return check_done();
    any_number_of_threads();
    restarts();
    ends_at_any_moment();
    planning_needs_no_lock();
    planning_that_fails();
    failing_memory();
    interruptions();
    samples_that_fail();
    ranks_share_an_order();
    lost_disk();
    return check_done();
}
