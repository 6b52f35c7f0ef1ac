/* comm/tcp: ranks that share no memory. A peer that vanishes, or sends no frame or another run's,
 * ends the world of all ranks with a reason, with a secret and without. Results of calls over this
 * transport are in collective.c, group.c and messages.c.
 * Covers: core/comm/links.c */
#define _GNU_SOURCE
#include "tcpcase.h"

#include <poll.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

/* ---- a rank that fails after the rendezvous ---- */

typedef enum how {
    CLOSES,
    SENDS_GARBAGE,
    SENDS_OTHER_LAUNCH,
    SAYS_GARBAGE,
    GIVES_UP,
    GIVES_UP_AND_CLOSES,
    OTHER_GIVES_UP,
    STOPS_IN_FRAME
} how;

typedef struct bad_rank {
    how how;
    int port;
    tcp_links links[N];
} bad_rank;

static void say(const bad_rank *b, int link, const void *data, size_t bytes)
{
    for (int r = 0; r < N; r++)
        if (b->links[r].fd[link] >= 0)
            CHECK_INT(send(b->links[r].fd[link], data, bytes, MSG_NOSIGNAL), bytes);
}

/* The same, sent by a rank of the run. */
static void say_well(bad_rank *b, int link, const void *data, size_t bytes)
{
    uint8_t record[sizeof(tcp_word) + SEAL_TAG];
    for (int r = 0; r < N; r++) {
        seal_way *way = &b->links[r].out[link];
        memcpy(record, data, bytes);
        if (b->links[r].fd[link] < 0)
            continue;
        if (way->on)
            CHECK_OK(seal_record(way, data, bytes, record, record + bytes));
        CHECK_INT(send(b->links[r].fd[link], record, tcp_sealed(way, bytes), MSG_NOSIGNAL),
                  tcp_sealed(way, bytes));
    }
}

static void *run_bad_rank(void *arg)
{
    bad_rank *b = arg;
    mr_segment *alone;
    mr_transport *shared;
    mr_tcp_place p = place_of(2, b->port);
    struct {
        uint64_t run, fence;
        mr_comm_head head;
    } frame = {7, 2, {.op = MR_COMM_HELLO}};
    tcp_word word = {7, 1, TCP_GIVES_UP, "rank 2 gave up: the disk is full"};
    char garbage[2048];
    memset(garbage, 'x', sizeof garbage);
    for (int r = 0; r < N; r++)
        for (int link = 0; link < LINKS; link++)
            b->links[r].fd[link] = -1;
    p.first = 2, p.n_local = 1;
    CHECK_OK(mr_segment_new(1, &alone));
    CHECK_OK(mr_segment_transport(alone, 0, &shared));
    CHECK_OK(comm_rendezvous(&p, shared, b->links));
    switch (b->how) {
    case CLOSES: break;
    case SENDS_GARBAGE: say(b, 0, garbage, sizeof garbage); break;
    case SENDS_OTHER_LAUNCH: say_well(b, 0, &frame, sizeof frame); break;
    case SAYS_GARBAGE: say(b, LINK_CONTROL, garbage, sizeof(tcp_word) + SEAL_TAG); break;
    case GIVES_UP:
    case GIVES_UP_AND_CLOSES: say_well(b, LINK_CONTROL, &word, sizeof word); break;
    case OTHER_GIVES_UP:
        word.run = 8;
        say_well(b, LINK_CONTROL, &word, sizeof word);
        break;
    case STOPS_IN_FRAME: say(b, 0, &frame, 8); break;
    }
    // it stays until the others have gone, unless they are to notice its end
    const bool goes = b->how == CLOSES || b->how == STOPS_IN_FRAME || b->how == GIVES_UP_AND_CLOSES;
    for (int r = 0; r < 2 && !goes; r++) {
        struct pollfd p = {b->links[r].fd[LINK_CONTROL], POLLIN, 0};
        while (poll(&p, 1, -1) == 1 && recv(p.fd, &word, sizeof word, MSG_DONTWAIT) > 0) {}
    }
    for (int r = 0; r < N; r++)
        for (int link = 0; link < LINKS; link++)
            tcp_hang_up(&b->links[r], link);
    shared->ops->close(shared, false);
    mr_segment_free(alone);
    return NULL;
}

/* While this is set, the threads that listen for ranks get only the request to end. */
static atomic_bool late;
int epoll_wait(int fd, struct epoll_event *events, int most, int ms)
{
    for (;;) {
        const int n = (int)syscall(SYS_epoll_pwait, fd, events, most, ms, NULL, 0);
        bool ends = false;
        for (int i = 0; i < n; i++)
            ends = ends || events[i].data.u64 >> 8 == N;
        if (ends || !atomic_load(&late))
            return n;
        mr_clock_table()->sleep_ns(1000000);
    }
}

/* Ranks 0 and 1 fail, and an error of one of them contains `part`. */
static void fail(how how, const char *part)
{
    bad_rank b = {.how = how};
    good_rank good[2];
    pthread_t threads[N];
    int listener;
    CHECK_OK(mr_tcp_listen(NULL, 0, 1, &listener, &b.port));
    for (int r = 0; r < 2; r++) {
        good[r] = (good_rank){.place = place_of(r, b.port)};
        good[r].place.listener = r ? -1 : listener;
        pthread_create(&threads[r], NULL, run_good_rank, &good[r]);
    }
    pthread_create(&threads[2], NULL, run_bad_rank, &b);
    for (int r = 0; r < N; r++)
        pthread_join(threads[r], NULL);
    CHECK_INT(good[0].st, MR_E_NODE);
    CHECK_INT(good[1].st, MR_E_NODE);
    const int said = (strstr(good[0].text, part) != NULL) + (strstr(good[1].text, part) != NULL);
    if (!CHECK(said >= (how == GIVES_UP_AND_CLOSES ? 2 : 1)))
        printf("expected %s; got '%s', '%s'\n", part, good[0].text, good[1].text);
}

static void bad_ranks(void)
{
    fail(CLOSES, "rank 2 ");
    fail(SENDS_GARBAGE, secret ? "record 0 was changed, dropped"
                               : "sends frames of another run (run 7878787878787878");
    fail(SENDS_OTHER_LAUNCH, "launch 2; expected 0000000000000007, 1)");
    fail(SAYS_GARBAGE, secret ? "sent a control message that failed authentication"
                              : "sends control messages of another run");
    fail(GIVES_UP, "rank 2 gave up: the disk is full");
    // its lanes end, and unread data lies in their connections
    atomic_store(&late, true);
    fail(GIVES_UP_AND_CLOSES, "rank 2 gave up: the disk is full");
    atomic_store(&late, false);
    fail(OTHER_GIVES_UP, "sends control messages of another run");
    fail(STOPS_IN_FRAME, "rank 2 ");
}

/* While this is set, nothing comes in more than 50 bytes at once: frames come in several parts. */
static atomic_bool in_parts;
ssize_t recv(int fd, void *data, size_t n, int flags)
{
    n = atomic_load(&in_parts) ? MR_MIN(n, (size_t)50) : n;
    return syscall(SYS_recvfrom, fd, data, n, flags, NULL, NULL);
}

static void hidden(mr_tcp_place *p)
{
    p->hides = true;
}
static void open_to_all(mr_tcp_place *p)
{
    p->secret = "";
}

static void ways(void)
{
    static void (*const more[])(mr_tcp_place *) = {hidden, open_to_all, hidden, open_to_all};
    for (size_t i = 0; i < MR_COUNT(more); i++) {
        atomic_store(&in_parts, i > 1);
        good_rank good[N];
        int listener, port;
        CHECK_OK(mr_tcp_listen(NULL, 0, 1, &listener, &port));
        rendezvous(good, listener, port, more[i]);
        all_well(good);
    }
}

int main(void)
{
    bad_ranks();
    secret = NULL;
    bad_ranks();
    secret = "spec";
    ways();
    return check_done();
}
