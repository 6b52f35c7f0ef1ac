/* cuda/comm: the calls of NCCL, recorded by a replacement library: joining without blocking,
 * grouped calls, late errors, deadlines, leaving; and the messages if NCCL is missing, too old or
 * another library.
 * Covers: cuda/comm/nccl.c, cuda/comm/ranks.c */
#include "cuda/comm/ranks.h"
#include "groupcase.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static char log_path[] = "/tmp/nccl-log-XXXXXX";
static group_case heard;
static int settled;

static void settle(void *user)
{
    (void)user;
    settled++;
}

static void settle_other(void *user)
{
    ++*(int *)user;
}

static mr_cuda_speaker device = {.settle = settle};

// the calls since the last time
static const char *asked(void)
{
    static char text[4096];
    FILE *f = fopen(log_path, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = 0;
    if (f)
        fclose(f);
    CHECK_INT(truncate(log_path, 0), 0);
    return text;
}

static void start(const char *scene)
{
    setenv("NCCL_SCENE", scene, 1);
    heard = (group_case){0}, settled = 0;
    mr_cuda_ranks_start(&device);
}

static void refused(const char *path, const char *scene, const char *part)
{
    mr_cuda_talk *t = NULL;
    start(scene);
    setenv("MOONREEL_NCCL", path, 1);
    CHECK_FAILS(mr_cuda_talk_new(group_case_add(&heard, 0, 2, 5), MR_COMM_SHIFT, MR_F32, &t),
                MR_E_UNSUPPORTED, part);
    CHECK_INT(heard.given_up, 1);
    CHECK(!mr_cuda_ranks_open());
    mr_cuda_ranks_close(&device);
}

static void missing(void)
{
    // the user's setting is not changed
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "0", 1);
    refused("/nowhere/libnccl.so.2", "", "ranks on GPUs need NCCL: /nowhere/libnccl.so.2: ");
    refused("/nowhere/libnccl.so.2", "", "try: install libnccl2");
    refused("libc.so.6", "", "libc.so.6: has no ncclGetVersion; try: NCCL 2.18 or newer");
    refused(SPEC_NCCL, "version=21701", "is NCCL 2.17.1, expected 2.18 or newer");
    CHECK(!dlopen(SPEC_NCCL, RTLD_NOW | RTLD_NOLOAD));
    // an empty variable counts as unset
    if (!dlopen("libnccl.so.2", RTLD_NOW))
        refused("", "", "ranks on GPUs need NCCL: libnccl.so.2: ");
    setenv("MOONREEL_NCCL", SPEC_NCCL, 1);
    CHECK_STR(getenv("NCCL_LAUNCH_ORDER_IMPLICIT"), "0");
    unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
}

static void calls(void)
{
    enum { OWN = 3 };
    char x[256];
    mr_cuda_talk *t = NULL, *more = NULL;
    // the oldest version that is accepted
    start("version=21800,joins=2");
    const int64_t group = group_case_add(&heard, 1, OWN, 5);
    CHECK_OK(mr_cuda_talk_new(group, MR_COMM_ALL_TO_ALL, MR_BF16, &t));
    CHECK_INT(heard.broadcast, MR_CUDA_TRANSPORT_ID);
    CHECK_STR(getenv("NCCL_LAUNCH_ORDER_IMPLICIT"), "1");
    CHECK_STR(asked(), "join 1 of 3 by yyy, blocking 0, magic cafebeef, 21800\n");
    CHECK(mr_cuda_ranks_open());
    // a group has one communicator
    CHECK_OK(mr_cuda_talk_new(group, MR_COMM_ALL_GATHER, MR_F32, &more));
    CHECK_STR(asked(), "");
    CHECK_OK(mr_cuda_talk_begins(t, NULL));
    mr_cuda_talk_send(t, 0, x, 12);
    mr_cuda_talk_receive(t, 0, x + 100, 8);
    mr_cuda_talk_send(t, 2, x, 0);
    mr_cuda_talk_receive(t, 2, x + 200, 4);
    CHECK_OK(mr_cuda_talk_exchange(t, NULL));
    CHECK_OK(mr_cuda_talk_ends(t, NULL));
    CHECK_STR(asked(), "{\nsend 12 of 1 to 0\nreceive 8 of 1 from 0\nreceive 4 of 1 from 2\n}\n");
    CHECK_INT(heard.begun, 1);
    CHECK_INT(heard.ended, 1);
    CHECK_INT(heard.last.op, MR_COMM_ALL_TO_ALL);
    CHECK_INT(heard.last.dtype, MR_BF16);
    // a call that failed before its exchange leaves no messages
    CHECK_OK(mr_cuda_talk_begins(t, NULL));
    mr_cuda_talk_send(t, 0, x, 12);
    CHECK_OK(mr_cuda_talk_begins(t, NULL));
    mr_cuda_talk_send(t, 2, x, 4);
    CHECK_OK(mr_cuda_talk_exchange(t, NULL));
    CHECK_STR(asked(), "{\nsend 4 of 1 to 2\n}\n");
    // an empty exchange makes no call
    CHECK_OK(mr_cuda_talk_exchange(t, NULL));
    CHECK_OK(mr_cuda_talk_gather(more, x, 0, NULL));
    CHECK_OK(mr_cuda_talk_gather(more, x, 16, NULL));
    CHECK_STR(asked(), "gather 16 of 1, own at 16\n");
    CHECK_OK(mr_cuda_ranks_look());
    // freeing the group closes its communicator, after the device has settled
    const unsigned left = mr_cuda_ranks_left();
    mr_collective_remove(group);
    CHECK_INT(settled, 1);
    CHECK_INT(mr_cuda_ranks_left(), left + 1);
    CHECK(!mr_cuda_ranks_open());
    CHECK_STR(asked(), "finalize\ndestroy\n");
    CHECK_FAILS(mr_cuda_talk_begins(t, NULL), MR_E_NODE, "its communicator is closed");
    mr_cuda_talk_free(t);
    mr_cuda_talk_free(more);
    mr_cuda_ranks_close(&device);
}

static void rank_of_first(void)
{
    mr_cuda_talk *t = NULL;
    start("");
    CHECK_OK(mr_cuda_talk_new(group_case_add(&heard, 0, 2, 5), MR_COMM_SHIFT, MR_F32, &t));
    CHECK(strncmp(asked(), "id\njoin 0 of 2", 14) == 0);
    mr_cuda_talk_free(t);
    mr_cuda_ranks_close(&device);
    CHECK_STR(asked(), "finalize\ndestroy\n");
}

// the GPU is opened twice and closed in any order: all open devices settle before a communicator
// closes
static void opened_twice(bool newest_first)
{
    mr_cuda_talk *t = NULL;
    int others = 0;
    mr_cuda_speaker other = {.settle = settle_other, .user = &others};
    start("");
    mr_cuda_ranks_start(&other);
    int64_t group[3];
    for (int i = 0; i < 3; i++) {
        group[i] = group_case_add(&heard, 0, 2, 5);
        CHECK_OK(mr_cuda_talk_new(group[i], MR_COMM_SHIFT, MR_F32, &t));
        mr_cuda_talk_free(t);
    }
    asked();
    // one group is freed, the others remain
    mr_collective_remove(group[0]);
    CHECK_INT(settled, 1);
    CHECK_INT(others, 1);
    CHECK_STR(asked(), "finalize\ndestroy\n");
    mr_cuda_ranks_close(newest_first ? &other : &device);
    CHECK(mr_cuda_ranks_open());
    CHECK_STR(asked(), "");
    mr_collective_remove(group[1]);
    CHECK_INT(settled, 1 + newest_first);
    CHECK_INT(others, 1 + !newest_first);
    asked();
    // closing a communicator takes some time
    setenv("NCCL_SCENE", "joins=9", 1);
    mr_cuda_ranks_close(newest_first ? &device : &other);
    CHECK_STR(asked(), "finalize\ndestroy\n");
}

// a failure in one of several groups closes all communicators, and each group gets one report
static void lost_beside_others(void)
{
    mr_cuda_talk *t = NULL;
    group_case others[3] = {{0}};
    start("");
    const int64_t gone = group_case_add(&others[2], 0, 2, 5);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(mr_cuda_talk_new(i < 2 ? group_case_add(&others[i], 0, 2, 5) : gone, MR_COMM_SHIFT,
                                  MR_F32, &t));
        mr_cuda_talk_free(t);
    }
    mr_collective_remove(gone);
    asked();
    others[0].lost = MR_E_NODE;
    CHECK_FAILS(mr_cuda_ranks_look(), MR_E_NODE, "rank 2 ended by signal 9");
    for (int i = 0; i < 3; i++) {
        CHECK_INT(others[i].given_up, i < 2);
        CHECK_INT(others[i].why, i < 2 ? MR_E_NODE : MR_OK);
    }
    CHECK_STR(asked(), "abort\nabort\n");
    mr_cuda_ranks_close(&device);
}

// failures that close all communicators, and their messages
static void fails_later(const char *scene, double deadline_s, mr_status world, const char *part)
{
    mr_cuda_talk *t = NULL;
    start(scene);
    const int64_t group = group_case_add(&heard, 0, 4, deadline_s);
    CHECK_OK(mr_cuda_talk_new(group, MR_COMM_ALL_TO_ALL, MR_F32, &t));
    CHECK_OK(mr_cuda_talk_begins(t, NULL));
    asked();
    heard.lost = world;
    mr_status st = MR_OK;
    while (st == MR_OK)
        st = mr_cuda_ranks_look();
    CHECK_FAILS(st, MR_E_NODE, part);
    CHECK_INT(heard.given_up, 1);
    CHECK_INT(heard.why, MR_E_NODE);
    // the group may check for lost ranks after a long wait
    CHECK(heard.waited_s > 0);
    CHECK(!mr_cuda_ranks_open());
    CHECK_STR(asked(), "abort\n");
    CHECK_OK(mr_cuda_ranks_look());
    CHECK_FAILS(mr_cuda_talk_begins(t, NULL), MR_E_NODE, "its communicator is closed");
    mr_cuda_talk_free(t);
    CHECK_FAILS(mr_cuda_talk_new(group, MR_COMM_SHIFT, MR_F32, &t), MR_E_NODE,
                "its communicator is closed");
    mr_cuda_ranks_close(&device);
    CHECK_STR(asked(), "");
}

// ranks that never join: why this rank stops waiting for them
static void never_joined(double deadline_s, mr_status world, mr_status code, const char *part)
{
    mr_cuda_talk *t = NULL;
    start("joins=1000000");
    heard.lost = world;
    CHECK_FAILS(
        mr_cuda_talk_new(group_case_add(&heard, 0, 4, deadline_s), MR_COMM_SHIFT, MR_F32, &t), code,
        part);
    CHECK_INT(heard.given_up, 1);
    CHECK_INT(heard.why, code);
    CHECK(code == MR_E_STOPPED || heard.waited_s > 0);
    const char *log = asked();
    CHECK(strstr(log, "abort\n") && !strstr(log, "finalize"));
    mr_cuda_ranks_close(&device);
}

// a call is late only while it is in flight
static void over_in_time(void)
{
    mr_cuda_talk *t = NULL;
    start("");
    CHECK_OK(mr_cuda_talk_new(group_case_add(&heard, 0, 2, 0), MR_COMM_SHIFT, MR_F32, &t));
    CHECK_OK(mr_cuda_talk_begins(t, NULL));
    CHECK_OK(mr_cuda_talk_ends(t, NULL));
    CHECK_OK(mr_cuda_ranks_look());
    mr_cuda_talk_free(t);
    mr_cuda_ranks_close(&device);
    asked();
}

// an enqueued call is in flight until the transport reports otherwise
static void late_call(bool gathers)
{
    char x[8];
    mr_cuda_talk *t = NULL;
    start("");
    CHECK_OK(mr_cuda_talk_new(group_case_add(&heard, 0, 2, 0.05), MR_COMM_ALL_TO_ALL, MR_F32, &t));
    setenv("NCCL_SCENE", "joins=1000000", 1);
    mr_cuda_talk_send(t, 1, x, 8);
    CHECK_FAILS(gathers ? mr_cuda_talk_gather(t, x, 4, NULL) : mr_cuda_talk_exchange(t, NULL),
                MR_E_NODE, "NCCL: all_to_all of 2 ranks has not ended after 0.05 s");
    setenv("NCCL_SCENE", "", 1);
    mr_cuda_talk_free(t);
    mr_cuda_ranks_close(&device);
    asked();
}

// a communicator that cannot be closed gracefully is aborted
static void left_in_trouble(const char *scene)
{
    mr_cuda_talk *t = NULL;
    start("");
    CHECK_OK(mr_cuda_talk_new(group_case_add(&heard, 0, 2, 5), MR_COMM_SHIFT, MR_F32, &t));
    mr_cuda_talk_free(t);
    asked();
    setenv("NCCL_SCENE", scene, 1);
    mr_cuda_ranks_close(&device);
    CHECK_STR(asked(), "finalize\nabort\n");
}

static void failures(void)
{
    fails_later("fails=3", 5, MR_OK,
                "NCCL: the state of a communicator: remote process exited or there was a network "
                "error (6): "
                "NET/Socket : peer has closed");
    fails_later("", 5, MR_E_NODE, "rank 2 ended by signal 9");
    fails_later("", 0.05, MR_OK, "all_to_all of 4 ranks on the GPU has not ended after 0.05 s");
    never_joined(0.05, MR_OK, MR_E_NODE,
                 "NCCL: joining a communicator of 4 ranks has not ended after 0.05 s");
    never_joined(20, MR_E_NODE, MR_E_NODE, "rank 2 ended by signal 9");
    mr_interrupt_set(true);
    never_joined(20, MR_OK, MR_E_STOPPED, "stopped by Ctrl-C");
    mr_interrupt_set(false);
    over_in_time();
    left_in_trouble("fails=1");
    left_in_trouble("wrong=finalize");
    for (int i = 0; i < 2; i++)
        late_call(i);
}

// joining and calls when one function of NCCL fails
static void not_taken(void)
{
    static const struct {
        const char *name, *part, *asked;
        bool joins, gathers;
    } rows[] = {
        {"id", "an id for a communicator", "id\n", false, false},
        {"join", "a communicator", NULL, false, false},
        {"state", "a communicator", NULL, false, false},
        {"{", "messages of a call", "{\n", true, false},
        // its group is still ended
        {"send", "sending a message", "{\nsend 8 of 1 to 1\n}\n", true, false},
        {"receive", "receiving a message", "{\nsend 8 of 1 to 1\nreceive 4 of 1 from 1\n}\n", true,
         false},
        {"}", "messages of a call",
         "{\nsend 8 of 1 to 1\nreceive 4 of 1 from 1\nsend 2 of 1 to 2\n}\n", true, false},
        {"gather", "chunks of all ranks", "gather 8 of 1, own at 0\n", true, true},
    };
    for (size_t i = 0; i < MR_COUNT(rows); i++) {
        char x[32], scene[32], part[64];
        mr_cuda_talk *t = NULL;
        snprintf(scene, sizeof scene, "wrong=%s", rows[i].name);
        snprintf(part, sizeof part, "NCCL: %s: invalid usage (5)", rows[i].part);
        start(rows[i].joins ? "" : scene);
        mr_status st =
            mr_cuda_talk_new(group_case_add(&heard, 0, 3, 5), MR_COMM_ALL_TO_ALL, MR_F32, &t);
        if (rows[i].joins && CHECK_OK(st)) {
            asked();
            setenv("NCCL_SCENE", scene, 1);
            mr_cuda_talk_send(t, 1, x, 8);
            mr_cuda_talk_receive(t, 1, x + 8, 4);
            mr_cuda_talk_send(t, 2, x, 2);
            st = rows[i].gathers ? mr_cuda_talk_gather(t, x, 8, NULL)
                                 : mr_cuda_talk_exchange(t, NULL);
        }
        CHECK_FAILS(st, MR_E_NODE, part);
        CHECK_INT(heard.given_up, !rows[i].joins);
        const char *log = asked();
        if (rows[i].asked)
            CHECK_STR(log, rows[i].asked);
        mr_cuda_talk_free(t);
        mr_cuda_ranks_close(&device);
        asked();
    }
}

int main(void)
{
    int fd = mkstemp(log_path);
    CHECK(fd >= 0);
    close(fd);
    setenv("NCCL_LOG", log_path, 1);
    missing();
    calls();
    rank_of_first();
    opened_twice(false);
    opened_twice(true);
    lost_beside_others();
    failures();
    not_taken();
    unlink(log_path);
    return check_done();
}
