/* comm: the transport between ranks of several hosts. Two ranks have one connection per lane, which
 * carries frames, and a control connection. The control connection reports that a rank gives up or
 * leaves, and whether its host still answers. Ranks of one host use shared memory instead
 * (shared.c). A thread waits for events on all connections and wakes this rank. If the run has a
 * secret, all bytes travel in sealed records (seal.h): a message is one record for its frame, then
 * records for its bytes.
 * Licence: Apache-2.0 */
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

enum {
    EVENTS = 64,
    RECORD_BYTES = 256 << 10 /* bytes of a message that are sealed together */
};
static const double LOST_AFTER_S = 10;

typedef struct frame {
    uint64_t run, fence;
    mr_comm_head head;
} frame;

/* The receive state of a lane: a frame, or a record of the bytes after it, in the caller's
 * memory. */
typedef struct half_in {
    struct {
        frame frame;
        uint8_t tag[SEAL_TAG];
    } head;
    size_t moved;  /* received bytes of head */
    size_t opened; /* bytes of the message before the current record */
    size_t tagged; /* received bytes of the tag */
    uint8_t tag[SEAL_TAG];
} half_in;

/* The send state of a lane: a frame, plain or sealed, followed by a record of the bytes after
 * it. */
typedef struct half_out {
    struct {
        frame frame;
        uint8_t tag[SEAL_TAG];
    } head;
    size_t moved;        /* sent bytes of head, record and tag */
    size_t heads, bytes; /* sizes of head and of the record */
    const void *record;  /* the caller's memory, or `hidden` */
    uint8_t tag[SEAL_TAG];
    uint8_t *hidden; /* [RECORD_BYTES] encrypted data; NULL until first used */
} half_out;

typedef struct peer {
    half_in in[MR_TRANSPORT_LANES];
    half_out out[MR_TRANSPORT_LANES];
    struct {
        tcp_word word;
        uint8_t tag[SEAL_TAG];
    } said;
    size_t heard; /* received bytes of the control message */
    bool quiet;   /* it has announced that it leaves or gives up */
    _Atomic bool left;
} peer;

typedef struct tcp_transport {
    mr_transport transport;
    mr_transport *shared; /* transport of the ranks of this host, with the bell */
    mr_segment *own;      /* used if this rank is alone on its host */
    int first;            /* first rank of this host */
    uint64_t run, fence;
    tcp_links *links; /* [size] */
    peer *peers;      /* [size] */
    int events, stop;
    pthread_t listener;
    bool listens;
    pthread_mutex_t hearing; /* control messages, read by the listener thread or by a thread that
                              * waits for a rank */
    _Atomic bool sent_why;   /* this rank has sent why the world ended */
} tcp_transport;

static tcp_transport *tcp_of(mr_transport *w)
{
    return (tcp_transport *)w;
}

static bool is_local(const tcp_transport *t, int rank)
{
    return rank >= t->first && rank < t->first + t->shared->size;
}

/* ---- messages ---- */

/* Pass a message to the transport of this host, whose ranks count from the first one of the
 * host. */
static mr_status on_shared(tcp_transport *t, mr_parcel *p,
                           mr_status (*go)(mr_transport *, mr_parcel *))
{
    p->peer -= t->first;
    mr_status st = go(t->shared, p);
    p->peer += t->first;
    return st;
}

/* The bytes that a socket call transferred; 0 if the rank has gone, too. */
static size_t moved_by(tcp_transport *t, int rank, ssize_t n, bool received)
{
    if (n > 0)
        return (size_t)n;
    bool later = n < 0 && (errno == EAGAIN || errno == EINTR);
    if (!later && (n < 0 || received))
        atomic_store(&t->peers[rank].left, true);
    return 0;
}

static size_t send_some(tcp_transport *t, const mr_parcel *p, struct iovec *parts, size_t count)
{
    const struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
    const int fd = t->links[p->peer].fd[p->lane];
    return moved_by(t, p->peer, sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT), false);
}

static mr_status send_plain(tcp_transport *t, half_out *h, mr_parcel *p)
{
    struct iovec parts[] = {
        {(char *)&h->head.frame + h->moved, p->headed ? 0 : sizeof h->head.frame - h->moved},
        {(char *)p->data + p->moved, p->bytes - p->moved}};
    size_t n = send_some(t, p, parts, MR_COUNT(parts));
    size_t of_frame = MR_MIN(n, parts[0].iov_len);
    h->moved += of_frame, p->moved += n - of_frame;
    p->headed = p->headed || h->moved == sizeof h->head.frame;
    p->done = p->headed && p->moved == p->bytes;
    if (p->done)
        h->moved = 0;
    return MR_OK;
}

/* Seal the next records: the frame, and the bytes after it. */
static mr_status seal_next(seal_way *way, half_out *h, mr_parcel *p)
{
    h->moved = h->heads = 0;
    h->bytes = MR_MIN(p->bytes - p->moved, (size_t)RECORD_BYTES);
    h->record = (char *)p->data + p->moved;
    if (!p->headed) {
        frame *f = &h->head.frame;
        MR_TRY(seal_record(way, f, sizeof *f, f, h->head.tag));
        h->heads = sizeof h->head, p->headed = true;
    }
    if (h->bytes == 0)
        return MR_OK;
    if (way->hides && !h->hidden && !(h->hidden = mr_alloc(RECORD_BYTES)))
        return mr_fail_memory(RECORD_BYTES);
    MR_TRY(seal_record(way, h->record, h->bytes, h->hidden, h->tag));
    h->record = way->hides ? h->hidden : h->record, p->moved += h->bytes;
    return MR_OK;
}

static size_t waiting(const half_out *h)
{
    return h->heads + h->bytes + (h->bytes ? SEAL_TAG : 0) - h->moved;
}

static mr_status send_sealed(tcp_transport *t, half_out *h, mr_parcel *p)
{
    if (waiting(h) == 0)
        MR_TRY(seal_next(&t->links[p->peer].out[p->lane], h, p));
    struct iovec parts[] = {{&h->head, h->heads},
                            {(void *)(uintptr_t)h->record, h->bytes},
                            {h->tag, h->bytes ? SEAL_TAG : 0}};
    size_t gone = h->moved;
    for (size_t i = 0; i < MR_COUNT(parts); i++) {
        const size_t n = MR_MIN(gone, parts[i].iov_len);
        parts[i].iov_base = (char *)parts[i].iov_base + n, parts[i].iov_len -= n, gone -= n;
    }
    const size_t n = send_some(t, p, parts, MR_COUNT(parts));
    h->moved += n, p->passed += n;
    p->done = p->moved == p->bytes && waiting(h) == 0;
    return MR_OK;
}

static mr_status send_parcel(mr_transport *w, mr_parcel *p)
{
    tcp_transport *t = tcp_of(w);
    if (is_local(t, p->peer))
        return on_shared(t, p, t->shared->ops->send);
    half_out *h = &t->peers[p->peer].out[p->lane];
    if (!p->headed)
        h->head.frame = (frame){t->run, t->fence, p->head};
    return t->links[p->peer].out[p->lane].on ? send_sealed(t, h, p) : send_plain(t, h, p);
}

/* Open a complete record, if records are sealed. */
static mr_status open_record(tcp_transport *t, const mr_parcel *p, void *data, size_t bytes,
                             const uint8_t *tag)
{
    tcp_links *l = &t->links[p->peer];
    if (!l->in[p->lane].on || seal_open(&l->in[p->lane], data, bytes, tag) == MR_OK)
        return MR_OK;
    char why[200];
    snprintf(why, sizeof why, "%.190s", mr_error_last()->text);
    return mr_fail(MR_E_NODE, "data from rank %d at %s on lane %d failed authentication: %s",
                   p->peer, l->where, p->lane, why);
}

static mr_status check_frame(const tcp_transport *t, const mr_parcel *p, const frame *f)
{
    if (f->run == t->run && f->fence == t->fence)
        return MR_OK;
    return mr_fail(MR_E_NODE,
                   "rank %d at %s sends frames of another run (run %016llx, launch %llu; "
                   "expected %016llx, %llu)",
                   p->peer, t->links[p->peer].where, (unsigned long long)f->run,
                   (unsigned long long)f->fence, (unsigned long long)t->run,
                   (unsigned long long)t->fence);
}

static mr_status receive_head(tcp_transport *t, half_in *h, mr_parcel *p)
{
    const tcp_links *l = &t->links[p->peer];
    const size_t bytes = tcp_sealed(&l->in[p->lane], sizeof h->head.frame);
    const size_t n = moved_by(
        t, p->peer,
        recv(l->fd[p->lane], (char *)&h->head + h->moved, bytes - h->moved, MSG_DONTWAIT), true);
    h->moved += n, p->passed += n;
    if (h->moved < bytes)
        return MR_OK;
    h->moved = h->opened = h->tagged = 0;
    MR_TRY(open_record(t, p, &h->head.frame, sizeof h->head.frame, h->head.tag));
    p->head = h->head.frame.head, p->headed = true;
    return check_frame(t, p, &h->head.frame);
}

/* Receive the bytes of a message, record by record. Bytes count as received only after their tag is
 * verified. */
static mr_status receive_bytes(tcp_transport *t, half_in *h, mr_parcel *p)
{
    const seal_way *way = &t->links[p->peer].in[p->lane];
    const size_t left = p->bytes - h->opened;
    const size_t n = way->on ? MR_MIN(left, (size_t)RECORD_BYTES) : left, tag = tcp_sealed(way, 0);
    struct iovec parts[] = {{(char *)p->data + p->moved, h->opened + n - p->moved},
                            {h->tag + h->tagged, tag - h->tagged}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = MR_COUNT(parts)};
    if (n > 0) {
        const int fd = t->links[p->peer].fd[p->lane];
        size_t came = moved_by(t, p->peer, recvmsg(fd, &message, MSG_DONTWAIT), true);
        size_t of_bytes = MR_MIN(came, parts[0].iov_len);
        p->moved += of_bytes, h->tagged += came - of_bytes, p->passed += came - of_bytes;
        if (p->moved < h->opened + n || h->tagged < tag)
            return MR_OK;
        MR_TRY(open_record(t, p, (char *)p->data + h->opened, n, h->tag));
    }
    h->opened += n, h->tagged = 0;
    p->done = h->opened == p->bytes;
    return MR_OK;
}

static mr_status receive_parcel(mr_transport *w, mr_parcel *p)
{
    tcp_transport *t = tcp_of(w);
    if (is_local(t, p->peer))
        return on_shared(t, p, t->shared->ops->receive);
    half_in *h = &t->peers[p->peer].in[p->lane];
    return p->headed ? receive_bytes(t, h, p) : receive_head(t, h, p);
}

static void drop(mr_transport *w, mr_parcel *p)
{
    // a message that is partly transferred stays so: the world has ended
    tcp_transport *t = tcp_of(w);
    if (is_local(t, p->peer))
        t->shared->ops->drop(t->shared, p);
}

/* ---- control messages ---- */

static void tell_all(tcp_transport *t, uint32_t kind, const char *text)
{
    tcp_word word = {t->run, t->fence, kind, ""};
    snprintf(word.text, sizeof word.text, "%s", text);
    for (int r = 0; r < t->transport.size; r++)
        tcp_tell(&t->links[r], &word);
}

static void abort_all(mr_transport *w, const char *text)
{
    tcp_transport *t = tcp_of(w);
    t->shared->ops->abort(t->shared, text);
    // forward a reason from another rank, too: that rank may not have reached all ranks when this
    // one leaves
    if (!atomic_exchange(&t->sent_why, true))
        tell_all(t, TCP_GIVES_UP, text);
}

static bool is_aborted(mr_transport *w, char *text, size_t cap)
{
    return tcp_of(w)->shared->ops->aborted(tcp_of(w)->shared, text, cap);
}

static uint32_t look(mr_transport *w)
{
    return tcp_of(w)->shared->ops->look(tcp_of(w)->shared);
}

static void pause_until(mr_transport *w, uint32_t seen)
{
    tcp_of(w)->shared->ops->pause(tcp_of(w)->shared, seen);
}

/* ---- the listener thread ---- */

static void lost(tcp_transport *t, int rank, const char *text)
{
    peer *p = &t->peers[rank];
    epoll_ctl(t->events, EPOLL_CTL_DEL, t->links[rank].fd[LINK_CONTROL], NULL);
    if (p->quiet)
        return;
    p->quiet = true;
    char why[256];
    snprintf(why, sizeof why, "rank %d at %s %s", rank, t->links[rank].where, text);
    // every other rank notices the same, unless its host is lost
    t->shared->ops->abort(t->shared, why);
    atomic_store(&p->left, true);
}

static void understand(tcp_transport *t, int rank)
{
    peer *p = &t->peers[rank];
    tcp_word *word = &p->said.word;
    seal_way *way = &t->links[rank].in[LINK_CONTROL];
    p->heard = 0;
    if (way->on && seal_open(way, word, sizeof *word, p->said.tag) != MR_OK) {
        mr_error_clear();
        lost(t, rank,
             "sent a control message that failed authentication; try: check the network between it "
             "and "
             "this host");
        return;
    }
    word->text[sizeof word->text - 1] = 0;
    if (word->run != t->run || word->fence != t->fence ||
        (word->kind != TCP_GIVES_UP && word->kind != TCP_LEAVES)) {
        lost(t, rank, "sends control messages of another run");
        return;
    }
    p->quiet = true;
    if (word->kind == TCP_GIVES_UP)
        t->shared->ops->abort(t->shared, word->text);
}

static void hear_all(tcp_transport *t, int rank)
{
    peer *p = &t->peers[rank];
    char text[128];
    const size_t bytes = tcp_sealed(&t->links[rank].in[LINK_CONTROL], sizeof p->said.word);
    for (;;) {
        ssize_t n = recv(t->links[rank].fd[LINK_CONTROL], (char *)&p->said + p->heard,
                         bytes - p->heard, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n == 0) {
            lost(t, rank, "has ended without a notice");
            return;
        }
        if (n < 0) {
            snprintf(text, sizeof text,
                     "does not answer: %s; try: check that its host is up, and the network to it",
                     strerror(errno));
            lost(t, rank, text);
            return;
        }
        p->heard += (size_t)n;
        if (p->heard == bytes)
            understand(t, rank);
    }
}

static void hear(tcp_transport *t, int rank)
{
    pthread_mutex_lock(&t->hearing);
    hear_all(t, rank);
    pthread_mutex_unlock(&t->hearing);
}

/* Read the control messages of a rank before its loss counts: a lane can close before the listener
 * thread has read on the control connection that the rank gave up. */
static bool has_left(mr_transport *w, int rank)
{
    tcp_transport *t = tcp_of(w);
    if (is_local(t, rank))
        return t->shared->ops->left(t->shared, rank - t->first);
    if (!atomic_load(&t->peers[rank].left))
        return false;
    hear(t, rank);
    return true;
}

static void *listen_for_all(void *arg)
{
    tcp_transport *t = arg;
    struct epoll_event events[EVENTS];
    for (;;) {
        int n = epoll_wait(t->events, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            const int rank = (int)(events[i].data.u64 >> 8), link = events[i].data.u64 & 0xff;
            if (rank == t->transport.size)
                return NULL;
            if (link == LINK_CONTROL)
                hear(t, rank);
        }
        comm_wake(t->shared);
    }
}

/* Let the kernel detect a host that does not answer. It also answers for a stopped process, so a
 * long silence on this connection is normal. */
static void watch_host(int fd, double lost_after_s)
{
    const int on = 1, every = 1, idle = MR_MAX(1, (int)(lost_after_s / 3));
    const int count = MR_MAX(1, (int)lost_after_s - idle);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

static mr_status add_event(tcp_transport *t, int fd, uint32_t what, int rank, int link)
{
    struct epoll_event e = {.events = what, .data.u64 = (uint64_t)rank << 8 | (uint64_t)link};
    return epoll_ctl(t->events, EPOLL_CTL_ADD, fd, &e) == 0
               ? MR_OK
               : mr_fail(MR_E_NODE, "cannot watch the connection to rank %d: %s", rank,
                         strerror(errno));
}

static mr_status start_listening(tcp_transport *t, double lost_after_s)
{
    t->events = epoll_create1(EPOLL_CLOEXEC), t->stop = eventfd(0, EFD_CLOEXEC);
    if (t->events < 0 || t->stop < 0)
        return mr_fail(MR_E_NODE, "cannot watch the connections to other ranks: %s",
                       strerror(errno));
    MR_TRY(add_event(t, t->stop, EPOLLIN, t->transport.size, 0));
    for (int r = 0; r < t->transport.size; r++) {
        const int *fd = t->links[r].fd;
        for (int link = 0; link < MR_TRANSPORT_LANES; link++)
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

static void close_transport(mr_transport *w, bool clean)
{
    tcp_transport *t = tcp_of(w);
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
            tcp_hang_up(&t->links[r], link);
    for (int r = 0; t->peers && r < w->size; r++)
        for (int lane = 0; lane < MR_TRANSPORT_LANES; lane++)
            mr_free(t->peers[r].out[lane].hidden);
    tcp_close(&t->events), tcp_close(&t->stop);
    if (t->shared)
        t->shared->ops->close(t->shared, clean);
    mr_segment_free(t->own);
    pthread_mutex_destroy(&t->hearing);
    mr_free(t->links), mr_free(t->peers), mr_free(t);
}

static const mr_transport_ops tcp_ops = {.send = send_parcel,
                                         .receive = receive_parcel,
                                         .drop = drop,
                                         .left = has_left,
                                         .look = look,
                                         .pause = pause_until,
                                         .abort = abort_all,
                                         .aborted = is_aborted,
                                         .close = close_transport,
                                         .farewell = true};

static mr_status open_transport(tcp_transport *t, const mr_tcp_place *place)
{
    mr_tcp_place p = *place;
    const size_t n = (size_t)MR_MAX(p.size, 1);
    if (!t->shared) {
        MR_TRY(mr_segment_new(1, &t->own));
        MR_TRY(mr_segment_transport(t->own, 0, &t->shared));
        p.first = p.rank, p.n_local = 1;
    }
    t->first = p.first, t->run = p.run, t->fence = p.fence;
    t->links = mr_calloc(n, sizeof *t->links), t->peers = mr_calloc(n, sizeof *t->peers);
    if (!t->links || !t->peers)
        return mr_fail_memory(n * sizeof *t->peers);
    for (size_t r = 0; r < n; r++)
        for (int link = 0; link < LINKS; link++)
            t->links[r].fd[link] = -1;
    MR_TRY(comm_rendezvous(&p, t->shared, t->links));
    return start_listening(t, p.lost_after_s > 0 ? p.lost_after_s : LOST_AFTER_S);
}

mr_status mr_tcp_transport(const mr_tcp_place *place, mr_transport *shared, mr_transport **out)
{
    *out = NULL;
    tcp_transport *t = mr_calloc(1, sizeof *t);
    if (!t) {
        if (shared)
            shared->ops->close(shared, false);
        int listener = place->listener;
        tcp_close(&listener);
        return mr_fail_memory(sizeof *t);
    }
    t->transport = (mr_transport){&tcp_ops, place->rank, place->size};
    t->shared = shared, t->events = t->stop = -1;
    pthread_mutex_init(&t->hearing, NULL);
    mr_status st = open_transport(t, place);
    if (st != MR_OK) {
        close_transport(&t->transport, false);
        return st;
    }
    *out = &t->transport;
    return MR_OK;
}
