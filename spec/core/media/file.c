/* media/file: files that are slow, disks that fail, Ctrl-C; none is a fault of the clip. */
#include "check.h"
#include "clips.h"

#include <errno.h>

static const mr_media *m;
static mr_media_worker *w;

static const struct {
    const char *file;
    mr_encode_options o;
    int frames;
} made[] = {
    {"closed.mp4", {.gop = 12}, 100},
    {"bframes.mkv", {.gop = 48, .options = "bf=8:b_strategy=0"}, 120},
    {"stream.ts", {.gop = 15}, 90},
    {"fragments.mp4", {.gop = 12, .mux_options = "movflags=frag_keyframe+empty_moov"}, 60},
    {"counted.avi", {.gop = 12}, 30},
    {"still.png", {0}, 1},
};

static int64_t far_future(void)
{
    static int64_t now;
    return now += 1000000000;
}

static void deadline(void)
{
    mr_clip_info info;
    mr_fault fault;
    uint8_t rgb[BAR_BYTES];
    if (!CHECK_OK(m->scan(w, clips_path("closed.mp4"), 0, &info, &fault)))
        return;
    mr_clock clock = *mr_clock_table();
    clock.monotonic_ns = far_future; // a second passes with each read of the clock
    mr_clock_replace(&clock);
    mr_clip_request q = {.path = clips_path("closed.mp4"),
                         .info = &info,
                         .start = 90,
                         .step = 1,
                         .frames = 1,
                         .height = BAR_H,
                         .width = BAR_W,
                         .deadline_s = 3};
    CHECK_FAILS(m->read(w, &q, rgb, &fault), MR_E_DECODE, "stall");
    CHECK_INT(fault, MR_FAULT_STALL);
    mr_clock_replace(NULL);
    mr_clip_info_fini(&info);
}

static int looks_left;
static int64_t late_at_last(void)
{
    return looks_left-- > 0 ? 0 : INT64_MAX / 2;
}

// a timeout is reported as such at any moment
static void late_at_any_moment(void)
{
    mr_clip_info whole, info;
    mr_fault fault;
    uint8_t rgb[BAR_BYTES];
    char path[256];
    snprintf(path, sizeof path, "%s", clips_path("stream.ts"));
    if (!CHECK_OK(m->scan(w, path, 0, &whole, &fault)))
        return;
    mr_clip_request q = {.path = path,
                         .info = &whole,
                         .start = 70,
                         .step = 1,
                         .frames = 1,
                         .height = BAR_H,
                         .width = BAR_W,
                         .deadline_s = 3};
    mr_clock clock = *mr_clock_table();
    clock.monotonic_ns = late_at_last;
    mr_clock_replace(&clock);
    int late = 0;
    for (int i = 0; i < 200; i++) {
        looks_left = 2 + i / 2;
        mr_status st = i % 2 ? m->scan(w, path, 3, &info, &fault) : m->read(w, &q, rgb, &fault);
        late += st != MR_OK;
        if (st == MR_OK) {
            CHECK(i % 2 ? info.frames == whole.frames : bars_read(rgb, BAR_H, BAR_W) == 70);
            if (i % 2)
                mr_clip_info_fini(&info);
        } else if (!CHECK_INT(st, MR_E_DECODE) || !CHECK_INT(fault, MR_FAULT_STALL)) {
            printf("  %d: %s\n", i, mr_error_last()->text);
        }
    }
    mr_clock_replace(NULL);
    printf("late: %d of 200\n", late);
    CHECK(late > 20);
    mr_clip_info_fini(&whole);
}

static ssize_t broken_pread(int fd, void *buf, size_t n, int64_t at)
{
    if (at > 0) {
        errno = EIO;
        return -1;
    }
    return pread(fd, buf, n < 4096 ? n : 4096, at);
}

static void broken_disk(void)
{
    mr_clip_info info;
    mr_fault fault;
    uint8_t rgb[BAR_BYTES];
    if (!CHECK_OK(m->scan(w, clips_path("still.png"), 0, &info, &fault)))
        return;
    mr_clip_info_fini(&info);
    // longer than one read
    CHECK_OK(bars_write(m, clips_path("long.mkv"), (mr_encode_options){.gop = 1, .quality = 1}, 300,
                        NULL));
    if (!CHECK_OK(m->scan(w, clips_path("long.mkv"), 0, &info, &fault)))
        return;
    mr_io io = *mr_io_table();
    io.pread = broken_pread;
    mr_io_replace(&io);
    mr_clip_request q = {.path = clips_path("long.mkv"),
                         .info = &info,
                         .start = 280,
                         .step = 1,
                         .frames = 1,
                         .height = BAR_H,
                         .width = BAR_W};
    CHECK_FAILS(m->read(w, &q, rgb, &fault), MR_E_IO, "Input/output error");
    CHECK_INT(fault, MR_FAULT_IO);
    // a file with another time that cannot be scanned again at the moment is not another clip
    info.mtime_ns -= 5000000000;
    CHECK_FAILS(m->read(w, &q, rgb, &fault), MR_E_IO, "Input/output error");
    CHECK_INT(fault, MR_FAULT_IO);
    mr_io_replace(NULL);
    mr_clip_info_fini(&info);
}

// a read of a file fails: the n-th from now, and with `stays` all after it
static int reads_left, stays;
static bool disturbs(void)
{
    reads_left--;
    return reads_left == 0 || (stays && reads_left < 0);
}

static ssize_t failing_pread(int fd, void *buf, size_t n, int64_t at)
{
    if (disturbs()) {
        errno = EIO;
        return -1;
    }
    return pread(fd, buf, n < 500 ? n : 500, at);
}

static ssize_t interrupting_pread(int fd, void *buf, size_t n, int64_t at)
{
    // Ctrl-C at one moment; the flag may be cleared when the next piece is read
    mr_interrupt_set(disturbs());
    return pread(fd, buf, n < 500 ? n : 500, at);
}

/* Scans a clip and reads two of its frames, with a pread that fails at one of `moments` after the
 * other. Each ends with this status and fault, or as without the failure. Returns how often it
 * failed. */
static int disturbed(const char *name, int64_t start,
                     ssize_t (*disturb)(int, void *, size_t, int64_t), int moments,
                     mr_status status, mr_fault kind)
{
    mr_clip_info whole, info;
    mr_fault fault;
    static uint8_t want[2 * BAR_BYTES], got[2 * BAR_BYTES];
    char path[256];
    snprintf(path, sizeof path, "%s", clips_path(name));
    mr_clip_request q = {.path = path,
                         .info = &whole,
                         .start = start,
                         .step = 3,
                         .frames = 2,
                         .height = BAR_H,
                         .width = BAR_W};
    if (!CHECK_OK(m->scan(w, path, 0, &whole, &fault)) || !CHECK_OK(m->read(w, &q, want, &fault)))
        return 0;
    mr_io io = *mr_io_table();
    io.pread = disturb;
    mr_io_replace(&io);
    int failed = 0;
    for (int i = 0; i < moments; i++) {
        bool scans = i % 2;
        stays = i / 2 % 2, reads_left = 1 + i / 4;
        mr_status st = scans ? m->scan(w, path, 0, &info, &fault) : m->read(w, &q, got, &fault);
        mr_interrupt_set(false);
        failed += st != MR_OK;
        if (st != MR_OK) {
            if (!CHECK_INT(st, status) || !CHECK_INT(fault, kind))
                printf("  in %s, %d: %s\n", name, i, mr_error_last()->text);
        } else if (scans) {
            CHECK_INT(info.frames, whole.frames);
            CHECK_INT(info.n_keys, whole.n_keys);
            mr_clip_info_fini(&info);
        } else {
            CHECK(memcmp(got, want, sizeof want) == 0);
        }
    }
    mr_io_replace(NULL);
    printf("disturbed %s: %d of %d\n", name, failed, moments);
    mr_clip_info_fini(&whole);
    return failed;
}

// a failing disk is no fault of the clip, at any moment and in any container
static void broken_at_any_moment(void)
{
    static const char *const names[] = {"closed.mp4", "stream.ts", "bframes.mkv", "fragments.mp4",
                                        "counted.avi"};
    for (size_t k = 0; k < MR_COUNT(names); k++)
        CHECK(disturbed(names[k], 17, failing_pread, 200, MR_E_IO, MR_FAULT_IO) > 10);
}

// Ctrl-C is no fault of the clip, at any moment
static void interrupted(void)
{
    CHECK(disturbed("long.mkv", 150, interrupting_pread, 400, MR_E_STOPPED, MR_FAULT_NONE) > 100);
}

// each opened file is closed, however its use ended
static int open_files(void)
{
    char **names;
    int n = 0;
    CHECK_OK(mr_dir_list("/proc/self/fd", &names, &n));
    mr_dir_list_free(names, n);
    return n;
}

int main(void)
{
    if (!CHECK_OK(mr_media_get(&m)) || !CHECK_OK(m->worker_new(&w)))
        return check_done();
    const int files = open_files();
    for (size_t i = 0; i < MR_COUNT(made); i++)
        CHECK_OK(bars_write(m, clips_path(made[i].file), made[i].o, made[i].frames, NULL));
    deadline();
    late_at_any_moment();
    broken_disk();
    broken_at_any_moment();
    interrupted();
    CHECK_INT(open_files(), files);
    m->worker_free(w);
    return check_done();
}
