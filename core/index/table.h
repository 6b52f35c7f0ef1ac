/* index, inside: files of rows: from untrusted text to samples. Licence: Apache-2.0 */
#ifndef MR_INDEX_TABLE_H
#define MR_INDEX_TABLE_H

#include "index/list.h"

#include <jansson.h>

/* ---- parquet.c ---- */

/* A child process that writes a Parquet file as JSON lines to fd. */
typedef struct index_child {
    const char *file;
    int fd, errors;
    int pid; /* 0: none */
} index_child;
/* Errors: MR_E_UNSUPPORTED no program can read Parquet; MR_E_DATA no such file, or not a regular
 * file; MR_E_IO */
mr_status index_child_open(index_child *c, const char *file);
/* Wait until fd is readable. Errors: MR_E_STOPPED */
mr_status index_child_wait(const index_child *c);
/* End the child. `whole`: all output was read, so the child must exit by itself within seconds,
 * with success. Errors: MR_E_DATA with its error output, MR_E_UNSUPPORTED, MR_E_STOPPED */
mr_status index_child_close(index_child *c, bool whole);

/* ---- pieces.c: untrusted text ---- */

typedef struct index_pieces {
    const char *file;
    int fd;
    index_child child; /* for Parquet: fd is a pipe from it; child.file NULL: no child */
    char *buf;
    size_t at, n;    /* bytes of the piece: consumed, present */
    uint64_t before; /* bytes of earlier pieces */
    uint64_t line;
    bool ended;
} index_pieces;
/* Call _close after a failure too. Errors: MR_E_DATA no such file, or not a regular file; those of
 * index_child_open; MR_E_MEMORY */
mr_status index_pieces_open(index_pieces *t, const char *file, bool parquet);
/* Returns `st`, or the error of the child. */
mr_status index_pieces_close(index_pieces *t, mr_status st);
/* Reads the next piece if this one is consumed. Then a byte is present, or `ended` is true. Errors:
 * MR_E_IO, MR_E_STOPPED, MR_E_DATA a zero byte */
mr_status index_pieces_need(index_pieces *t);
/* Moves n bytes of the piece to a field that began at line `began`. Errors: MR_E_DATA the field is
 * too long, MR_E_MEMORY */
mr_status index_pieces_take(index_pieces *t, index_pack *to, size_t n, uint64_t began);

/* ---- literal.c: lists in a cell ---- */

/* Parse a list in Python or JSON syntax, with blanks around it. *out is NULL if the text is
 * something else. Owns: the caller. Errors: MR_E_MEMORY */
mr_status index_literal(const char *text, json_t **out);

/* ---- rows of tables ---- */

/* Receives a row; its texts are valid during the call only. */
typedef mr_status index_table_row(void *user, const index_input *in);

/* Non-empty captions, each with a zero. */
typedef struct index_captions {
    index_pack bytes;
    int32_t n;
} index_captions;
/* A list or object in a row; owned. */
enum { INDEX_LISTS = 64 };
typedef enum index_use {
    INDEX_UNREAD,
    INDEX_LEADS,  /* its length is the number of samples */
    INDEX_PAIR,   /* the times of the one sample */
    INDEX_FOLLOWS /* one item per sample, or captions of the one sample */
} index_use;
typedef struct index_list {
    index_meaning is;
    index_use use; /* known at the end of the row */
    json_t *value;
} index_list;
/* A row that is being built value by value. */
typedef struct index_making {
    index_scores *scores;
    index_pack path, field, plain; /* plain: the current line of JSON */
    index_captions first, more;    /* from column text; from text_2 and so on, which follow */
    uint64_t numbers[INDEX_SCORES];
    uint32_t wholes;
    uint64_t line; /* first line of the row */
    index_list lists[INDEX_LISTS];
    int32_t n_lists;
    bool captioned; /* the row has a caption column, maybe an empty one */
    int64_t start_us, end_us;
    char wrong[INDEX_WHY]; /* fault of the row's times; "": none */
    index_table_row *row;
    void *user;
    bool any; /* not a list of samples: captions may be missing */
} index_making;

/* ---- shape.c: contents of lists and objects of a row ---- */

/* Is it a list or an object? */
bool index_shape_is_container(const json_t *value);
/* Is it a list of two values, neither a list nor an object? */
bool index_shape_is_pair(const json_t *value);
/* Is it a list of texts and nulls? The index of the first other item. */
bool index_shape_is_texts(const json_t *value);
size_t index_shape_first_no_text(const json_t *list);
/* Are the lists of such a column time ranges? */
bool index_shape_has_times(const index_making *w, index_meaning is);
/* Does a list of objects contain captions? */
bool index_shape_captioned(const index_making *w, const json_t *value);
/* Is the object a time range, even one with missing times? */
bool index_shape_timed(const index_making *w, index_meaning is, const json_t *value);
/* Is it a list of captions: texts, or lists of texts? */
bool index_shape_are_captions(const json_t *value);
index_use index_shape_use(const index_making *w, const index_list *list);

/* ---- making.c, ranges.c: a row, value by value ---- */

/* "1:02:03.5", "02:03.5", or seconds: converts a time to microseconds. false: not a time */
bool index_time(const char *text, int64_t *us);
void index_making_begin(index_making *w, uint64_t line);
void index_making_fini(index_making *w);
/* Errors: MR_E_DATA too many captions; MR_E_MEMORY */
mr_status index_making_caption(index_captions *c, const index_pieces *t, const char *caption);
/* Add a value given as text; a text in list syntax becomes a list. */
mr_status index_making_value(index_making *w, const index_pieces *t, index_meaning is,
                             const char *value);
/* Add a JSON value: text, number, list or object. Borrows it. */
mr_status index_making_json(index_making *w, const index_pieces *t, index_meaning is,
                            json_t *value);
void index_making_number(index_making *w, int32_t score, mr_number value);
/* Pass the row to `row` as one sample. */
mr_status index_making_sample(index_making *w, const char *path);
/* Record a fault of the row, unless it already has one. */
void index_making_wrong(index_making *w, const char *form, ...) MR_PRINTF(2, 3);
/* End the row: passes one sample, or one for each time range in its lists. Errors: MR_E_DATA,
 * MR_E_MEMORY, those of `row` */
mr_status index_making_end(index_making *w, const index_pieces *t, const char *path);

/* ---- csv.c, json_lines.c, table.c: files of rows ---- */

/* Read all rows of a file. Errors: MR_E_DATA with its line; those of index_pieces and of `row` */
mr_status index_csv_read(index_pieces *t, char separator, index_making *w);
mr_status index_json_read(index_pieces *t, index_making *w);
/* Pass the rows of a CSV or JSON lines file one by one. A missing text column is an error. Other
 * columns go into `scores`, their values into the rows. */
mr_status index_table_read(const char *file, index_scores *scores, index_table_row *row,
                           void *user);

#endif
