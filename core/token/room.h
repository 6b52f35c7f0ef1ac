/* token, inside: what the files of the room share. Licence: Apache-2.0 */
#ifndef MR_TOKEN_ROOM_H
#define MR_TOKEN_ROOM_H

#include "base/text.h"
#include "moonreel/token.h"

/* U+2581 is a space in pieces; U+FFFD replaces a byte that is not valid UTF-8. */
#define MR_TOKEN_SPACE   "\xe2\x96\x81"
#define MR_TOKEN_REPLACE "\xef\xbf\xbd"

/* Borrowed bytes. */
typedef struct mr_lent {
    const char *at;
    size_t n;
} mr_lent;

/* ---- protobuf.c ---- */

/* One field of a protobuf message. */
typedef struct mr_field {
    uint64_t number;
    enum { MR_WIRE_INT, MR_WIRE_8, MR_WIRE_TEXT, MR_WIRE_4 = 5 } wire_type;
    uint64_t value; /* of MR_WIRE_INT, MR_WIRE_8 and MR_WIRE_4 */
    mr_lent text;   /* of MR_WIRE_TEXT: a string, bytes or a message */
} mr_field;

/* Read the next field from the front of `rest`. False at the end, and if the bytes are not
 * protobuf; *damaged is true in the latter case. */
bool mr_field_next(mr_lent *rest, mr_field *out, bool *damaged);
float mr_field_float(const mr_field *f);

/* ---- charmap.c ---- */

/* Normal forms of short texts: a trie as a double array (Aoe 1989) of 32-bit little-endian units,
 * and the zero-terminated normal forms. */
typedef struct mr_charmap {
    const unsigned char *units;
    const char *texts;
    size_t n_units, n_texts;
} mr_charmap;

/* Open the map in the bytes of a model; empty bytes are an empty map. Returns NULL, or what is
 * wrong with it. */
const char *mr_charmap_open(mr_lent bytes, mr_charmap *out);
/* Find the longest text of the map that s[n] begins with. Returns its length, 0 if there is no such
 * text; *out is its normal form. */
size_t mr_charmap_longest(const mr_charmap *map, const char *s, size_t n, mr_lent *out);

/* ---- the model ---- */

typedef struct mr_normal_rules {
    mr_charmap map;
    bool prefix;       /* add a space in front, or behind if `space_after` */
    bool remove_extra; /* merge adjacent spaces and strip those at the ends */
    bool escape;       /* write spaces as MR_TOKEN_SPACE */
} mr_normal_rules;

struct mr_tokenizer {
    char *path, *file; /* texts of pieces point into `file` */
    mr_piece *pieces;
    int n, cap;
    int *sorted; /* ids of the pieces that texts are split into, sorted by bytes */
    int *others; /* ids of the other pieces, sorted by bytes */
    int n_sorted, n_others;
    int unknown;
    int bytes[256];   /* ids of the byte pieces; valid if `by_bytes` */
    bool by_bytes;    /* text that no piece covers becomes byte pieces */
    bool has_user;    /* the model has pieces of kind MR_PIECE_USER */
    bool space_after; /* the added space is behind the text */
    float worst;      /* lowest score of a normal piece */
    mr_normal_rules normal, denormal;
    bool denormalizes;
    mr_lent unknown_text; /* the unknown piece decodes to this text */
};

/* ---- pieces.c ---- */

/* The pieces that begin with the same `depth` bytes, as a range of `sorted`. */
typedef struct mr_piece_range {
    int lo, hi;
    uint32_t depth;
} mr_piece_range;

/* Sort the pieces of an open model. Returns NULL, or a piece that occurs twice. */
const mr_piece *mr_pieces_sort(mr_tokenizer *t);
mr_piece_range mr_pieces_all(const mr_tokenizer *t);
/* Narrow a range to the pieces that continue with this byte. False if no piece does. */
bool mr_pieces_step(const mr_tokenizer *t, mr_piece_range *range, unsigned char byte);
/* The id of the piece that ends here; -1 if no piece does. */
int mr_pieces_here(const mr_tokenizer *t, const mr_piece_range *range);

/* ---- normal.c ---- */

mr_status mr_normalize(const mr_tokenizer *t, const mr_normal_rules *rules, const char *text,
                       size_t bytes, mr_text *out);
/* Move a text to *out and its length to *n. If st is an error, free the text and return st. */
mr_status mr_token_take(mr_text *text, mr_status st, char **out, size_t *n);

#endif
