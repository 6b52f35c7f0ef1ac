/* comm: TCP sockets for ranks: listen, connect, send and receive. Every wait has a deadline.
 * Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/socket.h"
#include "moonreel/comm.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { LEAST_FILES = 64, SPARE_FILES = 256 }; /* files that a process needs for other purposes */

mr_status mr_allow_files(int64_t count, const char *who)
{
    struct rlimit r;
    const rlim_t need = (rlim_t)count + LEAST_FILES, want = (rlim_t)count + SPARE_FILES;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur >= want)
        return MR_OK;
    r.rlim_cur = MR_MIN(want, r.rlim_max);
    if (r.rlim_cur >= need && setrlimit(RLIMIT_NOFILE, &r) == 0)
        return MR_OK;
    return mr_fail(MR_E_NODE, "%s need %llu open files, %llu are allowed; try: ulimit -n %llu", who,
                   (unsigned long long)need, (unsigned long long)r.rlim_max,
                   (unsigned long long)need);
}

void tcp_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void tcp_set_port(struct sockaddr_storage *at, int port)
{
    if (at->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)at)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)(void *)at)->sin_port = htons((uint16_t)port);
}

int tcp_left_ms(double end)
{
    double left = (end - mr_now_s()) * 1000;
    return left <= 0 ? 0 : left > 100 ? 100 : (int)left + 1;
}

void tcp_name_of(const struct sockaddr_storage *at, socklen_t n, char *host, size_t cap, int *port)
{
    char service[16] = "0";
    if (getnameinfo((const struct sockaddr *)at, n, host, (socklen_t)cap, service, sizeof service,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        snprintf(host, cap, "?");
    // an IPv4 address of an IPv6 socket
    if (strncmp(host, "::ffff:", 7) == 0 && strchr(host, '.'))
        memmove(host, host + 7, strlen(host + 7) + 1);
    if (port)
        *port = (int)strtol(service, NULL, 10);
}

static mr_status try_listen(const struct sockaddr_storage *at, socklen_t bytes, int port, int *fd)
{
    const int on = 1, off = 0;
    struct sockaddr_storage own = *at;
    tcp_set_port(&own, port);
    *fd = socket(own.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0)
        return MR_E_NODE;
    setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (own.ss_family == AF_INET6)
        setsockopt(*fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(*fd, (struct sockaddr *)&own, bytes) == 0 && listen(*fd, SOMAXCONN) == 0)
        return MR_OK;
    int why = errno;
    tcp_close(fd);
    errno = why;
    return MR_E_NODE;
}

/* The address of an interface, IPv4 before IPv6. */
static bool address_of_interface(const char *name, struct sockaddr_storage *at, socklen_t *bytes)
{
    struct ifaddrs *all = NULL;
    *bytes = 0;
    if (getifaddrs(&all) != 0)
        return false;
    for (const struct ifaddrs *a = all; a && *bytes != sizeof(struct sockaddr_in);
         a = a->ifa_next) {
        const int family = a->ifa_addr ? a->ifa_addr->sa_family : 0;
        if (strcmp(a->ifa_name, name) != 0 || (family != AF_INET && (family != AF_INET6 || *bytes)))
            continue;
        *bytes = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        memcpy(at, a->ifa_addr, *bytes);
    }
    freeifaddrs(all);
    return *bytes > 0;
}

/* The address of `where`, which is an interface, a name or an address; empty means all
 * addresses. */
static mr_status find_where(const char *where, struct sockaddr_storage *at, socklen_t *bytes)
{
    const struct addrinfo want = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    *at = (struct sockaddr_storage){.ss_family = AF_INET6}, *bytes = sizeof(struct sockaddr_in6);
    if (!where || !*where || address_of_interface(where, at, bytes))
        return MR_OK;
    const int how = getaddrinfo(where, NULL, &want, &found);
    if (how != 0)
        return mr_fail(MR_E_NODE,
                       "cannot listen at '%.100s': %s; try: an interface or an address of this "
                       "host, or no MOONREEL_LISTEN",
                       where, gai_strerror(how));
    memcpy(at, found->ai_addr, found->ai_addrlen), *bytes = found->ai_addrlen;
    freeaddrinfo(found);
    return MR_OK;
}

int tcp_port_of(int fd, bool peer)
{
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    char host[64];
    int port = 0;
    struct sockaddr *end = (struct sockaddr *)&at;
    if ((peer ? getpeername(fd, end, &n) : getsockname(fd, end, &n)) == 0)
        tcp_name_of(&at, n, host, sizeof host, &port);
    return port;
}

mr_status mr_tcp_listen(const char *where, int first_port, int ports, int *fd, int *port)
{
    static const struct sockaddr_storage four = {.ss_family = AF_INET};
    struct sockaddr_storage at;
    socklen_t bytes;
    MR_TRY(find_where(where, &at, &bytes));
    const bool all = !where || !*where;
    for (int i = 0; i < MR_MAX(ports, 1); i++) {
        // if IPv6 is disabled, use IPv4
        if (try_listen(&at, bytes, first_port + i, fd) == MR_OK ||
            (all && errno == EAFNOSUPPORT &&
             try_listen(&four, sizeof(struct sockaddr_in), first_port + i, fd) == MR_OK)) {
            *port = tcp_port_of(*fd, false);
            return MR_OK;
        }
        if (errno != EADDRINUSE)
            break;
    }
    const int why = errno;
    return mr_fail(MR_E_NODE, "cannot listen at %s%sport %d%s: %s; try: %s", all ? "" : where,
                   all ? "" : " ", first_port, ports > 1 ? " or the next ones" : "", strerror(why),
                   why == EADDRNOTAVAIL ? "an interface or an address of this host"
                                        : "another MASTER_PORT");
}

mr_status tcp_carry(int fd, void *data, size_t bytes, bool out, double end)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t n = out ? send(fd, (char *)data + at, bytes - at, MSG_NOSIGNAL | MSG_DONTWAIT)
                        : recv(fd, (char *)data + at, bytes - at, MSG_DONTWAIT);
        if (n > 0) {
            at += (size_t)n;
            continue;
        }
        if (n == 0)
            return mr_fail(MR_E_NODE, "it closed the connection");
        if (errno != EAGAIN && errno != EINTR)
            return mr_fail(MR_E_NODE, "%s", strerror(errno));
        struct pollfd p = {fd, out ? POLLOUT : POLLIN, 0};
        if (poll(&p, 1, tcp_left_ms(end)) == 0 && mr_now_s() >= end)
            return mr_fail(MR_E_NODE, "it does not answer");
        MR_TRY(mr_interrupt_check());
    }
    return MR_OK;
}

mr_status tcp_dial(const struct sockaddr *at, socklen_t n, double end, int *fd)
{
    *fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0)
        return mr_fail(MR_E_NODE, "%s", strerror(errno));
    int why = connect(*fd, at, n) == 0 ? 0 : errno;
    while (why == EINPROGRESS) {
        struct pollfd p = {*fd, POLLOUT, 0};
        socklen_t size = sizeof why;
        if (poll(&p, 1, tcp_left_ms(end)) > 0)
            getsockopt(*fd, SOL_SOCKET, SO_ERROR, &why, &size);
        else if (mr_now_s() >= end || mr_interrupt_get())
            why = ETIMEDOUT;
    }
    if (why == 0)
        return MR_OK;
    tcp_close(fd);
    return mr_fail(MR_E_NODE, "%s", strerror(why));
}

void tcp_tune(int fd)
{
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}
