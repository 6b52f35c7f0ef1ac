/* media/encode, file, log: files appear complete or not at all, equal frames make equal bytes,
 * options are checked.
 * Covers: core/media/file.c core/media/log.c */
#include "check.h"
#include "clips.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

static const mr_media *m;

static void equal_bytes(void)
{
    static const char *const names[] = {"a.mp4", "a.webm", "a.mkv", "a.avi", "a.ts", "a.mov"};
    for (size_t i = 0; i < MR_COUNT(names); i++) {
        char *first, *second;
        size_t n, k;
        mr_status st = bars_write(m, clips_path(names[i]), (mr_encode_options){.gop = 8}, 20, NULL);
        if (!CHECK_OK(st))
            continue;
        CHECK_OK(mr_file_read_all(clips_path(names[i]), &first, &n));
        CHECK_OK(bars_write(m, clips_path(names[i]), (mr_encode_options){.gop = 8}, 20, NULL));
        CHECK_OK(mr_file_read_all(clips_path(names[i]), &second, &k));
        if (!CHECK(n == k && memcmp(first, second, n) == 0))
            printf("  in %s\n", names[i]);
        mr_free(first);
        mr_free(second);
    }
}

// the temporary file of a killed encode is removed by the next one of its name
static void after_a_kill(void)
{
    char left[400];
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
    CHECK_OK(mr_dir_make(clips_path("killed")));
    snprintf(left, sizeof left, "%s.tmp-%ld", clips_path("killed/a.mp4"), (long)child);
    FILE *f = fopen(left, "w");
    if (CHECK(f != NULL))
        fclose(f);
    CHECK_OK(bars_write(m, clips_path("killed/a.mp4"), (mr_encode_options){.gop = 8}, 3, NULL));
    CHECK(!mr_path_exists(left));
}

static int writes_left;
static ssize_t full_pwrite(int fd, const void *data, size_t n, int64_t at)
{
    if (writes_left-- > 0)
        return pwrite(fd, data, n > 999 ? 999 : n, at);
    errno = ENOSPC;
    return -1;
}
static int no_rename(const char *from, const char *to)
{
    (void)from, (void)to;
    errno = EACCES;
    return -1;
}

static void whole_or_not_at_all(void)
{
    int before = clips_count("");
    mr_io io = *mr_io_table();
    io.pwrite = full_pwrite;
    mr_io_replace(&io);
    for (int n = 0; n < 6; n++) {
        static const char *const names[] = {"full.mp4", "full.webm", "full.mkv"};
        writes_left = n;
        CHECK_FAILS(
            bars_write(m, clips_path(names[n % 3]), (mr_encode_options){.quality = 1}, 40, NULL),
            MR_E_IO, "No space left on device");
    }
    io.pwrite = mr_io_table()->pwrite;
    mr_io_replace(NULL);
    io = *mr_io_table();
    io.rename = no_rename;
    mr_io_replace(&io);
    CHECK_FAILS(bars_write(m, clips_path("named.mp4"), (mr_encode_options){0}, 3, NULL), MR_E_IO,
                "Permission denied");
    mr_io_replace(NULL);
    // closed in the middle, and before the first frame
    mr_encoder *e;
    uint8_t rgb[BAR_BYTES];
    bars_draw(rgb, 1);
    for (int frames = 0; frames < 3; frames++) {
        mr_encode_options o = {.width = BAR_W, .height = BAR_H};
        if (!CHECK_OK(m->encoder_open(clips_path("left.mp4"), &o, &e)))
            return;
        for (int i = 0; i < frames; i++)
            CHECK_OK(m->encoder_frame(e, rgb, -1));
        m->encoder_free(e);
    }
    m->encoder_free(NULL);
    CHECK_INT(clips_count(""), before);
}

static int calls;
static ssize_t stuttering_pwrite(int fd, const void *data, size_t n, int64_t at)
{
    errno = EINTR;
    return calls++ % 2 ? pwrite(fd, data, n > 999 ? 999 : n, at) : -1;
}
static ssize_t stuttering_pread(int fd, void *data, size_t n, int64_t at)
{
    errno = EINTR;
    return calls++ % 2 ? pread(fd, data, n > 999 ? 999 : n, at) : -1;
}
static int failing_close(int fd)
{
    close(fd);
    errno = EDQUOT;
    return -1;
}

// a call that a signal interrupted is repeated; a close that fails counts as a failed write
static void calls_of_the_system(void)
{
    const char *name = clips_path("stutter.mkv");
    char *first, *second;
    size_t n, k;
    mr_media_worker *w;
    mr_clip_info info;
    mr_fault fault;
    if (!CHECK_OK(bars_write(m, name, (mr_encode_options){.gop = 8}, 20, NULL)) ||
        !CHECK_OK(mr_file_read_all(name, &first, &n)) || !CHECK_OK(m->worker_new(&w)))
        return;
    mr_io io = *mr_io_table();
    io.pwrite = stuttering_pwrite, io.pread = stuttering_pread;
    mr_io_replace(&io);
    CHECK_OK(bars_write(m, name, (mr_encode_options){.gop = 8}, 20, NULL));
    if (CHECK_OK(m->scan(w, name, 0, &info, &fault)))
        mr_clip_info_fini(&info);
    mr_io_replace(NULL);
    CHECK_OK(mr_file_read_all(name, &second, &k));
    CHECK(n == k && memcmp(first, second, n) == 0);
    mr_free(first);
    mr_free(second);
    m->worker_free(w);
    const int before = clips_count("");
    io = *mr_io_table();
    io.close = failing_close;
    mr_io_replace(&io);
    CHECK_FAILS(bars_write(m, clips_path("closed.mp4"), (mr_encode_options){0}, 3, NULL), MR_E_IO,
                "cannot write: Disk quota exceeded");
    mr_io_replace(NULL);
    CHECK_INT(clips_count(""), before);
}

static void wrong_use(void)
{
    int before = clips_count("");
    mr_encoder *e;
    uint8_t rgb[BAR_BYTES] = {0};
    const struct {
        const char *name;
        mr_encode_options o;
        mr_status code;
        const char *part;
    } rows[] = {
        {"x.mp4", {.width = 0, .height = 32}, MR_E_USAGE, "frame size 0 x 32"},
        {"x.nothing", {.width = 32, .height = 32}, MR_E_UNSUPPORTED, "no container for '.nothing'"},
        {"x", {.width = 32, .height = 32}, MR_E_UNSUPPORTED, "no container for ''"},
        {"x.mp4",
         {.width = 32, .height = 32, .codec = "spoons"},
         MR_E_UNSUPPORTED,
         "no encoder 'spoons'"},
        {"x.mp4", {.width = 32, .height = 32, .matrix = "bt1"}, MR_E_USAGE, "unknown matrix 'bt1'"},
        {"x.mp4",
         {.width = 32, .height = 32, .pixel_format = "yuv1"},
         MR_E_USAGE,
         "unknown pixel format 'yuv1'"},
        {"x.mp4",
         {.width = 32, .height = 32, .options = "nonsense=1"},
         MR_E_USAGE,
         "has no option 'nonsense'"},
        {"x.mp4",
         {.width = 32, .height = 32, .mux_options = "nonsense=1"},
         MR_E_USAGE,
         "container mp4 has no option 'nonsense'"},
        {"x.webm",
         {.width = 32, .height = 32, .codec = "mpeg4"},
         MR_E_UNSUPPORTED,
         "start the container"},
        {"none/x.mp4",
         {.width = 32, .height = 32},
         MR_E_IO,
         "none/x.mp4: cannot create: No such file"}};
    for (size_t i = 0; i < MR_COUNT(rows); i++)
        CHECK_FAILS(m->encoder_open(clips_path(rows[i].name), &rows[i].o, &e), rows[i].code,
                    rows[i].part);
    mr_encode_options o = {.width = BAR_W, .height = BAR_H};
    if (!CHECK_OK(m->encoder_open(clips_path("x.mp4"), &o, &e)))
        return;
    CHECK_FAILS(m->encoder_finish(e), MR_E_USAGE, "no frame was written");
    CHECK_OK(m->encoder_frame(e, rgb, 5));
    CHECK_FAILS(m->encoder_frame(e, rgb, 5), MR_E_USAGE, "frame at 5 after 5; expected ascending");
    m->encoder_free(e);
    CHECK_INT(clips_count(""), before);
}

static void failing_memory(void)
{
    for (int n = 1; n < 4; n++) {
        mr_encoder *e;
        mr_encode_options o = {.width = BAR_W, .height = BAR_H};
        mr_alloc_fail_at(n);
        mr_status st = m->encoder_open(clips_path("memory.mp4"), &o, &e);
        mr_alloc_fail_at(0);
        if (st == MR_OK)
            m->encoder_free(e);
        else
            CHECK_INT(st, MR_E_MEMORY);
    }
    mr_media_worker *w;
    mr_alloc_fail_at(1);
    CHECK_INT(m->worker_new(&w), MR_E_MEMORY);
    mr_alloc_fail_at(0);
}

int main(void)
{
    if (!CHECK_OK(mr_media_get(&m)))
        return check_done();
    equal_bytes();
    after_a_kill();
    whole_or_not_at_all();
    calls_of_the_system();
    wrong_use();
    failing_memory();
    return check_done();
}
