/* media: computes fingerprints of decoded frames, to compare two decodes. Licence: Apache-2.0 */
#include "media/room.h"

#include <libavutil/imgutils.h>
#include <stdlib.h>

int media_ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

// the fingerprint of all displayed pixels
static uint64_t print_of(const AVFrame *f)
{
    const AVPixFmtDescriptor *about = av_pix_fmt_desc_get(f->format);
    uint64_t print = 0;
    for (int plane = 0; plane < 4 && f->data[plane]; plane++) {
        bool small = plane == 1 || plane == 2;
        int rows = small ? AV_CEIL_RSHIFT(f->height, about->log2_chroma_h) : f->height;
        int bytes = av_image_get_linesize(f->format, f->width, plane);
        for (int y = 0; y < rows && bytes > 0; y++)
            print = MR_MIX(print, mr_hash64(f->data[plane] + (ptrdiff_t)y * f->linesize[plane],
                                            (size_t)bytes));
    }
    return print;
}

mr_status media_prints_add(media_prints *p, int64_t pts, const AVFrame *f)
{
    if (p->n == p->cap) {
        int64_t cap = p->cap ? p->cap * 2 : 256;
        media_print *more = mr_realloc(p->of, sizeof *more * (size_t)cap);
        if (!more)
            return mr_fail_memory(sizeof *more * (size_t)cap);
        p->of = more, p->cap = cap;
    }
    p->of[p->n++] = (media_print){pts, print_of(f)};
    return MR_OK;
}

bool media_prints_has(const media_prints *p, int64_t pts, const AVFrame *f)
{
    const media_print *of =
        p->n ? bsearch(&pts, p->of, (size_t)p->n, sizeof *p->of, media_ascending) : NULL;
    return !of || of->print == print_of(f);
}
