/* comm: how ranks that share no memory find each other. Rank 0 listens where all know; each other
 * rank tells it where it listens itself and gets the list of all, then connects to the ranks before
 * it and waits for those behind it. Both ends of a connection prove that they know the run's secret
 * by a hash over what the other one has drawn. Every wait ends at one deadline.
 * Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/room.h"
#include "comm/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    GUESTS = 64,     /* connections that have not proved anything yet, at once */
    GUEST_MS = 5000, /* that one of them may take */
    CROWD_MS = 100,  /* the same while all these places are taken */
    AGAIN_MS = 50,   /* between two tries to connect */
    LINK_MS = 10000  /* over which nothing comes for so long, a link carries nothing */
};
static const uint64_t MAGIC = 0x31306b6e6972726d; /* "mrrink01" */

typedef enum verdict {
    WELCOME,
    OTHER_RUN,
    OTHER_LAUNCH,
    OTHER_SIZE,
    NO_SECRET,
    NO_PLACE,
    VERDICTS
} verdict;
static const char *const verdict_text[VERDICTS] = {
    [WELCOME] = "welcome",
    [OTHER_RUN] = "it is of another run",
    [OTHER_LAUNCH] = "it is of another launch of this run",
    [OTHER_SIZE] = "it expects another number of ranks",
    [NO_SECRET] = "it has another secret",
    [NO_PLACE] = "that rank is here already",
};

typedef struct challenge {
    uint64_t magic, drawn[2];
} challenge;
typedef struct hello {
    uint64_t magic, run, fence, drawn[2];
    int32_t rank, size, link, port;
    uint64_t proof; /* of what stands before and the challenge */
} hello;
typedef struct answer {
    uint64_t proof; /* of the hello's drawn, the verdict and the rank that answers */
    int32_t verdict, rank;
} answer;
typedef struct seat { /* where a rank listens */
    char host[60];
    int32_t port;
} seat;

typedef struct guest {
    int fd;
    double since;
    challenge asked;
    hello said;
    size_t got;
} guest;

typedef struct meeting {
    const mr_tcp_place *p;
    mr_wire *shared; /* of this host */
    tcp_links *links;
    seat *seats; /* [size] */
    int listener, port;
    double began, end;
    bool said;    /* that it takes long */
    bool reached; /* something has answered where rank 0 should be */
    guest guests[GUESTS];
    int n_guests;
    struct sockaddr_storage first; /* of rank 0, as this one has reached it */
    socklen_t first_bytes;
    char refused[160]; /* the last one that was sent away, and why */
} meeting;

// ranks of this host need no connection
static bool is_near(const mr_tcp_place *p, int rank)
{
    return rank >= p->first && rank < p->first + p->near;
}

/* This host, as people know it. */
static const char *host_name(void)
{
    static _Thread_local char name[72];
    const char *given = getenv("MOONREEL_HOST");
    if (given && *given)
        return given;
    return gethostname(name, sizeof name - 1) == 0 ? name : "an unknown host";
}

/* Say once, where a meeting takes longer than a link needs, whom it waits for. */
static bool takes_long(meeting *m)
{
    const bool say = !m->said && mr_now_s() > m->began + LINK_MS * 1e-3;
    m->said = m->said || say;
    return say;
}

/* ---- proofs ---- */

static mr_status draw(uint64_t out[2])
{
    return getrandom(out, 2 * sizeof *out, 0) == 2 * sizeof *out
               ? MR_OK
               : mr_fail(MR_E_NODE, "no random numbers: %s", strerror(errno));
}

static uint64_t proof_of_hello(const meeting *m, const hello *h, const challenge *c)
{
    struct {
        hello h;
        challenge c;
    } all = {*h, *c};
    all.h.proof = 0;
    return comm_seal(m->p->secret, &all, sizeof all);
}

static uint64_t proof_of_answer(const meeting *m, const answer *a, const hello *h)
{
    const uint64_t all[] = {h->drawn[0], h->drawn[1], (uint64_t)a->verdict, (uint64_t)a->rank};
    return comm_seal(m->p->secret, all, sizeof all);
}

/* This end of a new connection to a rank that listens; *said: its verdict. */
static mr_status introduce(const meeting *m, int fd, int link, int to, verdict *said)
{
    challenge c;
    answer a;
    const double end = MR_MIN(m->end, mr_now_s() + GUEST_MS * 1e-3);
    *said = VERDICTS;
    MR_TRY(tcp_carry(fd, &c, sizeof c, false, end));
    if (c.magic != MAGIC)
        return mr_fail(MR_E_NODE, "it is no rank of this version of moonreel");
    hello h = {.magic = MAGIC,
               .run = m->p->run,
               .fence = m->p->fence,
               .rank = m->p->rank,
               .size = m->p->size,
               .link = link,
               .port = m->port};
    MR_TRY(draw(h.drawn));
    h.proof = proof_of_hello(m, &h, &c);
    MR_TRY(tcp_carry(fd, &h, sizeof h, true, end));
    MR_TRY(tcp_carry(fd, &a, sizeof a, false, end));
    if (a.verdict < 0 || a.verdict >= VERDICTS)
        return mr_fail(MR_E_NODE, "it is no rank of this version of moonreel");
    if (a.verdict != WELCOME) {
        *said = (verdict)a.verdict;
        return mr_fail(MR_E_NODE, "%s", verdict_text[a.verdict]);
    }
    if (a.rank != to || a.proof != proof_of_answer(m, &a, &h))
        return mr_fail(MR_E_NODE, "%s", verdict_text[NO_SECRET]);
    *said = WELCOME;
    tcp_tune(fd);
    return MR_OK;
}

/* ---- the side that listens ---- */

static verdict judge(const meeting *m, const guest *g)
{
    const mr_tcp_place *p = m->p;
    const hello *h = &g->said;
    if (h->run != p->run)
        return OTHER_RUN;
    if (h->proof != proof_of_hello(m, h, &g->asked))
        return NO_SECRET;
    if (h->fence != p->fence)
        return OTHER_LAUNCH;
    if (h->size != p->size)
        return OTHER_SIZE;
    if (h->rank <= p->rank || h->rank >= p->size || h->link < 0 || h->link >= LINKS ||
        m->links[h->rank].fd[h->link] >= 0)
        return NO_PLACE;
    return WELCOME;
}

static void refuse(meeting *m, const guest *g, const char *why)
{
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    char host[64] = "?";
    if (getpeername(g->fd, (struct sockaddr *)&at, &n) == 0)
        tcp_name_of(&at, n, host, sizeof host, NULL);
    snprintf(m->refused, sizeof m->refused, "; one from %s was sent away: %s", host, why);
}

/* What a guest has said is complete: let it in, or tell it why not. Returns whether it is in. */
static bool let_in(meeting *m, guest *g)
{
    answer a = {.verdict = (int32_t)judge(m, g), .rank = m->p->rank};
    a.proof = a.verdict == WELCOME ? proof_of_answer(m, &a, &g->said) : 0;
    // it has said little, so there is room for this
    bool told = send(g->fd, &a, sizeof a, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof a;
    if (a.verdict != WELCOME || !told) {
        refuse(m, g, verdict_text[a.verdict]);
        return false;
    }
    tcp_links *l = &m->links[g->said.rank];
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    seat *s = &m->seats[g->said.rank];
    if (!s->host[0] && getpeername(g->fd, (struct sockaddr *)&at, &n) == 0)
        tcp_name_of(&at, n, s->host, sizeof s->host, NULL), s->port = g->said.port;
    l->fd[g->said.link] = g->fd;
    snprintf(l->where, sizeof l->where, "%s", s->host);
    tcp_tune(g->fd);
    return true;
}

static void drop_guest(meeting *m, int i, bool in)
{
    if (!in)
        tcp_close(&m->guests[i].fd);
    m->guests[i] = m->guests[--m->n_guests];
}

static mr_status take_guest(meeting *m)
{
    guest g = {.since = mr_now_s(), .asked = {.magic = MAGIC}};
    g.fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (g.fd < 0)
        return MR_OK;
    MR_TRY(draw(g.asked.drawn));
    if (send(g.fd, &g.asked, sizeof g.asked, MSG_NOSIGNAL) != (ssize_t)sizeof g.asked)
        tcp_close(&g.fd);
    else
        m->guests[m->n_guests++] = g;
    return MR_OK;
}

/* Listen to guest i; *in counts those that belong here. */
static void hear_guest(meeting *m, int i, int *in)
{
    guest *g = &m->guests[i];
    ssize_t n = recv(g->fd, (char *)&g->said + g->got, sizeof g->said - g->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    g->got += n > 0 ? (size_t)n : 0;
    if (n <= 0 || (g->got >= sizeof g->said.magic && g->said.magic != MAGIC)) {
        refuse(m, g, n <= 0 ? "it hung up" : "it is no rank of this version of moonreel");
        drop_guest(m, i, false);
    } else if (g->got == sizeof g->said) {
        bool good = let_in(m, g);
        *in += good;
        drop_guest(m, i, good);
    }
}

/* What has a rank said that went while others still meet? */
static mr_status look_at_control(const meeting *m, int rank)
{
    tcp_word w;
    int fd = m->links[rank].fd[LINK_CONTROL];
    ssize_t n = recv(fd, &w, sizeof w, MSG_DONTWAIT | MSG_PEEK);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return MR_OK;
    if (n == (ssize_t)sizeof w && w.kind == TCP_GIVES_UP)
        return mr_fail(MR_E_NODE, "%.*s", (int)sizeof w.text - 1, w.text);
    return mr_fail(MR_E_NODE, "rank %d at %s has ended while ranks met", rank,
                   m->links[rank].where);
}

/* Has any rank that this one is connected with, or that shares its host, gone meanwhile? Why one of
 * this host went is said before others go because of it, so that is asked last. */
static mr_status look_for_losses(const meeting *m)
{
    char why[900];
    mr_status st = MR_OK;
    for (int r = 0; r < m->p->size && st == MR_OK; r++)
        if (m->links[r].fd[LINK_CONTROL] >= 0 && !is_near(m->p, r))
            st = look_at_control(m, r);
    return m->shared->ops->aborted(m->shared, why, sizeof why) ? mr_fail(MR_E_NODE, "%s", why) : st;
}

/* The ranks that have not come on a link: "2, 3". */
static void list_missing(const meeting *m, int link, char *text, size_t cap)
{
    size_t n = 0;
    int missing = 0;
    text[0] = 0;
    for (int r = m->p->rank + 1; r < m->p->size; r++) {
        if ((is_near(m->p, r) && link != LINK_CONTROL) || m->links[r].fd[link] >= 0)
            continue;
        if (missing++ < 8)
            n += (size_t)snprintf(text + n, cap - n, n ? ", %d" : "%d", r);
    }
    if (missing > 8)
        snprintf(text + n, cap - n, " and %d more", missing - 8);
}

static mr_status late(const meeting *m, int link)
{
    char text[128];
    list_missing(m, link, text, sizeof text);
    return mr_fail(MR_E_NODE,
                   "rank %d on %s at port %d: rank %s of %d has not come in %g s%s; try: what "
                   "these ranks say",
                   m->p->rank, host_name(), m->port, text, m->p->size, m->p->deadline_s,
                   m->refused);
}

static void say_who_is_missing(const meeting *m, int link)
{
    char text[128];
    list_missing(m, link, text, sizeof text);
    mr_log(MR_LOG_WARN, "rank %d on %s at port %d waits for rank %s of %d%s", m->p->rank,
           host_name(), m->port, text, m->p->size, m->refused);
}

/* Let in `count` connections; `link`: one that comes last. */
static mr_status wait_for(meeting *m, int count, int link)
{
    struct pollfd p[GUESTS + 1];
    while (count > 0) {
        if (mr_now_s() > m->end)
            return late(m, link);
        if (takes_long(m))
            say_who_is_missing(m, link);
        MR_TRY(mr_interrupt_check());
        for (int i = 0; i < m->n_guests; i++)
            p[i] = (struct pollfd){m->guests[i].fd, POLLIN, 0};
        const int n = m->n_guests;
        p[n] = (struct pollfd){m->listener, n < GUESTS ? POLLIN : 0, 0};
        if (poll(p, (nfds_t)n + 1, tcp_left_ms(m->end)) == 0)
            MR_TRY(look_for_losses(m));
        const double patience = (n < GUESTS ? GUEST_MS : CROWD_MS) * 1e-3;
        for (int i = n; i-- > 0;) {
            int in = 0;
            if (p[i].revents)
                hear_guest(m, i, &in);
            else if (mr_now_s() > m->guests[i].since + patience)
                refuse(m, &m->guests[i], "it said nothing"), drop_guest(m, i, false);
            count -= in;
        }
        if (p[n].revents)
            MR_TRY(take_guest(m));
    }
    return MR_OK;
}

/* ---- the side that connects ---- */

static void set_where(tcp_links *l, const struct sockaddr_storage *at, socklen_t n)
{
    char host[60];
    int port = 0;
    tcp_name_of(at, n, host, sizeof host, &port);
    snprintf(l->where, sizeof l->where, "%s port %d", host, port);
}

/* Before the next try, if there is still somebody to meet. */
static mr_status wait_a_moment(const meeting *m)
{
    MR_TRY(mr_interrupt_check());
    MR_TRY(look_for_losses(m));
    mr_clock_table()->sleep_ns(AGAIN_MS * 1000000);
    return MR_OK;
}

static void say_who_is_far(meeting *m)
{
    if (takes_long(m))
        mr_log(MR_LOG_WARN, "rank %d on %s cannot reach rank 0 at %s port %d: %.250s; it tries on",
               m->p->rank, host_name(), m->p->host, m->p->port, mr_error_last()->text);
}

/* One try at every address and port of rank 0. */
static mr_status try_first(meeting *m, const struct addrinfo *list, verdict *said)
{
    const mr_tcp_place *p = m->p;
    mr_status st = mr_fail(MR_E_NODE, "it has no address");
    verdict last;
    for (const struct addrinfo *a = list; a; a = a->ai_next)
        for (int i = 0; i < MR_MAX(p->ports, 1); i++) {
            struct sockaddr_storage at = {0};
            int fd;
            memcpy(&at, a->ai_addr, a->ai_addrlen);
            const in_port_t port = htons((uint16_t)(p->port + i));
            if (at.ss_family == AF_INET6)
                ((struct sockaddr_in6 *)(void *)&at)->sin6_port = port;
            else
                ((struct sockaddr_in *)(void *)&at)->sin_port = port;
            double end = MR_MIN(m->end, mr_now_s() + GUEST_MS * 1e-3);
            st = tcp_dial((struct sockaddr *)&at, a->ai_addrlen, end, &fd);
            if (st != MR_OK) {
                if (p->ports > 1)
                    say_who_is_far(m);
                continue;
            }
            m->reached = true;
            st = introduce(m, fd, LINK_CONTROL, 0, &last);
            if (last != VERDICTS)
                *said = last;
            if (st != MR_OK) {
                tcp_close(&fd);
                continue;
            }
            m->first = at, m->first_bytes = a->ai_addrlen;
            m->links[0].fd[LINK_CONTROL] = fd;
            set_where(&m->links[0], &at, a->ai_addrlen);
            return MR_OK;
        }
    return st;
}

static mr_status reach_first(meeting *m)
{
    const mr_tcp_place *p = m->p;
    const struct addrinfo want = {.ai_socktype = SOCK_STREAM};
    // who names one port has rank 0's host listen there before any rank starts
    const bool listens = p->ports <= 1;
    const double link_end = MR_MIN(m->end, m->began + LINK_MS * 1e-3);
    mr_status st;
    for (;;) {
        struct addrinfo *list = NULL;
        verdict said = VERDICTS;
        int how = getaddrinfo(p->host, NULL, &want, &list);
        st = how == 0 ? try_first(m, list, &said) : mr_fail(MR_E_NODE, "%s", gai_strerror(how));
        if (list)
            freeaddrinfo(list);
        if (st == MR_OK)
            return MR_OK;
        // with one port it is rank 0 that has answered; with several it may be one of another run
        if ((listens && said != VERDICTS && said != WELCOME) ||
            mr_now_s() >= (listens && !m->reached ? link_end : m->end))
            break;
        say_who_is_far(m);
        MR_TRY(wait_a_moment(m));
    }
    char why[256];
    snprintf(why, sizeof why, "%.250s", mr_error_last()->text);
    return mr_fail(MR_E_NODE,
                   "rank %d on %s cannot reach rank 0 at %s port %d in %.3g s: %s; try: a name or "
                   "address (addr=) of rank 0's host that this host can reach, a port that no "
                   "firewall closes",
                   p->rank, host_name(), p->host, p->port, mr_now_s() - m->began, why);
}

// an address that means another host everywhere
static bool is_loopback(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0;
}

/* Where rank r listens, as this rank can reach it. */
static mr_status address_of(const meeting *m, int r, struct sockaddr_storage *at, socklen_t *n)
{
    const seat *s = &m->seats[r];
    const struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    struct addrinfo *found = NULL;
    *at = m->first, *n = m->first_bytes;
    if (r > 0 && !is_loopback(s->host)) {
        if (getaddrinfo(s->host, NULL, &want, &found) != 0)
            return mr_fail(MR_E_NODE, "rank %d is said to be at '%.59s'", r, s->host);
        memcpy(at, found->ai_addr, found->ai_addrlen), *n = found->ai_addrlen;
        freeaddrinfo(found);
    }
    // a rank beside rank 0 is where rank 0 was reached, at a port of its own
    if (r > 0 && at->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)at)->sin6_port = htons((uint16_t)s->port);
    else if (r > 0)
        ((struct sockaddr_in *)(void *)at)->sin_port = htons((uint16_t)s->port);
    return MR_OK;
}

static mr_status reach(meeting *m, int r, int link)
{
    struct sockaddr_storage at;
    socklen_t n;
    int *fd = &m->links[r].fd[link];
    verdict said = VERDICTS;
    mr_status st;
    MR_TRY(address_of(m, r, &at, &n));
    set_where(&m->links[r], &at, n);
    do {
        // it listens since it is in the list: no later try would reach it
        st = tcp_dial((struct sockaddr *)&at, n, MR_MIN(m->end, mr_now_s() + LINK_MS * 1e-3), fd);
        if (st != MR_OK)
            break;
        st = introduce(m, *fd, link, r, &said);
        if (st == MR_OK)
            return MR_OK;
        tcp_close(fd);
        MR_TRY(wait_a_moment(m));
    } while (said == VERDICTS && mr_now_s() < m->end);
    char why[256];
    snprintf(why, sizeof why, "%.250s", mr_error_last()->text);
    return mr_fail(MR_E_NODE,
                   "rank %d on %s cannot reach rank %d at %s: %s; try: a firewall on either host "
                   "that lets ranks connect to each other",
                   m->p->rank, host_name(), r, m->links[r].where, why);
}

/* ---- both ---- */

/* Ranks whose number is above this one's and that connect to it. */
static int expected(const meeting *m)
{
    int n = 0;
    for (int r = m->p->rank + 1; r < m->p->size; r++)
        n += !is_near(m->p, r);
    return n;
}

static mr_status meet_first(meeting *m)
{
    const mr_tcp_place *p = m->p;
    tcp_word all_here = {.run = p->run, .fence = p->fence};
    MR_TRY(wait_for(m, p->size - 1, LINK_CONTROL));
    for (int r = 1; r < p->size; r++) {
        int fd = m->links[r].fd[LINK_CONTROL];
        MR_TRY(tcp_carry(fd, &all_here, sizeof all_here, true, m->end));
        MR_TRY(tcp_carry(fd, m->seats, (size_t)p->size * sizeof *m->seats, true, m->end));
    }
    return wait_for(m, expected(m) * MR_WIRE_LANES, 0);
}

static mr_status meet_others(meeting *m)
{
    const mr_tcp_place *p = m->p;
    tcp_word word;
    MR_TRY(mr_tcp_listen(0, 1, &m->listener, &m->port));
    MR_TRY(reach_first(m));
    const int fd = m->links[0].fd[LINK_CONTROL];
    mr_status st = tcp_carry(fd, &word, sizeof word, false, m->end);
    if (st == MR_OK && word.kind == TCP_GIVES_UP)
        return mr_fail(MR_E_NODE, "%.*s", (int)sizeof word.text - 1, word.text);
    if (st == MR_OK)
        st = tcp_carry(fd, m->seats, (size_t)p->size * sizeof *m->seats, false, m->end);
    if (st != MR_OK)
        return mr_fail(MR_E_NODE,
                       "rank 0 at %s has ended before all %d ranks had come; try: what it says",
                       m->links[0].where, p->size);
    for (int r = 1; r < p->size; r++) {
        m->seats[r].host[sizeof m->seats[r].host - 1] = 0;
        snprintf(m->links[r].where, sizeof m->links[r].where, "%s", m->seats[r].host);
    }
    for (int r = 0; r < p->rank; r++)
        for (int link = 0; link < LINKS && !is_near(p, r); link++)
            if (m->links[r].fd[link] < 0)
                MR_TRY(reach(m, r, link));
    return wait_for(m, expected(m) * LINKS, 0);
}

/* Ranks that have met this one learn why it goes. */
static void say_why(const meeting *m)
{
    tcp_word word = {.run = m->p->run, .fence = m->p->fence, .kind = TCP_GIVES_UP};
    snprintf(word.text, sizeof word.text, "rank %d gave up: %.900s", m->p->rank,
             mr_error_last()->text);
    for (int r = 0; r < m->p->size; r++)
        if (m->links[r].fd[LINK_CONTROL] >= 0) {
            ssize_t n =
                send(m->links[r].fd[LINK_CONTROL], &word, sizeof word, MSG_NOSIGNAL | MSG_DONTWAIT);
            (void)n;
        }
}

static mr_status check(const mr_tcp_place *p)
{
    if (p->size < 1 || p->rank < 0 || p->rank >= p->size)
        return mr_fail(MR_E_USAGE, "rank %d of %d ranks: expected 0 to %d", p->rank, p->size,
                       p->size - 1);
    if (p->near && (p->rank < p->first || p->rank >= p->first + p->near || p->first < 0 ||
                    p->first + p->near > p->size))
        return mr_fail(MR_E_USAGE, "rank %d among %d ranks of its host from %d on", p->rank,
                       p->near, p->first);
    if (p->listener < 0 && (p->port < 1 || p->port + MR_MAX(p->ports, 1) - 1 > 65535))
        return mr_fail(MR_E_USAGE, "port %d: expected 1 to 65535", p->port);
    char who[32];
    snprintf(who, sizeof who, "%d ranks", p->size);
    return mr_allow_files((int64_t)p->size * LINKS, who);
}

mr_status comm_meet(const mr_tcp_place *p, mr_wire *shared, tcp_links *links)
{
    meeting m = {
        .p = p, .shared = shared, .links = links, .listener = p->rank == 0 ? p->listener : -1};
    m.began = mr_now_s(), m.end = m.began + p->deadline_s;
    m.seats = mr_calloc((size_t)p->size, sizeof *m.seats);
    mr_status st = m.seats ? check(p) : mr_fail_memory((size_t)p->size * sizeof *m.seats);
    if (st == MR_OK && p->rank == 0 && m.listener < 0)
        st = mr_tcp_listen(p->port, p->ports, &m.listener, &m.port);
    else if (st == MR_OK && p->rank == 0)
        fcntl(m.listener, F_SETFL, O_NONBLOCK), m.port = tcp_port_of(m.listener);
    if (st == MR_OK)
        st = p->rank == 0 ? meet_first(&m) : meet_others(&m);
    if (st != MR_OK)
        say_why(&m);
    while (m.n_guests > 0)
        drop_guest(&m, 0, false);
    tcp_close(&m.listener);
    // ranks of one host have talked to rank 0 only to meet
    for (int r = 0; r < p->size; r++)
        if (is_near(p, r))
            tcp_close(&links[r].fd[LINK_CONTROL]);
    mr_free(m.seats);
    return st;
}
