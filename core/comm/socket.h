/* comm, inside: TCP sockets. All are non-blocking and close on exec. Waits end at `end`, a time of
 * mr_now_s(). Licence: Apache-2.0 */
#ifndef MR_COMM_SOCKET_H
#define MR_COMM_SOCKET_H

#include "moonreel/base.h"

#include <sys/socket.h>

/* Close *fd unless it is -1, and set it to -1. */
void tcp_close(int *fd);
/* Milliseconds until `end`, but at most the interval of other checks. */
int tcp_left_ms(double end);
/* IPv4 or IPv6. */
void tcp_set_port(struct sockaddr_storage *at, int port);
/* The address of an end as text, "10.0.0.2", and its port unless `port` is NULL. */
void tcp_name_of(const struct sockaddr_storage *at, socklen_t n, char *host, size_t cap, int *port);
/* The port of this end of a socket, or with `peer` of the other end; 0: it has none. */
int tcp_port_of(int fd, bool peer);
/* Read or, with `out`, write all bytes. Errors: MR_E_NODE */
mr_status tcp_carry(int fd, void *data, size_t bytes, bool out, double end);
/* Connect. Owns: caller closes *fd. Errors: MR_E_NODE */
mr_status tcp_dial(const struct sockaddr *at, socklen_t n, double end, int *fd);
/* Send small messages at once (TCP_NODELAY). */
void tcp_tune(int fd);

#endif
