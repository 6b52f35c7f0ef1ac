/* data/place: an index on a network file system is read into memory, or refused when it is large.
 * Covers: core/index/network.c */
#include "check.h"
#include "index/store.h"
#include "rows.h"

#include <fcntl.h>
#include <sys/stat.h>

static const char *everywhere(const char *path)
{
    (void)path;
    return "NFS";
}

static bool mapped(const char *what)
{
    char *text = mr_calloc(1, 1 << 20);
    FILE *f = fopen("/proc/self/maps", "r");
    CHECK(fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    bool found = strstr(text, what) != NULL;
    mr_free(text);
    return found;
}

static void read_all(const char *path)
{
    mr_index *ix;
    mr_index_reader *reader;
    if (!CHECK_OK(mr_index_open(path, false, &ix)) || !CHECK_OK(mr_index_reader_new(ix, &reader)))
        return;
    CHECK(mapped("moonreel-index"));
    CHECK(!mapped("far.mrx"));
    CHECK_STR(mr_index_path(ix), path);
    // changes on the server have no effect now
    CHECK_OK(mr_dir_remove(path));
    uint64_t good = 0;
    for (uint64_t i = 0; i < 3000; i++) {
        mr_row row;
        if (!CHECK_OK(mr_index_row(reader, i, &row)))
            break;
        good += strncmp(row.path, "clips/", 6) == 0;
    }
    CHECK_INT(good, 3000);
    mr_index_reader_free(reader);
    mr_index_unref(ix);
    CHECK(!mapped("moonreel-index"));
}

// all blocks are verified on the way, though the file's time is the recorded one
static void damaged(const char *path)
{
    char file[400];
    struct stat s;
    mr_index *ix;
    snprintf(file, sizeof file, "%s/data.mdb", path);
    CHECK_INT(stat(file, &s), 0);
    int fd = open(file, O_WRONLY);
    CHECK_INT(pwrite(fd, "x", 1, 50000), 1);
    struct timespec times[2] = {s.st_atim, s.st_mtim};
    CHECK_INT(futimens(fd, times), 0);
    close(fd);
    CHECK_FAILS(mr_index_open(path, false, &ix), MR_E_DATA, "damaged between bytes");
    CHECK(!mapped("moonreel-index"));
}

int main(void)
{
    char path[300], large[300];
    index_spot spot;
    // no copy can be made there
    setenv("MOONREEL_COPIES", "/proc", 1);
    snprintf(path, sizeof path, "%s", clips_path("far.mrx"));
    snprintf(large, sizeof large, "%s", clips_path("large"));
    CHECK(index_network(clips_dir()) == NULL || strlen(index_network(clips_dir())) > 1);
    index_network = everywhere;
    if (!CHECK_OK(rows_build(path, 1, 3000, 0)))
        return check_done();
    read_all(path);
    CHECK_OK(rows_build(path, 1, 3000, 0));
    damaged(path);
    // a file without blocks, as large as the whole memory
    int64_t all = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    CHECK_OK(mr_dir_make(large));
    CHECK_INT(rename(clips_path("far.mrx/data.sum"), clips_path("large/data.sum")), 0);
    CHECK_OK(mr_file_replace(clips_path("large/data.mdb"), "", 0));
    CHECK_INT(truncate(clips_path("large/data.mdb"), (off_t)all), 0);
    CHECK_FAILS(index_place(large, clips_path("large/data.mdb"), false, &spot), MR_E_DATA,
                "on a network file system (NFS), where an open index may hang; no copy in /proc");
    // on request it is mapped in place
    CHECK_OK(rows_build(path, 1, 300, 0));
    setenv("MOONREEL_INDEX", "direct", 1);
    mr_index *ix;
    if (CHECK_OK(mr_index_open(path, false, &ix)))
        CHECK(mapped("far.mrx"));
    mr_index_unref(ix);
    return check_done();
}
