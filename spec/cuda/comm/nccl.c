/* cuda/comm: what NCCL is asked, by a stand-in that writes it down: joining without blocking, calls
 * in groups, errors that come late, deadlines, leaving; and what is said where it is missing, too
 * old or another library.
 * Covers: cuda/comm/nccl.c, cuda/comm/ranks.c */
#include "cuda/comm/ranks.h"
#include "groupcase.h"

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

static mr_cuda_speaker device = {.settle = settle};

// what was asked since the last time
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
    // what the user says of its launches stays
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "0", 1);
    refused("/nowhere/libnccl.so.2", "", "ranks on GPUs need NCCL: /nowhere/libnccl.so.2: ");
    refused("/nowhere/libnccl.so.2", "", "try: install libnccl2");
    refused("libc.so.6", "", "libc.so.6: has no ncclGetVersion; try: NCCL 2.18 or newer");
    refused(SPEC_NCCL, "version=21701", "is NCCL 2.17.1, expected 2.18 or newer");
    setenv("MOONREEL_NCCL", SPEC_NCCL, 1);
    CHECK_STR(getenv("NCCL_LAUNCH_ORDER_IMPLICIT"), "0");
    unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
}

static void calls(void)
{
    enum { OWN = 3 };
    char x[256];
    mr_cuda_talk *t = NULL, *more = NULL;
    start("joins=2");
    const int64_t group = group_case_add(&heard, 1, OWN, 5);
    CHECK_OK(mr_cuda_talk_new(group, MR_COMM_ALL_TO_ALL, MR_F32, &t));
    CHECK_INT(heard.met, MR_CUDA_WIRE_ID);
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
    // of a call that failed before its exchange nothing is left
    CHECK_OK(mr_cuda_talk_begins(t, NULL));
    mr_cuda_talk_send(t, 0, x, 12);
    CHECK_OK(mr_cuda_talk_begins(t, NULL));
    mr_cuda_talk_send(t, 2, x, 4);
    CHECK_OK(mr_cuda_talk_exchange(t, NULL));
    CHECK_STR(asked(), "{\nsend 4 of 1 to 2\n}\n");
    // nothing to say is not said
    CHECK_OK(mr_cuda_talk_exchange(t, NULL));
    CHECK_OK(mr_cuda_talk_gather(more, x, 16, NULL));
    CHECK_STR(asked(), "gather 16 of 1, own at 16\n");
    CHECK_OK(mr_cuda_ranks_look());
    // the group goes, and its communicator with it, when the device has settled
    const unsigned left = mr_cuda_ranks_left();
    mr_collective_remove(group);
    CHECK_INT(settled, 1);
    CHECK_INT(mr_cuda_ranks_left(), left + 1);
    CHECK(!mr_cuda_ranks_open());
    CHECK_STR(asked(), "finalize\ndestroy\n");
    CHECK_FAILS(mr_cuda_talk_begins(t, NULL), MR_E_NODE, "its ranks are over");
    mr_cuda_talk_free(t);
    mr_cuda_talk_free(more);
    mr_cuda_ranks_close(&device);
}

static void rank_of_first(void)
{
    mr_cuda_talk *t = NULL;
    mr_cuda_speaker other = {.settle = settle};
    start("");
    CHECK_OK(mr_cuda_talk_new(group_case_add(&heard, 0, 2, 5), MR_COMM_SHIFT, MR_F32, &t));
    CHECK(strncmp(asked(), "id\njoin 0 of 2", 14) == 0);
    mr_cuda_talk_free(t);
    // the GPU is opened once more for a while
    mr_cuda_ranks_start(&other);
    mr_cuda_ranks_close(&other);
    CHECK(mr_cuda_ranks_open());
    CHECK_STR(asked(), "");
    mr_cuda_ranks_close(&device);
    CHECK_STR(asked(), "finalize\ndestroy\n");
}

// what ends all communicators, and what is said
static void fails_later(const char *scene, double deadline_s, mr_status world, const char *part)
{
    mr_cuda_talk *t = NULL;
    start(scene);
    CHECK_OK(
        mr_cuda_talk_new(group_case_add(&heard, 0, 4, deadline_s), MR_COMM_ALL_TO_ALL, MR_F32, &t));
    CHECK_OK(mr_cuda_talk_begins(t, NULL));
    asked();
    heard.lost = world;
    mr_status st = MR_OK;
    while (st == MR_OK)
        st = mr_cuda_ranks_look();
    CHECK_FAILS(st, MR_E_NODE, part);
    CHECK_INT(heard.given_up, 1);
    CHECK(!mr_cuda_ranks_open());
    CHECK_STR(asked(), "abort\n");
    CHECK_OK(mr_cuda_ranks_look());
    CHECK_FAILS(mr_cuda_talk_begins(t, NULL), MR_E_NODE, "its ranks are over");
    mr_cuda_talk_free(t);
    mr_cuda_ranks_close(&device);
    CHECK_STR(asked(), "");
}

// ranks that never come: why this one does not wait for them any longer
static void never_joined(double deadline_s, mr_status world, mr_status code, const char *part)
{
    mr_cuda_talk *t = NULL;
    start("joins=1000000");
    heard.lost = world;
    CHECK_FAILS(
        mr_cuda_talk_new(group_case_add(&heard, 0, 4, deadline_s), MR_COMM_SHIFT, MR_F32, &t), code,
        part);
    CHECK_INT(heard.given_up, 1);
    CHECK(strstr(asked(), "abort\n"));
    mr_cuda_ranks_close(&device);
}

// a call is late while it is under way, and no longer
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

// one that cannot be left in peace is aborted
static void left_in_trouble(void)
{
    mr_cuda_talk *t = NULL;
    start("fails=1");
    CHECK_OK(mr_cuda_talk_new(group_case_add(&heard, 0, 2, 5), MR_COMM_SHIFT, MR_F32, &t));
    mr_cuda_talk_free(t);
    asked();
    mr_cuda_ranks_close(&device);
    CHECK_STR(asked(), "finalize\nabort\n");
}

static void failures(void)
{
    mr_cuda_talk *t = NULL;
    char x[8];
    fails_later("fails=3", 5, MR_OK,
                "NCCL: what ranks say: remote process exited or there was a network error (6): "
                "NET/Socket : peer has closed");
    fails_later("", 5, MR_E_NODE, "rank 2 ended by signal 9");
    fails_later("", 0.05, MR_OK, "all_to_all of 4 ranks on the GPU is not over after 0.05 s");
    never_joined(0.05, MR_OK, MR_E_NODE,
                 "NCCL: a communicator of 4 ranks is not over after 0.05 s");
    never_joined(20, MR_E_NODE, MR_E_NODE, "rank 2 ended by signal 9");
    mr_interrupt_set(true);
    never_joined(20, MR_OK, MR_E_STOPPED, "stopped by Ctrl-C");
    mr_interrupt_set(false);
    over_in_time();
    left_in_trouble();
    // a call that is refused: its group is ended all the same
    start("refuses");
    CHECK_OK(mr_cuda_talk_new(group_case_add(&heard, 0, 2, 5), MR_COMM_SHIFT, MR_F32, &t));
    asked();
    mr_cuda_talk_send(t, 1, x, 8);
    CHECK_FAILS(mr_cuda_talk_exchange(t, NULL), MR_E_NODE,
                "NCCL: a message that goes: invalid usage (5)");
    CHECK_STR(asked(), "{\nsend 8 of 1 to 1\n}\n");
    mr_cuda_talk_free(t);
    mr_cuda_ranks_close(&device);
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
    failures();
    unlink(log_path);
    return check_done();
}
