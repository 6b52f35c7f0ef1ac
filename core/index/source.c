/* index: what to ingest: a folder of clips, or rows of CSV or JSON lines. Licence: Apache-2.0 */
#include "index/room.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

mr_status index_path_absolute(const char *path, char out[4096])
{
    char cwd[4096] = "";
    if (path[0] != '/' && !getcwd(cwd, sizeof cwd))
        return mr_fail(MR_E_IO, "%s: the working directory is gone", path);
    // part by part, dropping "." and resolving ".." by name
    size_t n = 0;
    for (int round = path[0] == '/'; round < 2; round++)
        for (const char *p = round ? path : cwd; *p;) {
            size_t len = strcspn(p, "/");
            if (len == 2 && p[0] == '.' && p[1] == '.') {
                while (n && out[--n] != '/') {}
            } else if (len && !(len == 1 && p[0] == '.')) {
                if (n + len + 2 > 4096)
                    return mr_fail(MR_E_IO, "%s: path is too long", path);
                out[n++] = '/';
                memcpy(out + n, p, len);
                n += len;
            }
            p += len + (p[len] == '/');
        }
    if (!n)
        out[n++] = '/';
    out[n] = 0;
    return MR_OK;
}

/* ---- folders ---- */

static bool is_media(const char *name)
{
    static const char *const known[] = {".mp4",  ".avi", ".mov",  ".mkv", ".webm", ".m4v",  ".ts",
                                        ".m2ts", ".mpg", ".mpeg", ".gif", ".jpg",  ".jpeg", ".png",
                                        ".ppm",  ".bmp", ".pgm",  ".tif", ".tiff", ".webp"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < MR_COUNT(known); i++)
        if (strcasecmp(dot, known[i]) == 0)
            return true;
    return false;
}

// the caption beside a clip: NAME.txt, or "text" or "caption" of NAME.json
static mr_status caption_beside(const char *file, char **out)
{
    char path[4200];
    const char *dot = strrchr(file, '.');
    size_t n;
    *out = NULL;
    snprintf(path, sizeof path, "%.*s.txt", (int)(dot - file), file);
    if (mr_path_exists(path)) {
        MR_TRY(mr_file_read_all(path, out, &n));
        while (n && isspace((unsigned char)(*out)[n - 1]))
            (*out)[--n] = 0;
        return MR_OK;
    }
    snprintf(path, sizeof path, "%.*s.json", (int)(dot - file), file);
    if (!mr_path_exists(path))
        return MR_OK;
    char *text;
    MR_TRY(mr_file_read_all(path, &text, &n));
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

static mr_status walk(index_source *s, const char *relative, bool want_captions, int depth)
{
    char full[8300], child[4096], file[8300];
    char **names;
    int n;
    if (depth > 64)
        return mr_fail(MR_E_DATA, "%s/%s: folders nest too deep", s->root, relative);
    snprintf(full, sizeof full, *relative ? "%s/%s" : "%s", s->root, relative);
    MR_TRY(mr_dir_list(full, &names, &n));
    mr_status st = MR_OK;
    for (int i = 0; i < n && st == MR_OK; i++) {
        struct stat about;
        if (names[i][0] == '.')
            continue;
        if (snprintf(child, sizeof child, *relative ? "%s/%s" : "%s%s", relative, names[i]) >=
            (int)sizeof child)
            continue;
        snprintf(file, sizeof file, "%s/%s", s->root, child);
        if (stat(file, &about))
            continue; // a link to nowhere
        if (S_ISDIR(about.st_mode)) {
            st = walk(s, child, want_captions, depth + 1);
        } else if (is_media(names[i])) {
            char *text = NULL;
            mr_status caption = want_captions ? caption_beside(file, &text) : MR_OK;
            st = caption == MR_E_MEMORY ? caption : index_source_add(s, child, text, s->n + 1);
            // a damaged caption file costs this row, not the whole set
            if (st == MR_OK && caption != MR_OK &&
                !(s->rows[s->n - 1].fault = mr_arena_strdup(&s->arena, mr_error_last()->text)))
                st = mr_fail_memory(0);
            mr_free(text);
        }
    }
    mr_dir_list_free(names, n);
    return st;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const index_input *)a)->path, ((const index_input *)b)->path);
}

// captions of a list go to the clips they name
static mr_status join_captions(index_source *s, const char *file)
{
    index_source list = {0};
    mr_arena_init(&list.arena);
    mr_status st = index_table_read(&list, file, true);
    if (st == MR_OK) {
        qsort(list.rows, list.n, sizeof *list.rows, by_path);
        for (uint64_t i = 0; i < s->n && st == MR_OK; i++) {
            const char *name = strrchr(s->rows[i].path, '/');
            index_input key = {.path = s->rows[i].path},
                        *hit = bsearch(&key, list.rows, list.n, sizeof key, by_path);
            if (!hit && name) {
                key.path = name + 1;
                hit = bsearch(&key, list.rows, list.n, sizeof key, by_path);
            }
            if (hit && !(s->rows[i].text = mr_arena_strdup(&s->arena, hit->text)))
                st = mr_fail_memory(0);
        }
    }
    index_source_fini(&list);
    return st;
}

/* ---- the front ---- */

static bool ends_with(const char *text, const char *tail)
{
    size_t n = strlen(text), m = strlen(tail);
    return n >= m && strcasecmp(text + n - m, tail) == 0;
}

static mr_status describe(index_source *s, const char *input, const struct stat *about,
                          const mr_ingest_options *o)
{
    mr_hasher *h = mr_hasher_new();
    if (!h)
        return mr_fail_memory(0);
    for (uint64_t i = 0; i < s->n; i++) {
        mr_hasher_add(h, s->rows[i].path, strlen(s->rows[i].path) + 1);
        if (s->rows[i].text)
            mr_hasher_add(h, s->rows[i].text, strlen(s->rows[i].text) + 1);
    }
    char hex[33];
    mr_hash128_hex(mr_hasher_digest(h), hex);
    mr_hasher_free(h);
    json_t *d = json_pack("{s:s, s:s, s:s, s:I, s:s}", "path", input, "root", s->root, "source",
                          o->source ? o->source : "main", "rows", (json_int_t)s->n, "hash", hex);
    // size and time of a folder say nothing about what lies in it
    if (d && !S_ISDIR(about->st_mode)) {
        json_object_set_new(d, "size", json_integer((json_int_t)about->st_size));
        json_object_set_new(d, "mtime", json_integer((json_int_t)about->st_mtim.tv_sec));
    }
    char *text = d ? json_dumps(d, JSON_COMPACT) : NULL;
    snprintf(s->described, sizeof s->described, "[%s]", text ? text : "");
    free(text);
    json_decref(d);
    return MR_OK;
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
                     "%s: the input has changed since the build began: %s was %s, is %s; try: "
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

mr_status index_source_read(index_source *s, const char *input, const mr_ingest_options *o)
{
    struct stat about;
    memset(s, 0, sizeof *s);
    mr_arena_init(&s->arena);
    if (stat(input, &about))
        return mr_fail(MR_E_DATA, "%s: %s; expected a folder, a .csv or a .jsonl file", input,
                       strerror(errno));
    bool folder = S_ISDIR(about.st_mode);
    MR_TRY(index_path_absolute(o->root ? o->root : input, s->root));
    char *slash = strrchr(s->root, '/');
    if (!folder && !o->root && slash)
        slash[slash == s->root] = 0;
    if (folder) {
        MR_TRY(walk(s, "", !o->captions, 0));
        if (s->n)
            qsort(s->rows, s->n, sizeof *s->rows, by_path);
        if (o->captions && s->n)
            MR_TRY(join_captions(s, o->captions));
    } else if (ends_with(input, ".csv") || ends_with(input, ".tsv") || ends_with(input, ".jsonl") ||
               ends_with(input, ".ndjson")) {
        MR_TRY(index_table_read(s, input, true));
    } else {
        return mr_fail(MR_E_DATA, "%s: is no folder, .csv, .tsv or .jsonl file", input);
    }
    if (!s->n)
        return mr_fail(MR_E_DATA, "%s: no samples in it; expected %s", input,
                       folder ? "clips (.mp4, .webm, .mkv, .png, ...)" : "rows below the header");
    return describe(s, input, &about, o);
}
