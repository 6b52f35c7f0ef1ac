/* comm: sockets of TCP as ranks use them: listen, connect, carry bytes, each wait with an end.
 * Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/socket.h"
#include "moonreel/comm.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { LEAST_FILES = 64, SPARE_FILES = 256 }; /* that a process opens for other things */

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
    // an IPv4 address that came through a socket of IPv6
    if (strncmp(host, "::ffff:", 7) == 0 && strchr(host, '.'))
        memmove(host, host + 7, strlen(host + 7) + 1);
    if (port)
        *port = (int)strtol(service, NULL, 10);
}

static mr_status try_listen(int family, int port, int *fd)
{
    const int on = 1, off = 0;
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    *fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0)
        return MR_E_NODE;
    setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (family == AF_INET6)
        setsockopt(*fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    const bool is_six = family == AF_INET6;
    if (bind(*fd, is_six ? (struct sockaddr *)&six : (struct sockaddr *)&four,
             is_six ? sizeof six : sizeof four) == 0 &&
        listen(*fd, SOMAXCONN) == 0)
        return MR_OK;
    int why = errno;
    tcp_close(fd);
    errno = why;
    return MR_E_NODE;
}

int tcp_port_of(int fd)
{
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    char host[64];
    int port = 0;
    if (getsockname(fd, (struct sockaddr *)&at, &n) == 0)
        tcp_name_of(&at, n, host, sizeof host, &port);
    return port;
}

mr_status mr_tcp_listen(int first_port, int ports, int *fd, int *port)
{
    for (int i = 0; i < MR_MAX(ports, 1); i++) {
        // where IPv6 is switched off, IPv4 alone
        if (try_listen(AF_INET6, first_port + i, fd) == MR_OK ||
            (errno == EAFNOSUPPORT && try_listen(AF_INET, first_port + i, fd) == MR_OK)) {
            *port = tcp_port_of(*fd);
            return MR_OK;
        }
        if (errno != EADDRINUSE)
            break;
    }
    return mr_fail(MR_E_NODE, "cannot listen at port %d%s: %s; try: another MASTER_PORT",
                   first_port, ports > 1 ? " or those behind it" : "", strerror(errno));
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
            return mr_fail(MR_E_NODE, "it has hung up");
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
