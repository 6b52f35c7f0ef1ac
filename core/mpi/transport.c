/* mpi: the transport that carries messages of ranks over MPI. It makes only non-blocking calls, so
 * that core/comm/messages.c, which waits, can check deadlines and lost ranks. Licence:
 * Apache-2.0 */
#include "moonreel/transport.h"

#include <errno.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

MR_API mr_mpi_entry_fn mr_mpi_entry;

enum {
    SMALL = 4096,     /* bytes that are sent with the head */
    PIECE = 64 << 20, /* most bytes of one MPI message: MPI counts in int */
    TAG_ABORT = MR_TRANSPORT_LANES,
    WHY = 512
};

typedef struct mpi_transport {
    mr_transport transport;
    char sent[WHY], why[WHY]; /* reason to abort: as sent, as received */
    bool aborted;
} mpi_transport;

/* State of a parcel: the pending request and the buffer for the head and the bytes sent with it. */
typedef struct letter {
    MPI_Request request;
    size_t asked; /* bytes of the body that are sent or requested */
    struct {
        mr_comm_head head;
        char body[SMALL];
    } first;
} letter;

static mr_status failed(const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING];
    int n = 0;
    MPI_Error_string(code, text, &n);
    return mr_fail(MR_E_NODE, "%s failed: MPI reports: %.*s", what, n, text);
}

#define MPI_TRY(what, call)                                                                        \
    do {                                                                                           \
        int mpi_try_code_ = (call);                                                                \
        if (mpi_try_code_ != MPI_SUCCESS)                                                          \
            return failed(what, mpi_try_code_);                                                    \
    } while (0)

/* ---- messages ---- */

static mr_status open_letter(mr_parcel *p)
{
    letter *l = mr_calloc(1, sizeof *l);
    if (!l)
        return mr_fail_memory(sizeof *l);
    l->request = MPI_REQUEST_NULL;
    p->state = l;
    return MR_OK;
}

static void finish(mr_parcel *p)
{
    mr_free(p->state);
    p->state = NULL;
    p->done = true;
}

/* Test whether the pending request is complete. */
static mr_status ended(letter *l, const char *what, bool *yes)
{
    int flag = 0;
    MPI_TRY(what, MPI_Test(&l->request, &flag, MPI_STATUS_IGNORE));
    *yes = flag != 0;
    return MR_OK;
}

/* The last piece is complete. Returns how many bytes to request next, from p->moved on; 0 after the
 * last piece. */
static size_t next_piece(mr_parcel *p)
{
    letter *l = p->state;
    p->moved = l->asked;
    size_t n = MR_MIN(p->bytes - p->moved, (size_t)PIECE);
    l->asked += n;
    if (n == 0)
        finish(p);
    return n;
}

static mr_status send(mr_transport *w, mr_parcel *p)
{
    (void)w;
    bool yes = false;
    if (!p->state) {
        MR_TRY(open_letter(p));
        letter *l = p->state;
        size_t with = p->bytes <= SMALL ? p->bytes : 0;
        l->first.head = p->head;
        if (with)
            memcpy(l->first.body, p->data, with);
        l->asked = p->moved = with;
        p->headed = true;
        MPI_TRY("send", MPI_Isend(&l->first, (int)(sizeof p->head + with), MPI_BYTE, p->peer,
                                  p->lane, MPI_COMM_WORLD, &l->request));
    }
    letter *l = p->state;
    MR_TRY(ended(l, "send", &yes));
    if (!yes)
        return MR_OK;
    size_t n = next_piece(p);
    if (n == 0)
        return MR_OK;
    MPI_TRY("send", MPI_Isend((char *)p->data + p->moved, (int)n, MPI_BYTE, p->peer, p->lane,
                              MPI_COMM_WORLD, &l->request));
    return MR_OK;
}

static mr_status receive(mr_transport *w, mr_parcel *p)
{
    (void)w;
    bool yes = false;
    if (!p->state) {
        MR_TRY(open_letter(p));
        letter *l = p->state;
        MPI_TRY("receive", MPI_Irecv(&l->first, sizeof l->first, MPI_BYTE, p->peer, p->lane,
                                     MPI_COMM_WORLD, &l->request));
    }
    letter *l = p->state;
    MR_TRY(ended(l, "receive", &yes));
    if (!yes)
        return MR_OK;
    if (!p->headed) {
        p->head = l->first.head;
        p->headed = true;
        return MR_OK;
    }
    if (p->bytes <= SMALL && p->bytes) {
        memcpy(p->data, l->first.body, p->bytes);
        l->asked = p->bytes;
    }
    size_t n = next_piece(p);
    if (n == 0)
        return MR_OK;
    MPI_TRY("receive", MPI_Irecv((char *)p->data + p->moved, (int)n, MPI_BYTE, p->peer, p->lane,
                                 MPI_COMM_WORLD, &l->request));
    return MR_OK;
}

static void drop(mr_transport *w, mr_parcel *p)
{
    (void)w;
    letter *l = p->state;
    p->state = NULL;
    int flag = 0;
    if (!l)
        return;
    if (MPI_Test(&l->request, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS && flag)
        mr_free(l);
    // else MPI can still write there: leak it, the process ends soon
}

/* ---- ends ---- */

static bool left(mr_transport *w, int rank)
{
    // MPI ends the whole job if one of its processes ends
    (void)w, (void)rank;
    return false;
}

static uint32_t look(mr_transport *w)
{
    (void)w;
    return 0;
}

static void pause_a_little(mr_transport *w, uint32_t seen)
{
    // MPI makes progress only during calls: return at once
    (void)w, (void)seen;
    sched_yield();
}

static void abort_all(mr_transport *w, const char *text)
{
    mpi_transport *m = (mpi_transport *)w;
    if (m->sent[0])
        return;
    snprintf(m->sent, sizeof m->sent, "%s", text);
    for (int r = 0; r < w->size; r++) {
        MPI_Request request = MPI_REQUEST_NULL;
        int flag = 0;
        if (r == w->rank ||
            MPI_Isend(m->sent, WHY, MPI_BYTE, r, TAG_ABORT, MPI_COMM_WORLD, &request))
            continue;
        MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    }
}

static bool is_aborted(mr_transport *w, char *text, size_t cap)
{
    mpi_transport *m = (mpi_transport *)w;
    int flag = 0;
    MPI_Status status;
    if (!m->aborted &&
        MPI_Iprobe(MPI_ANY_SOURCE, TAG_ABORT, MPI_COMM_WORLD, &flag, &status) == MPI_SUCCESS &&
        flag)
        m->aborted = MPI_Recv(m->why, WHY, MPI_BYTE, status.MPI_SOURCE, TAG_ABORT, MPI_COMM_WORLD,
                              MPI_STATUS_IGNORE) == MPI_SUCCESS;
    m->why[WHY - 1] = 0;
    if (m->aborted)
        snprintf(text, cap, "%s", m->why);
    return m->aborted;
}

static void close_transport(mr_transport *w, bool clean)
{
    // without MPI_Finalize, mpirun regards the process as failed and reports its exit code
    if (clean)
        MPI_Finalize();
    mr_free(w);
}

static const mr_transport_ops mpi_ops = {.send = send,
                                         .receive = receive,
                                         .drop = drop,
                                         .left = left,
                                         .look = look,
                                         .pause = pause_a_little,
                                         .abort = abort_all,
                                         .aborted = is_aborted,
                                         .close = close_transport,
                                         .farewell = true};

/* ---- joining ---- */

/* MPI_Init waits for all ranks and has no deadline, so a separate thread calls it. The call can
 * return late, so its state is static. */
typedef struct start {
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool ended;
    int code, threads;
} start;
static start starting = {.lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

static void *start_mpi(void *arg)
{
    start *s = arg;
    int threads = 0, code = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &threads);
    pthread_mutex_lock(&s->lock);
    s->code = code, s->threads = threads, s->ended = true;
    pthread_cond_signal(&s->done);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static mr_status join(double deadline_s)
{
    start *s = &starting;
    pthread_t thread;
    struct timespec until;
    int how = 0, already = 0;
    MPI_Initialized(&already);
    if (already)
        return mr_fail(MR_E_USAGE,
                       "this process has joined a world of MPI before; try: a new process");
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)deadline_s + 1;
    if ((how = pthread_create(&thread, NULL, start_mpi, s)) != 0)
        return mr_fail(MR_E_NODE, "cannot start a thread: %s", strerror(how));
    pthread_detach(thread);
    pthread_mutex_lock(&s->lock);
    while (!s->ended && how != ETIMEDOUT)
        how = pthread_cond_timedwait(&s->done, &s->lock, &until);
    bool ended = s->ended;
    int code = s->code, threads = s->threads;
    pthread_mutex_unlock(&s->lock);
    if (!ended)
        return mr_fail(MR_E_NODE,
                       "MPI did not start within %g s: a rank is missing; try: read the output of "
                       "the other ranks",
                       deadline_s);
    if (code != MPI_SUCCESS)
        return failed("start", code);
    if (threads < MPI_THREAD_MULTIPLE)
        return mr_fail(MR_E_NODE,
                       "this MPI supports calls from one thread only; try: Open MPI 4.1 or newer");
    return MR_OK;
}

static mr_status open_transport(int rank, int size, double deadline_s, mr_transport **out)
{
    *out = NULL;
    int mpi_rank = 0, mpi_size = 0;
    MR_TRY(join(deadline_s));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &mpi_rank), MPI_Comm_size(MPI_COMM_WORLD, &mpi_size);
    if (mpi_rank != rank || mpi_size != size)
        return mr_fail(MR_E_NODE,
                       "the environment says rank %d of %d, MPI says rank %d of %d; try: mpirun, "
                       "srun --mpi=pmix, or moonreel -n %d on one host",
                       rank, size, mpi_rank, mpi_size, size);
    mpi_transport *m = mr_calloc(1, sizeof *m);
    if (!m)
        return mr_fail_memory(sizeof *m);
    m->transport = (mr_transport){&mpi_ops, rank, size};
    *out = &m->transport;
    return MR_OK;
}

/* ---- calls of MPI itself, for comparison ---- */

static mr_status there_and_back(void *x, int n)
{
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank > 1)
        return MR_OK;
    for (int turn = 0; turn < 2; turn++) {
        if (rank == turn)
            MPI_TRY("send", MPI_Send(x, n, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD));
        else
            MPI_TRY("receive",
                    MPI_Recv(x, n, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
    return MR_OK;
}

static mr_status raw(mr_comm_op op, void *x, size_t bytes)
{
    int started = 0;
    MPI_Initialized(&started);
    if (!started || bytes > PIECE)
        return mr_fail(MR_E_USAGE,
                       "cannot measure MPI with %zu bytes: expected at most %d bytes, in a run "
                       "that MPI has started",
                       bytes, PIECE);
    const int n = (int)bytes;
    switch (op) {
    case MR_COMM_BARRIER: MPI_TRY("barrier", MPI_Barrier(MPI_COMM_WORLD)); return MR_OK;
    case MR_COMM_BROADCAST:
        MPI_TRY("broadcast", MPI_Bcast(x, n, MPI_BYTE, 0, MPI_COMM_WORLD));
        return MR_OK;
    case MR_COMM_ALL_REDUCE:
        MPI_TRY("all_reduce",
                MPI_Allreduce(MPI_IN_PLACE, x, n / 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
        return MR_OK;
    case MR_COMM_SEND: return there_and_back(x, n);
    default:
        return mr_fail(
            MR_E_USAGE,
            "cannot measure this op of MPI; expected barrier, broadcast, all_reduce or send");
    }
}

const mr_mpi *mr_mpi_entry(void)
{
    static const mr_mpi table = {
        .version = MR_TRANSPORT_VERSION, .open = open_transport, .raw = raw};
    return &table;
}
