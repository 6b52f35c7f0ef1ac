/* ckpt, inside: a small buffer through which a shard is written while its owner waits.
 * Licence: Apache-2.0 */
#ifndef MR_CKPT_WINDOW_H
#define MR_CKPT_WINDOW_H

#include "moonreel/base.h"

#include <pthread.h>

/* A small buffer through which a shard is written while its owner waits (window.c). The owner's
 * thread copies pieces into free halves, the writer thread takes them. */
typedef struct mr_window {
    pthread_mutex_t mutex; // protects the fields below, but not the bytes of a half
    pthread_cond_t changed;
    char *buffer; // two halves; borrowed
    int64_t half, total;
    int attempt;           // number of the attempt to write the shard
    bool asked;            // the writer has asked for bytes
    bool closed, ended;    // the owner provides no more bytes; the save has ended
    int64_t copied, taken; // bytes copied so far; bytes that the writer has finished
    int64_t lent;          // bytes after `taken` that the writer is using
    mr_error *why;         // reason of `closed`
} mr_window;

/* A piece for the owner to copy: bytes [at, at + n) of the shard, to `place`. */
typedef struct mr_window_piece {
    int64_t at, n;
    char *place;
    int attempt;
} mr_window_piece;

typedef enum mr_window_state { MR_WINDOW_NOTHING, MR_WINDOW_ROOM, MR_WINDOW_ENDED } mr_window_state;

void mr_window_init(mr_window *w);
void mr_window_fini(mr_window *w);
/* Owner: begin a shard of `total` bytes. `half` is a multiple of a block. `buffer` has space for
 * two halves or for the shard. */
void mr_window_open(mr_window *w, char *buffer, int64_t half, int64_t total);
/* Owner: wait briefly for a free half. Returns whether there is a piece to copy, or the save has
 * ended. */
mr_window_state mr_window_wait(mr_window *w, mr_window_piece *out);
void mr_window_filled(mr_window *w, const mr_window_piece *piece); /* Owner: the piece is copied */
/* Owner: stop after an error of this thread; the writer gets this error. */
void mr_window_close(mr_window *w);
/* Writer: begin or restart at the first byte. */
void mr_window_begin(mr_window *w);
/* Writer: release the previous piece and get the next one. Errors: that of the close */
mr_status mr_window_next(mr_window *w, const char **bytes, int64_t *n);
void mr_window_end(mr_window *w); /* Writer: end the save */

#endif
