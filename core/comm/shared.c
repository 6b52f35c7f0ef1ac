/* comm: the transport between ranks of one host, which are threads or processes. Each pair of ranks
 * has a lock-free ring buffer per lane with one writer and one reader. Each rank has a futex on
 * which it sleeps when nothing moves. Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/room.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    RINGS_BYTES = 64 << 20, /* bytes of all rings, within their least and largest sizes */
    RING_LEAST = 512,
    RING_MOST = 1 << 20,
    TELLERS = 16,           /* most ranks that give up concurrently, each with its text */
    PIECE_BYTES = 64 << 10, /* bytes copied before the other side is notified, so that both copy
                   * concurrently */
    SLEEP_MS = 20           /* most, so that deadlines and lost ranks are noticed */
};
static const uint64_t MAGIC = 0x32676e697465656d; /* "meeting2" */

/* Counters of bytes since the start; their difference is the fill level of the ring. */
typedef struct ring {
    _Alignas(MR_CACHE_LINE) _Atomic uint64_t written;
    _Alignas(MR_CACHE_LINE) _Atomic uint64_t taken;
    _Alignas(MR_CACHE_LINE) char bytes[];
} ring;

typedef struct seat {
    _Alignas(MR_CACHE_LINE) _Atomic uint32_t bell; /* incremented by each event for this rank */
    _Atomic uint32_t sleepers;
    _Atomic uint32_t left; /* the order in which ranks leave, from 1; 0: this one has not left */
} seat;

typedef struct board {
    uint64_t magic;
    int32_t ranks;
    uint32_t ring_bytes; /* a power of two */
    uint64_t bytes;      /* size of the block */
    _Atomic uint32_t tellers, leavers;
    _Atomic uint32_t aborted; /* index of the valid text, from 1; 0: no rank has given up */
    char why[TELLERS][1024];
    seat seats[];
} board;

struct mr_segment {
    board *at;
    int fd;
    bool owns_fd;
};

typedef struct shared_transport {
    mr_transport transport;
    board *at;
    mr_segment *own; /* freed with the transport */
} shared_transport;

/* ---- the block ---- */

static size_t rings_at(int ranks)
{
    return (sizeof(board) + (size_t)ranks * sizeof(seat) + MR_CACHE_LINE - 1) / MR_CACHE_LINE *
           MR_CACHE_LINE;
}

static ring *ring_of(const board *b, int lane, int from, int to)
{
    // rings that a rank reads are adjacent
    size_t n = (size_t)b->ranks, i = ((size_t)lane * n + (size_t)to) * n + (size_t)from;
    return (ring *)(void *)((char *)(uintptr_t)b + rings_at(b->ranks) +
                            i * (sizeof(ring) + b->ring_bytes));
}

static uint32_t ring_bytes_for(int ranks)
{
    uint64_t pairs = (uint64_t)ranks * (uint64_t)ranks * MR_TRANSPORT_LANES;
    uint32_t bytes = RING_MOST;
    while (bytes > RING_LEAST && bytes * pairs > RINGS_BYTES)
        bytes /= 2;
    return bytes;
}

static mr_status map(int fd, size_t bytes, board **out)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (at == MAP_FAILED)
        return mr_fail_memory(bytes);
    *out = at;
    return MR_OK;
}

mr_status mr_segment_new(int ranks, mr_segment **out)
{
    *out = NULL;
    if (ranks < 1 || ranks > MR_SEGMENT_RANKS)
        return mr_fail(MR_E_USAGE, "%d ranks on one host: expected 1 to %d", ranks,
                       MR_SEGMENT_RANKS);
    uint32_t ring_bytes = ring_bytes_for(ranks);
    size_t pairs = (size_t)ranks * (size_t)ranks * MR_TRANSPORT_LANES;
    size_t bytes = rings_at(ranks) + pairs * (sizeof(ring) + ring_bytes);
    mr_segment *m = mr_calloc(1, sizeof *m);
    if (!m)
        return mr_fail_memory(sizeof *m);
    m->fd = memfd_create("moonreel-ranks", 0), m->owns_fd = true;
    if (m->fd < 0 || ftruncate(m->fd, (off_t)bytes) != 0) {
        mr_status st =
            mr_fail(MR_E_MEMORY, "cannot allocate %zu bytes of memory that ranks share: %s", bytes,
                    strerror(errno));
        mr_segment_free(m);
        return st;
    }
    mr_status st = map(m->fd, bytes, &m->at);
    if (st != MR_OK) {
        mr_segment_free(m);
        return st;
    }
    // pages are zero, and are allocated when a ring is first used
    m->at->ranks = ranks, m->at->ring_bytes = ring_bytes, m->at->bytes = bytes;
    m->at->magic = MAGIC;
    *out = m;
    return MR_OK;
}

int mr_segment_fd(const mr_segment *m)
{
    return m->fd;
}

void mr_segment_free(mr_segment *m)
{
    if (!m)
        return;
    if (m->at)
        munmap(m->at, m->at->bytes);
    if (m->owns_fd && m->fd >= 0)
        close(m->fd);
    mr_free(m);
}

/* ---- bells ---- */

static void ring_bell(seat *s)
{
    atomic_fetch_add(&s->bell, 1);
    if (atomic_load(&s->sleepers))
        syscall(SYS_futex, &s->bell, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void comm_wake(mr_transport *w)
{
    ring_bell(&((shared_transport *)w)->at->seats[w->rank]);
}

static uint32_t look(mr_transport *w)
{
    return atomic_load(&((shared_transport *)w)->at->seats[w->rank].bell);
}

static void pause_until(mr_transport *w, uint32_t seen)
{
    seat *s = &((shared_transport *)w)->at->seats[w->rank];
    struct timespec most = {0, SLEEP_MS * 1000000L};
    atomic_fetch_add(&s->sleepers, 1);
    syscall(SYS_futex, &s->bell, FUTEX_WAIT, seen, &most, NULL, 0);
    atomic_fetch_sub(&s->sleepers, 1);
}

/* ---- messages ---- */

static void put(ring *r, uint32_t cap, uint64_t at, const void *from, size_t n)
{
    size_t first = MR_MIN(n, (size_t)(cap - (at & (cap - 1))));
    memcpy(r->bytes + (at & (cap - 1)), from, first);
    memcpy(r->bytes, (const char *)from + first, n - first);
}

static void take(const ring *r, uint32_t cap, uint64_t at, void *to, size_t n)
{
    size_t first = MR_MIN(n, (size_t)(cap - (at & (cap - 1))));
    memcpy(to, r->bytes + (at & (cap - 1)), first);
    memcpy((char *)to + first, r->bytes, n - first);
}

static mr_status send(mr_transport *w, mr_parcel *p)
{
    board *b = ((shared_transport *)w)->at;
    ring *r = ring_of(b, p->lane, w->rank, p->peer);
    uint64_t written = atomic_load_explicit(&r->written, memory_order_relaxed), before = written;
    uint64_t room =
        b->ring_bytes - (written - atomic_load_explicit(&r->taken, memory_order_acquire));
    if (!p->headed) {
        if (room < sizeof p->head)
            return MR_OK;
        put(r, b->ring_bytes, written, &p->head, sizeof p->head);
        written += sizeof p->head, room -= sizeof p->head;
        p->headed = true;
    }
    uint64_t n = MR_MIN(MR_MIN(room, (uint64_t)(p->bytes - p->moved)), (uint64_t)PIECE_BYTES);
    if (n)
        put(r, b->ring_bytes, written, (const char *)p->data + p->moved, n);
    written += n, p->moved += n;
    p->done = p->moved == p->bytes;
    if (written == before)
        return MR_OK;
    atomic_store_explicit(&r->written, written, memory_order_release);
    ring_bell(&b->seats[p->peer]);
    return MR_OK;
}

static mr_status receive(mr_transport *w, mr_parcel *p)
{
    board *b = ((shared_transport *)w)->at;
    ring *r = ring_of(b, p->lane, p->peer, w->rank);
    uint64_t taken = atomic_load_explicit(&r->taken, memory_order_relaxed), before = taken;
    uint64_t ready = atomic_load_explicit(&r->written, memory_order_acquire) - taken;
    if (!p->headed) {
        if (ready < sizeof p->head)
            return MR_OK;
        take(r, b->ring_bytes, taken, &p->head, sizeof p->head);
        taken += sizeof p->head;
        p->headed = true;
    } else {
        uint64_t n = MR_MIN(MR_MIN(ready, (uint64_t)(p->bytes - p->moved)), (uint64_t)PIECE_BYTES);
        if (n)
            take(r, b->ring_bytes, taken, (char *)p->data + p->moved, n);
        taken += n, p->moved += n;
        p->done = p->moved == p->bytes;
    }
    if (taken == before)
        return MR_OK;
    atomic_store_explicit(&r->taken, taken, memory_order_release);
    ring_bell(&b->seats[p->peer]);
    return MR_OK;
}

static void drop(mr_transport *w, mr_parcel *p)
{
    // the rest stays in the ring: the world has ended
    (void)w, (void)p;
}

/* ---- ends ---- */

static bool has_left(mr_transport *w, int rank)
{
    return atomic_load(&((shared_transport *)w)->at->seats[rank].left) != 0;
}

// no bell: a waiting rank checks for lost ranks before it sleeps again
static void leave(board *b, int rank)
{
    if (!atomic_load(&b->seats[rank].left))
        atomic_store(&b->seats[rank].left, atomic_fetch_add(&b->leavers, 1) + 1);
}

void mr_segment_mark_left(mr_segment *m, int rank)
{
    leave(m->at, rank);
}

int mr_segment_left(const mr_segment *m, int rank)
{
    return (int)atomic_load(&m->at->seats[rank].left);
}

/* Each rank writes its own text, and the first complete text is the valid one. So a valid text
 * exists when any rank returns from here, even if another rank is delayed or ends in between. */
static void give_up(board *b, const char *text)
{
    uint32_t none = 0;
    if (atomic_load(&b->aborted))
        return;
    const uint32_t mine = atomic_fetch_add(&b->tellers, 1);
    if (mine >= TELLERS)
        return;
    snprintf(b->why[mine], sizeof b->why[mine], "%s", text);
    atomic_compare_exchange_strong(&b->aborted, &none, mine + 1);
}

void mr_segment_abort(mr_segment *m, const char *text)
{
    give_up(m->at, text);
}

static void abort_all(mr_transport *w, const char *text)
{
    give_up(((shared_transport *)w)->at, text);
}

static bool is_aborted(mr_transport *w, char *text, size_t cap)
{
    board *b = ((shared_transport *)w)->at;
    const uint32_t reason = atomic_load(&b->aborted);
    if (reason)
        snprintf(text, cap, "%s", b->why[reason - 1]);
    return reason != 0;
}

static void close_transport(mr_transport *w, bool clean)
{
    (void)clean;
    leave(((shared_transport *)w)->at, w->rank);
    mr_segment_free(((shared_transport *)w)->own);
    mr_free(w);
}

static const mr_transport_ops shared_ops = {.send = send,
                                            .receive = receive,
                                            .drop = drop,
                                            .left = has_left,
                                            .look = look,
                                            .pause = pause_until,
                                            .abort = abort_all,
                                            .aborted = is_aborted,
                                            .close = close_transport};

mr_status mr_segment_transport(mr_segment *m, int rank, mr_transport **out)
{
    *out = NULL;
    if (rank < 0 || rank >= m->at->ranks)
        return mr_fail(MR_E_USAGE, "rank %d of %d ranks: expected 0 to %d", rank, m->at->ranks,
                       m->at->ranks - 1);
    shared_transport *w = mr_calloc(1, sizeof *w);
    if (!w)
        return mr_fail_memory(sizeof *w);
    w->transport = (mr_transport){&shared_ops, rank, m->at->ranks};
    w->at = m->at;
    *out = &w->transport;
    return MR_OK;
}

mr_status mr_segment_join(int fd, int rank, int size, mr_transport **out)
{
    *out = NULL;
    struct stat st;
    board head;
    if (fstat(fd, &st) != 0 || st.st_size < (off_t)sizeof head ||
        pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head || head.magic != MAGIC ||
        head.bytes != (uint64_t)st.st_size || head.ranks != size ||
        head.ring_bytes != ring_bytes_for(size))
        return mr_fail(MR_E_NODE,
                       "file descriptor %d is not the shared memory of %d ranks of this version; "
                       "try: start the ranks by moonreel -n %d",
                       fd, size, size);
    mr_segment *m = mr_calloc(1, sizeof *m);
    if (!m)
        return mr_fail_memory(sizeof *m);
    m->fd = fd;
    mr_status how = map(fd, head.bytes, &m->at);
    if (how == MR_OK)
        how = mr_segment_transport(m, rank, out);
    if (how == MR_OK)
        ((shared_transport *)*out)->own = m;
    else
        mr_segment_free(m);
    return how;
}
