/* index: the input of ingest: a folder of clips, or rows of CSV or JSON lines.
 * Licence: Apache-2.0 */
#include "base/json_fields.h"
#include "index/builder.h"
#include "index/table.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- folders ---- */

enum { CAPTION_JSON_MAX = 16 << 20, PASSED = 64, DEPTH_MAX = 64 };

static bool ends_with(const char *text, const char *tail)
{
    size_t n = strlen(text), m = strlen(tail);
    return n >= m && strcasecmp(text + n - m, tail) == 0;
}

static bool has_ending(const char *name, const char *const *endings)
{
    while (*endings && !ends_with(name, *endings))
        endings++;
    return *endings != NULL;
}

static const char *const media_endings[] = {
    ".mp4", ".avi",  ".mov", ".mkv", ".webm", ".m4v", ".ts",  ".m2ts", ".mpg",  ".mpeg", ".gif",
    ".jpg", ".jpeg", ".png", ".ppm", ".bmp",  ".pgm", ".tif", ".tiff", ".webp", NULL};
// files with these endings are captions and lists next to clips
static const char *const text_endings[] = {".txt",   ".json",   ".csv", ".tsv",
                                           ".jsonl", ".ndjson", NULL};

static const char *const list_endings[] = {".csv",  ".tsv",     ".jsonl", ".ndjson",
                                           ".json", ".parquet", NULL};

// counts ignored files, by kind
typedef struct passed_kind {
    char name[32];
    uint64_t n;
    const char *first;
} passed_kind;

typedef struct walker {
    index_source *s;
    index_sorter *clips; // packed inputs, added in any order
    index_pack record;
    uint64_t n_clips;
    bool want_captions;
    passed_kind passed[PASSED];
    int n_passed;
    // hash table (open addressing) of the folders that were read; 0 marks a free place
    uint64_t *seen;
    size_t n_seen, seen_cap;
    // links to folders, followed after all real folders
    const char **links;
    size_t n_links, links_cap;
} walker;

static mr_status pass_over(walker *w, const char *kind, const char *path)
{
    int k = 0;
    while (k < w->n_passed && strcasecmp(w->passed[k].name, kind))
        k++;
    if (k == PASSED) {
        // too many kinds to list
        k = PASSED - 1;
        snprintf(w->passed[k].name, sizeof w->passed[k].name, "others");
    } else if (k == w->n_passed) {
        w->n_passed++;
        snprintf(w->passed[k].name, sizeof w->passed[k].name, "%s", kind);
        if (!(w->passed[k].first = mr_arena_strdup(&w->s->arena, path)))
            return mr_fail_memory(strlen(path));
    }
    w->passed[k].n++;
    return MR_OK;
}

static void put_seen(walker *w, uint64_t folder)
{
    size_t at = folder % w->seen_cap;
    while (w->seen[at] && w->seen[at] != folder)
        at = (at + 1) % w->seen_cap;
    w->n_seen += !w->seen[at];
    w->seen[at] = folder;
}

// records a folder; *again: it was read before, under any name
static mr_status see_folder(walker *w, const struct stat *about, bool *again)
{
    if (w->n_seen * 2 >= w->seen_cap) {
        uint64_t *old = w->seen;
        size_t old_cap = w->seen_cap, cap = MR_MAX(old_cap * 2, 256);
        uint64_t *more = mr_calloc(cap, sizeof *more);
        if (!more)
            return mr_fail_memory(cap * sizeof *more);
        w->seen = more, w->seen_cap = cap, w->n_seen = 0;
        for (size_t i = 0; i < old_cap; i++)
            if (old[i])
                put_seen(w, old[i]);
        mr_free(old);
    }
    size_t before = w->n_seen;
    put_seen(w, MR_MIX((uint64_t)about->st_dev, (uint64_t)about->st_ino) | 1);
    *again = w->n_seen == before;
    return MR_OK;
}

static mr_status add_link(walker *w, const char *path)
{
    if (w->n_links == w->links_cap) {
        size_t cap = MR_MAX(w->links_cap * 2, 16);
        const char **more = mr_realloc(w->links, cap * sizeof *more);
        if (!more)
            return mr_fail_memory(cap * sizeof *more);
        w->links = more, w->links_cap = cap;
    }
    const char *copy = mr_arena_strdup(&w->s->arena, path);
    if (!copy)
        return mr_fail_memory(strlen(path));
    w->links[w->n_links++] = copy;
    return MR_OK;
}

// reads the caption next to a clip: NAME.txt, or "text" or "caption" of NAME.json
static mr_status caption_of_file(const char *file, char **out)
{
    char path[8400];
    const char *dot = strrchr(file, '.');
    size_t n;
    *out = NULL;
    snprintf(path, sizeof path, "%.*s.txt", (int)(dot - file), file);
    if (mr_path_exists(path)) {
        MR_TRY(mr_file_read_small(path, INDEX_CAPTION_MAX, out, &n));
        if (strlen(*out) != n) {
            mr_free(*out);
            *out = NULL;
            return mr_fail(MR_E_DATA, "%s: contains a zero byte; expected text in UTF-8", path);
        }
        while (n && isspace((unsigned char)(*out)[n - 1]))
            (*out)[--n] = 0;
        // some editors write a byte order mark
        if (strncmp(*out, "\xef\xbb\xbf", 3) == 0)
            memmove(*out, *out + 3, n - 2);
        return MR_OK;
    }
    snprintf(path, sizeof path, "%.*s.json", (int)(dot - file), file);
    if (!mr_path_exists(path))
        return MR_OK;
    char *text;
    MR_TRY(mr_file_read_small(path, CAPTION_JSON_MAX, &text, &n));
    json_error_t why;
    json_t *root = json_loadb(text, n, 0, &why),
           *value = root ? json_object_get(root, "text") : NULL;
    if (root && !value)
        value = json_object_get(root, "caption");
    mr_free(text);
    mr_status st = MR_OK;
    if (!root)
        st = mr_fail(MR_E_DATA, "%s:%d: not JSON: %s", path, why.line, why.text);
    else if (json_is_string(value) && !(*out = mr_strdup(json_string_value(value))))
        st = mr_fail_memory(0);
    json_decref(root);
    return st;
}

static mr_status add_clip(walker *w, const char *path, const char *file)
{
    char *text = NULL;
    mr_status caption = w->want_captions ? caption_of_file(file, &text) : MR_OK;
    if (caption == MR_E_MEMORY)
        return caption;
    index_input in = {.path = path, .text = text, .line = ++w->n_clips};
    // a damaged caption file refuses only this row
    if (caption != MR_OK)
        in.class = "caption", in.fault = mr_error_last()->text;
    index_input_pack(&w->record, &in);
    mr_free(text);
    return w->record.failed ? mr_fail_memory(w->record.cap * 2)
                            : index_sorter_add(w->clips, w->record.bytes, w->record.n);
}

static mr_status walk(walker *w, const char *relative, int depth);

static mr_status visit(walker *w, const char *child, const char *name, int depth)
{
    char file[8300];
    struct stat about, link;
    snprintf(file, sizeof file, "%s/%s", w->s->root, child);
    if (stat(file, &about) || lstat(file, &link))
        return pass_over(w, "dangling link", child);
    if (S_ISDIR(about.st_mode)) {
        // indexes and leftovers of killed ingests contain no clips
        if (ends_with(name, ".mrx") || strstr(name, ".mrx.tmp-"))
            return MR_OK;
        return S_ISLNK(link.st_mode) ? add_link(w, child) : walk(w, child, depth + 1);
    }
    if (has_ending(name, media_endings))
        return add_clip(w, child, file);
    const char *dot = strrchr(name, '.');
    return has_ending(name, text_endings) ? MR_OK
                                          : pass_over(w, dot ? dot : "without ending", child);
}

static mr_status walk(walker *w, const char *relative, int depth)
{
    char full[8300], child[4096];
    char **names;
    int n;
    struct stat about;
    bool again = false;
    if (depth > DEPTH_MAX)
        return mr_fail(MR_E_DATA, "%s/%s: folders are nested too deeply", w->s->root, relative);
    snprintf(full, sizeof full, *relative ? "%s/%s" : "%s", w->s->root, relative);
    if (stat(full, &about))
        return mr_fail(MR_E_IO, "%s: cannot get its status: %s", full, strerror(errno));
    MR_TRY(index_source_check(w->s));
    MR_TRY(see_folder(w, &about, &again));
    if (again)
        return pass_over(w, "link to a folder read already", relative);
    MR_TRY(mr_dir_list(full, &names, &n));
    mr_status st = MR_OK;
    for (int i = 0; i < n && st == MR_OK; i++) {
        if (names[i][0] == '.')
            continue;
        int len = snprintf(child, sizeof child, *relative ? "%s/%s" : "%s%s", relative, names[i]);
        st = len < (int)sizeof child ? visit(w, child, names[i], depth)
                                     : pass_over(w, "path that is too long", relative);
    }
    mr_dir_list_free(names, n);
    return st;
}

// appends the notes
static mr_status keep_notes(index_source *s, index_pack *notes)
{
    index_put(notes, s->notes, strlen(s->notes) + 1);
    const char *kept =
        notes->failed ? NULL : mr_arena_strdup(&s->arena, (const char *)notes->bytes);
    mr_free(notes->bytes);
    s->notes = kept ? kept : "";
    return kept ? MR_OK : mr_fail_memory(notes->cap);
}

static mr_status make_notes(const walker *w)
{
    index_pack out = {0};
    for (int k = 0; k < w->n_passed; k++) {
        char line[4400];
        const passed_kind *p = &w->passed[k];
        snprintf(line, sizeof line, "ignored: %llu %s, the first: %s", (unsigned long long)p->n,
                 p->name, p->first);
        index_note(&out, line);
    }
    return keep_notes(w->s, &out);
}

// Reads every folder once, even if several links lead to it, and under its real name if that is
// below the root.
static mr_status find_clips(walker *w)
{
    MR_TRY(index_sorter_new(w->s->near, &w->clips));
    MR_TRY(walk(w, "", 0));
    for (size_t i = 0; i < w->n_links; i++)
        MR_TRY(walk(w, w->links[i], 0));
    MR_TRY(make_notes(w));
    return index_sorter_sort(w->clips);
}

static mr_status add_clips(index_source *s, index_sorter *clips)
{
    for (;;) {
        const uint8_t *record;
        size_t n;
        MR_TRY(index_sorter_next(clips, &record, &n));
        if (!record)
            return MR_OK;
        const index_input in = index_input_of(record);
        MR_TRY(index_source_add(s, &in));
    }
}

// adds the clips of a folder in the order of their paths
static mr_status read_folder(index_source *s, const char *captions)
{
    walker w = {.s = s, .want_captions = !captions};
    mr_status st = find_clips(&w);
    if (st == MR_OK && w.n_clips)
        st = captions ? index_join_captions(s, w.clips, captions) : add_clips(s, w.clips);
    index_sorter_free(w.clips);
    mr_free(w.record.bytes);
    mr_free(w.seen);
    mr_free(w.links);
    return st;
}

/* ---- interface ---- */

static mr_status describe(index_source *s, const char *input, const struct stat *about)
{
    char hex[33];
    mr_hash128_hex(mr_hasher_digest(s->hash), hex);
    json_t *d = json_pack("[{s:o, s:o, s:o, s:I, s:s}]", "path", mr_json_text(input), "root",
                          mr_json_text(s->root), "source", mr_json_text(s->name), "rows",
                          (json_int_t)s->n, "hash", hex);
    if (d && s->parts) {
        json_t *of = json_array_get(d, 0);
        json_object_set_new(of, "part", json_integer(s->part));
        json_object_set_new(of, "parts", json_integer(s->parts));
        json_object_set_new(of, "all_rows", json_integer((json_int_t)s->seen));
    }
    // size and time of a folder do not describe its contents
    if (d && !S_ISDIR(about->st_mode)) {
        json_t *file = json_array_get(d, 0);
        json_object_set_new(file, "size", json_integer((json_int_t)about->st_size));
        json_object_set_new(file, "mtime", json_integer((json_int_t)about->st_mtim.tv_sec));
    }
    char *text = d ? json_dumps(d, JSON_COMPACT) : NULL;
    s->described = text ? mr_arena_strdup(&s->arena, text) : NULL;
    free(text);
    json_decref(d);
    return s->described ? MR_OK : mr_fail_memory(0);
}

mr_status index_source_same(const index_source *s, const char *described)
{
    json_t *was = json_loads(described, 0, NULL), *is = json_loads(s->described, 0, NULL);
    json_t *before = json_array_get(was, 0), *now = json_array_get(is, 0), *value;
    const char *name;
    mr_status st = MR_OK;
    json_object_foreach(now, name, value)
    {
        json_t *old = json_object_get(before, name);
        if (st != MR_OK || json_equal(old, value))
            continue;
        char *a = json_dumps(old, JSON_ENCODE_ANY), *b = json_dumps(value, JSON_ENCODE_ANY);
        st = mr_fail(MR_E_DATA,
                     "%.300s: the input has changed since the build began: %s was %s, is %s; try: "
                     "without --continue, from the start",
                     json_string_value(json_object_get(now, "path")), name, a ? a : "not noted",
                     b ? b : "?");
        free(a);
        free(b);
    }
    json_decref(was);
    json_decref(is);
    return st;
}

typedef struct row_taker {
    index_source *source;
    const char *input;
} row_taker;

// adds the rows of a table to the list; clips are local files
static mr_status add_row(void *user, const index_input *in)
{
    const row_taker *t = user;
    const char *mark = strstr(in->path, "://");
    size_t scheme = strspn(in->path, "abcdefghijklmnopqrstuvwxyz0123456789+.-");
    if (mark && (size_t)(mark - in->path) == scheme && scheme)
        return mr_fail(MR_E_DATA,
                       "%s:%llu: '%.300s' is an address, and clips are read from files of this "
                       "computer; try: fetch them first (aws s3 sync, gsutil rsync, curl), and a "
                       "list with the paths of the files",
                       t->input, (unsigned long long)in->line, in->path);
    return index_source_add(t->source, in);
}

mr_status index_source_read(index_source *s, const char *input, const mr_ingest_options *o)
{
    struct stat about;
    if (stat(input, &about))
        return mr_fail(MR_E_DATA,
                       "%s: %s; expected a folder, .csv, .tsv, .jsonl, .json or .parquet file",
                       input, strerror(errno));
    bool folder = S_ISDIR(about.st_mode);
    MR_TRY(index_scores_begin(&s->scores, &o->table));
    if (o->parts < 0 || (o->parts && (o->part < 1 || o->part > o->parts)))
        return mr_fail(MR_E_USAGE, "part %d of %d; expected 1 to the number of parts", o->part,
                       o->parts);
    if (folder && !o->captions && (o->table.columns || *s->scores.escape))
        return mr_fail(MR_E_USAGE,
                       "%s: is a folder, which has no columns; expected columns and escape for a "
                       "list; try: --captions FILE",
                       input);
    s->part = o->part, s->parts = o->parts;
    MR_TRY(index_path_absolute(o->root ? o->root : input, s->root));
    char *slash = strrchr(s->root, '/');
    if (!folder && !o->root && slash)
        slash[slash == s->root] = 0;
    if (folder) {
        MR_TRY(read_folder(s, o->captions));
    } else if (has_ending(input, list_endings)) {
        row_taker taker = {s, input};
        MR_TRY(index_table_read(input, &s->scores, add_row, &taker));
    } else {
        return mr_fail(MR_E_DATA,
                       "%s: is not a folder or a .csv, .tsv, .jsonl, .json or .parquet file",
                       input);
    }
    if (!s->n && s->seen)
        return mr_fail(MR_E_DATA, "%s: part %d of %d of its %llu rows is empty; try: fewer parts",
                       input, s->part, s->parts, (unsigned long long)s->seen);
    if (!s->n)
        return mr_fail(MR_E_DATA, "%s: no samples in it; expected %s", input,
                       folder ? "clips (.mp4, .webm, .mkv, .png, ...)" : "a row for each clip");
    index_pack notes = {0};
    MR_TRY(index_scores_notes(&s->scores, &notes));
    MR_TRY(keep_notes(s, &notes));
    MR_TRY(describe(s, input, &about));
    return index_source_end(s);
}
