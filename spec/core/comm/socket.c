/* comm/socket: addresses and ports at which ranks listen and call, and links that lead nowhere. */
#define _GNU_SOURCE
#include "tcpcase.h"

#include <errno.h>
#include <sys/syscall.h>

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
    all_well(good);
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
    all_well(good);
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
    addresses();
    listening();
    without_six();
    no_partner();
    far_away();
    return check_done();
}
