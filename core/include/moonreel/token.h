/* token: texts to token ids, by SentencePiece unigram models (`spiece.model` of T5).
 *
 * A model is a list of pieces with scores, a map of characters to their normal form, and a few
 * flags. A text is normalized, then split into the pieces whose scores have the largest sum (Kudo
 * 2018, arXiv:1804.10959). Ids are those that the SentencePiece library gives for the same file,
 * also for ties: sums are kept in f32 as there.
 *
 * Not here: special tokens that a wrapper adds, padding, cutting to a length (lua/moonreel/token).
 *
 * Threads: any; a tokenizer never changes once it is open.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_TOKEN_H
#define MOONREEL_TOKEN_H

#include "moonreel/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The kind of a piece; numbers are those of the file. */
typedef enum mr_piece_kind {
    MR_PIECE_NORMAL = 1,
    MR_PIECE_UNKNOWN, /* for text that no piece covers */
    MR_PIECE_CONTROL, /* never found in a text: end of sequence, padding */
    MR_PIECE_USER,    /* matches wherever its text occurs */
    MR_PIECE_UNUSED,
    MR_PIECE_BYTE /* one byte of text that no piece covers */
} mr_piece_kind;

/* One piece of the vocabulary; its id is its index in the list. */
typedef struct mr_piece {
    const char *text; /* lent by the tokenizer; not zero-terminated */
    uint32_t bytes;
    float score; /* logarithm of its probability */
    mr_piece_kind kind;
} mr_piece;

typedef struct mr_tokenizer mr_tokenizer;

/* Read a model.
 *
 * Owns:    caller owns *out
 * Errors:  MR_E_FORMAT with the path: no such model, damaged, or of another type (BPE, word, char);
 * MR_E_IO; MR_E_MEMORY */
MR_API mr_status mr_tokenizer_open(const char *path, mr_tokenizer **out);
/* NULL is fine */
MR_API void mr_tokenizer_close(mr_tokenizer *t);

MR_API const char *mr_tokenizer_path(const mr_tokenizer *t); /* lent */
MR_API int mr_tokenizer_count(const mr_tokenizer *t);        /* pieces */
/* The piece of an id, 0 <= id < count; NULL outside. Lent. */
MR_API const mr_piece *mr_tokenizer_piece(const mr_tokenizer *t, int64_t id);
/* The id of a piece by its text; -1 if there is none. */
MR_API int mr_tokenizer_find(const mr_tokenizer *t, const char *text, size_t bytes);
/* The id of the unknown piece. */
MR_API int mr_tokenizer_unknown(const mr_tokenizer *t);

/* The normal form of a text, which may contain any bytes: a byte that is not valid UTF-8 becomes
 * U+FFFD.
 *
 * Owns:    caller frees *out with mr_free; zero-terminated
 * Errors:  MR_E_RANGE a text of over 64 MiB; MR_E_STOPPED; MR_E_MEMORY */
MR_API mr_status mr_tokenizer_normal(const mr_tokenizer *t, const char *text, size_t bytes,
                                     char **out, size_t *n);
/* The ids of a text: its normal form split into pieces. Adjacent characters that no piece covers
 * become one unknown piece, or bytes if the model has a piece for each byte. No end is appended.
 *
 * Owns:    caller frees *ids with mr_free
 * Errors:  as mr_tokenizer_normal */
MR_API mr_status mr_tokenizer_encode(const mr_tokenizer *t, const char *text, size_t bytes,
                                     int32_t **ids, size_t *n);
/* The text of ids: the pieces are concatenated, the sign U+2581 becomes a space, and the leading
 * space that the normal form adds is removed. Pieces of kind MR_PIECE_CONTROL are left out.
 *
 * Owns:    caller frees *out with mr_free; zero-terminated
 * Errors:  MR_E_RANGE an id outside the vocabulary; MR_E_STOPPED; MR_E_MEMORY */
MR_API mr_status mr_tokenizer_decode(const mr_tokenizer *t, const int32_t *ids, size_t n,
                                     char **out, size_t *bytes);

/* The words of a text for byte pair encoding, as CLIP's tokenizer splits them: NFC, lower case,
 * then runs of letters, single characters of numbers, runs of signs, and 's 't 're 've 'm 'll 'd. A
 * byte that is not valid UTF-8 becomes U+FFFD. *out has the words with one space between them.
 *
 * Ref:     Radford et al. 2021, arXiv:2103.00020
 * Owns:    caller frees *out with mr_free; zero-terminated
 * Errors:  MR_E_RANGE a text of over 64 MiB; MR_E_MEMORY */
MR_API mr_status mr_token_words(const char *text, size_t bytes, char **out, size_t *n);

#ifdef __cplusplus
}
#endif
#endif
