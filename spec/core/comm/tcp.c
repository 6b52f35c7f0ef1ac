/* comm/tcp: ranks that share no memory: a peer that vanishes, sends what is no frame or another
 * run's, ends the world of all with a reason; strangers change nothing. What calls give over this
 * wire is in collective.c, group.c and exchange.c. Covers: core/comm/meet.c
 * core/comm/socket.c */
#include "comm/room.h"
#include "rankcase.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { N = 3 };

static mr_tcp_place place_of(int rank, int port)
{
    return (mr_tcp_place){.rank = rank,
                          .size = N,
                          .host = "localhost",
                          .port = port,
                          .listener = -1,
                          .run = 7,
                          .fence = 1,
                          .secret = {3, 4},
                          .deadline_s = 60};
}

/* ---- a rank that goes wrong after all have met ---- */

typedef enum how { CLOSES, SENDS_GARBAGE, SENDS_OTHER_LAUNCH, SAYS_GARBAGE, STOPS_IN_FRAME } how;

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

static void *run_bad_rank(void *arg)
{
    bad_rank *b = arg;
    mr_meeting *alone;
    mr_wire *shared;
    mr_tcp_place p = place_of(2, b->port);
    struct {
        uint64_t run, fence;
        mr_comm_head head;
    } frame = {7, 2, {.op = MR_COMM_HELLO}};
    char garbage[2048];
    memset(garbage, 'x', sizeof garbage);
    for (int r = 0; r < N; r++)
        for (int link = 0; link < LINKS; link++)
            b->links[r].fd[link] = -1;
    p.first = 2, p.near = 1;
    CHECK_OK(mr_meeting_new(1, &alone));
    CHECK_OK(mr_meeting_wire(alone, 0, &shared));
    CHECK_OK(comm_meet(&p, shared, b->links));
    switch (b->how) {
    case CLOSES: break;
    case SENDS_GARBAGE: say(b, 0, garbage, sizeof garbage); break;
    case SENDS_OTHER_LAUNCH: say(b, 0, &frame, sizeof frame); break;
    case SAYS_GARBAGE: say(b, LINK_CONTROL, garbage, sizeof(tcp_word)); break;
    case STOPS_IN_FRAME: say(b, 0, &frame, 8); break;
    }
    // it stays until the others have gone, but where it is its end that they are to find
    char word[sizeof(tcp_word)];
    for (int r = 0; r < 2 && b->how != CLOSES && b->how != STOPS_IN_FRAME; r++) {
        struct pollfd p = {b->links[r].fd[LINK_CONTROL], POLLIN, 0};
        while (poll(&p, 1, -1) == 1 && recv(p.fd, word, sizeof word, MSG_DONTWAIT) > 0) {}
    }
    for (int r = 0; r < N; r++)
        for (int link = 0; link < LINKS; link++)
            if (b->links[r].fd[link] >= 0)
                close(b->links[r].fd[link]);
    shared->ops->close(shared, false);
    mr_meeting_free(alone);
    return NULL;
}

typedef struct good_rank {
    mr_tcp_place place;
    mr_status st;
    char text[1024];
} good_rank;

static void *run_good_rank(void *arg)
{
    good_rank *g = arg;
    const mr_comm_options options = {.deadline_s = 60};
    mr_wire *wire;
    mr_comm *world = NULL;
    g->st = mr_tcp_wire(&g->place, NULL, &wire);
    if (g->st == MR_OK)
        g->st = mr_comm_world(wire, &options, &world);
    if (g->st == MR_OK)
        g->st = mr_comm_barrier(world, 0);
    if (g->st != MR_OK)
        snprintf(g->text, sizeof g->text, "%s", mr_error_last()->text);
    mr_comm_free(world);
    return NULL;
}

/* Ranks 0 and 1 fail, and some one of them says `part`. */
static void fail(how how, const char *part)
{
    bad_rank b = {.how = how};
    good_rank good[2];
    pthread_t threads[N];
    int listener;
    CHECK_OK(mr_tcp_listen(0, 1, &listener, &b.port));
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
    if (!CHECK(strstr(good[0].text, part) || strstr(good[1].text, part)))
        printf("expected %s; got '%s', '%s'\n", part, good[0].text, good[1].text);
}

static void bad_ranks(void)
{
    fail(CLOSES, "rank 2 ");
    fail(SENDS_GARBAGE, "sends what is no frame of this run (run 7878787878787878");
    fail(SENDS_OTHER_LAUNCH, "launch 2; expected 0000000000000007, 1)");
    fail(SAYS_GARBAGE, "says what is no word of this run");
    fail(STOPS_IN_FRAME, "rank 2 ");
}

/* ---- while they meet ---- */

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
static void meet(good_rank *good, int listener, int port, void (*more)(mr_tcp_place *))
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
    CHECK_OK(mr_tcp_listen(0, 1, &listener, &port));
    // one asks for a page, one says nothing, one is gone at once, one sends half of a hello
    int web = call(port), silent = call(port), half = call(port);
    close(call(port));
    CHECK_INT(send(web, "GET / HTTP/1.0\r\n\r\n", 18, 0), 18);
    CHECK_INT(send(half, "mrrink01", 8, 0), 8);
    meet(good, listener, port, NULL);
    for (int r = 0; r < N; r++)
        if (!CHECK_INT(good[r].st, MR_OK))
            printf("rank %d: %s\n", r, good[r].text);
    close(web), close(silent), close(half);
}

static void soon(mr_tcp_place *p)
{
    p->deadline_s = 20;
}

/* More callers that say nothing than rank 0 listens to at once. */
static void crowd(void)
{
    enum { CALLERS = 400 };
    good_rank good[N];
    int listener, port, callers[CALLERS];
    CHECK_OK(mr_tcp_listen(0, 1, &listener, &port));
    for (int i = 0; i < CALLERS; i++)
        callers[i] = call(port);
    meet(good, listener, port, soon);
    for (int r = 0; r < N; r++)
        if (!CHECK_INT(good[r].st, MR_OK))
            printf("rank %d: %s\n", r, good[r].text);
    for (int i = 0; i < CALLERS; i++)
        close(callers[i]);
}

/* The socket at which this process listens besides `other`, as soon as there is one. */
static int find_listener(int other)
{
    for (int fd = 3;; fd = fd < 1024 ? fd + 1 : 3) {
        int listens = 0;
        socklen_t n = sizeof listens;
        if (fd != other && getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n) == 0 && listens)
            return fd;
    }
}

/* The first connection from rank 2 to rank 1 is lost on its way, to one who stands there. */
static void lost_connection(void)
{
    good_rank good[N];
    pthread_t threads[N];
    int listener, port;
    struct sockaddr_in6 at;
    socklen_t n = sizeof at;
    CHECK_OK(mr_tcp_listen(0, 1, &listener, &port));
    for (int r = 0; r < N; r++)
        good[r] = (good_rank){.place = place_of(r, port)};
    good[0].place.listener = listener;
    pthread_create(&threads[0], NULL, run_good_rank, &good[0]);
    pthread_create(&threads[1], NULL, run_good_rank, &good[1]);
    // rank 1 listens, and lets nobody in before rank 2 has come to rank 0
    int other = find_listener(listener), stranger;
    CHECK_INT(getsockname(other, (struct sockaddr *)&at, &n), 0);
    CHECK_INT(shutdown(other, SHUT_RD), 0);
    CHECK_OK(mr_tcp_listen(ntohs(at.sin6_port), 1, &stranger, &port));
    pthread_create(&threads[2], NULL, run_good_rank, &good[2]);
    struct pollfd p = {stranger, POLLIN, 0};
    CHECK_INT(poll(&p, 1, -1), 1);
    int lost = accept(stranger, NULL, NULL);
    close(stranger);
    CHECK_INT(bind(other, (struct sockaddr *)&at, n), 0);
    CHECK_INT(listen(other, SOMAXCONN), 0);
    close(lost);
    for (int r = 0; r < N; r++) {
        pthread_join(threads[r], NULL);
        if (!CHECK_INT(good[r].st, MR_OK))
            printf("rank %d: %s\n", r, good[r].text);
    }
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
    p->deadline_s = p->rank ? 60 : 0.2, p->secret[1] += p->rank == 2;
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
        p->rank = N; // it is none and fails before it calls
}

/* Rank 2 is told `reason`, the others that it has not come. */
static void refuse(void (*more)(mr_tcp_place *), const char *reason, const char *missing)
{
    good_rank good[N];
    int listener, port;
    CHECK_OK(mr_tcp_listen(0, 1, &listener, &port));
    meet(good, listener, port, more);
    for (int r = 0; r < N; r++)
        CHECK(good[r].st != MR_OK);
    // who has come hears it from rank 0
    for (int r = 0; r < 2; r++)
        if (!CHECK(strstr(good[r].text, missing) || strstr(good[r].text, reason)))
            printf("rank %d: %s\n", r, good[r].text);
    if (!CHECK(strstr(good[2].text, reason) || strstr(good[1].text, reason)))
        printf("expected %s; got '%s', '%s'\n", reason, good[1].text, good[2].text);
}

static void refusals(void)
{
    refuse(other_run, "it is of another run",
           "rank 2 of 3 has not come in 0.2 s; one from 127.0.0.1 "
           "was sent away: it is of another run");
    refuse(other_launch, "it is of another launch of this run", "rank 2 of 3 has not come");
    refuse(other_secret, "it has another secret", "sent away: it has another secret");
    refuse(other_size, "it expects another number of ranks", "rank 2 of 3 has not come");
    refuse(twice, "that rank is here already", "rank 2 of 3 has not come");
    refuse(away, "rank 3 of 3 ranks: expected 0 to 2", "rank 2 of 3 has not come in 0.2 s");
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
    CHECK_OK(mr_tcp_listen(0, 1, &listener, &port));
    int probe = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    if (probe >= 0 && bind(probe, (struct sockaddr *)&at, sizeof at) == 0)
        meet(good, listener, port, six);
    else
        meet(good, listener, port, NULL);
    close(probe);
    for (int r = 0; r < N; r++)
        CHECK_INT(good[r].st, MR_OK);
    // the first port is somebody else's, who says nothing
    CHECK_OK(mr_tcp_listen(0, 1, &taken, &port));
    close(taken);
    meet(good, -1, port, several_ports);
    for (int r = 0; r < N; r++)
        if (!CHECK_INT(good[r].st, MR_OK))
            printf("rank %d: %s\n", r, good[r].text);
}

static void nobody(void)
{
    mr_wire *wire;
    int listener, port;
    CHECK_OK(mr_tcp_listen(0, 1, &listener, &port));
    close(listener);
    mr_tcp_place p = place_of(1, port);
    p.deadline_s = 0.1;
    CHECK_FAILS(mr_tcp_wire(&p, NULL, &wire), MR_E_NODE, "Connection refused");
    CHECK(wire == NULL);
    p.host = "no.such.host.invalid";
    CHECK_FAILS(mr_tcp_wire(&p, NULL, &wire), MR_E_NODE, "rank 1 cannot reach rank 0 at no.such");
    p.port = 0;
    CHECK_FAILS(mr_tcp_wire(&p, NULL, &wire), MR_E_USAGE, "port 0: expected 1 to 65535");
    p = place_of(0, 1 << 16);
    CHECK_FAILS(mr_tcp_wire(&p, NULL, &wire), MR_E_USAGE, "port 65536");
}

int main(void)
{
    bad_ranks();
    strangers();
    crowd();
    lost_connection();
    refusals();
    addresses();
    nobody();
    return check_done();
}
