/* index/guard: a decoder in a process of its own returns what one in this process does, and its
 * crashes count as faults of one clip.
 * Covers: core/index/fork_server.c core/index/guarded.c */
#include "base/process.h"
#include "check.h"
#include "clips.h"
#include "index/guard.h"
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

enum { FRAMES = 40 };
static const mr_media *m;

// scan and read of both tables, from the same file
static void same(mr_media_worker *here, mr_media_worker *there, const char *name)
{
    const mr_media *g = mr_media_guarded();
    const char *path = clips_path(name);
    mr_clip_info a, b;
    mr_fault fault;
    if (!CHECK_OK(m->scan(here, path, 0, &a, &fault)) ||
        !CHECK_OK(g->scan(there, path, 0, &b, &fault)))
        return;
    CHECK_INT(a.frames, b.frames);
    CHECK_INT(a.n_keys, b.n_keys);
    CHECK(memcmp(a.key_pts, b.key_pts, sizeof *a.key_pts * (size_t)a.n_keys) == 0);
    CHECK_STR(a.codec, b.codec);
    CHECK(a.mtime_ns == b.mtime_ns && a.bytes == b.bytes && a.flags == b.flags);
    uint8_t *x = malloc(20 * (size_t)BAR_BYTES), *y = malloc(20 * (size_t)BAR_BYTES);
    for (int size = 1; size <= 20; size += 19) {
        mr_clip_request q = {.path = path,
                             .info = &b,
                             .start = 5,
                             .step = 1,
                             .frames = size,
                             .height = BAR_H,
                             .width = BAR_W};
        CHECK_OK(m->read(here, &q, x, &fault));
        CHECK_OK(g->read(there, &q, y, &fault));
        CHECK(memcmp(x, y, (size_t)size * BAR_BYTES) == 0);
        CHECK_INT(bars_read(y, BAR_H, BAR_W), 5);
        q.start = FRAMES;
        CHECK_FAILS(g->read(there, &q, y, &fault), MR_E_RANGE, "short: frame");
        CHECK_INT(fault, MR_FAULT_SHORT);
    }
    float *u = malloc(sizeof *u * FRAMES), *v = malloc(sizeof *v * FRAMES);
    CHECK_OK(m->watch(here, path, &a, 0, u, &fault));
    CHECK_OK(g->watch(there, path, &b, 0, v, &fault));
    CHECK(memcmp(u, v, sizeof *u * FRAMES) == 0);
    CHECK_OK(g->watch(there, path, &b, 0, NULL, &fault));
    free(u), free(v), free(x), free(y);
    mr_clip_info_fini(&a);
    mr_clip_info_fini(&b);
}

static void answers(void)
{
    const mr_media *g = mr_media_guarded();
    mr_media_worker *here, *there;
    mr_clip_info info;
    mr_fault fault;
    if (!CHECK_OK(m->worker_new(&here)) || !CHECK_OK(g->worker_new(&there)))
        return;
    same(here, there, "a.mp4");
    same(here, there, "b.webm");
    CHECK_FAILS(g->scan(there, "/nowhere/x.mp4", 0, &info, &fault), MR_E_IO, "cannot open");
    CHECK_INT(fault, MR_FAULT_IO);
    mr_file_replace(clips_path("no.mp4"), "nothing", 7);
    CHECK_FAILS(g->scan(there, clips_path("no.mp4"), 0, &info, &fault), MR_E_DECODE, "open");
    CHECK_INT(fault, MR_FAULT_OPEN);
    m->worker_free(here);
    g->worker_free(there);
}

// one decoder fails; the results of another one before and after are complete
static void misbehaves(const char *way, mr_status st, mr_fault want, const char *why)
{
    const mr_media *g = mr_media_guarded();
    mr_media_worker *w;
    mr_clip_info info;
    mr_fault fault;
    setenv("FAULTY_WAY", way, 1);
    if (!CHECK_OK(g->worker_new(&w)))
        return;
    for (int i = 0; i < 2; i++) {
        if (CHECK_OK(g->scan(w, clips_path("a.mp4"), 0, &info, &fault)))
            mr_clip_info_fini(&info);
        CHECK_FAILS(g->scan(w, clips_path("b.webm"), 0.2, &info, &fault), st, why);
        CHECK_INT(fault, want);
    }
    if (CHECK_OK(g->scan(w, clips_path("a.mp4"), 0, &info, &fault))) {
        CHECK_INT(info.frames, FRAMES);
        mr_clip_info_fini(&info);
    }
    g->worker_free(w);
}

// decoders are killed before they report, one for each byte of a file
static void killed_at_start(int times, mr_status want)
{
    const mr_media *g = mr_media_guarded();
    const char *left = clips_path("left");
    mr_media_worker *w;
    setenv("FAULTY_START", left, 1);
    mr_file_replace(left, "xxxxxxxx", (size_t)times);
    if (want == MR_OK && CHECK_OK(g->worker_new(&w)))
        g->worker_free(w);
    else
        CHECK_FAILS(g->worker_new(&w), want, "cannot start a process that decodes: it exited");
    unsetenv("FAULTY_START");
}

static void planted(void)
{
    guard_grace_s = 0.3;
    setenv("LD_PRELOAD", SPEC_DECODER, 1);
    // the address sanitizer must be the first library, but accepts being the second
    setenv("ASAN_OPTIONS", "verify_asan_link_order=0:handle_segv=0", 1);
    setenv("TSAN_OPTIONS", "handle_segv=0", 1);
    setenv("FAULTY_CODEC", "vp8", 1);
    misbehaves("crash", MR_E_DECODE, MR_FAULT_CORRUPT,
               "b.webm: corrupt: the decoder crashed: Segmentation fault");
    misbehaves("exit", MR_E_DECODE, MR_FAULT_CORRUPT, "its process ended");
    misbehaves("loop", MR_E_DECODE, MR_FAULT_STALL, "b.webm: stall: the decoder did not end");
    // the kernel killed it, so the clip is not at fault
    misbehaves("kill", MR_E_IO, MR_FAULT_IO, "the process that decoded it was killed");
    unsetenv("FAULTY_CODEC");
    killed_at_start(7, MR_OK);
    killed_at_start(8, MR_E_FAIL);
    unsetenv("LD_PRELOAD");
}

// pixels come after any number of key frames
static void places(void)
{
    static uint8_t room[1 << 16];
    const guard_memory memory = {.at = room};
    for (int64_t n = 0; n < 1000; n++)
        CHECK(guard_out(&memory, n) >= (const uint8_t *)(guard_keys(&memory) + n));
}

static int descriptors(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

/* The number of children of this process; each gets the signal, 0: none is sent. */
static int children(int sig)
{
    int n = 0;
    mr_process p;
    DIR *d = opendir("/proc");
    for (struct dirent *e; d && (e = readdir(d));) {
        pid_t pid = isdigit((unsigned char)e->d_name[0]) ? atoi(e->d_name) : 0;
        if (pid && mr_process_read(pid, &p) && p.parent == getpid())
            n++, kill(pid, sig);
    }
    if (d)
        closedir(d);
    return n;
}

/* All workers are started by one fork server, which is started again when it was killed, and ends
 * with the last of them. */
static void served(void)
{
    enum { N = 3 };
    const mr_media *g = mr_media_guarded();
    mr_media_worker *w[N];
    mr_clip_info info;
    mr_fault fault;
    CHECK_INT(children(0), 0);
    for (int i = 0; i < N; i++)
        if (!CHECK_OK(g->worker_new(&w[i])))
            return;
    CHECK_INT(children(0), N + 1);
    CHECK_INT(children(SIGKILL), N + 1);
    for (int i = 0; i < N; i++) {
        CHECK_FAILS(g->scan(w[i], clips_path("a.mp4"), 0, &info, &fault), MR_E_IO, "was killed");
        if (CHECK_OK(g->scan(w[i], clips_path("a.mp4"), 0, &info, &fault)))
            mr_clip_info_fini(&info);
    }
    CHECK_INT(children(0), N + 1);
    for (int i = 0; i < N; i++)
        g->worker_free(w[i]);
    CHECK_INT(children(0), 0);
}

static void *use_one(void *user)
{
    const mr_media *g = mr_media_guarded();
    mr_media_worker *w;
    mr_clip_info info;
    mr_fault fault;
    if (g->worker_new(&w) != MR_OK)
        return user;
    bool fine = g->scan(w, clips_path("a.mp4"), 0, &info, &fault) == MR_OK;
    mr_clip_info_fini(&info);
    g->worker_free(w);
    return fine ? NULL : user;
}

// many at the same time, started by threads that end; none of them remains
static void many(void)
{
    enum { N = 6 };
    pthread_t t[N];
    int before = descriptors();
    for (int i = 0; i < N; i++)
        pthread_create(&t[i], NULL, use_one, t);
    for (int i = 0; i < N; i++) {
        void *bad;
        pthread_join(t[i], &bad);
        CHECK(!bad);
    }
    CHECK_INT(descriptors(), before);
}

// with any number of free descriptors, a worker works or reports that there are too few
static void few_descriptors(void)
{
    enum { MOST = 8 };
    const mr_media *g = mr_media_guarded();
    struct rlimit usual, few;
    mr_media_worker *w;
    getrlimit(RLIMIT_NOFILE, &usual);
    few = usual;
    int first = open("/dev/null", O_RDONLY), refused = 0;
    close(first);
    for (int n = 0; n <= MOST; n++) {
        few.rlim_cur = (rlim_t)(first + n);
        setrlimit(RLIMIT_NOFILE, &few);
        if (g->worker_new(&w) == MR_OK) {
            g->worker_free(w);
            continue;
        }
        refused++;
        CHECK_STR(mr_error_last()->text, "cannot start a process that decodes: Too many open "
                                         "files; try: a larger limit of open files (ulimit -n)");
    }
    setrlimit(RLIMIT_NOFILE, &usual);
    CHECK(refused > 2 && refused < MOST);
}

static void interrupted(void)
{
    const mr_media *g = mr_media_guarded();
    mr_media_worker *w;
    mr_clip_info info;
    mr_fault fault;
    setenv("LD_PRELOAD", SPEC_DECODER, 1);
    setenv("FAULTY_CODEC", "vp8", 1);
    setenv("FAULTY_WAY", "loop", 1);
    if (!CHECK_OK(g->worker_new(&w)))
        return;
    mr_interrupt_set(true);
    CHECK_FAILS(g->scan(w, clips_path("b.webm"), 0, &info, &fault), MR_E_STOPPED, "Ctrl-C");
    CHECK_INT(fault, MR_FAULT_NONE);
    mr_interrupt_set(false);
    if (CHECK_OK(g->scan(w, clips_path("a.mp4"), 0, &info, &fault)))
        mr_clip_info_fini(&info);
    g->worker_free(w);
    unsetenv("LD_PRELOAD");
}

int main(void)
{
    mr_streams_hold(); // as in the program: its children inherit these streams
    if (CHECK_OK(mr_media_get(&m)) &&
        CHECK_OK(
            bars_write(m, clips_path("a.mp4"), (mr_encode_options){.gop = 12}, FRAMES, NULL)) &&
        CHECK_OK(bars_write(m, clips_path("b.webm"), (mr_encode_options){.codec = "vp8", .gop = 10},
                            FRAMES, NULL))) {
        answers();
        places();
        served();
        many();
        few_descriptors();
        planted();
        interrupted();
    }
    return check_done();
}
