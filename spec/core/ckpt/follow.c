/* ckpt/follow: ranks that wait for each other in a save. Whatever fails and whichever rank dies,
 * the checkpoint is complete or does not exist.
 * MOONREEL_EVERY=1 fails each operation of a save instead of every eighth.
 * Covers: core/ckpt/ranks.c */
#define _DEFAULT_SOURCE
#include "ckptranks.h"

#include <signal.h>
#include <sys/wait.h>

/* A rank is notified of an end now sooner, now later than rank 0 has counted it, so ranks that
 * count by themselves would end the run at different saves. */
static void first_rank_decides(void)
{
    mr_status others;
    fresh();
    fill(1, false);
    open_ranks();
    first_lost = 5;
    for (int64_t step = 1; step <= 3; step++) {
        CHECK_OK(mr_saver_check(saver[0]));
        CHECK_FAILS(save(step, &others), MR_E_CKPT, "are in no file");
        CHECK_INT(others, MR_E_CKPT);
    }
    first_lost = 0;
    CHECK_FAILS(mr_saver_check(saver[0]), MR_E_CKPT,
                "no checkpoint was committed in 3 saves in a row; the last one: /");
    for (int r = 1; r < RANKS; r++)
        CHECK_OK(mr_saver_check(saver[r]));
    // until it has sent them, all still take the same saves
    CHECK_OK(save(1, &others));
    CHECK_OK(others);
    CHECK_OK(mr_saver_check(saver[0]));
    close_ranks();
}

/* No rank waits beyond the deadline for a rank that does not answer, and nothing is committed. */
static void silent_ranks(void)
{
    fresh();
    fill(1, false);
    CHECK_OK(open_rank(0, 0.1));
    CHECK_OK(open_rank(1, 0));
    CHECK_OK(start(0, 1));
    CHECK_OK(start(1, 1));
    CHECK_FAILS(mr_saver_wait(saver[1], INFINITY), MR_E_CKPT, "has not written its part of step 1");
    while (mr_saver_wait(saver[0], INFINITY) != MR_E_CKPT ||
           !strstr(mr_error_last()->text, "newest"))
        ; // the deadline of the save may be over a moment before that of its thread
    CHECK_INT(case_count(dir, "step-"), 0);
    close_ranks();
    CHECK_OK(open_rank(0, 0));
    CHECK_OK(open_rank(2, 0.1));
    CHECK_OK(start(2, 1));
    while (mr_saver_wait(saver[2], INFINITY) != MR_E_CKPT ||
           !strstr(mr_error_last()->text, "newest"))
        ;
    CHECK(strstr(mr_error_last()->text, "rank 0 did not report the save of step 1 within 0.05 s"));
    // a rank that comes late is notified that the others have continued
    CHECK_OK(start(2, 2));
    close_ranks();
}

/* Ranks that know that others are lost wait no longer than the given time, however long the
 * deadline is; a part that arrives in that time is taken. */
static void lost_ranks(void)
{
    fresh();
    fill(1, false);
    open_ranks();
    for (int r = 0; r < RANKS - 1; r++)
        CHECK_OK(start(r, 1));
    for (int r = 0; r < RANKS - 1; r++)
        mr_saver_part(saver[r], 1);
    CHECK_FAILS(mr_saver_wait(saver[0], INFINITY), MR_E_CKPT, " has not written its part");
    // half of the deadline
    CHECK(!strstr(mr_error_last()->text, "within 10 s"));
    for (int r = 1; r < RANKS - 1; r++)
        CHECK_INT(mr_saver_wait(saver[r], INFINITY), MR_E_CKPT);
    CHECK_INT(case_count(dir, "step-"), 0);
    close_ranks();
    fresh();
    open_ranks();
    for (int r = 0; r < RANKS - 1; r++) {
        CHECK_OK(start(r, 1));
        mr_saver_part(saver[r], 50);
    }
    CHECK_OK(start(RANKS - 1, 1));
    CHECK_OK(mr_saver_wait(saver[0], INFINITY));
    CHECK_INT(case_count(dir, "step-"), 1);
    close_ranks();
}

/* A rank whose look fails once while it waits for rank 0 looks again. */
static void look_again(void)
{
    mr_status others = MR_OK;
    fresh();
    fill(1, false);
    open_ranks();
    CHECK_OK(start(1, 1));
    fault_at(1, FAULT_ERRNO, EIO);
    mr_saver_status now = {.pending = 1};
    while (now.pending && fault_operations() < 2)
        mr_saver_get_status(saver[1], &now);
    fault_clear();
    if (!CHECK_INT(now.pending, 1)) {
        close_ranks();
        return;
    }
    for (int r = 0; r < RANKS; r++)
        if (r != 1)
            CHECK_OK(start(r, 1));
    for (int r = 1; r < RANKS; r++)
        others = MR_MAX(others, mr_saver_wait(saver[r], INFINITY));
    CHECK_OK(others);
    CHECK_OK(mr_saver_wait(saver[0], INFINITY));
    close_ranks();
}

/* ---- each operation may fail or be the last ---- */

/* After a restart: the newest checkpoint is exact and not older than `least`. */
static void judge(int64_t least, const char *what, long i)
{
    mr_ckpt *c = NULL;
    mr_status others;
    CHECK_OK(mr_ckpt_open_newest(dir, NULL, NULL, NULL, &c));
    bool good = c && mr_ckpt_step(c) >= least && exact(c);
    if (!good)
        printf("%s at operation %ld: newest is %lld, expected at least %lld and exact\n", what, i,
               c ? (long long)mr_ckpt_step(c) : -1, (long long)least);
    CHECK(good);
    mr_ckpt_close(c);
    open_ranks();
    CHECK_INT(case_count(dir, ".tmp-"), 0);
    CHECK_INT(case_count(dir, ".bad-"), 0);
    CHECK_INT(case_count(dir, ".ended-"), 0);
    fill(3, false);
    CHECK_OK(save(3, &others));
    CHECK_OK(others);
    close_ranks();
}

/* A run with step 1, all ranks open. */
static void begin(void)
{
    mr_status others;
    fresh();
    fill(1, false);
    open_ranks();
    CHECK_OK(save(1, &others));
    fill(2, false);
}

static long count_operations(void)
{
    mr_status others;
    begin();
    fault_clear();
    CHECK_OK(save(2, &others));
    close_ranks();
    return fault_operations();
}

static long every = 8;

static void fail_sweep(long n)
{
    int acknowledged = 0, rounds = 0;
    for (long i = 1; i <= n; i += every, rounds++) {
        mr_status others;
        char path[700];
        begin();
        fault_at(i, FAULT_ERRNO, EIO);
        mr_status st = save(2, &others);
        fault_clear();
        // a rank may not notice a commit, but none takes a failure for one
        CHECK(st == MR_OK || others != MR_OK);
        CHECK_INT(mr_path_exists(mr_ckpt_dir(dir, 2, path, sizeof path)), st == MR_OK);
        acknowledged += st == MR_OK;
        close_ranks();
        judge(st == MR_OK ? 2 : 1, "EIO", i);
    }
    printf("EIO: %d of %d saves committed in spite of it\n", acknowledged, rounds);
    CHECK(acknowledged >= rounds - 3);
}

/* All ranks die at the same time, after each operation of any. */
static void die_together(long n)
{
    for (long i = 2; i <= n; i += every) {
        fresh();
        pid_t child = fork();
        if (child == 0) {
            mr_status others;
            begin();
            fault_at(i, FAULT_DIE_AFTER, 0);
            _exit(save(2, &others) != MR_OK);
        }
        int status;
        waitpid(child, &status, 0);
        fault_clear();
        CHECK(WIFEXITED(status));
        judge(WEXITSTATUS(status) == 0 ? 2 : 1, "death of all", i);
    }
}

/* One rank in a process of its own; it dies after its operation `at`. The saver is open when it
 * writes to `ready`. */
static pid_t start_rank(int rank, long at, int ready)
{
    pid_t child = fork();
    if (child)
        return child;
    bool taken;
    mr_ckpt_item items[ITEMS];
    int n = items_of(rank, items);
    if (open_rank(rank, 0) != MR_OK || write(ready, "", 1) != 1)
        _exit(2);
    fault_at(at, at ? FAULT_DIE_AFTER : FAULT_NONE, 0);
    if (mr_saver_save(saver[rank], 2, items, n, rank ? NULL : CASE_META, true, &taken) != MR_OK)
        _exit(3);
    _exit(mr_saver_wait(saver[rank], INFINITY) != MR_OK);
}

/* A rank dies after each of its operations; the others are ended as by a launcher. Returns whether
 * it died. */
static bool die_alone(int rank, long at)
{
    pid_t ranks[RANKS];
    int ends[2], status, rest;
    char byte;
    mr_status others;
    fresh();
    fill(1, false);
    open_ranks();
    CHECK_OK(save(1, &others));
    close_ranks();
    fill(2, false);
    CHECK(pipe(ends) == 0);
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = start_rank(r, r == rank ? at : 0, ends[1]);
        CHECK(read(ends[0], &byte, 1) == 1);
    }
    close(ends[0]), close(ends[1]);
    waitpid(ranks[rank], &status, 0);
    CHECK(WIFEXITED(status));
    bool died = WEXITSTATUS(status) == FAULT_EXIT;
    CHECK(died || WEXITSTATUS(status) == 0);
    for (int r = 0; r < RANKS; r++)
        if (r != rank) {
            if (died)
                kill(ranks[r], SIGKILL);
            waitpid(ranks[r], &rest, 0);
            CHECK(died || rest == 0);
        }
    // rank 0 commits only when all parts exist, and each rank is notified
    judge(died ? 1 : 2, "death of one", at);
    return died;
}

int main(void)
{
    const char *report = getenv("MOONREEL_EVERY");
    if (report)
        every = MR_MAX(strtol(report, NULL, 10), 1L);
    begin_case("follow");
    first_rank_decides();
    silent_ranks();
    lost_ranks();
    look_again();
    long n = count_operations();
    printf("%ld operations of %d ranks\n", n, RANKS);
    CHECK(n > 60);
    fail_sweep(n);
    die_together(n);
    static const int dying[] = {0, 2};
    for (size_t i = 0; i < MR_COUNT(dying); i++) {
        long at = 1;
        // a rank that waits for slower ones counts each look for their files: larger steps there
        while (die_alone(dying[i], at))
            at += MR_MAX(every, at / 8);
        printf("rank %d died after operations up to its %ld.\n", dying[i], at);
        // the number of others depends on how often it looks for the files of slower ranks
        CHECK(at > 12);
    }
    mr_dir_remove(dir);
    return check_done();
}
