/* data/loader, quarantine, ingest: equal batches for any number of threads, right frames, samples
 * that fail, limits, restarts, ends at any moment.
 * Covers: core/index/ingest.c */
#include "check.h"
#include "data/room.h"
#include "rows.h"

#include <fcntl.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <time.h>

enum { H = 32, W = 48, CLIPS = 26 };

static mr_bucket_aspect aspect[] = {{0.67, H, W}, {1.5, W, H}};

static mr_status make_rule(int interval, mr_bucket_rule **out)
{
    mr_bucket_length lengths[] = {{1, 1, 1, 3, 0}, {4, 1, 0.7, 4, 0}, {9, 1, 0.5, 2, 0}};
    mr_bucket_resolution r = {"small", H * W, aspect, 2, lengths, 3};
    return mr_bucket_rule_new(&r, 1, interval, false, out);
}

static mr_status ingest(const char *from, const char *to, int threads, mr_ingest_progress *p)
{
    mr_ingest *g;
    mr_ingest_options o = {.threads = threads};
    MR_TRY(mr_ingest_new(from, to, &o, &g));
    mr_status st;
    do
        st = mr_ingest_step(g, 1, p);
    while (st == MR_OK && !p->finished);
    mr_ingest_free(g);
    return st;
}

static bool make_clips(const mr_media *m)
{
    char name[64], text[64];
    CHECK_OK(mr_dir_make(clips_path("set/stills")));
    for (int i = 0; i < CLIPS; i++) {
        bool still = i % 6 == 5;
        snprintf(name, sizeof name,
                 still   ? "set/stills/%02d.png"
                 : i % 2 ? "set/%02d.mp4"
                         : "set/%02d.webm",
                 i);
        if (!CHECK_OK(bars_write(m, clips_path(name),
                                 (mr_encode_options){.gop = 8, .rate_num = 25, .quality = 10},
                                 still ? 1 : 8 + i, NULL)))
            return false;
        snprintf(text, sizeof text, "clip number %d\n", i);
        strcpy(strrchr(name, '.'), ".txt");
        CHECK_OK(mr_file_replace(clips_path(name), text, strlen(text)));
    }
    return true;
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

// the start of a sample, said a second time: one of those that fit, by seed, epoch and key
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

// two epochs; returns the hash of everything that came out
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
    mr_ingest_progress p;
    mr_index *ix[2];
    if (!CHECK_OK(ingest(clips_path("set"), clips_path("one.mrx"), 1, &p)) ||
        !CHECK_OK(ingest(clips_path("set"), clips_path("set.mrx"), 4, &p)))
        return;
    CHECK_INT(p.written, CLIPS);
    CHECK_INT(p.refused, 0);
    CHECK_INT(p.without_caption, 0);
    CHECK_OK(mr_index_open(clips_path("one.mrx"), false, &ix[0]));
    CHECK_OK(mr_index_open(clips_path("set.mrx"), false, &ix[1]));
    mr_index_facts f[2] = {mr_index_get_facts(ix[0]), mr_index_get_facts(ix[1])};
    CHECK(memcmp(&f[0].fp_order, &f[1].fp_order, 16) == 0);
    mr_index_unref(ix[0]);
    mr_index_unref(ix[1]);
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

// what follows a state does not depend on where the run was cut, nor on batches decoded ahead
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

// overwrite pictures of a clip behind the index's back: size and time stay
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

static int count_lines(const char *path, const char *what)
{
    char *text;
    size_t n;
    int count = 0;
    if (mr_file_read_all(path, &text, &n) != MR_OK)
        return -1;
    for (char *p = text; (p = strstr(p, what)); p++)
        count++;
    mr_free(text);
    return count;
}

// one clip is gone, one is damaged, one was replaced: their slots stay, with weight 0
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
    // the lost clip fails again and again, the other two are left out after their first epoch
    CHECK(bad[0] >= 1 && bad[0] <= 3);
    CHECK(bad[2] <= 1);
    CHECK(samples[2] >= CLIPS - 8);
    CHECK_INT(mr_loader_get_facts(o.l).failed, bad[0] + bad[1] + bad[2]);
    stop(&o);
    CHECK_INT(count_lines(list, "\"class\":\"stale\""), 2);
    CHECK_INT(count_lines(list, "\"class\":\"corrupt\""), 2);
    CHECK_INT(count_lines(list, "\"class\":\"io\""), bad[0] + bad[1] + bad[2] - 2);
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
    // at the end of epoch 1 the state still stands in it, with what was left out of it
    options.quarantine = NULL;
    CHECK_FAILS(start(&o, clips_path("set.mrx"), &options, 1), MR_E_DATA, "quarantine");
    stop(&o);
    // the checkpoint's own list makes up for a lost, a torn and an emptied file
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
    CHECK_FAILS(start(&o, clips_path("set.mrx"), &options, 1), MR_E_DATA, "leaves out 0 samples");
    stop(&o);
    mr_free(state);
    mr_free(excluded);
}

// Tells each of `n` loaders what failed on the others.
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

// Ranks decode a share each: together what one decodes alone, and all stand where it stands and
// leave out what it leaves out. The clips that samples_that_fail has damaged are damaged still.
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

static atomic_int reads; // below 0: nothing is interrupted
static ssize_t interrupting_pread(int fd, void *buf, size_t n, int64_t at)
{
    // further and further apart, so that the work comes to an end
    int now = reads < 0 ? 0 : ++reads;
    if (now >= 8 && (now & (now - 1)) == 0)
        mr_interrupt_set(true);
    return pread(fd, buf, n < 500 ? n : 500, at);
}

// Ctrl-C ends the wait for a batch; no sample is blamed, and the next call gives the same batch
static void interruptions(void)
{
    opened o;
    const mr_batch *b;
    char list[300];
    snprintf(list, sizeof list, "%s", clips_path("untouched.jsonl"));
    mr_io io = *mr_io_table();
    io.pread = interrupting_pread;
    uint64_t h[2] = {0};
    int stopped = 0;
    for (int round = 0; round < 2; round++) {
        mr_loader_options options = {.seed = 5, .threads = 3, .epochs = 1, .quarantine = list};
        reads = -1;
        mr_io_replace(&io);
        if (!CHECK_OK(start(&o, clips_path("set.mrx"), &options, 1)))
            return;
        reads = round - 1;
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

// Ctrl-C ends an ingest; what was committed is gone on with, and nothing was refused
static void interrupted_ingest(void)
{
    mr_ingest *g;
    mr_ingest_progress p = {0};
    mr_index *ix[2];
    char out[300];
    snprintf(out, sizeof out, "%s", clips_path("interrupted.mrx"));
    mr_io io = *mr_io_table();
    io.pread = interrupting_pread;
    int stopped = 0, count = 0;
    for (mr_status st = MR_E_STOPPED; st == MR_E_STOPPED && stopped < 100;) {
        mr_ingest_options options = {.threads = 1, .resume = true, .commit_rows = 1};
        reads = -1;
        mr_io_replace(&io);
        if (!CHECK_OK(mr_ingest_new(clips_path("set"), out, &options, &g)))
            return;
        reads = count;
        do
            st = mr_ingest_step(g, 1, &p);
        while (st == MR_OK && !p.finished);
        mr_ingest_free(g);
        count = reads;
        mr_io_replace(NULL);
        mr_interrupt_set(false);
        stopped += st == MR_E_STOPPED;
    }
    CHECK(stopped > 2 && stopped < 100);
    CHECK_INT(p.written, CLIPS);
    CHECK_INT(p.refused, 0);
    if (!CHECK_OK(mr_index_open(clips_path("set.mrx"), false, &ix[0])) ||
        !CHECK_OK(mr_index_open(out, false, &ix[1])))
        return;
    mr_index_facts f[2] = {mr_index_get_facts(ix[0]), mr_index_get_facts(ix[1])};
    CHECK(memcmp(&f[0].fp_order, &f[1].fp_order, 16) == 0);
    mr_index_unref(ix[0]);
    mr_index_unref(ix[1]);
}

// a folder that goes away stops the run instead of burning data
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
    // every slab given out: a word instead of waiting for ever
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

/* ---- planning beside the work ---- */

static mr_loader *watched; // set before the first draw is let through
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

// A worker plans with the lock free, and as soon as the newest batch is begun.
static void planning_waits_for_nobody(void)
{
    opened o;
    sem_init(&may_draw, 0, 0);
    sem_init(&second_draw, 0, 0);
    loader_draw = watching_draw;
    if (CHECK_OK(
            start(&o, clips_path("set.mrx"), &(mr_loader_options){.seed = 3, .threads = 1}, 1))) {
        watched = o.l;
        sem_post(&may_draw);
        // nobody else asks for the lock meanwhile
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

static void ingest_refusals(void)
{
    mr_ingest_progress p;
    char out[300];
    snprintf(out, sizeof out, "%s", clips_path("new.mrx"));
    CHECK_OK(mr_dir_make(clips_path("hollow")));
    CHECK_FAILS(ingest(clips_path("hollow"), out, 2, &p), MR_E_DATA, "no samples in it");
    CHECK_FAILS(ingest(clips_path("nothing"), out, 2, &p), MR_E_DATA, "No such file");
    const struct {
        const char *text, *part;
    } rows[] = {{"file,text\na,b\n", "no column 'path'; columns found: file, text"},
                {"path,caption\na,b\n", "no column 'text'; columns found: path, caption"},
                {"", "no column 'path'; columns found: none"},
                {"path,text\n", "no samples in it"},
                {"path,text\nset/00.webm\n", ":2: 1 fields, expected 2"},
                {"path,text\nset/00.webm,\"open\n", ":2: a quoted field does not end"},
                {"path,text\nlost.mp4,x\nset/00.txt,y\n", "none of 2 rows can be read"}};
    for (size_t i = 0; i < MR_COUNT(rows); i++) {
        CHECK_OK(mr_file_replace(clips_path("list.csv"), rows[i].text, strlen(rows[i].text)));
        CHECK_FAILS(ingest(clips_path("list.csv"), out, 2, &p), MR_E_DATA, rows[i].part);
    }
    CHECK_INT(mr_path_exists(out), 0);
    // a list with quotes, line breaks, a byte order mark and a row that cannot be read
    const char *good =
        "\xef\xbb\xbfnum,path,text\r\n1,set/00.webm,\"a \"\"red\"\" "
        "ball,\r\nrolling\"\r\n2,lost.mp4,x\r\n\r\n3,set/05.png,\r\n4,set/stills/05.png,still\r\n"
        "5,./set/../set/00.webm,again\r\n6,set/02.webm,bell\a\r\n";
    CHECK_OK(mr_file_replace(clips_path("list.csv"), good, strlen(good)));
    if (!CHECK_OK(ingest(clips_path("list.csv"), out, 2, &p)))
        return;
    CHECK_INT(p.written, 2);
    CHECK_INT(p.refused, 4);
    mr_index *ix;
    mr_index_reader *reader;
    mr_row row;
    CHECK_OK(mr_index_open(out, true, &ix));
    CHECK_OK(mr_index_reader_new(ix, &reader));
    CHECK_OK(mr_index_row(reader, 0, &row));
    CHECK_STR(row.captions[0].text, "a \"red\" ball,\r\nrolling");
    CHECK_OK(mr_index_row(reader, 1, &row));
    CHECK_INT(row.info.flags & MR_CLIP_IMAGE, MR_CLIP_IMAGE);
    mr_index_reader_free(reader);
    mr_index_unref(ix);
    char refused[400];
    snprintf(refused, sizeof refused, "%s/refused.jsonl", out);
    CHECK_INT(count_lines(refused, "\"class\":\"io\""), 2);
    CHECK_INT(count_lines(refused, "\"class\":\"caption\",\"detail\":\"a caption with the control "
                                   "character U+0007 at byte 4\""),
              1);
    CHECK_INT(count_lines(refused, "\"row\":8,\"path\":\"./set/../set/00.webm\",\"class\":"
                                   "\"duplicate\",\"detail\":\"./set/../set/00.webm: the same "
                                   "sample as row 2 (set/00.webm)\""),
              1);
    CHECK_OK(mr_file_replace(clips_path("list.jsonl"),
                             "{\"path\":\"set/00.webm\",\"text\":\"x\"}\n{\"path\":3}\n", 45));
    CHECK_FAILS(ingest(clips_path("list.jsonl"), out, 2, &p), MR_E_DATA,
                "list.jsonl:2: no text value 'path'");
    // stopped half way: nothing remains of the new one, the old one stays
    mr_ingest *g;
    if (CHECK_OK(mr_ingest_new(clips_path("set"), out, &(mr_ingest_options){.threads = 2}, &g))) {
        CHECK_OK(mr_ingest_step(g, 0, &p));
        mr_ingest_free(g);
    }
    CHECK_OK(mr_index_open(out, true, &ix));
    CHECK_INT(mr_index_get_facts(ix).rows, 2);
    mr_index_unref(ix);
}

static atomic_int endless_calls;
static ssize_t endless_read(int fd, void *buf, size_t n)
{
    (void)fd;
    // the table ends some day, so that a spec that fails ends too
    if (endless_calls++ > 20000)
        return 0;
    return snprintf(buf, n, endless_calls == 1 ? "path,text\n" : "%d.mp4,text\n", endless_calls);
}

// A list is read while the caller looks on, and is given up at any moment; errors come with a step.
static void list_beside_the_caller(void)
{
    mr_ingest *g;
    mr_ingest_progress p;
    char out[300];
    snprintf(out, sizeof out, "%s", clips_path("endless.mrx"));
    CHECK_OK(mr_file_replace(clips_path("endless.csv"), "", 0));
    mr_io io = *mr_io_table();
    io.read = endless_read;
    mr_io_replace(&io);
    if (!CHECK_OK(mr_ingest_new(clips_path("endless.csv"), out, &(mr_ingest_options){0}, &g)))
        return;
    mr_status st;
    do
        st = mr_ingest_step(g, 0, &p);
    while (st == MR_OK && p.listed < 100 && endless_calls < 20000);
    CHECK_OK(st);
    CHECK_INT(p.total, 0);
    CHECK_INT(p.finished, 0);
    CHECK_STR(mr_ingest_notes(g), "");
    mr_ingest_free(g);
    CHECK(endless_calls < 20000);
    mr_io_replace(NULL);
    CHECK_INT(clips_count("endless.mrx"), 0);
    // a failed one keeps failing
    if (!CHECK_OK(mr_ingest_new(clips_path("endless.csv"), out, &(mr_ingest_options){0}, &g)))
        return;
    for (int again = 0; again < 2; again++)
        CHECK_FAILS(mr_ingest_step(g, 60, &p), MR_E_DATA, "no column 'path'");
    mr_ingest_free(g);
}

static char *file_of(const char *index, const char *name, size_t *n)
{
    char path[700], *bytes = NULL;
    snprintf(path, sizeof path, "%s/%s", index, name);
    CHECK_OK(mr_file_read_all(path, &bytes, n));
    return bytes;
}

// A list that does not fit in memory gives the same index, byte for byte, and the same refusals.
static void lists_put_aside(void)
{
    enum { ROWS = 4000 };
    index_pack list = {0};
    char line[300], out[2][300], *file[2];
    size_t n[2];
    index_put(&list, "path,text\n", 10);
    for (int i = 0; i < ROWS; i++) {
        // few of the rows are samples: others are nowhere, or there again under another name
        int k = snprintf(line, sizeof line, "%s%s%03d.mp4,\"row %d%s\"\n", i % 3 ? "" : "./",
                         i % 50 == 7 ? "set/../gone/" : "gone/", i / 2, i, i % 11 ? "" : "\a");
        if (i % 400 == 3)
            k = snprintf(line, sizeof line, "set/%02d.webm,\"row %d\"\n", i / 400 * 2 % 8, i);
        index_put(&list, line, (size_t)k);
    }
    CHECK_OK(mr_file_replace(clips_path("long.csv"), list.bytes, list.n));
    CHECK(list.n > 100000);
    mr_free(list.bytes);
    for (int small = 0; small < 2; small++) {
        mr_ingest_progress p;
        index_run_bytes = small ? 20000 : 64 << 20;
        snprintf(out[small], sizeof out[0], "%s", clips_path(small ? "small.mrx" : "large.mrx"));
        CHECK_OK(ingest(clips_path("long.csv"), out[small], 1 + small, &p));
        CHECK_INT(p.written, 4);
        CHECK_INT(p.refused, ROWS - 4);
    }
    index_run_bytes = (size_t)64 << 20;
    static const char *const names[] = {"data.mdb", "info.txt", "refused.jsonl"};
    for (size_t i = 0; i < MR_COUNT(names); i++) {
        for (int small = 0; small < 2; small++)
            file[small] = file_of(out[small], names[i], &n[small]);
        CHECK(file[0] && file[1] && n[0] == n[1] && memcmp(file[0], file[1], n[0]) == 0);
        mr_free(file[0]);
        mr_free(file[1]);
    }
    char refused[400];
    snprintf(refused, sizeof refused, "%s/refused.jsonl", out[1]);
    CHECK_INT(count_lines(refused, "\n"), ROWS - 4);
    CHECK_INT(count_lines(refused, "\"class\":\"caption\""), ROWS / 11);
    CHECK_INT(count_lines(refused, "\"row\":25,\"path\":\"gone/011.mp4\",\"class\":\"duplicate\","
                                   "\"detail\":\"gone/011.mp4: the same sample as row 24 "
                                   "(gone/011.mp4)\""),
              1);
}

int main(void)
{
    const mr_media *m;
    if (!CHECK_OK(mr_media_get(&m)) || !make_clips(m))
        return check_done();
    any_number_of_threads();
    restarts();
    ends_at_any_moment();
    planning_waits_for_nobody();
    planning_that_fails();
    failing_memory();
    ingest_refusals();
    list_beside_the_caller();
    lists_put_aside();
    interruptions();
    interrupted_ingest();
    samples_that_fail();
    ranks_share_an_order();
    lost_disk();
    return check_done();
}
