/* comm/prove: two ranks and an attacker between them, who forwards their messages and changes them
 * during the rendezvous or in the middle of a run. Rank 0 listens at 127.0.0.1, the attacker at the
 * same port of 127.0.0.2, to which rank 1 connects. */
#define _GNU_SOURCE
#include "comm/prove.h"
#include "comm/room.h"
#include "rankcase.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    MESSAGES = 2,
    BYTES = 1000,
    HEAD = 2 * 8 + sizeof(mr_comm_head) + SEAL_TAG, /* run, launch and head */
    WHOLE = HEAD + BYTES + SEAL_TAG
};

/* What the attacker does. */
typedef enum deed {
    LISTENS,
    WAITS,
    FLIPS_HEAD,
    FLIPS_BYTES,
    FLIPS_TAG,
    REPEATS,
    DROPS,
    SWAPS,
    SENDS_BACK,
    CUTS,
    DEEDS,
    FLIPS_CHALLENGE = DEEDS,
    FLIPS_HELLO,
    FLIPS_ANSWER,
    FLIPS_WORD /* that rank 1 leaves */
} deed;

static bool hides; /* do ranks encrypt? */

typedef struct scene {
    deed deed;
    size_t at; /* the byte that is flipped during the rendezvous */
    int port, listener;
    atomic_bool armed; /* messages follow, and none is on its way */
    atomic_bool seen;  /* what they consist of has passed the attacker */
    atomic_bool over;
    mr_status st[2];
    char text[2][1024];
} scene;

/* ---- the attacker ---- */

typedef struct call {
    scene *s;
    int fd[2]; /* of rank 1, of rank 0 */
    int link;
    size_t passed[2];
    uint8_t kept[2][4 * WHOLE]; /* of messages, by sender */
    size_t n_kept[2];
} call;

static bool put_all(int fd, const uint8_t *data, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t k = send(fd, data + at, n - at, MSG_NOSIGNAL);
        if (k <= 0)
            return false;
        at += (size_t)k;
    }
    return true;
}

static const uint8_t pattern[] = "gradients";

/* The two messages of rank 1 have arrived: forwards them in the attacker's way. */
static bool meddle(call *c)
{
    uint8_t *m = c->kept[0];
    const int to = c->fd[1];
    switch (c->s->deed) {
    case FLIPS_HEAD: m[20] ^= 1; break;
    case FLIPS_BYTES: m[HEAD + BYTES / 2] ^= 0x40; break;
    case FLIPS_TAG: m[WHOLE - 1] ^= 1; break;
    case REPEATS: return put_all(to, m, WHOLE) && put_all(to, m, WHOLE);
    case DROPS: return put_all(to, m + WHOLE, WHOLE);
    case SWAPS: return put_all(to, m + WHOLE, WHOLE) && put_all(to, m, WHOLE);
    case SENDS_BACK: return put_all(to, c->kept[1], 2 * WHOLE);
    case CUTS: put_all(to, m, WHOLE + HEAD / 2); return false;
    default: break;
    }
    return put_all(to, m, 2 * WHOLE);
}

/* Is byte `at` of the piece that a side sends in the rendezvous the one to flip? */
static void flip(call *c, int side, uint8_t *data, size_t n)
{
    const scene *s = c->s;
    const size_t from = s->deed == FLIPS_ANSWER ? sizeof(challenge) : 0;
    const size_t at = from + s->at - c->passed[side];
    const bool here =
        s->deed == FLIPS_HELLO ? side == 0 : s->deed == FLIPS_CHALLENGE || s->deed == FLIPS_ANSWER;
    if (here && (s->deed == FLIPS_HELLO) == (side == 0) && at < n)
        data[at] ^= 0x10;
    if (s->deed == FLIPS_WORD && side == 0 && c->link == LINK_CONTROL &&
        c->passed[0] >= sizeof(hello))
        data[0] ^= 1;
}

static bool hand_on(call *c, int side)
{
    uint8_t data[4096];
    scene *s = c->s;
    ssize_t n = recv(c->fd[side], data, sizeof data, 0);
    if (n <= 0)
        return false;
    if (memmem(data, (size_t)n, pattern, sizeof pattern - 1))
        atomic_store(&s->seen, true);
    if (side == 0 && c->passed[0] == 0)
        c->link = ((const hello *)(const void *)data)->link;
    if (s->deed >= DEEDS)
        flip(c, side, data, (size_t)n);
    c->passed[side] += (size_t)n;
    if (!atomic_load(&s->armed) || c->link != 0 || s->deed == LISTENS || s->deed >= DEEDS)
        return put_all(c->fd[1 - side], data, (size_t)n);
    // what rank 0 sends is forwarded and kept; what rank 1 sends waits until all of it has arrived
    const size_t before = c->n_kept[side];
    const size_t room = sizeof c->kept[side] - before, k = MR_MIN((size_t)n, room);
    memcpy(c->kept[side] + before, data, k);
    c->n_kept[side] += k;
    if (side == 1 || before >= MESSAGES * WHOLE)
        return put_all(c->fd[1 - side], data, (size_t)n);
    if (c->n_kept[0] < MESSAGES * WHOLE)
        return true;
    return meddle(c) &&
           put_all(c->fd[1], c->kept[0] + MESSAGES * WHOLE, c->n_kept[0] - MESSAGES * WHOLE);
}

static void *relay(void *arg)
{
    call *c = arg;
    bool on = true;
    while (on && !atomic_load(&c->s->over)) {
        struct pollfd p[] = {{c->fd[0], POLLIN, 0}, {c->fd[1], POLLIN, 0}};
        poll(p, 2, 100);
        for (int side = 0; side < 2 && on; side++)
            if (p[side].revents)
                on = hand_on(c, side);
    }
    close(c->fd[0]), close(c->fd[1]);
    free(c);
    return NULL;
}

static int dial(int port)
{
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    // rank 0 may have ended: then rank 1 sees the end of the connection
    if (connect(fd, (const struct sockaddr *)&at, sizeof at) != 0)
        shutdown(fd, SHUT_RDWR);
    return fd;
}

static void *stand_between(void *arg)
{
    enum { CALLS = 64 };
    scene *s = arg;
    pthread_t threads[CALLS];
    int n = 0;
    while (!atomic_load(&s->over) && n < CALLS) {
        struct pollfd p = {s->listener, POLLIN, 0};
        if (poll(&p, 1, 100) <= 0)
            continue;
        call *c = calloc(1, sizeof *c);
        c->s = s, c->link = -1;
        c->fd[0] = accept(s->listener, NULL, NULL), c->fd[1] = dial(s->port);
        pthread_create(&threads[n++], NULL, relay, c);
    }
    while (n > 0)
        pthread_join(threads[--n], NULL);
    return NULL;
}

/* ---- the ranks ---- */

static mr_status talk_to_other(scene *s, mr_comm *world)
{
    const int rank = mr_comm_rank(world);
    uint8_t x[BYTES];
    for (size_t i = 0; i < sizeof x; i++)
        x[i] = pattern[i % (sizeof pattern - 1)];
    MR_TRY(mr_comm_barrier(world, 0));
    // rank 0 has received all of the barrier; rank 1 sends nothing before it reports so
    if (rank == 0)
        atomic_store(&s->armed, true);
    while (!atomic_load(&s->armed))
        sched_yield();
    for (int i = 0; i < MESSAGES; i++)
        MR_TRY(rank == 0 ? mr_comm_send(world, 1, MR_U8, x, BYTES)
                         : mr_comm_receive(world, 0, MR_U8, x, BYTES));
    for (int i = 0; i < MESSAGES; i++)
        MR_TRY(rank == 1 ? mr_comm_send(world, 0, MR_U8, x, BYTES)
                         : mr_comm_receive(world, 1, MR_U8, x, BYTES));
    CHECK(memcmp(x, pattern, sizeof pattern - 1) == 0);
    return mr_comm_barrier(world, 0);
}

typedef struct rank_of {
    scene *s;
    mr_tcp_place place;
} rank_of;

static void *run_rank(void *arg)
{
    rank_of *r = arg;
    scene *s = r->s;
    const int rank = r->place.rank;
    const mr_comm_options options = {.deadline_s = 20};
    mr_transport *transport;
    mr_comm *world = NULL;
    mr_status st = mr_tcp_transport(&r->place, NULL, &transport);
    if (st == MR_OK)
        st = mr_comm_world(transport, &options, &world);
    if (st == MR_OK)
        st = talk_to_other(s, world);
    // rank 0 stays to receive the message that rank 1 leaves
    if (st == MR_OK && s->deed == FLIPS_WORD && rank == 0)
        while ((st = comm_look(transport, -1, "")) == MR_OK)
            sched_yield();
    if (st != MR_OK)
        snprintf(s->text[rank], sizeof s->text[rank], "%s", mr_error_last()->text);
    s->st[rank] = st;
    if (s->deed == FLIPS_WORD && rank == 1)
        transport->ops->abort(transport, "rank 1 gave up: the disk is full");
    mr_comm_free(world);
    return NULL;
}

/* Two ranks, with an attacker at the address that rank 1 connects to, at the same port (or
 * another). */
static scene run(deed what, size_t at, const char *secret, bool same_port)
{
    scene s = {.deed = what, .at = at};
    pthread_t stranger, threads[2];
    rank_of ranks[2];
    int listener, port = 0;
    CHECK_OK(mr_tcp_listen("127.0.0.1", 0, 1, &listener, &s.port));
    CHECK_OK(mr_tcp_listen("127.0.0.2", same_port ? s.port : 0, 1, &s.listener, &port));
    pthread_create(&stranger, NULL, stand_between, &s);
    for (int r = 0; r < 2; r++) {
        ranks[r] = (rank_of){&s,
                             {.rank = r,
                              .size = 2,
                              .host = "127.0.0.2",
                              .port = port,
                              .listener = r ? -1 : listener,
                              .run = 7,
                              .fence = 1,
                              .secret = secret,
                              .hides = hides,
                              .deadline_s = what < DEEDS || what == FLIPS_WORD ? 20 : 0.4}};
        pthread_create(&threads[r], NULL, run_rank, &ranks[r]);
    }
    for (int r = 0; r < 2; r++)
        pthread_join(threads[r], NULL);
    atomic_store(&s.over, true);
    pthread_join(stranger, NULL);
    close(s.listener);
    return s;
}

static void both_say(const scene *s, const char *part)
{
    for (int r = 0; r < 2; r++) {
        CHECK_INT(s->st[r], MR_E_NODE);
        if (!CHECK(strstr(s->text[r], part)))
            printf("deed %d, byte %zu: rank %d said '%s', expected '%s'\n", s->deed, s->at, r,
                   s->text[r], part);
    }
}

static void in_a_run(void)
{
    // an attacker who only forwards cannot read messages when ranks encrypt
    scene s = run(LISTENS, 0, "spec", true);
    if (!CHECK(s.st[0] == MR_OK && s.st[1] == MR_OK && s.seen == !hides))
        printf("rank 0: %s; rank 1: %s\n", s.text[0], s.text[1]);
    // an attacker who waits for both messages, and changes nothing
    s = run(WAITS, 0, "spec", true);
    CHECK(s.st[0] == MR_OK && s.st[1] == MR_OK);
    for (deed d = FLIPS_HEAD; d < CUTS; d++) {
        s = run(d, 0, "spec", true);
        // the attacker may forward the end of a lane before what rank 0 has sent on another
        // connection
        if (strstr(s.text[1], "rank 0 has left the world"))
            memcpy(s.text[1], s.text[0], sizeof s.text[1]);
        both_say(&s, "data from rank 1 at 127.0.0.1 on lane 0 failed authentication: record");
    }
    s = run(CUTS, 0, "spec", true);
    CHECK(s.st[0] == MR_E_NODE && s.st[1] == MR_E_NODE);
    s = run(FLIPS_WORD, 0, "spec", true);
    CHECK_INT(s.st[0], MR_E_NODE);
    CHECK(
        strstr(s.text[0], "rank 1 at 127.0.0.1 sent a control message that failed authentication"));
}

/* The rendezvous fails whatever an attacker changes in messages before there are keys. */
static void during_rendezvous(void)
{
    static const struct {
        deed what;
        size_t bytes;
    } said[] = {{FLIPS_CHALLENGE, sizeof(challenge)},
                {FLIPS_HELLO, sizeof(hello)},
                {FLIPS_ANSWER, sizeof(answer)}};
    for (size_t i = 0; i < MR_COUNT(said); i++)
        for (size_t at = 0; at < said[i].bytes; at += 16 + i) {
            scene s = run(said[i].what, at, "spec", true);
            if (!CHECK(s.st[0] == MR_E_NODE && s.st[1] == MR_E_NODE))
                printf("deed %d, byte %zu\n", said[i].what, at);
        }
    // an attacker who owns another port
    scene s = run(LISTENS, 0, "spec", false);
    both_say(&s, "the connection was made to another port than that of the rank");
    CHECK(!s.seen);
}

/* Keys belong to one connection and one direction, and depend on both ends. */
static void keys(void)
{
    talk t = {.asked = {PROVE_MAGIC, {1}}, .said = {.rank = 1, .link = 0}, .got = {.rank = 0}};
    seal_way in[2], out[2], other[2];
    uint8_t first[SEAL_KEY];
    prove_keys("spec", &t, true, &in[0], &out[0]);
    prove_keys("spec", &t, false, &in[1], &out[1]);
    CHECK(memcmp(in[0].key, out[1].key, SEAL_KEY) == 0 && memcmp(in[0].iv, out[1].iv, 12) == 0);
    CHECK(memcmp(out[0].key, in[1].key, SEAL_KEY) == 0 && memcmp(out[0].iv, in[1].iv, 12) == 0);
    CHECK(memcmp(in[0].key, out[0].key, SEAL_KEY) != 0 && !in[0].hides && !out[0].hides);
    memcpy(first, in[0].key, sizeof first);
    uint8_t hello[SEAL_HASH], answer[SEAL_HASH], proof[SEAL_HASH];
    prove_hello("spec", &t, hello), prove_answer("spec", &t, answer);
    CHECK(memcmp(hello, answer, sizeof hello) != 0);
    for (size_t byte = 0; byte < sizeof t; byte++) {
        ((uint8_t *)&t)[byte] ^= 1;
        // a proof covers all messages before it
        prove_hello("spec", &t, proof);
        CHECK_INT(memcmp(hello, proof, sizeof proof) != 0, byte < offsetof(talk, said.proof));
        prove_answer("spec", &t, proof);
        CHECK_INT(memcmp(answer, proof, sizeof proof) != 0, byte < offsetof(talk, got.proof));
        prove_keys("spec", &t, true, &other[0], &other[1]);
        CHECK(memcmp(other[0].key, in[0].key, SEAL_KEY) != 0);
        seal_end(&other[0]), seal_end(&other[1]);
        ((uint8_t *)&t)[byte] ^= 1;
    }
    prove_keys("Spec", &t, true, &other[0], &other[1]);
    CHECK(memcmp(other[0].key, in[0].key, SEAL_KEY) != 0);
    for (int i = 0; i < 2; i++)
        seal_end(&in[i]), seal_end(&out[i]), seal_end(&other[i]);
    // ranks that encrypt have other keys than those that do not
    t.said.hides = 1;
    prove_keys("spec", &t, true, &other[0], &other[1]);
    CHECK(other[0].hides && other[1].hides && memcmp(other[0].key, first, SEAL_KEY) != 0);
    seal_end(&other[0]), seal_end(&other[1]);
    // without a secret nothing is sealed
    prove_keys("", &t, true, &in[0], &out[0]), prove_keys(NULL, &t, true, &in[1], &out[1]);
    CHECK(!in[0].on && !out[0].on && !in[1].on && !out[1].on);
}

int main(void)
{
    keys();
    in_a_run();
    during_rendezvous();
    hides = true;
    in_a_run();
    return check_done();
}
