/* index: joins the captions of a list to the clips of a folder, by path or by file name. Both sides
 * are sorted by the hash of their names, and the matches by the position of the clip.
 * Licence: Apache-2.0 */
#include "index/builder.h"
#include "index/table.h"

#include <string.h>

// kind of a sorted name, in the upper bits of its place. Captions sort before the clips that look
// for them, and a path wins over a file name
enum { CAPTION, WHOLE, LAST, KIND_BIT = 62 };

typedef struct join {
    index_source *s;
    index_spill *clips, *captions; // packed inputs
    index_sorter *names;           // {hash of the name, kind and place}
    index_sorter *hits;            // {place of the clip, kind, place of the caption}
    index_pack record;
} join;

static mr_status add_name(join *j, const char *name, uint64_t kind, uint64_t place)
{
    mr_hash128 h = mr_hash128_of(name, strlen(name));
    return index_sorter_add_key(j->names,
                                (index_keymap_entry){h.hi, h.lo, kind << KIND_BIT | place});
}

static mr_status add_caption(void *user, const index_input *in)
{
    join *j = user;
    uint64_t place;
    if (in->fault || in->start_us || in->end_us)
        return mr_fail(MR_E_DATA,
                       "%s:%llu: %s; expected captions of whole clips; try: data ingest %s --root "
                       "DIR, for samples that are parts of clips",
                       j->s->scores.file, (unsigned long long)in->line,
                       in->fault ? in->fault : "its caption is of a part of the clip",
                       j->s->scores.file);
    index_input_pack(&j->record, in);
    if (j->record.failed)
        return mr_fail_memory(j->record.cap * 2);
    MR_TRY(index_spill_put(j->captions, j->record.bytes, j->record.n, &place));
    return add_name(j, in->path, CAPTION, place);
}

static mr_status add_clips(join *j, index_sorter *clips)
{
    for (;;) {
        const uint8_t *record;
        size_t n;
        uint64_t place;
        MR_TRY(index_sorter_next(clips, &record, &n));
        if (!record)
            return MR_OK;
        MR_TRY(index_spill_put(j->clips, record, n, &place));
        const char *path = index_input_of(record).path, *slash = strrchr(path, '/');
        MR_TRY(add_name(j, path, WHOLE, place));
        if (slash)
            MR_TRY(add_name(j, slash + 1, LAST, place));
    }
}

// if captions have the same name, the first of the list is used
static mr_status match(join *j)
{
    const uint64_t places = ((uint64_t)1 << KIND_BIT) - 1;
    index_keymap_entry e, caption = {0};
    bool more, any = false;
    MR_TRY(index_sorter_sort(j->names));
    for (;;) {
        MR_TRY(index_sorter_next_key(j->names, &e, &more));
        if (!more)
            return index_sorter_sort(j->hits);
        bool same = any && e.hi == caption.hi && e.lo == caption.lo;
        uint64_t kind = e.id >> KIND_BIT;
        if (kind == CAPTION && !same)
            caption = e, any = true;
        else if (kind != CAPTION && same)
            MR_TRY(index_sorter_add_key(
                j->hits, (index_keymap_entry){e.id & places, kind, caption.id & places}));
    }
}

static mr_status hand_on(join *j, index_spill_reader *clips, index_spill_reader *captions)
{
    index_keymap_entry hit;
    bool more;
    MR_TRY(index_sorter_next_key(j->hits, &hit, &more));
    for (;;) {
        const uint8_t *record, *caption;
        size_t n;
        uint64_t place, unused;
        MR_TRY(index_spill_next(clips, &record, &n, &place));
        if (!record)
            return MR_OK;
        index_input in = index_input_of(record);
        if (more && hit.hi == place) {
            index_spill_seek(captions, hit.id);
            MR_TRY(index_spill_next(captions, &caption, &n, &unused));
            const index_input with = index_input_of(caption);
            in.text = with.text, in.more = with.more;
            in.numbers = with.numbers, in.n_numbers = with.n_numbers;
            in.wholes = with.wholes;
        }
        while (more && hit.hi == place)
            MR_TRY(index_sorter_next_key(j->hits, &hit, &more));
        MR_TRY(index_source_add(j->s, &in));
    }
}

static mr_status run(join *j, index_sorter *clips, const char *table)
{
    const char *near = j->s->near;
    MR_TRY(index_spill_new(near, &j->clips));
    MR_TRY(index_spill_new(near, &j->captions));
    MR_TRY(index_sorter_new(near, &j->names));
    MR_TRY(index_sorter_new(near, &j->hits));
    MR_TRY(index_table_read(table, &j->s->scores, add_caption, j));
    MR_TRY(add_clips(j, clips));
    MR_TRY(match(j));
    index_spill_reader at = index_spill_read(j->clips, 0, UINT64_MAX),
                       captions = index_spill_read(j->captions, 0, UINT64_MAX);
    mr_status st = hand_on(j, &at, &captions);
    index_spill_reader_fini(&at);
    index_spill_reader_fini(&captions);
    return st;
}

mr_status index_join_captions(index_source *s, index_sorter *clips, const char *table)
{
    join j = {.s = s};
    mr_status st = run(&j, clips, table);
    index_spill_free(j.clips);
    index_spill_free(j.captions);
    index_sorter_free(j.names);
    index_sorter_free(j.hits);
    mr_free(j.record.bytes);
    return st;
}
