/* A folder of clips that show their number, for specs of ingest and of loading. */
#ifndef MR_SPEC_CLIPSET_H
#define MR_SPEC_CLIPSET_H
#include "check.h"
#include "rows.h"

#include <stdatomic.h>

enum { CLIPS = 26 };

/* Folder "set": clip i has 8 + i frames, every sixth is a still; captions are next to them. */
static inline bool clipset_make(const mr_media *m)
{
    char name[64], text[64];
    CHECK_OK(mr_dir_make(clips_path("set/stills")));
    for (int i = 0; i < CLIPS; i++) {
        bool still = i % 6 == 5;
        snprintf(name, sizeof name,
                 still   ? "set/stills/%02d.png"
                 : i % 2 ? "set/%02d.mp4"
                         : "set/%02d.webm",
                 i);
        if (!CHECK_OK(bars_write(m, clips_path(name),
                                 (mr_encode_options){.gop = 8, .rate_num = 25, .quality = 10},
                                 still ? 1 : 8 + i, NULL)))
            return false;
        snprintf(text, sizeof text, "clip number %d\n", i);
        strcpy(strrchr(name, '.'), ".txt");
        CHECK_OK(mr_file_replace(clips_path(name), text, strlen(text)));
    }
    return true;
}

static inline mr_status clipset_ingest(const char *from, const char *to, int threads,
                                       mr_ingest_progress *p)
{
    mr_ingest *g;
    mr_ingest_options o = {.threads = threads};
    MR_TRY(mr_ingest_new(from, to, &o, &g));
    mr_status st;
    do
        st = mr_ingest_step(g, 1, p);
    while (st == MR_OK && !p->finished);
    mr_ingest_free(g);
    return st;
}

/* How often a file contains a text; -1: there is no file. */
static inline int clipset_count(const char *path, const char *what)
{
    char *text;
    size_t n;
    int count = 0;
    if (mr_file_read_all(path, &text, &n) != MR_OK)
        return -1;
    for (char *p = text; (p = strstr(p, what)); p++)
        count++;
    mr_free(text);
    return count;
}

/* In the I/O table: Ctrl-C at some of the reads. */
static atomic_int clipset_reads; // below 0: no read is interrupted
static inline ssize_t clipset_pread(int fd, void *buf, size_t n, int64_t at)
{
    // at growing distances, so that the work ends
    int now = clipset_reads < 0 ? 0 : ++clipset_reads;
    if (now >= 8 && (now & (now - 1)) == 0)
        mr_interrupt_set(true);
    return pread(fd, buf, n < 500 ? n : 500, at);
}

#endif
