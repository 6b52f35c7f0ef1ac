/* comm/tcp: ranks that share no memory. A peer that vanishes, or sends no frame or another run's,
 * ends the world of all ranks with a reason, with a secret and without; strangers change nothing.
 * Results of calls over this transport are in collective.c, group.c and messages.c.
 * Covers: core/comm/rendezvous.c core/comm/links.c core/comm/socket.c */
#define _GNU_SOURCE
#include "comm/prove.h"
#include "comm/room.h"
#include "rankcase.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { N = 3 };
static const char *secret = "spec";

static mr_tcp_place place_of(int rank, int port)
{
    return (mr_tcp_place){.rank = rank,
                          .size = N,
                          .host = "localhost",
                          .port = port,
                          .listener = -1,
                          .run = 7,
                          .fence = 1,
                          .secret = secret,
                          .deadline_s = 60};
}

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

typedef struct good_rank {
    mr_tcp_place place;
    mr_status st;
    char text[1024];
} good_rank;

/* A message that needs several records, and ends within one. */
static mr_status add_up(mr_comm *world)
{
    enum { COUNT = 300007 };
    float *x = malloc(COUNT * sizeof *x);
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)(mr_comm_rank(world) + i % 97);
    mr_status st = mr_comm_all_reduce(world, MR_COMM_SUM, MR_F32, x, COUNT);
    int wrong = 0;
    for (int i = 0; i < COUNT && st == MR_OK; i++)
        wrong += x[i] != (float)(N * (N - 1) / 2 + N * (i % 97));
    CHECK_INT(wrong, 0);
    free(x);
    return st;
}

static void *run_good_rank(void *arg)
{
    good_rank *g = arg;
    const mr_comm_options options = {.deadline_s = 60};
    mr_transport *transport;
    mr_comm *world = NULL;
    g->st = mr_tcp_transport(&g->place, NULL, &transport);
    if (g->st == MR_OK)
        g->st = mr_comm_world(transport, &options, &world);
    if (g->st == MR_OK)
        g->st = mr_comm_barrier(world, 0);
    if (g->st == MR_OK)
        g->st = add_up(world);
    if (g->st != MR_OK)
        snprintf(g->text, sizeof g->text, "%s", mr_error_last()->text);
    mr_comm_free(world);
    return NULL;
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

/* ---- during the rendezvous ---- */

static int call(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_INT(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

/* All ranks on one host name; `more` changes one of them. */
static void rendezvous(good_rank *good, int listener, int port, void (*more)(mr_tcp_place *))
{
    pthread_t threads[N];
    for (int r = 0; r < N; r++) {
        good[r] = (good_rank){.place = place_of(r, port)};
        good[r].place.listener = r ? -1 : listener;
        if (more)
            more(&good[r].place);
        pthread_create(&threads[r], NULL, run_good_rank, &good[r]);
    }
    for (int r = 0; r < N; r++)
        pthread_join(threads[r], NULL);
}

static void strangers(void)
{
    good_rank good[N];
    int listener, port;
    CHECK_OK(mr_tcp_listen(NULL, 0, 1, &listener, &port));
    // one asks for a page, one sends nothing, one leaves at once, one sends half of a hello
    int web = call(port), silent = call(port), half = call(port);
    close(call(port));
    CHECK_INT(send(web, "GET / HTTP/1.0\r\n\r\n", 18, 0), 18);
    CHECK_INT(send(half, "mrrink02", 8, 0), 8);
    rendezvous(good, listener, port, NULL);
    for (int r = 0; r < N; r++)
        if (!CHECK_INT(good[r].st, MR_OK))
            printf("rank %d: %s\n", r, good[r].text);
    close(web), close(silent), close(half);
}

static void soon(mr_tcp_place *p)
{
    p->deadline_s = 20;
}

/* More silent callers than rank 0 accepts at the same time. */
static void crowd(void)
{
    enum { CALLERS = 400 };
    good_rank good[N];
    int listener, port, callers[CALLERS];
    CHECK_OK(mr_tcp_listen(NULL, 0, 1, &listener, &port));
    for (int i = 0; i < CALLERS; i++)
        callers[i] = call(port);
    rendezvous(good, listener, port, soon);
    for (int r = 0; r < N; r++)
        if (!CHECK_INT(good[r].st, MR_OK))
            printf("rank %d: %s\n", r, good[r].text);
    for (int i = 0; i < CALLERS; i++)
        close(callers[i]);
}

/* Endless silent callers during the rendezvous. */
typedef struct flood {
    int port;
    atomic_bool over;
} flood;

static void *pour(void *arg)
{
    enum { HELD = 200 };
    flood *f = arg;
    int held[HELD];
    memset(held, -1, sizeof held);
    for (int i = 0; !atomic_load(&f->over); i = (i + 1) % HELD) {
        struct sockaddr_in at = {.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)f->port),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        if (held[i] >= 0)
            close(held[i]);
        held[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)connect(held[i], (struct sockaddr *)&at, sizeof at);
    }
    for (int i = 0; i < HELD; i++)
        if (held[i] >= 0)
            close(held[i]);
    return NULL;
}

static void flooded(void)
{
    enum { THREADS = 2 };
    good_rank good[N];
    pthread_t threads[THREADS];
    flood f = {0};
    int listener;
    CHECK_OK(mr_tcp_listen(NULL, 0, 1, &listener, &f.port));
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, pour, &f);
    rendezvous(good, listener, f.port, soon);
    atomic_store(&f.over, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int r = 0; r < N; r++)
        if (!CHECK_INT(good[r].st, MR_OK))
            printf("rank %d: %s\n", r, good[r].text);
}

/* The socket at which this process listens in addition to `other`, once there is one. */
static int find_listener(int other)
{
    for (int fd = 3;; fd = fd < 1024 ? fd + 1 : 3) {
        int listens = 0;
        socklen_t n = sizeof listens;
        if (fd != other && getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n) == 0 && listens)
            return fd;
    }
}

/* The first connection from rank 2 to rank 1 is lost on its way, to an attacker. */
static void lost_connection(void)
{
    good_rank good[N];
    pthread_t threads[N];
    int listener, port;
    struct sockaddr_in6 at;
    socklen_t n = sizeof at;
    CHECK_OK(mr_tcp_listen(NULL, 0, 1, &listener, &port));
    for (int r = 0; r < N; r++)
        good[r] = (good_rank){.place = place_of(r, port)};
    good[0].place.listener = listener;
    pthread_create(&threads[0], NULL, run_good_rank, &good[0]);
    pthread_create(&threads[1], NULL, run_good_rank, &good[1]);
    // rank 1 listens, and accepts no rank before rank 2 has connected to rank 0
    int other = find_listener(listener), stranger;
    CHECK_INT(getsockname(other, (struct sockaddr *)&at, &n), 0);
    CHECK_INT(shutdown(other, SHUT_RD), 0);
    CHECK_OK(mr_tcp_listen(NULL, ntohs(at.sin6_port), 1, &stranger, &port));
    pthread_create(&threads[2], NULL, run_good_rank, &good[2]);
    struct pollfd p = {stranger, POLLIN, 0};
    CHECK_INT(poll(&p, 1, -1), 1);
    int lost = accept(stranger, NULL, NULL);
    close(stranger);
    // rank 1 closes it: the thread sanitizer would call another thread's use of it a race
    CHECK_INT(syscall(SYS_bind, other, &at, n), 0);
    CHECK_INT(syscall(SYS_listen, other, SOMAXCONN), 0);
    close(lost);
    for (int r = 0; r < N; r++) {
        pthread_join(threads[r], NULL);
        if (!CHECK_INT(good[r].st, MR_OK))
            printf("rank %d: %s\n", r, good[r].text);
    }
}

/* ---- what is proved ---- */

static hello hello_of(int rank, const challenge *c, int port)
{
    talk t = {.asked = *c,
              .said = {.magic = PROVE_MAGIC,
                       .run = 7,
                       .fence = 1,
                       .drawn = {1, 2},
                       .rank = rank,
                       .size = N,
                       .link = LINK_CONTROL,
                       .port = 1,
                       .dialled = port}};
    prove_hello(secret, &t, t.said.proof);
    return t.said;
}

static void get(int fd, void *data, size_t n)
{
    CHECK_INT(recv(fd, data, n, MSG_WAITALL), n);
}

static void put(int fd, const void *data, size_t n)
{
    CHECK_INT(send(fd, data, n, MSG_NOSIGNAL), n);
}

/* Rank 0 alone, and its callers. Each gets another challenge, so a recorded hello opens nothing;
 * one that arrives in two parts is judged when it is complete. */
static void callers_prove(void)
{
    good_rank zero = {.place = place_of(0, 0)};
    pthread_t thread;
    challenge first, second, third;
    answer a;
    char end;
    int port;
    CHECK_OK(mr_tcp_listen(NULL, 0, 1, &zero.place.listener, &port));
    pthread_create(&thread, NULL, run_good_rank, &zero);
    int one = call(port), two = call(port);
    get(one, &first, sizeof first), get(two, &second, sizeof second);
    CHECK(memcmp(first.drawn, second.drawn, sizeof first.drawn) != 0);
    hello h = hello_of(1, &first, port);
    put(two, &h, sizeof h);
    get(two, &a, sizeof a);
    CHECK_INT(a.verdict, NO_SECRET);
    CHECK_INT(recv(two, &end, 1, 0), 0);
    static const struct {
        int rank, link;
    } nowhere[] = {{0, LINK_CONTROL}, {-1, LINK_CONTROL}, {N, LINK_CONTROL}, {1, LINKS}, {1, -1}};
    for (size_t i = 0; i < MR_COUNT(nowhere); i++) {
        int caller = call(port);
        get(caller, &third, sizeof third);
        talk t = {.asked = third, .said = hello_of(1, &third, port)};
        t.said.rank = nowhere[i].rank, t.said.link = nowhere[i].link;
        prove_hello(secret, &t, t.said.proof);
        const hello bad = t.said;
        put(caller, &bad, sizeof bad), get(caller, &a, sizeof a);
        CHECK_INT(a.verdict, NO_PLACE);
        close(caller);
    }
    put(one, &h, sizeof h - sizeof h.proof);
    // a caller after it has left, so the part has been read
    int three = call(port);
    get(three, &third, sizeof third), put(three, "GET / HTTP/1.0\r\n", 16);
    CHECK_INT(recv(three, &end, 1, 0), 0);
    put(one, h.proof, sizeof h.proof);
    get(one, &a, sizeof a);
    CHECK_INT(a.verdict, WELCOME);
    CHECK_INT(a.rank, 0);
    close(one), close(two), close(three);
    pthread_join(thread, NULL);
    CHECK_INT(zero.st, MR_E_NODE);
    CHECK(strstr(zero.text, "rank 1 at 127.0.0.1 ended during the rendezvous") != NULL);
}

/* A rank that connects on some of its links and not on all has not connected. */
static void half_a_rank(void)
{
    good_rank zero = {.place = place_of(0, 0)};
    pthread_t thread;
    int port, fd[LINKS];
    zero.place.size = 2, zero.place.deadline_s = 1;
    CHECK_OK(mr_tcp_listen(NULL, 0, 1, &zero.place.listener, &port));
    pthread_create(&thread, NULL, run_good_rank, &zero);
    for (int link = LINK_CONTROL; link >= 0; link -= LINK_CONTROL) {
        talk t;
        fd[link] = call(port);
        get(fd[link], &t.asked, sizeof t.asked);
        t.said = hello_of(1, &t.asked, port);
        t.said.size = 2, t.said.link = link;
        prove_hello(secret, &t, t.said.proof);
        put(fd[link], &t.said, sizeof t.said), get(fd[link], &t.got, sizeof t.got);
        CHECK_INT(t.got.verdict, WELCOME);
    }
    pthread_join(thread, NULL);
    if (!CHECK(strstr(zero.text, ": rank 1 of 2 has not connected in 1 s") != NULL))
        printf("%s\n", zero.text);
    close(fd[0]), close(fd[LINK_CONTROL]);
}

/* What the host of rank 0 sends while rank 0 checks whether a rank still exists. */
static _Atomic(mr_segment *) report;
ssize_t recv(int fd, void *data, size_t n, int flags)
{
    mr_segment *host = flags & MSG_PEEK ? atomic_exchange(&report, NULL) : NULL;
    if (host)
        mr_segment_abort(host, "rank 1 was ended by signal 9");
    return (ssize_t)syscall(SYS_recvfrom, fd, data, n, flags, NULL, NULL);
}

static void *come_and_go_as_2(void *port)
{
    challenge c;
    answer a;
    int fd = call(*(int *)port);
    get(fd, &c, sizeof c);
    hello h = hello_of(2, &c, *(int *)port);
    put(fd, &h, sizeof h), get(fd, &a, sizeof a);
    CHECK_INT(a.verdict, WELCOME);
    close(fd);
    return NULL;
}

/* Rank 1, next to rank 0, dies before it connects, and rank 2 ends because of it. */
static void causes_come_first(void)
{
    mr_tcp_place zero = place_of(0, 0);
    mr_segment *host;
    mr_transport *shared, *transport;
    pthread_t thread;
    int port;
    zero.n_local = 2;
    CHECK_OK(mr_tcp_listen(NULL, 0, 1, &zero.listener, &port));
    CHECK_OK(mr_segment_new(2, &host));
    CHECK_OK(mr_segment_transport(host, 0, &shared));
    atomic_store(&report, host);
    pthread_create(&thread, NULL, come_and_go_as_2, &port);
    CHECK_FAILS(mr_tcp_transport(&zero, shared, &transport), MR_E_NODE,
                "rank 1 was ended by signal 9");
    pthread_join(thread, NULL);
    mr_segment_free(host);
}

/* Accepts the call of rank 1 and answers it; returns the connection. */
static int answer_1(int listener, bool knows, answer a)
{
    talk t = {.asked = {PROVE_MAGIC, {8, 9}}};
    uint8_t proof[SEAL_HASH];
    struct pollfd p = {listener, POLLIN, 0};
    CHECK_INT(poll(&p, 1, 30000), 1);
    int fd = accept(listener, NULL, NULL);
    put(fd, &t.asked, sizeof t.asked), get(fd, &t.said, sizeof t.said);
    prove_hello(secret, &t, proof);
    CHECK(memcmp(proof, t.said.proof, sizeof proof) == 0);
    t.got = a;
    if (knows)
        prove_answer(secret, &t, t.got.proof);
    put(fd, &t.got, sizeof t.got);
    return fd;
}

/* Rank 1 does not believe an attacker at rank 0's address that welcomes it, and calls again. */
static void stand_in(bool knows, int rank)
{
    good_rank one;
    pthread_t thread;
    int listener, port;
    CHECK_OK(mr_tcp_listen(NULL, 0, 1, &listener, &port));
    one = (good_rank){.place = place_of(1, port)};
    pthread_create(&thread, NULL, run_good_rank, &one);
    int first = answer_1(listener, knows, (answer){.verdict = WELCOME, .rank = rank});
    int again = answer_1(listener, true, (answer){.verdict = OTHER_RUN});
    pthread_join(thread, NULL);
    close(first), close(again), close(listener);
    CHECK_INT(one.st, MR_E_NODE);
    CHECK(strstr(one.text, "it belongs to another run") != NULL);
}

static void other_run(mr_tcp_place *p)
{
    p->deadline_s = p->rank ? 60 : 0.2, p->run += p->rank == 2;
}
static void other_launch(mr_tcp_place *p)
{
    p->deadline_s = p->rank ? 60 : 0.2, p->fence += p->rank == 2;
}
static void other_secret(mr_tcp_place *p)
{
    p->deadline_s = p->rank ? 60 : 0.2, p->secret = p->rank == 2 ? "other" : secret;
}
static void other_way(mr_tcp_place *p)
{
    p->deadline_s = p->rank ? 60 : 0.2, p->hides = p->rank == 2;
}
static void other_size(mr_tcp_place *p)
{
    p->deadline_s = p->rank ? 60 : 0.2, p->size += p->rank == 2;
}
static void twice(mr_tcp_place *p)
{
    p->deadline_s = p->rank ? 60 : 0.2, p->rank -= p->rank == 2;
}
static void away(mr_tcp_place *p)
{
    p->deadline_s = p->rank ? 60 : 0.2;
    if (p->rank == 2)
        p->rank = N; // there is no such rank, so it fails before it calls
}

/* Rank 2 gets `reason`, the others an error that it has not connected. */
static void refuse(void (*more)(mr_tcp_place *), const char *reason, const char *missing)
{
    good_rank good[N];
    int listener, port;
    CHECK_OK(mr_tcp_listen(NULL, 0, 1, &listener, &port));
    rendezvous(good, listener, port, more);
    for (int r = 0; r < N; r++)
        CHECK(good[r].st != MR_OK);
    // a rank that has connected gets it from rank 0
    for (int r = 0; r < 2; r++)
        if (!CHECK(strstr(good[r].text, missing) || strstr(good[r].text, reason)))
            printf("rank %d: %s\n", r, good[r].text);
    if (!CHECK(strstr(good[2].text, reason) || strstr(good[1].text, reason)))
        printf("expected %s; got '%s', '%s'\n", reason, good[1].text, good[2].text);
}

static void refusals(void)
{
    refuse(other_run, "it belongs to another run",
           "rank 2 of 3 has not connected in 0.2 s; a connection from "
           "127.0.0.1 was rejected: it belongs to another run");
    refuse(other_launch, "it belongs to another launch of this run",
           "rank 2 of 3 has not connected");
    refuse(other_secret, "it has another secret", "rejected: it has another secret");
    refuse(other_way, "its MOONREEL_ENCRYPT differs", "rank 2 of 3 has not connected");
    refuse(other_size, "it expects another number of ranks", "rank 2 of 3 has not connected");
    refuse(twice, "that rank is connected already", "rank 2 of 3 has not connected");
    refuse(away, "rank is 3 of 3 ranks; expected 0 to 2", "rank 2 of 3 has not connected in 0.2 s");
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
    static void (*const more[])(mr_tcp_place *) = {hidden, open_to_all};
    for (size_t i = 0; i < MR_COUNT(more); i++) {
        good_rank good[N];
        int listener, port;
        CHECK_OK(mr_tcp_listen(NULL, 0, 1, &listener, &port));
        rendezvous(good, listener, port, more[i]);
        for (int r = 0; r < N; r++)
            if (!CHECK_INT(good[r].st, MR_OK))
                printf("rank %d: %s\n", r, good[r].text);
    }
}

static void six(mr_tcp_place *p)
{
    p->host = "::1";
}
static void several_ports(mr_tcp_place *p)
{
    p->listener = -1, p->ports = 8;
}

static void addresses(void)
{
    good_rank good[N];
    int listener, port, taken;
    CHECK_OK(mr_tcp_listen(NULL, 0, 1, &listener, &port));
    int probe = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    if (probe >= 0 && bind(probe, (struct sockaddr *)&at, sizeof at) == 0)
        rendezvous(good, listener, port, six);
    else
        rendezvous(good, listener, port, NULL);
    close(probe);
    for (int r = 0; r < N; r++)
        CHECK_INT(good[r].st, MR_OK);
    // the first port belongs to another program, which does not listen
    struct sockaddr_in held = {.sin_family = AF_INET};
    socklen_t n = sizeof held;
    taken = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_INT(bind(taken, (struct sockaddr *)&held, n), 0);
    CHECK_INT(getsockname(taken, (struct sockaddr *)&held, &n), 0);
    rendezvous(good, -1, ntohs(held.sin_port), several_ports);
    close(taken);
    for (int r = 0; r < N; r++)
        if (!CHECK_INT(good[r].st, MR_OK))
            printf("rank %d: %s\n", r, good[r].text);
}

/* Can a client connect to this port of an address of this host? */
static bool answers(const char *host, int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    CHECK_INT(inet_pton(AF_INET, host, &at.sin_addr), 1);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    const bool good = connect(fd, (struct sockaddr *)&at, sizeof at) == 0;
    close(fd);
    return good;
}

/* Replaces the C library's function: a host on which IPv6 is switched off. */
static bool only_four;
int socket(int family, int type, int protocol)
{
    if (only_four && family == AF_INET6) {
        errno = EAFNOSUPPORT;
        return -1;
    }
    return (int)syscall(SYS_socket, family, type, protocol);
}

/* Rank 0 listens on IPv4 alone, at the next port when the first one is in use. */
static void without_six(void)
{
    enum { PORTS = 20 };
    int first, second, port, next;
    only_four = true;
    CHECK_OK(mr_tcp_listen(NULL, 0, 1, &first, &port));
    CHECK_OK(mr_tcp_listen(NULL, port, PORTS, &second, &next));
    only_four = false;
    CHECK(next > port && next < port + PORTS);
    CHECK(answers("127.0.0.1", port) && answers("127.0.0.1", next));
    close(first), close(second);
}

static void here_alone(mr_tcp_place *p)
{
    p->host = "127.0.0.3", p->listen = "127.0.0.3";
}

/* Ranks listen at the requested address, and only during the rendezvous. */
static void listening(void)
{
    static const char *const where[] = {NULL, "", "lo", "localhost", "127.0.0.3"};
    good_rank good[N];
    int listener, port, held;
    for (size_t i = 0; i < MR_COUNT(where); i++) {
        CHECK_OK(mr_tcp_listen(where[i], 0, 1, &listener, &port));
        CHECK_INT(answers("127.0.0.1", port), i < 4);
        CHECK_INT(answers("127.0.0.3", port), i < 2 || i == 4);
        close(listener);
    }
    CHECK_FAILS(mr_tcp_listen("203.0.113.9", 0, 1, &listener, &port), MR_E_NODE,
                "cannot listen at 203.0.113.9 port 0: Cannot assign requested address; try: an "
                "interface or an address of this host");
    CHECK_FAILS(mr_tcp_listen("no-such-0", 0, 1, &listener, &port), MR_E_NODE,
                "cannot listen at 'no-such-0': ");
    // another process has inherited the socket at which rank 0 listens
    CHECK_OK(mr_tcp_listen("127.0.0.3", 0, 1, &listener, &port));
    held = dup(listener);
    rendezvous(good, listener, port, here_alone);
    for (int r = 0; r < N; r++)
        if (!CHECK_INT(good[r].st, MR_OK))
            printf("rank %d: %s\n", r, good[r].text);
    CHECK(!answers("127.0.0.3", port));
    close(held);
}

static void no_partner(void)
{
    mr_transport *transport;
    int listener, port;
    CHECK_OK(mr_tcp_listen(NULL, 0, 1, &listener, &port));
    close(listener);
    mr_tcp_place p = place_of(1, port);
    p.deadline_s = 0.1;
    CHECK_FAILS(mr_tcp_transport(&p, NULL, &transport), MR_E_NODE, "Connection refused");
    CHECK(transport == NULL);
    p.host = "no.such.host.invalid";
    CHECK_FAILS(mr_tcp_transport(&p, NULL, &transport), MR_E_NODE,
                "cannot reach rank 0 at no.such");
    p.port = 0;
    CHECK_FAILS(mr_tcp_transport(&p, NULL, &transport), MR_E_USAGE,
                "port is 0; expected 1 to 65535");
    p = place_of(0, 1 << 16);
    CHECK_FAILS(mr_tcp_transport(&p, NULL, &transport), MR_E_USAGE, "port is 65536");
}

/* ---- a link that drops all packets ---- */

static const mr_clock *usual;
static int64_t began_ns;
static int64_t swift_ns(void)
{
    return began_ns + 100 * (usual->monotonic_ns() - began_ns);
}

static char logged[4096];
static void take_line(void *user, mr_log_level level, const char *line)
{
    (void)user, (void)level;
    snprintf(logged + strlen(logged), sizeof logged - strlen(logged), "%s\n", line);
}

/* A rendezvous fails within `least` to `most` seconds, its error contains `part`, and it has logged
 * `line`. */
static void rendezvous_fails(mr_tcp_place p, double least, double most, const char *part,
                             const char *line)
{
    mr_transport *transport;
    const double began = mr_now_s();
    logged[0] = 0;
    CHECK_FAILS(mr_tcp_transport(&p, NULL, &transport), MR_E_NODE, part);
    const double took = mr_now_s() - began;
    if (!CHECK(took >= least && took <= most))
        printf("%s: %g s, expected %g to %g\n", part, took, least, most);
    const char *found = strstr(logged, line);
    if (!CHECK(line[0] ? found && !strstr(found + 1, line) : !logged[0]))
        printf("logged '%s', expected '%s' once\n", logged, line);
}

/* A second passes in a hundredth. When rank 0's host listens before any rank starts, a link that
 * drops all packets is detected after 10 s; otherwise a rank reports for whom it waits, and
 * continues to wait. */
static void far_away(void)
{
    int listener, port;
    CHECK_OK(mr_tcp_listen(NULL, 0, 1, &listener, &port));
    close(listener);
    mr_clock clock = *(usual = mr_clock_table());
    began_ns = usual->monotonic_ns();
    clock.monotonic_ns = swift_ns;
    mr_clock_replace(&clock);
    mr_log_set_sink(take_line, NULL);
    mr_tcp_place p = place_of(1, port);
    p.deadline_s = 400;
    rendezvous_fails(p, 10, 200, "cannot reach rank 0 at localhost port", "");
    p.host = "no.such.host.invalid";
    rendezvous_fails(p, 10, 390, "cannot reach rank 0 at no.such.host.invalid port", "");
    // nothing answers at a port of a torchrun that has not started rank 0 yet
    p.host = "localhost", p.ports = 2, p.deadline_s = 60;
    rendezvous_fails(p, 60, 400, "Connection refused; try: use a name or address (addr=)",
                     "it tries again");
    // rank 0's host listens, rank 0 has not started yet
    CHECK_OK(mr_tcp_listen(NULL, 0, 1, &listener, &p.port));
    p.ports = 1;
    rendezvous_fails(p, 60, 400, "it does not answer", "it tries again");
    close(listener);
    // two of three do not connect
    p = place_of(0, 0), p.deadline_s = 60;
    CHECK_OK(mr_tcp_listen(NULL, 0, 1, &p.listener, &port));
    rendezvous_fails(p, 60, 400, "rank 1, 2 of 3 has not connected in 60 s",
                     "waits for rank 1, 2 of 3");
    mr_log_set_sink(NULL, NULL);
    mr_clock_replace(NULL);
}

int main(void)
{
    bad_ranks();
    secret = NULL;
    bad_ranks();
    secret = "spec";
    strangers();
    crowd();
    flooded();
    lost_connection();
    callers_prove();
    half_a_rank();
    causes_come_first();
    stand_in(false, 0);
    stand_in(true, 1);
    refusals();
    ways();
    addresses();
    listening();
    without_six();
    no_partner();
    far_away();
    return check_done();
}
