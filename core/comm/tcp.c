/* comm: the wire between ranks of several hosts. Two ranks have a connection for each lane, on
 * which frames follow each other, and one for what is no message of a call: that a rank gives up or
 * leaves, and whether its host still answers. Ranks of one host share memory instead (shared.c). A
 * thread listens for whatever may interest this rank and wakes it. Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/room.h"
#include "comm/socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { EVENTS = 64 };
static const double LOST_AFTER_S = 10;

typedef struct frame {
    uint64_t run, fence;
    mr_comm_head head;
} frame;

/* What has moved of a frame on a lane, each way. */
typedef struct half {
    frame frame;
    size_t moved;
} half;

typedef struct peer {
    half in[MR_WIRE_LANES], out[MR_WIRE_LANES];
    tcp_word word;
    size_t heard; /* bytes of word */
    bool quiet;   /* it has said that it leaves or gives up */
    _Atomic bool left;
} peer;

typedef struct tcp_wire {
    mr_wire wire;
    mr_wire *shared; /* of the ranks of this host, with the bell */
    mr_meeting *own; /* where this rank is alone on its host */
    int first;       /* of these ranks */
    uint64_t run, fence;
    tcp_links *links; /* [size] */
    peer *peers;      /* [size] */
    int events, stop;
    pthread_t listener;
    bool listens;
    pthread_mutex_t hearing; /* what others say, by the listener or by who misses one of them */
    _Atomic bool told;       /* this rank has said why the world is over */
} tcp_wire;

static tcp_wire *tcp_of(mr_wire *w)
{
    return (tcp_wire *)w;
}

static bool is_near(const tcp_wire *t, int rank)
{
    return rank >= t->first && rank < t->first + t->shared->size;
}

/* ---- messages ---- */

/* The same message on the wire of this host, whose ranks count from its first one. */
static mr_status on_shared(tcp_wire *t, mr_parcel *p, mr_status (*go)(mr_wire *, mr_parcel *))
{
    p->peer -= t->first;
    mr_status st = go(t->shared, p);
    p->peer += t->first;
    return st;
}

/* How much a call on a socket has moved; 0 also where the rank has gone. */
static size_t moved_by(tcp_wire *t, int rank, ssize_t n, bool received)
{
    if (n > 0)
        return (size_t)n;
    bool later = n < 0 && (errno == EAGAIN || errno == EINTR);
    if (!later && (n < 0 || received))
        atomic_store(&t->peers[rank].left, true);
    return 0;
}

static mr_status send_parcel(mr_wire *w, mr_parcel *p)
{
    tcp_wire *t = tcp_of(w);
    if (is_near(t, p->peer))
        return on_shared(t, p, t->shared->ops->send);
    half *h = &t->peers[p->peer].out[p->lane];
    h->frame = (frame){t->run, t->fence, p->head};
    struct iovec parts[] = {
        {(char *)&h->frame + h->moved, p->headed ? 0 : sizeof h->frame - h->moved},
        {(char *)p->data + p->moved, p->bytes - p->moved}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    size_t n = moved_by(
        t, p->peer, sendmsg(t->links[p->peer].fd[p->lane], &message, MSG_NOSIGNAL | MSG_DONTWAIT),
        false);
    size_t of_frame = MR_MIN(n, parts[0].iov_len);
    h->moved += of_frame, p->moved += n - of_frame;
    p->headed = p->headed || h->moved == sizeof h->frame;
    p->done = p->headed && p->moved == p->bytes;
    if (p->done)
        h->moved = 0;
    return MR_OK;
}

static mr_status check_frame(const tcp_wire *t, const mr_parcel *p, const frame *f)
{
    if (f->run == t->run && f->fence == t->fence)
        return MR_OK;
    return mr_fail(MR_E_NODE,
                   "rank %d at %s sends what is no frame of this run (run %016llx, launch %llu; "
                   "expected %016llx, %llu)",
                   p->peer, t->links[p->peer].where, (unsigned long long)f->run,
                   (unsigned long long)f->fence, (unsigned long long)t->run,
                   (unsigned long long)t->fence);
}

static mr_status receive_parcel(mr_wire *w, mr_parcel *p)
{
    tcp_wire *t = tcp_of(w);
    if (is_near(t, p->peer))
        return on_shared(t, p, t->shared->ops->receive);
    half *h = &t->peers[p->peer].in[p->lane];
    const int fd = t->links[p->peer].fd[p->lane];
    if (p->headed) {
        if (p->moved < p->bytes)
            p->moved += moved_by(
                t, p->peer, recv(fd, (char *)p->data + p->moved, p->bytes - p->moved, MSG_DONTWAIT),
                true);
        p->done = p->moved == p->bytes;
        return MR_OK;
    }
    h->moved += moved_by(
        t, p->peer,
        recv(fd, (char *)&h->frame + h->moved, sizeof h->frame - h->moved, MSG_DONTWAIT), true);
    if (h->moved < sizeof h->frame)
        return MR_OK;
    h->moved = 0;
    p->head = h->frame.head, p->headed = true;
    return check_frame(t, p, &h->frame);
}

static void drop(mr_wire *w, mr_parcel *p)
{
    // what is half sent or received stays so: the world is over
    tcp_wire *t = tcp_of(w);
    if (is_near(t, p->peer))
        t->shared->ops->drop(t->shared, p);
}

/* ---- what is no message ---- */

static void tell_all(tcp_wire *t, uint32_t kind, const char *text)
{
    tcp_word word = {t->run, t->fence, kind, ""};
    snprintf(word.text, sizeof word.text, "%s", text);
    for (int r = 0; r < t->wire.size; r++) {
        ssize_t n = t->links[r].fd[LINK_CONTROL] < 0
                        ? 0
                        : send(t->links[r].fd[LINK_CONTROL], &word, sizeof word,
                               MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)n; // who cannot hear it finds this rank gone
    }
}

static void abort_all(mr_wire *w, const char *text)
{
    tcp_wire *t = tcp_of(w);
    t->shared->ops->abort(t->shared, text);
    // also who has heard it from another one: that one may not have told all when this one leaves
    if (!atomic_exchange(&t->told, true))
        tell_all(t, TCP_GIVES_UP, text);
}

static bool is_aborted(mr_wire *w, char *text, size_t cap)
{
    return tcp_of(w)->shared->ops->aborted(tcp_of(w)->shared, text, cap);
}

static uint32_t look(mr_wire *w)
{
    return tcp_of(w)->shared->ops->look(tcp_of(w)->shared);
}

static void pause_until(mr_wire *w, uint32_t seen)
{
    tcp_of(w)->shared->ops->pause(tcp_of(w)->shared, seen);
}

/* ---- the thread that listens ---- */

static void lost(tcp_wire *t, int rank, const char *text)
{
    peer *p = &t->peers[rank];
    epoll_ctl(t->events, EPOLL_CTL_DEL, t->links[rank].fd[LINK_CONTROL], NULL);
    if (p->quiet)
        return;
    p->quiet = true;
    char why[256];
    snprintf(why, sizeof why, "rank %d at %s %s", rank, t->links[rank].where, text);
    // every other rank has seen the same, or its host is what is lost
    t->shared->ops->abort(t->shared, why);
    atomic_store(&p->left, true);
}

static void understand(tcp_wire *t, int rank)
{
    peer *p = &t->peers[rank];
    tcp_word *word = &p->word;
    word->text[sizeof word->text - 1] = 0;
    p->heard = 0;
    if (word->run != t->run || word->fence != t->fence ||
        (word->kind != TCP_GIVES_UP && word->kind != TCP_LEAVES)) {
        lost(t, rank, "says what is no word of this run");
        return;
    }
    p->quiet = true;
    if (word->kind == TCP_GIVES_UP)
        t->shared->ops->abort(t->shared, word->text);
}

static void hear_all(tcp_wire *t, int rank)
{
    peer *p = &t->peers[rank];
    char text[128];
    for (;;) {
        ssize_t n = recv(t->links[rank].fd[LINK_CONTROL], (char *)&p->word + p->heard,
                         sizeof p->word - p->heard, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n == 0) {
            lost(t, rank, "has ended without a word");
            return;
        }
        if (n < 0) {
            snprintf(text, sizeof text,
                     "does not answer: %s; try: is its host up, and the network to it?",
                     strerror(errno));
            lost(t, rank, text);
            return;
        }
        p->heard += (size_t)n;
        if (p->heard == sizeof p->word)
            understand(t, rank);
    }
}

static void hear(tcp_wire *t, int rank)
{
    pthread_mutex_lock(&t->hearing);
    hear_all(t, rank);
    pthread_mutex_unlock(&t->hearing);
}

/* What a rank said before it left counts first: a lane may end before the listener has come to the
 * connection on which it gave up. */
static bool has_left(mr_wire *w, int rank)
{
    tcp_wire *t = tcp_of(w);
    if (is_near(t, rank))
        return t->shared->ops->left(t->shared, rank - t->first);
    if (!atomic_load(&t->peers[rank].left))
        return false;
    hear(t, rank);
    return true;
}

static void *listen_for_all(void *arg)
{
    tcp_wire *t = arg;
    struct epoll_event events[EVENTS];
    for (;;) {
        int n = epoll_wait(t->events, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            const int rank = (int)(events[i].data.u64 >> 8), link = events[i].data.u64 & 0xff;
            if (rank == t->wire.size)
                return NULL;
            if (link == LINK_CONTROL)
                hear(t, rank);
        }
        comm_wake(t->shared);
    }
}

/* A host that does not answer is found by the kernel, which also answers for a process that is
 * stopped: nothing else is on this connection for long. */
static void watch_host(int fd, double lost_after_s)
{
    const int on = 1, every = 1, idle = MR_MAX(1, (int)(lost_after_s / 3));
    const int count = MR_MAX(1, (int)lost_after_s - idle);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

static mr_status add_event(tcp_wire *t, int fd, uint32_t what, int rank, int link)
{
    struct epoll_event e = {.events = what, .data.u64 = (uint64_t)rank << 8 | (uint64_t)link};
    return epoll_ctl(t->events, EPOLL_CTL_ADD, fd, &e) == 0
               ? MR_OK
               : mr_fail(MR_E_NODE, "cannot listen to rank %d: %s", rank, strerror(errno));
}

static mr_status start_listening(tcp_wire *t, double lost_after_s)
{
    t->events = epoll_create1(EPOLL_CLOEXEC), t->stop = eventfd(0, EFD_CLOEXEC);
    if (t->events < 0 || t->stop < 0)
        return mr_fail(MR_E_NODE, "cannot listen to other ranks: %s", strerror(errno));
    MR_TRY(add_event(t, t->stop, EPOLLIN, t->wire.size, 0));
    for (int r = 0; r < t->wire.size; r++) {
        const int *fd = t->links[r].fd;
        for (int link = 0; link < MR_WIRE_LANES; link++)
            if (fd[link] >= 0)
                MR_TRY(add_event(t, fd[link], EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, r, link));
        if (fd[LINK_CONTROL] < 0)
            continue;
        watch_host(fd[LINK_CONTROL], lost_after_s);
        MR_TRY(add_event(t, fd[LINK_CONTROL], EPOLLIN, r, LINK_CONTROL));
    }
    int how = pthread_create(&t->listener, NULL, listen_for_all, t);
    t->listens = how == 0;
    return how == 0 ? MR_OK : mr_fail(MR_E_NODE, "cannot start a thread: %s", strerror(how));
}

/* ---- opening and closing ---- */

static void close_wire(mr_wire *w, bool clean)
{
    tcp_wire *t = tcp_of(w);
    const uint64_t one = 1;
    if (t->listens) {
        if (clean)
            tell_all(t, TCP_LEAVES, "");
        ssize_t n = write(t->stop, &one, sizeof one);
        (void)n;
        pthread_join(t->listener, NULL);
    }
    for (int r = 0; t->links && r < w->size; r++)
        for (int link = 0; link < LINKS; link++)
            tcp_close(&t->links[r].fd[link]);
    tcp_close(&t->events), tcp_close(&t->stop);
    if (t->shared)
        t->shared->ops->close(t->shared, clean);
    mr_meeting_free(t->own);
    pthread_mutex_destroy(&t->hearing);
    mr_free(t->links), mr_free(t->peers), mr_free(t);
}

static const mr_wire_ops tcp_ops = {.send = send_parcel,
                                    .receive = receive_parcel,
                                    .drop = drop,
                                    .left = has_left,
                                    .look = look,
                                    .pause = pause_until,
                                    .abort = abort_all,
                                    .aborted = is_aborted,
                                    .close = close_wire,
                                    .farewell = true};

static mr_status open_wire(tcp_wire *t, const mr_tcp_place *place)
{
    mr_tcp_place p = *place;
    const size_t n = (size_t)MR_MAX(p.size, 1);
    if (!t->shared) {
        MR_TRY(mr_meeting_new(1, &t->own));
        MR_TRY(mr_meeting_wire(t->own, 0, &t->shared));
        p.first = p.rank, p.near = 1;
    }
    t->first = p.first, t->run = p.run, t->fence = p.fence;
    t->links = mr_calloc(n, sizeof *t->links), t->peers = mr_calloc(n, sizeof *t->peers);
    if (!t->links || !t->peers)
        return mr_fail_memory(n * sizeof *t->peers);
    for (size_t r = 0; r < n; r++)
        for (int link = 0; link < LINKS; link++)
            t->links[r].fd[link] = -1;
    MR_TRY(comm_meet(&p, t->shared, t->links));
    return start_listening(t, p.lost_after_s > 0 ? p.lost_after_s : LOST_AFTER_S);
}

mr_status mr_tcp_wire(const mr_tcp_place *place, mr_wire *shared, mr_wire **out)
{
    *out = NULL;
    tcp_wire *t = mr_calloc(1, sizeof *t);
    if (!t) {
        if (shared)
            shared->ops->close(shared, false);
        int listener = place->listener;
        tcp_close(&listener);
        return mr_fail_memory(sizeof *t);
    }
    t->wire = (mr_wire){&tcp_ops, place->rank, place->size};
    t->shared = shared, t->events = t->stop = -1;
    pthread_mutex_init(&t->hearing, NULL);
    mr_status st = open_wire(t, place);
    if (st != MR_OK) {
        close_wire(&t->wire, false);
        return st;
    }
    *out = &t->wire;
    return MR_OK;
}
