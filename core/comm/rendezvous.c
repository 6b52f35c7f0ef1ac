/* comm: the rendezvous of ranks that share no memory. Rank 0 listens at an address that all ranks
 * know. Each other rank connects to rank 0, sends the address at which it listens, and receives the
 * addresses of all ranks. Then it connects to the ranks below it and waits for those above it. Both
 * ends of a connection prove that they know the run's secret (prove.h); all later data on it is
 * sealed with keys of the connection. All waits end at one deadline. Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/prove.h"
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
#include <unistd.h>

enum {
    GUESTS = 192,    /* most connections at a time that have not proved the secret yet */
    GUEST_MS = 5000, /* most time for such a proof */
    AGAIN_MS = 50,   /* between two attempts to connect */
    LINK_MS = 10000, /* a connection attempt without any answer for this time has failed */
    SECRET_MS = 5000 /* time for a rank to connect with the right secret after one with a wrong
                      * secret */
};

static const char *const verdict_text[VERDICTS] = {
    [WELCOME] = "welcome",
    [OTHER_RUN] = "it belongs to another run",
    [OTHER_LAUNCH] = "it belongs to another launch of this run",
    [OTHER_SIZE] = "it expects another number of ranks",
    [NO_SECRET] = "it has another secret",
    [NO_PLACE] = "that rank is connected already",
    [OTHER_WAY] = "its MOONREEL_ENCRYPT differs",
    [RELAYED] = "the connection was made to another port than that of the rank: a foreign process "
                "listens at that port and relays messages",
};

static const char SAME_SECRET[] = "set the same MOONREEL_SECRET_TEXT on all ranks",
                  OTHER_PORT[] =
                      "see which process listens there (ss -ltnp), or set another MASTER_PORT";

typedef struct seat { /* where a rank listens */
    char host[60];
    int32_t port;
} seat;

typedef struct guest {
    int fd;
    double since;
    talk talk;
    size_t got; /* received bytes of its hello */
} guest;

typedef struct rendezvous {
    const mr_tcp_place *p;
    mr_transport *shared; /* for the ranks of this host */
    tcp_links *links;
    seat *seats; /* [size] */
    int listener, port;
    double began, end;
    bool said;     /* the warning that it takes long is logged */
    bool reached;  /* something has answered at the address of rank 0 */
    guest *guests; /* [GUESTS] */
    int n_guests;
    struct sockaddr_storage first; /* the address at which rank 0 was reached */
    socklen_t first_bytes;
    char refused[256]; /* the last rejected connection, and why */
    bool relayed;      /* a rank that knows the secret was relayed by a foreign process */
    double doubted;    /* when a rank first sent a wrong secret; 0: never */
    int doubted_rank;
} rendezvous;

// ranks of this host communicate through shared memory and need no connection
static bool is_local(const mr_tcp_place *p, int rank)
{
    return rank >= p->first && rank < p->first + p->n_local;
}

/* The name of this host in messages. */
static const char *host_name(void)
{
    static _Thread_local char name[72];
    const char *given = getenv("MOONREEL_HOST");
    if (given && *given)
        return given;
    return gethostname(name, sizeof name - 1) == 0 ? name : "an unknown host";
}

/* True once, when the rendezvous takes longer than a connection needs: the caller then logs what it
 * waits for. */
static bool takes_long(rendezvous *m)
{
    const bool say = !m->said && mr_now_s() > m->began + LINK_MS * 1e-3;
    m->said = m->said || say;
    return say;
}

/* ---- a connection ---- */

/* Write data as one record of the connection; receive_sealed reads one. */
static mr_status send_sealed(tcp_links *l, int link, const void *data, size_t bytes, double end)
{
    seal_way *way = &l->out[link];
    const size_t n = tcp_sealed(way, bytes);
    uint8_t *record = mr_alloc(n);
    if (!record)
        return mr_fail_memory(n);
    memcpy(record, data, bytes);
    mr_status st = way->on ? seal_record(way, data, bytes, record, record + bytes) : MR_OK;
    if (st == MR_OK)
        st = tcp_carry(l->fd[link], record, n, true, end);
    mr_free(record);
    return st;
}

static mr_status receive_sealed(tcp_links *l, int link, void *data, size_t bytes, double end)
{
    seal_way *way = &l->in[link];
    uint8_t tag[SEAL_TAG];
    MR_TRY(tcp_carry(l->fd[link], data, bytes, false, end));
    if (!way->on)
        return MR_OK;
    MR_TRY(tcp_carry(l->fd[link], tag, sizeof tag, false, end));
    return seal_open(way, data, bytes, tag);
}

/* The handshake of a new connection, on the side that connected; *said: the verdict of the rank
 * that listens. */
static mr_status introduce(const rendezvous *m, int fd, int link, int to, verdict *said)
{
    const mr_tcp_place *p = m->p;
    const double end = MR_MIN(m->end, mr_now_s() + GUEST_MS * 1e-3);
    talk t;
    uint8_t proof[SEAL_HASH];
    *said = VERDICTS;
    MR_TRY(tcp_carry(fd, &t.asked, sizeof t.asked, false, end));
    if (t.asked.magic != PROVE_MAGIC)
        return mr_fail(MR_E_NODE, "it is not a rank of this version of moonreel");
    t.said = (hello){.magic = PROVE_MAGIC,
                     .run = p->run,
                     .fence = p->fence,
                     .rank = p->rank,
                     .size = p->size,
                     .link = link,
                     .port = m->port,
                     .dialled = tcp_port_of(fd, true),
                     .hides = p->hides};
    MR_TRY(prove_draw(t.said.drawn));
    prove_hello(p->secret, &t, t.said.proof);
    MR_TRY(tcp_carry(fd, &t.said, sizeof t.said, true, end));
    MR_TRY(tcp_carry(fd, &t.got, sizeof t.got, false, end));
    if (t.got.verdict < 0 || t.got.verdict >= VERDICTS)
        return mr_fail(MR_E_NODE, "it is not a rank of this version of moonreel");
    prove_answer(p->secret, &t, proof);
    const bool proven = t.got.rank == to && seal_equal(proof, t.got.proof, sizeof proof);
    // a rank that welcomes this one, or reports a relay, must have proved the secret
    if (!proven && (t.got.verdict == WELCOME || t.got.verdict == RELAYED))
        return mr_fail(MR_E_NODE, "%s", verdict_text[NO_SECRET]);
    *said = (verdict)t.got.verdict;
    if (*said != WELCOME)
        return mr_fail(MR_E_NODE, "%s", verdict_text[*said]);
    prove_keys(p->secret, &t, true, &m->links[to].in[link], &m->links[to].out[link]);
    tcp_tune(fd);
    return MR_OK;
}

/* ---- the side that listens ---- */

static verdict judge(const rendezvous *m, const guest *g)
{
    const mr_tcp_place *p = m->p;
    const hello *h = &g->talk.said;
    uint8_t proof[SEAL_HASH];
    if (h->run != p->run)
        return OTHER_RUN;
    prove_hello(p->secret, &g->talk, proof);
    if (!seal_equal(proof, h->proof, sizeof proof))
        return NO_SECRET;
    if (h->fence != p->fence)
        return OTHER_LAUNCH;
    if (h->size != p->size)
        return OTHER_SIZE;
    if (h->rank <= p->rank || h->rank >= p->size || h->link < 0 || h->link >= LINKS ||
        m->links[h->rank].fd[h->link] >= 0)
        return NO_PLACE;
    if (h->hides != p->hides)
        return OTHER_WAY;
    return h->dialled == m->port ? WELCOME : RELAYED;
}

static void refuse(rendezvous *m, const guest *g, const char *why)
{
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    char host[64] = "?";
    if (getpeername(g->fd, (struct sockaddr *)&at, &n) == 0)
        tcp_name_of(&at, n, host, sizeof host, NULL);
    snprintf(m->refused, sizeof m->refused, "; a connection from %s was rejected: %s", host, why);
}

/* A connection that claims to be an expected rank but has a wrong secret can be foreign. So the
 * real rank gets some more time to connect. */
static void doubt(rendezvous *m, const hello *h)
{
    const mr_tcp_place *p = m->p;
    if (m->doubted == 0 && h->fence == p->fence && h->size == p->size && h->rank > p->rank &&
        h->rank < p->size && m->links[h->rank].fd[LINK_CONTROL] < 0)
        m->doubted = mr_now_s(), m->doubted_rank = h->rank;
}

/* The hello of a guest is complete: accept it, or answer why not. Returns whether it is
 * accepted. */
static bool let_in(rendezvous *m, guest *g)
{
    const hello *h = &g->talk.said;
    answer *a = &g->talk.got;
    *a = (answer){.verdict = (int32_t)judge(m, g), .rank = m->p->rank};
    // send the proof only to a peer that has proved to know the secret
    if (a->verdict != OTHER_RUN && a->verdict != NO_SECRET)
        prove_answer(m->p->secret, &g->talk, a->proof);
    // the socket buffer has room: little was sent before
    bool sent = send(g->fd, a, sizeof *a, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof *a;
    if (a->verdict != WELCOME || !sent) {
        refuse(m, g, verdict_text[a->verdict]);
        m->relayed = m->relayed || a->verdict == RELAYED;
        if (a->verdict == NO_SECRET)
            doubt(m, h);
        return false;
    }
    if (h->rank == m->doubted_rank)
        m->doubted = 0;
    tcp_links *l = &m->links[h->rank];
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    seat *s = &m->seats[h->rank];
    if (!s->host[0] && getpeername(g->fd, (struct sockaddr *)&at, &n) == 0)
        tcp_name_of(&at, n, s->host, sizeof s->host, NULL), s->port = h->port;
    l->fd[h->link] = g->fd;
    prove_keys(m->p->secret, &g->talk, false, &l->in[h->link], &l->out[h->link]);
    snprintf(l->where, sizeof l->where, "%s", s->host);
    tcp_tune(g->fd);
    return true;
}

static void drop_guest(rendezvous *m, int i, bool in)
{
    if (!in)
        tcp_close(&m->guests[i].fd);
    m->guests[i] = m->guests[--m->n_guests];
}

/* Drop the guest that is connected longest, to make room. A real rank sends its hello at once, and
 * connects again if it was too slow. */
static void drop_oldest(rendezvous *m)
{
    int oldest = 0;
    for (int i = 1; i < m->n_guests; i++)
        if (m->guests[i].since < m->guests[oldest].since)
            oldest = i;
    refuse(m, &m->guests[oldest], "it sent nothing");
    drop_guest(m, oldest, false);
}

/* Accept all waiting connections. */
static mr_status take_guests(rendezvous *m)
{
    for (int i = 0; i < GUESTS; i++) {
        guest g = {.since = mr_now_s(), .talk = {.asked = {.magic = PROVE_MAGIC}}};
        const challenge *c = &g.talk.asked;
        g.fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        // no more files can be opened: make room, too
        const bool full = g.fd >= 0 ? m->n_guests == GUESTS
                                    : m->n_guests > 0 && (errno == EMFILE || errno == ENFILE);
        if (full)
            drop_oldest(m);
        if (g.fd < 0)
            return MR_OK;
        MR_TRY(prove_draw(g.talk.asked.drawn));
        if (send(g.fd, c, sizeof *c, MSG_NOSIGNAL) != (ssize_t)sizeof *c)
            tcp_close(&g.fd);
        else
            m->guests[m->n_guests++] = g;
    }
    return MR_OK;
}

/* Read from guest i; *in counts accepted ranks. */
static void hear_guest(rendezvous *m, int i, int *in)
{
    guest *g = &m->guests[i];
    hello *h = &g->talk.said;
    ssize_t n = recv(g->fd, (char *)h + g->got, sizeof *h - g->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    g->got += n > 0 ? (size_t)n : 0;
    if (n <= 0 || (g->got >= sizeof h->magic && h->magic != PROVE_MAGIC)) {
        refuse(m, g,
               n <= 0 ? "it closed the connection"
                      : "it is not a rank of this version of moonreel");
        drop_guest(m, i, false);
    } else if (g->got == sizeof *h) {
        bool good = let_in(m, g);
        *in += good;
        drop_guest(m, i, good);
    }
}

/* Whether a rank has left during the rendezvous, and the reason that it sent. */
static mr_status look_at_control(const rendezvous *m, int rank)
{
    struct {
        tcp_word w;
        uint8_t tag[SEAL_TAG];
    } heard;
    tcp_word *w = &heard.w;
    seal_way in = m->links[rank].in[LINK_CONTROL]; // a copy: a record that is only peeked at must
                                                   // not advance the counter
    const size_t bytes = tcp_sealed(&in, sizeof *w);
    ssize_t n = recv(m->links[rank].fd[LINK_CONTROL], &heard, bytes, MSG_DONTWAIT | MSG_PEEK);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return MR_OK;
    bool good = n == (ssize_t)bytes;
    if (good && in.on && seal_open(&in, w, sizeof *w, heard.tag) != MR_OK)
        mr_error_clear(), good = false;
    if (good && w->kind == TCP_GIVES_UP)
        return mr_fail(MR_E_NODE, "%.*s", (int)sizeof w->text - 1, w->text);
    return mr_fail(MR_E_NODE, "rank %d at %s ended during the rendezvous; try: read its output",
                   rank, m->links[rank].where);
}

/* Whether a connected rank, or one of this host, has left. A rank of this host publishes its reason
 * before other ranks leave because of it, so that is checked last. */
static mr_status look_for_losses(const rendezvous *m)
{
    char why[900];
    mr_status st = MR_OK;
    for (int r = 0; r < m->p->size && st == MR_OK; r++)
        if (m->links[r].fd[LINK_CONTROL] >= 0 && !is_local(m->p, r))
            st = look_at_control(m, r);
    return m->shared->ops->aborted(m->shared, why, sizeof why) ? mr_fail(MR_E_NODE, "%s", why) : st;
}

static bool has_all(const tcp_links *l)
{
    for (int link = 0; link < LINKS; link++)
        if (l->fd[link] < 0)
            return false;
    return true;
}

/* The ranks that have not connected, on LINK_CONTROL or on all links (0): "2, 3". */
static void list_missing(const rendezvous *m, int link, char *text, size_t cap)
{
    size_t n = 0;
    int missing = 0;
    text[0] = 0;
    for (int r = m->p->rank + 1; r < m->p->size; r++) {
        const tcp_links *l = &m->links[r];
        if (link == LINK_CONTROL ? l->fd[link] >= 0 : is_local(m->p, r) || has_all(l))
            continue;
        if (missing++ < 8)
            n += (size_t)snprintf(text + n, cap - n, n ? ", %d" : "%d", r);
    }
    if (missing > 8)
        snprintf(text + n, cap - n, " and %d more", missing - 8);
}

static mr_status late(const rendezvous *m, int link)
{
    char text[128];
    list_missing(m, link, text, sizeof text);
    return mr_fail(MR_E_NODE,
                   "rank %d on %s at port %d: rank %s of %d has not connected in %g s%s; try: read "
                   "the output of these ranks",
                   m->p->rank, host_name(), m->port, text, m->p->size, m->p->deadline_s,
                   m->refused);
}

static void say_who_is_missing(const rendezvous *m, int link)
{
    char text[128];
    list_missing(m, link, text, sizeof text);
    mr_log(MR_LOG_WARN, "rank %d on %s at port %d waits for rank %s of %d%s", m->p->rank,
           host_name(), m->port, text, m->p->size, m->refused);
}

/* Errors that end the rendezvous before its deadline. */
static mr_status look_for_strangers(const rendezvous *m)
{
    if (m->relayed)
        return mr_fail(MR_E_NODE, "rank %d on %s at port %d%s; try: %s", m->p->rank, host_name(),
                       m->port, m->refused, OTHER_PORT);
    if (m->doubted > 0 && mr_now_s() > m->doubted + SECRET_MS * 1e-3)
        return mr_fail(
            MR_E_NODE,
            "the secret of rank %d differs from that of this one, rank %d on %s%s; try: %s",
            m->doubted_rank, m->p->rank, host_name(), m->refused, SAME_SECRET);
    return MR_OK;
}

/* Accept `count` connections; `link`: the link that is established last. */
static mr_status wait_for(rendezvous *m, int count, int link)
{
    struct pollfd p[GUESTS + 1];
    while (count > 0) {
        if (mr_now_s() > m->end)
            return late(m, link);
        if (takes_long(m))
            say_who_is_missing(m, link);
        MR_TRY(mr_interrupt_check());
        MR_TRY(look_for_strangers(m));
        for (int i = 0; i < m->n_guests; i++)
            p[i] = (struct pollfd){m->guests[i].fd, POLLIN, 0};
        const int n = m->n_guests;
        p[n] = (struct pollfd){m->listener, POLLIN, 0};
        if (poll(p, (nfds_t)n + 1, tcp_left_ms(m->end)) == 0)
            MR_TRY(look_for_losses(m));
        for (int i = n; i-- > 0;) {
            int in = 0;
            if (p[i].revents)
                hear_guest(m, i, &in);
            else if (mr_now_s() > m->guests[i].since + GUEST_MS * 1e-3)
                refuse(m, &m->guests[i], "it sent nothing"), drop_guest(m, i, false);
            count -= in;
        }
        if (p[n].revents)
            MR_TRY(take_guests(m));
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

/* Pause before the next attempt, if no rank has left. */
static mr_status wait_a_moment(const rendezvous *m)
{
    MR_TRY(mr_interrupt_check());
    MR_TRY(look_for_losses(m));
    mr_clock_table()->sleep_ns(AGAIN_MS * 1000000);
    return MR_OK;
}

static void say_who_is_far(rendezvous *m)
{
    if (takes_long(m))
        mr_log(MR_LOG_WARN,
               "rank %d on %s cannot reach rank 0 at %s port %d: %.250s; it tries again",
               m->p->rank, host_name(), m->p->host, m->p->port, mr_error_last()->text);
}

// a loopback address, which other hosts cannot use
static bool is_loopback(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0;
}

/* Listen for the ranks above this one, at the address from which this one has connected to rank 0:
 * rank 0 sends it to them. */
static mr_status listen_at_same_port(rendezvous *m, int fd)
{
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    char host[64] = "";
    if (getsockname(fd, (struct sockaddr *)&at, &n) == 0)
        tcp_name_of(&at, n, host, sizeof host, NULL);
    const bool chosen = m->p->listen && *m->p->listen;
    tcp_close(&m->listener);
    return mr_tcp_listen(chosen              ? m->p->listen
                         : is_loopback(host) ? NULL
                                             : host,
                         0, 1, &m->listener, &m->port);
}

/* Try every address and port of rank 0 once. */
static mr_status try_first(rendezvous *m, const struct addrinfo *list, verdict *said)
{
    const mr_tcp_place *p = m->p;
    mr_status st = mr_fail(MR_E_NODE, "the name has no address");
    verdict last;
    for (const struct addrinfo *a = list; a; a = a->ai_next)
        for (int i = 0; i < MR_MAX(p->ports, 1); i++) {
            struct sockaddr_storage at = {0};
            int fd;
            memcpy(&at, a->ai_addr, a->ai_addrlen);
            tcp_set_port(&at, p->port + i);
            double end = MR_MIN(m->end, mr_now_s() + GUEST_MS * 1e-3);
            st = tcp_dial((struct sockaddr *)&at, a->ai_addrlen, end, &fd);
            if (st != MR_OK) {
                if (p->ports > 1)
                    say_who_is_far(m);
                continue;
            }
            m->reached = true;
            st = listen_at_same_port(m, fd);
            if (st != MR_OK) {
                tcp_close(&fd);
                return st;
            }
            st = introduce(m, fd, LINK_CONTROL, 0, &last);
            if (last != VERDICTS && *said != RELAYED && *said != NO_SECRET)
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

/* Whether another attempt is useless. With one port, rank 0 itself has answered. With several, the
 * answer can come from another run or a foreign process. So a wrong secret is final only after a
 * while, even if rank 0 has left because of it. */
static bool is_final(rendezvous *m, verdict *said)
{
    if (*said == NO_SECRET && m->doubted == 0)
        m->doubted = mr_now_s();
    if (m->doubted > 0 && mr_now_s() > m->doubted + SECRET_MS * 1e-3)
        return *said = NO_SECRET, true;
    return *said != VERDICTS && *said != WELCOME && (m->p->ports <= 1 || *said == RELAYED);
}

static mr_status reach_first(rendezvous *m)
{
    const mr_tcp_place *p = m->p;
    const struct addrinfo want = {.ai_socktype = SOCK_STREAM};
    // with one port, rank 0's host listens there before any rank starts
    const bool listens = p->ports <= 1;
    const double link_end = MR_MIN(m->end, m->began + LINK_MS * 1e-3);
    verdict said;
    mr_status st;
    for (;;) {
        struct addrinfo *list = NULL;
        said = VERDICTS;
        int how = getaddrinfo(p->host, NULL, &want, &list);
        st = how == 0 ? try_first(m, list, &said) : mr_fail(MR_E_NODE, "%s", gai_strerror(how));
        if (list)
            freeaddrinfo(list);
        if (st == MR_OK)
            return MR_OK;
        if (is_final(m, &said)) {
            st = mr_fail(MR_E_NODE, "%s", verdict_text[said]);
            break;
        }
        if (mr_now_s() >= (listens && !m->reached ? link_end : m->end))
            break;
        say_who_is_far(m);
        MR_TRY(wait_a_moment(m));
    }
    char why[256];
    snprintf(why, sizeof why, "%.250s", mr_error_last()->text);
    return mr_fail(MR_E_NODE,
                   "rank %d on %s cannot reach rank 0 at %s port %d in %.3g s: %s; try: %s",
                   p->rank, host_name(), p->host, p->port, mr_now_s() - m->began, why,
                   said == NO_SECRET ? SAME_SECRET
                   : said == RELAYED ? OTHER_PORT
                                     : "use a name or address (addr=) of rank 0's host that this "
                                       "host can reach, and a port that no firewall blocks");
}

/* The address at which this rank can reach rank r. */
static mr_status address_of(const rendezvous *m, int r, struct sockaddr_storage *at, socklen_t *n)
{
    const seat *s = &m->seats[r];
    const struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    struct addrinfo *found = NULL;
    *at = m->first, *n = m->first_bytes;
    if (r > 0 && !is_loopback(s->host)) {
        if (getaddrinfo(s->host, NULL, &want, &found) != 0)
            return mr_fail(MR_E_NODE,
                           "rank %d has sent the address '%.59s', which is not an IP address; try: "
                           "MOONREEL_HOST or addr= with an address of its host",
                           r, s->host);
        memcpy(at, found->ai_addr, found->ai_addrlen), *n = found->ai_addrlen;
        freeaddrinfo(found);
    }
    // a rank on the host of rank 0 has the same address and its own port
    if (r > 0)
        tcp_set_port(at, s->port);
    return MR_OK;
}

static mr_status reach(rendezvous *m, int r, int link)
{
    struct sockaddr_storage at;
    socklen_t n;
    int *fd = &m->links[r].fd[link];
    verdict said = VERDICTS;
    mr_status st;
    MR_TRY(address_of(m, r, &at, &n));
    set_where(&m->links[r], &at, n);
    do {
        // the rank listens already, since it is in the list: if it cannot be reached now, it cannot
        // later
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
                   "rank %d on %s cannot reach rank %d at %s: %s; try: allow connections between "
                   "the ranks in the firewalls of both hosts",
                   m->p->rank, host_name(), r, m->links[r].where, why);
}

/* ---- both sides ---- */

/* The number of ranks above this one that connect to it. */
static int expected(const rendezvous *m)
{
    int n = 0;
    for (int r = m->p->rank + 1; r < m->p->size; r++)
        n += !is_local(m->p, r);
    return n;
}

static mr_status lead_rendezvous(rendezvous *m)
{
    const mr_tcp_place *p = m->p;
    tcp_word all_here = {.run = p->run, .fence = p->fence};
    MR_TRY(wait_for(m, p->size - 1, LINK_CONTROL));
    for (int r = 1; r < p->size; r++) {
        tcp_links *l = &m->links[r];
        const size_t bytes = (size_t)p->size * sizeof *m->seats;
        MR_TRY(send_sealed(l, LINK_CONTROL, &all_here, sizeof all_here, m->end));
        MR_TRY(send_sealed(l, LINK_CONTROL, m->seats, bytes, m->end));
    }
    return wait_for(m, expected(m) * MR_TRANSPORT_LANES, 0);
}

static mr_status join_rendezvous(rendezvous *m)
{
    const mr_tcp_place *p = m->p;
    tcp_word word;
    MR_TRY(reach_first(m));
    mr_status st = receive_sealed(&m->links[0], LINK_CONTROL, &word, sizeof word, m->end);
    if (st == MR_OK && word.kind == TCP_GIVES_UP)
        return mr_fail(MR_E_NODE, "%.*s", (int)sizeof word.text - 1, word.text);
    if (st == MR_OK)
        st = receive_sealed(&m->links[0], LINK_CONTROL, m->seats,
                            (size_t)p->size * sizeof *m->seats, m->end);
    if (st != MR_OK)
        return mr_fail(
            MR_E_NODE,
            "rank 0 at %s ended before all %d ranks were connected; try: read its output",
            m->links[0].where, p->size);
    for (int r = 1; r < p->size; r++) {
        m->seats[r].host[sizeof m->seats[r].host - 1] = 0;
        snprintf(m->links[r].where, sizeof m->links[r].where, "%s", m->seats[r].host);
    }
    for (int r = 0; r < p->rank; r++)
        for (int link = 0; link < LINKS && !is_local(p, r); link++)
            if (m->links[r].fd[link] < 0)
                MR_TRY(reach(m, r, link));
    return wait_for(m, expected(m) * LINKS, 0);
}

/* Send the reason why this rank leaves to all connected ranks. */
static void say_why(const rendezvous *m)
{
    tcp_word word = {.run = m->p->run, .fence = m->p->fence, .kind = TCP_GIVES_UP};
    snprintf(word.text, sizeof word.text, "rank %d gave up: %.900s", m->p->rank,
             mr_error_last()->text);
    for (int r = 0; r < m->p->size; r++)
        tcp_tell(&m->links[r], &word);
}

static mr_status check(const mr_tcp_place *p)
{
    if (p->size < 1 || p->rank < 0 || p->rank >= p->size)
        return mr_fail(MR_E_USAGE, "rank is %d of %d ranks; expected 0 to %d", p->rank, p->size,
                       p->size - 1);
    if (p->n_local && (p->rank < p->first || p->rank >= p->first + p->n_local || p->first < 0 ||
                       p->first + p->n_local > p->size))
        return mr_fail(MR_E_USAGE,
                       "rank is %d; expected one of the %d ranks of its host, from %d on", p->rank,
                       p->n_local, p->first);
    if (p->listener < 0 && (p->port < 1 || p->port + MR_MAX(p->ports, 1) - 1 > 65535))
        return mr_fail(MR_E_USAGE, "port is %d; expected 1 to 65535", p->port);
    char who[32];
    snprintf(who, sizeof who, "%d ranks", p->size);
    return mr_allow_files((int64_t)p->size * LINKS, who);
}

mr_status comm_rendezvous(const mr_tcp_place *p, mr_transport *shared, tcp_links *links)
{
    rendezvous m = {
        .p = p, .shared = shared, .links = links, .listener = p->rank == 0 ? p->listener : -1};
    m.began = mr_now_s(), m.end = m.began + p->deadline_s;
    m.seats = mr_calloc((size_t)p->size, sizeof *m.seats);
    m.guests = mr_calloc(GUESTS, sizeof *m.guests);
    mr_status st =
        m.seats && m.guests ? check(p) : mr_fail_memory((size_t)p->size * sizeof *m.seats);
    if (st == MR_OK && p->rank == 0 && m.listener < 0)
        st = mr_tcp_listen(p->listen, p->port, p->ports, &m.listener, &m.port);
    else if (st == MR_OK && p->rank == 0)
        fcntl(m.listener, F_SETFL, O_NONBLOCK), m.port = tcp_port_of(m.listener, false);
    if (st == MR_OK)
        st = p->rank == 0 ? lead_rendezvous(&m) : join_rendezvous(&m);
    if (st != MR_OK)
        say_why(&m);
    while (m.n_guests > 0)
        drop_guest(&m, 0, false);
    // shut down: processes that have inherited the socket must not accept, either
    if (m.listener >= 0)
        shutdown(m.listener, SHUT_RDWR);
    tcp_close(&m.listener);
    // ranks of this host needed the connection to rank 0 only for the rendezvous
    for (int r = 0; r < p->size; r++)
        if (is_local(p, r))
            tcp_hang_up(&links[r], LINK_CONTROL);
    mr_free(m.seats), mr_free(m.guests);
    return st;
}
