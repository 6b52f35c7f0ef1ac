/* data/resume: builders killed at any moment resume after their last commit, and end as if never
 * killed. */
#include "check.h"
#include "fault.h"
#include "index/builder.h"
#include "rows.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

enum { ITEMS = 9000, STEP = 500, MAP = 256 << 10 };

// everything in the tables of an index, as one hash
static mr_hash128 contents(const char *index)
{
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi main_table, table;
    MDB_cursor *names, *rows;
    MDB_val name, key, value;
    mr_hasher *h = mr_hasher_new();
    mr_hash128 hash = {0};
    mdb_env_create(&env);
    mdb_env_set_maxdbs(env, 16);
    if (!CHECK_INT(mdb_env_open(env, index, MDB_RDONLY | MDB_NOLOCK, 0), 0))
        return hash;
    mdb_txn_begin(env, NULL, MDB_RDONLY, &txn);
    mdb_dbi_open(txn, NULL, 0, &main_table);
    mdb_cursor_open(txn, main_table, &names);
    while (mdb_cursor_get(names, &name, &value, MDB_NEXT) == 0) {
        char text[32] = "";
        memcpy(text, name.mv_data, name.mv_size);
        mr_hasher_add(h, text, sizeof text);
        CHECK_INT(mdb_dbi_open(txn, text, 0, &table), 0);
        mdb_cursor_open(txn, table, &rows);
        while (mdb_cursor_get(rows, &key, &value, MDB_NEXT) == 0) {
            mr_hasher_add(h, key.mv_data, key.mv_size);
            mr_hasher_add(h, value.mv_data, value.mv_size);
        }
        mdb_cursor_close(rows);
    }
    hash = mr_hasher_digest(h);
    mr_hasher_free(h);
    mdb_cursor_close(names);
    mdb_txn_abort(txn);
    mdb_env_close(env);
    return hash;
}

static bool same(const char *a, const char *b)
{
    char file[400], *text[2];
    size_t n[2];
    mr_hash128 x = contents(a), y = contents(b);
    snprintf(file, sizeof file, "%s/refused.jsonl", a);
    if (!CHECK_OK(mr_file_read_all(file, &text[0], &n[0])))
        return false;
    snprintf(file, sizeof file, "%s/refused.jsonl", b);
    if (!CHECK_OK(mr_file_read_all(file, &text[1], &n[1])))
        return false;
    bool equal =
        memcmp(&x, &y, sizeof x) == 0 && n[0] == n[1] && memcmp(text[0], text[1], n[0]) == 0;
    mr_free(text[0]);
    mr_free(text[1]);
    return equal;
}

static uint64_t commit_rows = STEP;
static size_t commit_bytes;

// items of an input, every seventh refused; stops for ever before item `kill_at`
static mr_status build(const char *name, bool resume, uint64_t kill_at, uint64_t *began)
{
    mr_index_builder *b;
    char path[64], text[64], line[64];
    mr_caption caption;
    int64_t keys[4];
    uint16_t root;
    MR_TRY(mr_index_builder_new(name,
                                &(mr_index_options){.map_bytes = MAP,
                                                    .commit_rows = commit_rows,
                                                    .commit_bytes = commit_bytes,
                                                    .resume = resume},
                                &b));
    mr_index_built had = mr_index_builder_built(b);
    mr_status st = mr_index_builder_root(b, "/nowhere", &root);
    int32_t column;
    for (int c = 0; c < 2 && st == MR_OK; c++)
        st = mr_index_builder_column(b, c ? "flow" : "match", MR_COLUMN_REAL, &column);
    *began = had.rows + had.refused;
    for (uint64_t i = *began; i < ITEMS && st == MR_OK; i++) {
        if (i == kill_at)
            raise(SIGKILL);
        snprintf(line, sizeof line, "{\"row\":%llu}", (unsigned long long)i);
        mr_row row = rows_make(1, i, path, text, &caption, keys);
        if (i % 11 == 0)
            *text = 0;
        const mr_number values[] = {{.f = (double)i}, {.f = (double)i * -0.5}};
        row.columns = values, row.n_columns = i % 13 ? 2 : 1;
        st = i % 7 == 2 ? mr_index_builder_refuse(b, line) : mr_index_builder_add(b, &row);
    }
    if (st == MR_OK)
        st = mr_index_builder_finish(b);
    mr_index_built built = mr_index_builder_built(b);
    if (st == MR_OK &&
        (built.rows != 7714 || built.refused != 1286 || built.without_caption != 702))
        st = mr_fail(MR_E_INTERNAL, "%d rows, %d refused, %d without caption", (int)built.rows,
                     (int)built.refused, (int)built.without_caption);
    mr_index_builder_free(b);
    return st;
}

static bool killed(const char *name, bool resume, uint64_t at)
{
    uint64_t began;
    pid_t child = fork();
    if (child == 0)
        _exit(build(name, resume, at, &began) != MR_OK);
    int status;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status);
}

// what a killed builder of rows.mrx left
static void leftover(char out[400], const char *name)
{
    char **names;
    int n;
    CHECK_OK(mr_dir_list(clips_dir(), &names, &n));
    for (int i = 0; i < n; i++)
        if (strncmp(names[i], "rows.mrx.tmp-", 13) == 0)
            snprintf(out, 400, "%s/%s%s", clips_dir(), names[i], name);
    mr_dir_list_free(names, n);
}

static void killed_at_rows(const char *whole)
{
    char path[300], torn[400];
    snprintf(path, sizeof path, "%s", clips_path("rows.mrx"));
    uint64_t began, points[] = {0, 1, STEP, STEP + 5, 4670, 4860, 8999};
    for (size_t i = 0; i < MR_COUNT(points); i++) {
        CHECK(killed(path, false, points[i]));
        CHECK_INT(mr_path_exists(path), 0);
        CHECK_INT(clips_count("rows.mrx"), 1);
        if (!CHECK_OK(build(path, true, ITEMS, &began)))
            return;
        // only rows after the last commit are read again
        CHECK(began <= points[i] && began + STEP * 2 >= points[i]);
        CHECK(same(path, whole));
        CHECK_INT(clips_count("rows.mrx"), 1);
        mr_dir_remove(path);
    }
    // again and again; then without resuming: from the start
    for (uint64_t at = 700; at < ITEMS; at += 1500)
        CHECK(killed(path, true, at));
    CHECK_OK(build(path, true, ITEMS, &began));
    CHECK(began > 7000);
    CHECK(same(path, whole));
    CHECK(killed(path, false, 5000));
    CHECK_OK(build(path, false, ITEMS, &began));
    CHECK_INT(began, 0);
    // nothing to resume: from the start, the old index is replaced
    CHECK_OK(build(path, true, ITEMS, &began));
    CHECK_INT(began, 0);
    CHECK(same(path, whole));
    mr_dir_remove(path);
    // an unsealed one is not trained from; a torn one is not resumed
    CHECK(killed(path, false, 5000));
    mr_index *ix;
    leftover(torn, "");
    CHECK_FAILS(mr_index_open(torn, false, &ix), MR_E_DATA, "is not sealed");
    static const off_t lengths[] = {512 << 10, 64 << 10, 8192, 5000, 4096, 100};
    for (size_t i = 0; i < MR_COUNT(lengths); i++) {
        leftover(torn, "/data.mdb");
        CHECK_INT(truncate(torn, lengths[i]), 0);
        CHECK_FAILS(build(path, true, ITEMS, &began), MR_E_DATA,
                    i < 3 ? "cut off; try: without --continue" : "rows.mrx.tmp-");
    }
    CHECK_OK(build(path, false, ITEMS, &began));
    CHECK_INT(clips_count("rows.mrx"), 1);
}

// each operation on our files, most of them after the last row
static void killed_at_operations(const char *whole)
{
    char path[300];
    snprintf(path, sizeof path, "%s", clips_path("operations.mrx"));
    uint64_t began;
    int kills = 0;
    for (int at = 1;; at++) {
        pid_t child = fork();
        if (child == 0) {
            fault_install();
            fault_at(at, FAULT_DIE_BEFORE, 0);
            _exit(build(path, false, ITEMS, &began) != MR_OK);
        }
        int status;
        waitpid(child, &status, 0);
        if (!CHECK_OK(build(path, true, ITEMS, &began)) || !CHECK(same(path, whole)))
            return;
        CHECK_INT(clips_count("operations.mrx"), 1);
        mr_dir_remove(path);
        if (WEXITSTATUS(status) != FAULT_EXIT)
            break;
        kills++;
    }
    CHECK(kills > 15);
}

// a limit of the file stands for a full disk
static void full_disk(const char *whole)
{
    char path[300];
    snprintf(path, sizeof path, "%s", clips_path("full.mrx"));
    uint64_t began;
    for (int resume = 0; resume < 2; resume++) {
        pid_t child = fork();
        if (child == 0) {
            signal(SIGXFSZ, SIG_IGN);
            setrlimit(RLIMIT_FSIZE, &(struct rlimit){1 << 20, 1 << 20});
            mr_status st = build(path, resume, ITEMS, &began);
            _exit(st == MR_E_IO && strstr(mr_error_last()->text, "free space") ? 0 : 1);
        }
        int status;
        waitpid(child, &status, 0);
        CHECK_INT(status, 0);
        CHECK_INT(clips_count("full.mrx"), resume);
    }
    CHECK_OK(build(path, true, ITEMS, &began));
    CHECK(began > 1000);
    CHECK(same(path, whole));
    // the disk may be full for the spilled keys, too; the rows wait for room
    mr_dir_remove(path);
    fault_install();
    int failures = 0;
    for (long at = 1;; at++) {
        fault_at(at, FAULT_FULL, 0);
        mr_status st = build(path, true, ITEMS, &began);
        fault_clear();
        CHECK(clips_count("full.mrx") <= 1);
        if (st == MR_OK)
            break;
        failures++;
        CHECK_INT(st, MR_E_IO);
    }
    CHECK(failures > 5);
    CHECK(same(path, whole));
    mr_io_replace(NULL);
}

// A file that had a name for a moment, when the process was killed in it, is removed by the next
// build.
static void spill_with_a_name(void)
{
    char dead[400], alive[400], path[300];
    uint64_t began;
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
    snprintf(path, sizeof path, "%s", clips_path("named.mrx"));
    snprintf(dead, sizeof dead, "%s.tmp-%ld.spill", path, (long)child);
    snprintf(alive, sizeof alive, "%s.tmp-%ld.spill", path, (long)getppid());
    CHECK_OK(mr_file_replace(dead, "", 0));
    CHECK_OK(mr_file_replace(alive, "", 0));
    CHECK_OK(build(path, false, ITEMS, &began));
    CHECK_INT(mr_path_exists(dead), 0);
    CHECK_INT(mr_path_exists(alive), 1);
}

// Long captions are committed before a fixed number of rows: LMDB would hold them all in memory.
static void commits_by_bytes(const char *whole)
{
    char path[300];
    uint64_t began;
    snprintf(path, sizeof path, "%s", clips_path("bytes.mrx"));
    commit_rows = ITEMS, commit_bytes = 100 << 10;
    CHECK(killed(path, true, 6000));
    CHECK_OK(build(path, true, ITEMS, &began));
    CHECK(began > 5000 && began <= 6000);
    CHECK(same(path, whole));
    commit_rows = STEP, commit_bytes = 0;
}

// committed rows survive each failing allocation
static void failing_memory(const char *whole)
{
    char path[300];
    snprintf(path, sizeof path, "%s", clips_path("memory.mrx"));
    uint64_t began;
    int failures = 0;
    CHECK(killed(path, false, 8000));
    for (int n = 1; n < 400; n++) {
        mr_alloc_fail_at(n);
        mr_status st = build(path, true, ITEMS, &began);
        mr_alloc_fail_at(0);
        if (st == MR_OK)
            break;
        CHECK_INT(st, MR_E_MEMORY);
        CHECK_INT(clips_count("memory.mrx"), 1);
        failures++;
    }
    CHECK(failures > 10);
    CHECK(began > 7000);
    CHECK(same(path, whole));
}

// one builder resumes at a time
static void living(void)
{
    int pipes[2];
    char path[300];
    uint64_t began;
    snprintf(path, sizeof path, "%s", clips_path("living.mrx"));
    CHECK_INT(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        mr_index_builder *b;
        mr_status st = mr_index_builder_new(path, NULL, &b);
        _exit(write(pipes[1], "x", 1) != 1 || st || pause());
    }
    char byte;
    CHECK_INT(read(pipes[0], &byte, 1), 1);
    CHECK_FAILS(build(path, true, ITEMS, &began), MR_E_USAGE, "is building it; try: wait for it");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    CHECK_OK(build(path, true, ITEMS, &began));
    CHECK_INT(clips_count("living.mrx"), 1);
}

/* ---- a whole ingest, killed at random moments ---- */

enum { CLIPS = 120 };

static mr_status ingest_of(const char *input, const char *output, const mr_ingest_options *o,
                           mr_ingest_progress *p)
{
    mr_ingest *g;
    MR_TRY(mr_ingest_new(input, output, o, &g));
    mr_status st;
    do
        st = mr_ingest_step(g, 1, p);
    while (st == MR_OK && !p->finished);
    mr_ingest_free(g);
    return st;
}

static mr_status ingest(const char *output, bool resume, mr_ingest_progress *p)
{
    return ingest_of(clips_path("set"), output,
                     &(mr_ingest_options){.threads = 2, .resume = resume, .commit_rows = 5}, p);
}

static void killed_at_random(void)
{
    const mr_media *m;
    char clip[300], file[400], whole[300], path[300];
    if (!CHECK_OK(mr_media_get(&m)))
        return;
    snprintf(clip, sizeof clip, "%s", clips_path("clip.mp4"));
    CHECK_OK(
        bars_write(m, clip, (mr_encode_options){.gop = 8, .rate_num = 24, .quality = 10}, 4, NULL));
    CHECK_OK(mr_dir_make(clips_path("set")));
    for (int i = 0; i < CLIPS; i++) {
        snprintf(file, sizeof file, "%s/%03d.mp4", clips_path("set"), i);
        if (i % 9 == 4)
            CHECK_OK(mr_file_replace(file, "damaged", 7));
        else
            CHECK_INT(link(clip, file), 0);
    }
    snprintf(whole, sizeof whole, "%s", clips_path("whole.mrx"));
    snprintf(path, sizeof path, "%s", clips_path("random.mrx"));
    mr_ingest_progress p;
    double began_s = mr_now_s();
    if (!CHECK_OK(ingest(whole, false, &p)))
        return;
    double takes_s = mr_now_s() - began_s;
    CHECK_INT(p.written, 107);
    CHECK_INT(p.refused, 13);
    uint64_t seed = (uint64_t)mr_clock_table()->wall_ns();
    int kills = 0, resumed = 0;
    printf("killed ingests: seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 24; round++) {
        pid_t child = fork();
        if (child == 0) {
            mr_status st = ingest(path, true, &p);
            _exit(st ? 1 : p.resumed ? 2 : 3);
        }
        mr_clock_table()->sleep_ns(
            (int64_t)(mr_fraction(MR_MIX(seed, (uint64_t)round)) * 2 * takes_s * 1e9));
        kill(child, SIGKILL);
        int status;
        waitpid(child, &status, 0);
        if (WIFSIGNALED(status)) {
            kills++;
            continue;
        }
        CHECK(WEXITSTATUS(status) == 2 || WEXITSTATUS(status) == 3);
        resumed += WEXITSTATUS(status) == 2;
        CHECK(same(path, whole));
        mr_dir_remove(path);
        takes_s /= 2; // the machine has become faster than it was
    }
    CHECK_OK(ingest(path, true, &p));
    CHECK(same(path, whole));
    printf("killed ingests: %d kills, %d ended as continued ones\n", kills, resumed);
    CHECK(kills > 3);
}

static int writes_left; // 0: none fails
static ssize_t failing_write(int fd, const void *buf, size_t n)
{
    if (writes_left && --writes_left == 0) {
        errno = ENOSPC;
        return -1;
    }
    return write(fd, buf, n);
}

// A builder that is stopped between two rows keeps them, though it was not to resume, and another
// continues after them; one whose disk is full in the middle of a row keeps what it committed
// before.
static void kept_at_any_row(void)
{
    char whole[300], path[300];
    snprintf(whole, sizeof whole, "%s", clips_path("whole.mrx"));
    snprintf(path, sizeof path, "%s", clips_path("kept.mrx"));
    mr_ingest_progress p = {0};
    int failed = 0, kept = 0, both = 0;
    const size_t run_bytes = index_run_bytes;
    index_run_bytes = 500; // some rows
    mr_io io = *mr_io_table();
    io.write = failing_write;
    mr_io_replace(&io);
    for (uint64_t round = 0; round < 30; round++) {
        const uint64_t stop = round * 4;
        const bool commits = round / 3 % 2;
        const mr_ingest_options o = {.threads = 2, .commit_rows = commits ? 2 : 0};
        uint64_t rows = 0, total = 0;
        mr_ingest *g;
        if (!CHECK_OK(mr_ingest_new(clips_path("set"), path, &o, &g)))
            return;
        mr_status st = MR_OK;
        while (st == MR_OK && (!p.total || p.done < stop))
            st = mr_ingest_step(g, 0, &p);
        CHECK_OK(st);
        writes_left = round % 3 == 2;
        while (st == MR_OK && writes_left && !p.finished)
            st = mr_ingest_step(g, 0, &p);
        writes_left = 0;
        failed += st != MR_OK;
        CHECK_OK(mr_ingest_keep(g, &rows, &total));
        CHECK_INT(total, p.total);
        mr_ingest_free(g);
        if (st == MR_OK || !commits)
            CHECK_INT(rows, st == MR_OK && !p.finished && p.written ? p.done : 0);
        else
            CHECK(rows < p.done && rows + 12 > p.done);
        both += st != MR_OK && rows;
        CHECK_INT(clips_count("kept.mrx"), rows || p.finished ? 1 : 0);
        kept += rows > 0;
        CHECK_OK(ingest(path, true, &p));
        CHECK_INT(p.resumed, rows);
        CHECK(same(path, whole));
        mr_dir_remove(path);
        p = (mr_ingest_progress){0};
    }
    mr_io_replace(NULL);
    index_run_bytes = run_bytes;
    printf("kept ingests: %d kept, %d had a full disk\n", kept, failed);
    CHECK(kept > 10);
    CHECK(failed > 5);
    CHECK(both > 2);
}

static void changed_input(void)
{
    char list[300], path[300];
    snprintf(list, sizeof list, "%s", clips_path("list.csv"));
    snprintf(path, sizeof path, "%s", clips_path("changed.mrx"));
    const char *lines = "path,text\nset/000.mp4,a\nset/001.mp4,b\nset/004.mp4,c\nset/002.mp4,dd\n";
    mr_ingest_options o = {.commit_rows = 1, .resume = true};
    mr_ingest_progress p;
    mr_ingest *g;
    CHECK_OK(mr_file_replace(list, lines, strlen(lines)));
    pid_t child = fork();
    if (child == 0) {
        if (mr_ingest_new(list, path, &o, &g))
            _exit(1);
        do
            mr_ingest_step(g, 0, &p);
        while (p.done < 3);
        raise(SIGKILL);
    }
    waitpid(child, NULL, 0);
    o.source = "other";
    CHECK_FAILS(ingest_of(list, path, &o, &p), MR_E_DATA,
                "source was \"main\", is \"other\"; try: without --continue");
    o.source = NULL;
    CHECK_OK(mr_file_replace(list, lines, strlen(lines) - 2));
    CHECK_FAILS(ingest_of(list, path, &o, &p), MR_E_DATA,
                "the input has changed since the build began: hash was");
    // the rows that were built still exist
    CHECK_OK(mr_file_replace(list, lines, strlen(lines)));
    o.root = "/elsewhere";
    CHECK_FAILS(ingest_of(list, path, &o, &p), MR_E_DATA, "root was");
    CHECK_INT(clips_count("changed.mrx"), 1);
    o.root = NULL, o.resume = false;
    if (!CHECK_OK(mr_ingest_new(list, path, &o, &g)))
        return;
    CHECK_OK(mr_ingest_step(g, 20, &p));
    CHECK_INT(p.resumed, 0);
    CHECK_INT(p.written, 3);
    mr_ingest_free(g);
    CHECK_INT(clips_count("changed.mrx"), 1);
}

int main(void)
{
    char whole[300];
    uint64_t began;
    snprintf(whole, sizeof whole, "%s", clips_path("uncut.mrx"));
    if (!CHECK_OK(build(whole, false, ITEMS, &began)))
        return check_done();
    // from here on keys are spilled: nothing else changes
    index_run_bytes = 150 << 10;
    killed_at_rows(whole);
    killed_at_operations(whole);
    full_disk(whole);
    failing_memory(whole);
    commits_by_bytes(whole);
    living();
    spill_with_a_name();
    killed_at_random();
    kept_at_any_row();
    changed_input();
    return check_done();
}
