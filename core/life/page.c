/* life: the status page of a launch in shared memory: creates, finds and maps it. Each rank writes
 * its own slot.
 * Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "moonreel/life.h"
#include "base/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BINS = 128 /* of a histogram of durations; four bins per power of two, from 1 us */
};
static const uint64_t MAGIC = 0x3465676170657966; /* "fyepage4"; since version 4 the launch locks
                                                   * its page */

typedef struct slot {
    _Atomic uint64_t number; /* 0 while the slot is being written */
    _Atomic double ended_s;
    double wait_s; /* when it last began to wait */
    mr_life_op op;
} slot;

typedef struct seat {
    _Alignas(MR_CACHE_LINE) _Atomic int64_t pid;
    int64_t start;
    _Atomic int64_t step, steps;
    _Atomic uint32_t phase;
    _Atomic double phase_s, beat_s, step_s;
    /* seconds spent waiting in operations: in all, at the start of the step, and of the phase */
    _Atomic double waited_s, step_waited_s, phase_waited_s;
    _Atomic double own_s[MR_LIFE_STEPS]; /* by step */
    _Atomic int64_t own_step[MR_LIFE_STEPS];
    _Atomic uint32_t took[MR_PHASE_COUNT][BINS];
    char clip[160], frames[1024];
    _Atomic uint64_t ops;
    slot ring[MR_LIFE_OPS];
} seat;

typedef struct block {
    uint64_t magic;
    uint64_t bytes;
    mr_life_launch about;
    seat seats[];
} block;

struct mr_life {
    block *at;
    int fd;
    bool made;
    char path[4096];
};

/* The page and the seat that this process writes to. */
static mr_life *own;
static seat *mine;
static _Thread_local char place[56];

const char *mr_phase_name(mr_phase phase)
{
    static const char *const names[] = {"start",     "meet",     "open",   "device",  "index",
                                        "weights",   "compile",  "load",   "forward", "reduce",
                                        "optimizer", "snapshot", "persist"};
    return (unsigned)phase < MR_PHASE_COUNT ? names[phase] : "?";
}

mr_phase mr_phase_from_name(const char *name)
{
    int phase = 0;
    while (phase < MR_PHASE_COUNT && strcmp(name, mr_phase_name((mr_phase)phase)) != 0)
        phase++;
    return (mr_phase)phase;
}

/* ---- making and finding ---- */

// if other users can write to the folder, it could contain their pages
static bool is_ours(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
           (st.st_mode & 077) == 0;
}

bool mr_life_publishes(void)
{
    return mine != NULL;
}

bool mr_life_registry(char *path, size_t cap)
{
    static const char *const roots[] = {"/dev/shm", "/tmp"};
    const char *given = getenv("MOONREEL_REGISTRY");
    if (given && *given) {
        snprintf(path, cap, "%s", given);
        mkdir(path, 0700);
        return is_ours(path);
    }
    for (size_t i = 0; i < MR_COUNT(roots); i++) {
        snprintf(path, cap, "%s/moonreel-%u", roots[i], (unsigned)geteuid());
        mkdir(path, 0700);
        if (is_ours(path))
            return true;
    }
    return false;
}

static size_t bytes_for(int ranks)
{
    return sizeof(block) + (size_t)ranks * sizeof(seat);
}

static mr_status map(mr_life *page, size_t bytes, bool writes)
{
    void *at =
        mmap(NULL, bytes, writes ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, page->fd, 0);
    if (at == MAP_FAILED)
        return mr_fail_memory(bytes);
    page->at = at;
    return MR_OK;
}

static void describe(mr_life_launch *about, int ranks, int first, int world)
{
    uint64_t random[2] = {0};
    mr_process self;
    about->ranks = ranks, about->first = first, about->world = world;
    about->uid = geteuid(), about->pid = getpid();
    if (mr_process_read(0, &self) && self.pid == about->pid)
        about->start = self.start;
    if (gethostname(about->host, sizeof about->host - 1))
        snprintf(about->host, sizeof about->host, "unknown");
    if (getrandom(random, sizeof random, 0) != sizeof random)
        random[0] = (uint64_t)about->pid, random[1] = (uint64_t)about->start;
    snprintf(about->token, sizeof about->token, "%016llx%016llx", (unsigned long long)random[0],
             (unsigned long long)random[1]);
}

static mr_life *page_new(void)
{
    mr_life *page = mr_calloc(1, sizeof *page);
    if (page)
        page->fd = -1;
    return page;
}

/* Removes the pages of killed launches. A launch locks its page. The kernel keeps the lock while
 * the launcher or a rank lives, even in another container that shares this folder. */
static void sweep(const char *folder)
{
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        uint64_t magic = 0;
        int fd = openat(dirfd(dir), e->d_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
        if (fd >= 0 && pread(fd, &magic, sizeof magic, 0) == (ssize_t)sizeof magic &&
            magic == MAGIC && flock(fd, LOCK_EX | LOCK_NB) == 0)
            unlinkat(dirfd(dir), e->d_name, 0);
        if (fd >= 0)
            close(fd);
    }
    if (dir)
        closedir(dir);
}

/* Creates a file of a page's size in the registry. If the registry is missing or full, uses
 * anonymous memory. Allocates the disk space now: on a full disk, a write to a mapped page would
 * kill the process with a signal. */
static int open_new(mr_life *page, const mr_life_launch *about, size_t bytes)
{
    char folder[3900];
    if (mr_life_registry(folder, sizeof folder)) {
        sweep(folder);
        snprintf(page->path, sizeof page->path, "%s/%lld-%.8s", folder, (long long)about->pid,
                 about->token);
        int fd = open(page->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
        // Lock and write MAGIC before allocating: if this process is killed meanwhile, the next
        // sweep recognises the file by its MAGIC, finds it unlocked and removes it. Readers accept
        // the page only after mr_life_new has written its length.
        if (fd >= 0 && flock(fd, LOCK_SH) == 0 &&
            pwrite(fd, &MAGIC, sizeof MAGIC, 0) == (ssize_t)sizeof MAGIC &&
            posix_fallocate(fd, 0, (off_t)bytes) == 0)
            return fd;
        if (fd >= 0)
            close(fd), unlink(page->path);
    }
    page->path[0] = 0;
    int fd = memfd_create("moonreel-life", 0);
    if (fd >= 0 && (errno = posix_fallocate(fd, 0, (off_t)bytes)) != 0)
        close(fd), fd = -1;
    return fd;
}

mr_status mr_life_new(int ranks, int first, int world, mr_life **out)
{
    *out = NULL;
    if (ranks < 1 || ranks > MR_LIFE_RANKS)
        return mr_fail(MR_E_USAGE, "%d ranks on one host: expected 1 to %d", ranks, MR_LIFE_RANKS);
    const size_t bytes = bytes_for(ranks);
    mr_life_launch about = {0};
    mr_life *page = page_new();
    if (!page)
        return mr_fail_memory(sizeof *page);
    page->made = true;
    describe(&about, ranks, first, world);
    page->fd = open_new(page, &about, bytes);
    mr_status st = page->fd >= 0 ? map(page, bytes, true)
                                 : mr_fail(MR_E_MEMORY, "cannot make a page of %zu bytes: %s",
                                           bytes, strerror(errno));
    if (st != MR_OK) {
        mr_life_free(page);
        return st;
    }
    page->at->about = about, page->at->magic = MAGIC;
    page->at->bytes = bytes;
    *out = page;
    return MR_OK;
}

/* Maps the file page->fd if it is a page. */
static mr_status map_found(mr_life *page, const char *name, bool writes)
{
    struct stat st;
    block head;
    if (fstat(page->fd, &st) != 0 || st.st_size < (off_t)sizeof head ||
        pread(page->fd, &head, sizeof head, 0) != (ssize_t)sizeof head || head.magic != MAGIC ||
        head.bytes != (uint64_t)st.st_size || head.about.ranks < 1 ||
        head.about.ranks > MR_LIFE_RANKS || bytes_for(head.about.ranks) != head.bytes)
        return mr_fail(MR_E_FORMAT, "%s: is not the status page of a launch of this version", name);
    return map(page, (size_t)st.st_size, writes);
}

mr_status mr_life_open(const char *path, mr_life **out)
{
    *out = NULL;
    mr_life *page = page_new();
    if (!page)
        return mr_fail_memory(sizeof *page);
    snprintf(page->path, sizeof page->path, "%s", path);
    page->fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    mr_status st = page->fd < 0 ? mr_fail(MR_E_IO, "%s: cannot open: %s", path, strerror(errno))
                                : map_found(page, path, false);
    if (st != MR_OK) {
        mr_life_free(page);
        return st;
    }
    *out = page;
    return MR_OK;
}

mr_status mr_life_view(const mr_life *of, mr_life **out)
{
    *out = NULL;
    mr_life *page = page_new();
    if (!page)
        return mr_fail_memory(sizeof *page);
    snprintf(page->path, sizeof page->path, "%s", of->path);
    page->fd = fcntl(of->fd, F_DUPFD_CLOEXEC, 0);
    mr_status st = page->fd < 0 ? mr_fail(MR_E_IO, "a page: %s", strerror(errno))
                                : map(page, of->at->bytes, false);
    if (st != MR_OK) {
        mr_life_free(page);
        return st;
    }
    *out = page;
    return MR_OK;
}

int mr_life_fd(const mr_life *page)
{
    return page->fd;
}

void mr_life_free(mr_life *page)
{
    if (!page)
        return;
    if (page == own)
        own = NULL, mine = NULL;
    if (page->at)
        munmap(page->at, page->at->bytes);
    if (page->fd >= 0)
        close(page->fd);
    if (page->made && page->path[0])
        unlink(page->path);
    mr_free(page);
}

void mr_life_take(mr_life *page, int number)
{
    seat *s = &page->at->seats[number];
    mr_process self;
    own = page;
    s->start = mr_process_read(0, &self) ? self.start : 0;
    atomic_store(&s->phase_s, mr_now_s());
    atomic_store(&s->beat_s, mr_now_s());
    atomic_store(&s->step_s, mr_now_s());
    atomic_store(&s->pid, getpid());
    mine = s;
}

mr_status mr_life_join(int fd, int number)
{
    char name[32];
    mr_life *page = page_new();
    if (!page)
        return mr_fail_memory(sizeof *page);
    page->fd = fd;
    snprintf(name, sizeof name, "descriptor %d", fd);
    mr_status st = map_found(page, name, true);
    if (st == MR_OK && (number < 0 || number >= page->at->about.ranks))
        st = mr_fail(MR_E_FORMAT, "%s: seat %d of %d", name, number, page->at->about.ranks);
    // a child of a rank inherits the descriptor but not the seat
    bool ours = st == MR_OK && atomic_load(&page->at->seats[number].pid) == getpid();
    if (ours)
        mr_life_take(page, number);
    page->fd = ours ? fd : -1;
    if (!ours)
        mr_life_free(page);
    return st;
}

/* ---- publishing ---- */

static void put_text(char *to, size_t cap, const char *text)
{
    // the last byte stays 0: a concurrent reader always finds an end
    strncpy(to, text, cap - 1);
}

void mr_life_set_run(const char *id, const char *dir, int64_t fence)
{
    if (!own)
        return;
    mr_life_launch *a = &own->at->about;
    put_text(a->dir, sizeof a->dir, dir);
    a->fence = fence;
    put_text(a->run, sizeof a->run, id);
}

void mr_life_set_job(const char *job)
{
    if (own)
        put_text(own->at->about.job, sizeof own->at->about.job, job);
}

static int bin_of(double seconds)
{
    double n = 4 * log2(MR_MAX(seconds, 1e-6) * 1e6);
    return (int)MR_MIN(n, (double)(BINS - 1));
}

mr_phase mr_life_phase(mr_phase phase)
{
    if (!mine)
        return phase;
    const double now = mr_now_s(), waited = atomic_load(&mine->waited_s);
    const double others_s = waited - atomic_load(&mine->phase_waited_s);
    const mr_phase before = (mr_phase)atomic_load(&mine->phase);
    if (phase != before)
        atomic_fetch_add(&mine->took[before][bin_of(now - atomic_load(&mine->phase_s) - others_s)],
                         1);
    atomic_store(&mine->phase_waited_s, waited);
    atomic_store(&mine->phase, (uint32_t)phase);
    atomic_store(&mine->phase_s, now);
    atomic_store(&mine->beat_s, now);
    return before;
}

void mr_life_step(int64_t step)
{
    if (!mine)
        return;
    const double now = mr_now_s(), waited = atomic_load(&mine->waited_s);
    const int64_t done = atomic_load(&mine->step), i = done % MR_LIFE_STEPS;
    double took = now - atomic_load(&mine->step_s);
    if (atomic_fetch_add(&mine->steps, 1) > 0 && done >= 0) {
        atomic_store(&mine->own_step[i], -1);
        atomic_store(&mine->own_s[i],
                     MR_MAX(took - (waited - atomic_load(&mine->step_waited_s)), took / 64));
        atomic_store(&mine->own_step[i], done);
    }
    atomic_store(&mine->step_waited_s, waited);
    atomic_store(&mine->step_s, now);
    atomic_store(&mine->step, step);
    atomic_store(&mine->beat_s, now);
}

void mr_life_clip(const char *name)
{
    if (mine)
        put_text(mine->clip, sizeof mine->clip, name);
}

void mr_life_frames(const char *text)
{
    if (mine)
        put_text(mine->frames, sizeof mine->frames, text);
}

void mr_life_set_where(const char *where)
{
    put_text(place, sizeof place, where);
}

uint64_t mr_life_op_begin(const mr_life_op *op)
{
    if (!mine)
        return 0;
    const uint64_t number = atomic_fetch_add(&mine->ops, 1) + 1;
    slot *s = &mine->ring[number % MR_LIFE_OPS];
    atomic_store(&s->number, 0);
    s->op = *op;
    s->op.number = number, s->op.began_s = mr_now_s();
    memcpy(s->op.where, place, sizeof place);
    atomic_store(&s->ended_s, s->op.began_s);
    atomic_store(&s->number, number);
    return number;
}

/* NULL: newer operations have reused its slot. */
static slot *slot_of(uint64_t number)
{
    slot *s = mine && number ? &mine->ring[number % MR_LIFE_OPS] : NULL;
    return s && atomic_load(&s->number) == number ? s : NULL;
}

void mr_life_op_wait(uint64_t number)
{
    slot *s = slot_of(number);
    if (!s)
        return;
    s->wait_s = mr_now_s();
    atomic_store(&s->ended_s, 0);
}

void mr_life_op_end(uint64_t number, uint64_t bytes)
{
    slot *s = slot_of(number);
    if (!s)
        return;
    const double now = mr_now_s(), took = now - s->wait_s;
    double before = atomic_load(&mine->waited_s);
    s->op.bytes += bytes;
    atomic_store(&s->ended_s, now);
    while (!atomic_compare_exchange_weak(&mine->waited_s, &before, before + took)) {}
    atomic_store(&mine->beat_s, now);
}

/* ---- reading ---- */

void mr_life_about(const mr_life *page, mr_life_launch *out)
{
    *out = page->at->about;
}

/* False if the slot does not contain this operation, or not any more. */
static bool read_op(const seat *s, uint64_t number, mr_life_op *out)
{
    slot *at = (slot *)(uintptr_t)&s->ring[number % MR_LIFE_OPS];
    if (atomic_load(&at->number) != number)
        return false;
    *out = at->op;
    out->ended_s = atomic_load(&at->ended_s);
    return atomic_load(&at->number) == number;
}

void mr_life_look(const mr_life *page, int number, mr_life_rank *out)
{
    enum { NEAR = 16 }; // unfinished operations are among the newest
    seat *s = &page->at->seats[number];
    mr_life_op op;
    *out = (mr_life_rank){.rank = page->at->about.first + number,
                          .pid = atomic_load(&s->pid),
                          .start = s->start,
                          .step = atomic_load(&s->step),
                          .steps = atomic_load(&s->steps),
                          .phase = (mr_phase)atomic_load(&s->phase),
                          .phase_s = atomic_load(&s->phase_s),
                          .beat_s = atomic_load(&s->beat_s),
                          .ops = atomic_load(&s->ops)};
    memcpy(out->clip, s->clip, sizeof out->clip - 1);
    memcpy(out->frames, s->frames, sizeof out->frames - 1);
    for (uint64_t n = out->ops, i = 0; n > 0 && i < NEAR; n--, i++) {
        if (!read_op(s, n, &op))
            continue;
        if (op.ended_s == 0)
            out->open = op;
        else if (!out->last.number)
            out->last = op;
    }
}

int mr_life_ops(const mr_life *page, int number, mr_life_op *out)
{
    const seat *s = &page->at->seats[number];
    const uint64_t newest = atomic_load((_Atomic uint64_t *)(uintptr_t)&s->ops);
    int n = 0;
    for (uint64_t i = newest > MR_LIFE_OPS ? newest - MR_LIFE_OPS + 1 : 1; i <= newest; i++)
        n += read_op(s, i, &out[n]);
    return n;
}

double mr_life_own_s(const mr_life *page, int number, int64_t step)
{
    seat *s = &page->at->seats[number];
    const int64_t i = step % MR_LIFE_STEPS;
    double seconds = atomic_load(&s->own_s[i]);
    return step >= 0 && atomic_load(&s->own_step[i]) == step ? seconds : 0;
}

double mr_life_quantile_s(const mr_life *page, mr_phase phase, double share, int64_t *count)
{
    int64_t bins[BINS] = {0};
    *count = 0;
    for (int r = 0; r < page->at->about.ranks; r++)
        for (int b = 0; b < BINS; b++) {
            int64_t n = atomic_load(&page->at->seats[r].took[phase][b]);
            bins[b] += n, *count += n;
        }
    int64_t below = 0;
    for (int b = 0; b < BINS; b++) {
        below += bins[b];
        if (below > 0 && (double)below >= share * (double)*count)
            return 1e-6 * exp2((b + 1) / 4.0);
    }
    return 0;
}
