/* comm: sends a notice on the control connection between two ranks, and closes connections.
 * Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/room.h"
#include "comm/socket.h"

#include <string.h>
#include <sys/socket.h>

void tcp_tell(tcp_links *l, const tcp_word *word)
{
    uint8_t record[sizeof *word + SEAL_TAG];
    seal_way *way = &l->out[LINK_CONTROL];
    memcpy(record, word, sizeof *word);
    if (l->fd[LINK_CONTROL] < 0 ||
        (way->on && seal_record(way, word, sizeof *word, record, record + sizeof *word) != MR_OK))
        return;
    ssize_t n = send(l->fd[LINK_CONTROL], record, tcp_sealed(way, sizeof *word),
                     MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)n; // a rank that does not receive it detects that this one is gone
}

void tcp_hang_up(tcp_links *l, int link)
{
    tcp_close(&l->fd[link]);
    seal_end(&l->in[link]), seal_end(&l->out[link]);
}
