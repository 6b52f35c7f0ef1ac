/* data/worker: loaders of several ranks share one order: no sample is repeated or lost, states are
 * the same everywhere, and the same samples are left out. */
#include "check.h"
#include "data/room.h"
#include "rows.h"

#include <stdatomic.h>

enum { H = 16, W = 16, CLIPS = 24, MOST = 8, EPOCHS = 3, DRAWS = 200 };

static mr_bucket_aspect aspect[] = {{1.0, H, W}};

static bool make_clips(const mr_media *m)
{
    char name[64];
    CHECK_OK(mr_dir_make(clips_path("set")));
    for (int i = 0; i < CLIPS; i++) {
        snprintf(name, sizeof name, i % 3 ? "set/%02d.png" : "set/%02d.mp4", i);
        if (!CHECK_OK(bars_write(m, clips_path(name),
                                 (mr_encode_options){.gop = 4, .rate_num = 25, .quality = 10},
                                 i % 3 ? 1 : 6, NULL)))
            return false;
    }
    mr_ingest *g;
    mr_ingest_progress p = {0};
    if (!CHECK_OK(
            mr_ingest_new(clips_path("set"), clips_path("set.mrx"), &(mr_ingest_options){0}, &g)))
        return false;
    while (!p.finished)
        if (!CHECK_OK(mr_ingest_step(g, 1, &p)))
            return false;
    mr_ingest_free(g);
    CHECK_OK(mr_file_replace(clips_path("set/03.mp4"), "another file", 12));
    CHECK_INT(remove(clips_path("set/05.png")), 0);
    return CHECK_OK(mr_file_replace(clips_path("set/07.png"), "no picture", 10));
}

static mr_status open_rank(mr_index *index, const mr_loader_options *options, mr_loader **out)
{
    mr_bucket_length lengths[] = {{1, 1, 1, 2, 0}, {4, 1, 1, 1, 0}};
    mr_bucket_resolution r = {"small", H * W, aspect, 1, lengths, 2};
    mr_bucket_rule *rule;
    MR_TRY(mr_bucket_rule_new(&r, 1, 1, false, &rule));
    return mr_loader_new(&(mr_source){.name = "", .index = index}, 1, rule, options, out);
}

/* The results of a run of some epochs, in the order of the draws. */
typedef struct report {
    int n;
    uint64_t ids[DRAWS][2], epoch[DRAWS];
    int count[DRAWS];
    float weights[DRAWS];
    char *state[DRAWS], *excluded[DRAWS]; // after this draw
    int owner[DRAWS];                     // the rank that decoded it
    double cost[DRAWS];
} report;

// draws of a step that ranks share by their cost; 0: they take turns
static int shared_by_cost;

static void forget(report *t)
{
    for (int i = 0; i < t->n; i++) {
        mr_free(t->state[i]);
        mr_free(t->excluded[i]);
    }
}

// passes the failures of each rank to all others
static bool agree(mr_loader **l, int ranks)
{
    char *lines[MOST], others[20000];
    for (int r = 0; r < ranks; r++)
        if (!CHECK_OK(mr_loader_failures(l[r], &lines[r])))
            return false;
    for (int r = 0; r < ranks; r++) {
        others[0] = 0;
        for (int k = 0; k < ranks; k++)
            if (k != r)
                strcat(others, lines[k]);
        CHECK_OK(mr_loader_agree(l[r], others));
    }
    for (int r = 0; r < ranks; r++)
        mr_free(lines[r]);
    return true;
}

static bool play(mr_index *index, int ranks, int slot, const char *list, const char *state,
                 const char *excluded, report *t)
{
    mr_loader *l[MOST] = {NULL};
    const mr_batch *b;
    bool good = true, over = false;
    for (int r = 0; r < ranks && good; r++) {
        mr_loader_options o = {.seed = 3,
                               .threads = 2,
                               .epochs = EPOCHS,
                               .quarantine = list,
                               .state = state,
                               .excluded = excluded,
                               .slot = slot,
                               .part = r,
                               .parts = ranks,
                               .lpt = shared_by_cost > 0,
                               .group = shared_by_cost};
        good = CHECK_OK(open_rank(index, &o, &l[r]));
    }
    memset(t, 0, sizeof *t);
    while (good && !over) {
        int owners = 0;
        char *first = NULL;
        for (int r = 0; r < ranks && good && !over; r++) {
            good = CHECK_OK(mr_loader_next(l[r], &b));
            over = good && !b;
            if (!good || over)
                break;
            owners += !b->other;
            t->owner[t->n] = b->other ? t->owner[t->n] : r, t->cost[t->n] = b->shape.cost;
            t->epoch[t->n] = b->epoch, t->count[t->n] = b->n;
            for (int i = 0; i < b->n; i++)
                t->ids[t->n][i] = b->ids[i], t->weights[t->n] += b->other ? 0 : b->weights[i];
            // all ranks are at the same place
            char *text;
            CHECK_OK(mr_loader_state(l[r], &text));
            if (first)
                CHECK_STR(text, first), mr_free(text);
            else
                first = text;
            mr_loader_release(l[r], b);
        }
        if (first && good && !over) {
            CHECK_INT(owners, 1);
            // at the end of an epoch, and before a checkpoint
            good = ranks == 1 || agree(l, ranks);
            t->state[t->n] = first;
            CHECK_OK(mr_loader_excluded(l[0], &t->excluded[t->n++]));
        }
    }
    for (int r = 0; r < ranks; r++)
        mr_loader_free(l[r]);
    return good;
}

static void same(const report *a, int from, const report *b)
{
    if (!CHECK_INT(a->n - from, b->n))
        return;
    for (int i = 0; i < b->n; i++) {
        const report *x = a;
        CHECK_INT(b->epoch[i], x->epoch[from + i]);
        CHECK_INT(b->count[i], x->count[from + i]);
        CHECK(memcmp(b->ids[i], x->ids[from + i], sizeof b->ids[i]) == 0);
        CHECK(b->weights[i] == x->weights[from + i]);
    }
}

static int lines_of(const char *path)
{
    char *text;
    size_t n;
    int count = 0;
    if (mr_file_read_all(path, &text, &n) != MR_OK)
        return -1;
    for (char *p = text; *p; p++)
        count += *p == '\n';
    mr_free(text);
    return count;
}

static void ranks_share(mr_index *index)
{
    static report one, many, rest;
    char name[64], list[300];
    snprintf(list, sizeof list, "%s", clips_path("one.jsonl"));
    if (!play(index, 1, 1, list, NULL, NULL, &one))
        return;
    // three samples fail in the first epoch; two are left out afterwards, a missing one is not
    float weight = 0;
    int in_epoch[EPOCHS] = {0};
    for (int i = 0; i < one.n; i++)
        in_epoch[one.epoch[i]] += one.count[i], weight += one.epoch[i] ? 0 : one.weights[i];
    CHECK_INT(in_epoch[0], CLIPS);
    CHECK_INT(weight, CLIPS - 3);
    CHECK_INT(in_epoch[1], CLIPS - 2);
    CHECK_INT(in_epoch[2], CLIPS - 2);
    int events = lines_of(list);
    static const int ranks[] = {2, 3, 8};
    for (size_t k = 0; k < MR_COUNT(ranks); k++) {
        snprintf(name, sizeof name, "%d.jsonl", ranks[k]);
        snprintf(list, sizeof list, "%s", clips_path(name));
        if (!play(index, ranks[k], 1, list, NULL, NULL, &many))
            return;
        same(&one, 0, &many);
        // failures of all ranks are in the list of the run
        CHECK_INT(lines_of(list), events);
        // any state of many ranks is continued by any number of ranks
        for (int i = 4; i < many.n; i += 7) {
            snprintf(list, sizeof list, "%s", clips_path("again.jsonl"));
            if (!play(index, ranks[(k + (size_t)i) % 3], 1, list, many.state[i], many.excluded[i],
                      &rest))
                return;
            same(&one, i + 1, &rest);
            forget(&rest);
            remove(list);
        }
        forget(&many);
    }
    forget(&one);
}

// slots of equal cost: their order is that of the recipe's number, for any number of ranks
static void slots(mr_index *index)
{
    static report one, many, rest;
    if (!play(index, 1, 4, NULL, NULL, NULL, &one))
        return;
    int seen[CLIPS] = {0};
    for (int i = 0; i < one.n && !one.epoch[i]; i++)
        for (int k = 0; k < one.count[i]; k++)
            seen[one.ids[i][k]]++;
    for (int i = 0; i < CLIPS; i++)
        CHECK_INT(seen[i], 1);
    for (int ranks = 2; ranks <= 4; ranks++) {
        if (!play(index, ranks, 4, NULL, NULL, NULL, &many))
            return;
        same(&one, 0, &many);
        // a slot that is begun continues in its class
        for (int i = ranks; i < many.n; i += 5) {
            if (!play(index, 1, 4, NULL, many.state[i], many.excluded[i], &rest))
                return;
            same(&one, i + 1, &rest);
            forget(&rest);
        }
        forget(&many);
    }
    forget(&one);
}

// shared by their cost the draws are the same, and the work of two ranks differs by at most one of
// them
static void longest_first(mr_index *index)
{
    static report one, many;
    enum { RANKS = 3, GROUP = 8 };
    if (!play(index, 1, 1, NULL, NULL, NULL, &one))
        return;
    shared_by_cost = GROUP;
    int groups = 0, uneven = 0;
    if (play(index, RANKS, 1, NULL, NULL, NULL, &many)) {
        same(&one, 0, &many);
        for (int g = 0; g + GROUP <= many.n; g += GROUP) {
            double load[RANKS] = {0}, turns[RANKS] = {0}, most = 0, longest = 0, by_turns = 0;
            for (int i = g; i < g + GROUP; i++) {
                load[many.owner[i]] += many.cost[i], turns[i % GROUP % RANKS] += many.cost[i];
                most = MR_MAX(most, many.cost[i]);
            }
            for (int r = 0; r < RANKS; r++)
                longest = MR_MAX(longest, load[r]), by_turns = MR_MAX(by_turns, turns[r]);
            // draws after an epoch's end are not known yet when those before it are given out
            if (many.epoch[g] != many.epoch[g + GROUP - 1])
                continue;
            for (int r = 0; r < RANKS; r++)
                CHECK(longest - load[r] <= most);
            CHECK(longest <= by_turns);
            groups++, uneven += longest < by_turns;
        }
        CHECK(groups > 3 && uneven > 0);
        forget(&many);
    }
    shared_by_cost = 0;
    forget(&one);
}

static _Atomic int64_t pauses_ms; // bits of all of them
static void no_sleep(int64_t ns)
{
    pauses_ms |= ns / 1000000;
}

int main(void)
{
    const mr_media *m;
    mr_index *index;
    // a missing file is tried again without a wait
    mr_clock clock = *mr_clock_table();
    clock.sleep_ns = no_sleep;
    mr_clock_replace(&clock);
    if (!CHECK_OK(mr_media_get(&m)) || !make_clips(m) ||
        !CHECK_OK(mr_index_open(clips_path("set.mrx"), false, &index)))
        return check_done();
    ranks_share(index);
    CHECK_INT(pauses_ms, 50 | 100 | 200); // before three more attempts
    slots(index);
    longest_first(index);
    mr_index_unref(index);
    return check_done();
}
