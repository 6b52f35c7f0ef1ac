/* comm/rendezvous: how ranks find each other, and prove that they belong together. Strangers change
 * nothing. */
#define _GNU_SOURCE
#include "comm/prove.h"
#include "tcpcase.h"

#include <poll.h>
#include <stdatomic.h>
#include <sys/syscall.h>

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
    all_well(good);
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
    all_well(good);
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
    all_well(good);
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

int main(void)
{
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
    return check_done();
}
