/* token, inside: what the files of the room share. Licence: Apache-2.0 */
#ifndef MR_TOKEN_ROOM_H
#define MR_TOKEN_ROOM_H

#include "base/text.h"
#include "moonreel/token.h"

/* The sign of a space in pieces, U+2581, and what stands for a byte that is no UTF-8, U+FFFD. */
#define MR_TOKEN_SPACE   "\xe2\x96\x81"
#define MR_TOKEN_REPLACE "\xef\xbf\xbd"

/* Bytes that somebody else owns. */
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
    mr_lent text;   /* of MR_WIRE_TEXT: text, bytes or a message */
} mr_field;

/* Take the next field off the front of `rest`; false: nothing is left, or it is no protobuf, which
 * *damaged says. */
bool mr_field_next(mr_lent *rest, mr_field *out, bool *damaged);
float mr_field_float(const mr_field *f);

/* ---- charmap.c ---- */

/* Normal forms of short texts: a trie as a double array (Aoe 1989) in units of 32 bits,
 * little-endian, and the normal forms, each ended by zero. */
typedef struct mr_charmap {
    const unsigned char *units;
    const char *texts;
    size_t n_units, n_texts;
} mr_charmap;

/* Take a map out of the bytes of a model; empty bytes are an empty map. NULL when it is good, else
 * what is wrong with it. */
const char *mr_charmap_open(mr_lent bytes, mr_charmap *out);
/* The longest text of the map that s[n] begins with: its bytes, 0 when there is none, and its
 * normal form in *out. */
size_t mr_charmap_longest(const mr_charmap *map, const char *s, size_t n, mr_lent *out);

/* ---- the model ---- */

typedef struct mr_normal_rules {
    mr_charmap map;
    bool prefix;  /* a space is added in front (behind, where the model wants that) */
    bool squeeze; /* spaces in a row are one, those at the ends go */
    bool escape;  /* spaces are written as MR_TOKEN_SPACE */
} mr_normal_rules;

struct mr_tokenizer {
    char *path, *file; /* texts of pieces lie in the file */
    mr_piece *pieces;
    int n, cap;
    int *sorted; /* ids of the pieces that texts are cut into, by their bytes */
    int *others; /* ids of the other ones, by theirs */
    int n_sorted, n_others;
    int unknown;
    int bytes[256];   /* ids of the pieces of bytes; empty where `by_bytes` is false */
    bool by_bytes;    /* what no piece covers is spelled in bytes */
    bool has_user;    /* there are pieces of kind MR_PIECE_USER */
    bool space_after; /* the space that is added stands behind the text */
    float worst;      /* score of normal pieces */
    mr_normal_rules normal, denormal;
    bool denormalizes;
    mr_lent unknown_text; /* what an unknown piece decodes to */
};

/* ---- pieces.c ---- */

/* The pieces that begin with the same `depth` bytes, as a range of `sorted`. */
typedef struct mr_piece_range {
    int lo, hi;
    uint32_t depth;
} mr_piece_range;

/* Sort the pieces of an open model. NULL when all is well, else the text of a piece that comes
 * twice. */
const mr_piece *mr_pieces_sort(mr_tokenizer *t);
mr_piece_range mr_pieces_all(const mr_tokenizer *t);
/* Narrow a range to the pieces that go on with this byte; false: there are none. */
bool mr_pieces_step(const mr_tokenizer *t, mr_piece_range *range, unsigned char byte);
/* The id of the piece that ends here; -1: none does. */
int mr_pieces_here(const mr_tokenizer *t, const mr_piece_range *range);

/* ---- normal.c ---- */

mr_status mr_normalize(const mr_tokenizer *t, const mr_normal_rules *rules, const char *text,
                       size_t bytes, mr_text *out);
/* Hand a text over with its length; st: of what filled it. */
mr_status mr_token_take(mr_text *text, mr_status st, char **out, size_t *n);

#endif
