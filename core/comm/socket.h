/* comm, inside: TCP sockets. All are non-blocking and close on exec. Waits end at `end`, a time of
 * mr_now_s(). Licence: Apache-2.0 */
#ifndef MR_COMM_SOCKET_H
#define MR_COMM_SOCKET_H

#include "moonreel/base.h"

#include <sys/socket.h>

/* Close it unless it is -1, which it is then. */
void tcp_close(int *fd);
/* Milliseconds until `end`, at most those between two looks at other things. */
int tcp_left_ms(double end);
/* IPv4 or IPv6. */
void tcp_set_port(struct sockaddr_storage *at, int port);
/* The address of an end as text, "10.0.0.2", and its port unless `port` is NULL. */
void tcp_name_of(const struct sockaddr_storage *at, socklen_t n, char *host, size_t cap, int *port);
/* At which a socket listens; 0: none. */
int tcp_port_of(int fd);
/* Read or write (`out`) all of it. Errors: MR_E_NODE */
mr_status tcp_carry(int fd, void *data, size_t bytes, bool out, double end);
/* Connect. Owns: caller closes *fd. Errors: MR_E_NODE */
mr_status tcp_dial(const struct sockaddr *at, socklen_t n, double end, int *fd);
/* Little messages leave at once. */
void tcp_tune(int fd);

#endif
