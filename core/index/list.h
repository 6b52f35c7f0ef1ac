/* index, inside: the samples of an input: columns of a list, one sample, all samples.
 * Licence: Apache-2.0 */
#ifndef MR_INDEX_LIST_H
#define MR_INDEX_LIST_H

#include "index/bytes.h"
#include "index/sort.h"

#include <stdatomic.h>

/* ---- score.c: columns of a list ---- */

enum { INDEX_SCORES = MR_INDEX_COLUMNS, INDEX_NAME_MAX = 256 };
/* The number of values of one kind in a column, and the first of them. */
typedef struct index_seen {
    uint64_t n, line;
    char first[32]; /* can end inside a character */
} index_seen;
typedef struct index_score {
    char name[64], column[64]; /* in the index, and in the list (can be cut) */
    bool times;                /* its lists are time ranges: "timestamp" */
    uint64_t wholes, reals;
    index_seen others;  /* text that is not a number */
    index_seen large;   /* integers that a double cannot represent exactly, or that exceed 64
                         * bits */
    index_seen endless; /* not finite */
    index_seen unread;  /* lists and objects without a meaning here */
} index_score;
typedef struct index_scores {
    const char *file;   /* for errors; borrowed */
    const char *names;  /* "path=video,text=caption": new names of columns; the name "-" leaves a
                           column out; NULL: none */
    const char *escape; /* of CSV; NULL or "": none */
    int32_t n;
    uint64_t met;    /* entries of `names` whose column was found, one bit for each of the first
                      * 64 */
    uint64_t beyond; /* columns left out because the index is full */
    char times[64];  /* name of a column that is used as times, although it is not start_s, end_s or
                      * range_s */
    uint64_t cut;    /* samples that are a part of their file */
    index_score of[INDEX_SCORES];
} index_scores;
/* Prepare to read a list with these options. Errors: MR_E_USAGE unknown options */
mr_status index_scores_begin(index_scores *s, const mr_table_options *o);
/* The meaning of a column of that name; INDEX_SCORE + i: number i of the rows. */
typedef enum index_meaning {
    INDEX_NOTHING,
    INDEX_PATH,
    INDEX_TEXT,
    INDEX_MORE,  /* a further caption */
    INDEX_START, /* where the sample begins and ends in the file */
    INDEX_END,
    INDEX_SCORE
} index_meaning;
index_meaning index_scores_meaning(index_scores *s, const char *name);
/* The same without adding a column to the scores; every score is INDEX_SCORE. *times: its lists are
 * time ranges. */
index_meaning index_scores_look(index_scores *s, const char *name, bool *times);
/* The column that `names` renames to `name`, or `name` itself. For name NULL: the first column in
 * `names` that was not found, or NULL. */
const char *index_scores_missing(const index_scores *s, const char *name,
                                 char room[INDEX_NAME_MAX]);
/* Is the text empty, or a word that pandas reads as a missing value? */
bool index_is_missing(const char *text);
/* The number in the text of a cell, or none. */
mr_number index_scores_take(index_scores *s, int32_t score, const char *text, uint64_t line);
/* Can a double represent the integer exactly? */
static inline bool index_whole_is_real(int64_t i)
{
    double f = (double)i;
    return f < 0x1p63 && (int64_t)f == i;
}
/* Count a value that is already a number. */
mr_number index_scores_count(index_scores *s, int32_t score, mr_number value, uint64_t line);
/* Count a list or an object without a meaning. */
void index_scores_unread(index_scores *s, int32_t score, const char *what, uint64_t line);
/* After the whole list was read: does the column become a column of the index, and of which kind? A
 * column of text does not, even if a few of its cells are numbers. */
bool index_score_is_column(const index_score *s);
mr_column_kind index_score_kind(const index_score *s);
/* Refuse columns of numbers that have cells with other text. Errors: MR_E_DATA (names row and
 * cell) */
mr_status index_scores_end(const index_scores *s);
/* Write the ignored files, one line each. Errors: MR_E_MEMORY */
mr_status index_scores_notes(const index_scores *s, index_pack *out);

/* ---- input.c: one sample of the input ---- */

/* text NULL: no caption; fault, class: reason to refuse the row before its file is read, and the
 * class of the reason, or NULL */
typedef struct index_input {
    const char *path, *text, *fault, *class;
    uint64_t line;
    int64_t start_us, end_us; /* part of the file; end 0: to its end */
    int32_t more;             /* number of captions after the zero of `text`, each with a zero */
    int32_t n_numbers;        /* scores of the list, 8 bytes each, not aligned */
    uint32_t wholes;          /* one bit each: an integer, not a double */
    const void *numbers;
} index_input;
/* Number i, or none if the row has fewer. */
mr_number index_input_number(const index_input *in, int32_t i);
/* The size of all captions with their zeros; 0: none. */
size_t index_input_text_bytes(const index_input *in);
/* Write a sample as bytes that begin with the path and its zero, and read it back. The texts then
 * point into the record. */
void index_input_pack(index_pack *p, const index_input *in);
index_input index_input_of(const uint8_t *record);

/* ---- list.c: all samples of the input ---- */

/* The samples of an input in their order, on disk, not in memory. 24 bytes of each are sorted to
 * find duplicates. */
typedef struct index_source {
    mr_arena arena;
    atomic_bool stop;            /* any thread can set it: the running call then fails with
                                  * MR_E_STOPPED */
    _Atomic uint64_t n;          /* other threads may read it */
    uint64_t text_bytes;         /* total size of the captions that are not refused */
    int32_t part, parts;         /* parts 0: the whole input */
    uint64_t seen;               /* number of input rows so far */
    char root[4096], near[4096]; /* absolute; the folder of `near` gets the spill file */
    char name[128];              /* name in the sample keys */
    const char *described;       /* the meta text "sources" */
    const char *notes;           /* ignored files of a folder, one line each; or "" */
    mr_hasher *hash;             /* of all paths, captions and numbers */
    index_scores scores;         /* of the list */
    index_spill *rows;
    index_sorter *keys, *doubles;
    index_spill_reader at, first; /* next row; first row of a group of duplicates */
    index_keymap_entry next;      /* next duplicate: its place and the place of the first one */
    bool has_next;
    index_pack record;
} index_source;
/* `near`: a path; its folder gets the spill file. `name`: the name in the sample keys.
 * Errors: MR_E_MEMORY. Call _fini after a failure too. */
mr_status index_source_init(index_source *s, const char *near, const char *name);
/* Errors: MR_E_STOPPED if `stop` is set. */
mr_status index_source_check(const index_source *s);
/* Append a sample. A bad caption or an impossible path becomes its fault. Errors: those of a
 * spill */
mr_status index_source_add(index_source *s, const index_input *in);
/* Call it after the last sample. Finds the duplicates and goes to the first sample. */
mr_status index_source_end(index_source *s);
/* The next of the n samples; its texts are in `room`. Errors: those of a spill */
mr_status index_source_take(index_source *s, index_pack *room, index_input *in);
void index_source_fini(index_source *s);
/* The path of a row's file, with "." and ".." resolved by name. *relative points to the part below
 * the root, or to the whole path. Errors: MR_E_IO too long */
mr_status index_source_path(const index_source *s, const char *path, char full[4096],
                            const char **relative);

/* ---- text.c, validate.c: rows refused before their file is read ---- */

enum { INDEX_CAPTION_MAX = 64 << 10, INDEX_WHY = 160 };
/* Is a caption unfit for training? It is too long, not UTF-8, or has control characters other than
 * tabs and line breaks; `why` gets the reason. */
bool index_caption_bad(const char *text, char why[INDEX_WHY]);
/* Set the fault of a row with a bad caption or an impossible path; `why` gets its text. Removes a
 * bad caption. *key: the sample key; false: the row has none. */
enum { INDEX_FAULT = 4400 };
bool index_validate_row(const index_source *s, index_input *in, char why[INDEX_FAULT],
                        mr_hash128 *key);
/* Find all duplicates but the first of each group from the keys of all rows, in row order. Errors:
 * those of a spill */
mr_status index_validate_keys(index_source *s);
/* Set the fault of the row at `place` if it is a duplicate; its text is appended to `room`. */
mr_status index_validate_double(index_source *s, uint64_t place, index_pack *room, index_input *in);

#endif
