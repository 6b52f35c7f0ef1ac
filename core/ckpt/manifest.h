/* ckpt, inside: the manifest of a checkpoint directory, or a rank's part of it.
 * Licence: Apache-2.0 */
#ifndef MR_CKPT_MANIFEST_H
#define MR_CKPT_MANIFEST_H

#include "ckpt/span.h"

#include <jansson.h>

enum { MR_CKPT_SCHEMA = 2, MR_CKPT_BLOCK = 1 << 20 };
#define MR_CKPT_MANIFEST "MANIFEST.json"

static inline int64_t mr_ckpt_blocks(int64_t bytes)
{
    return (bytes + MR_CKPT_BLOCK - 1) / MR_CKPT_BLOCK;
}

typedef struct mr_ckpt_file {
    const char *name; /* inside the directory */
    int64_t bytes;
    mr_hash128 *blocks; /* one per MiB */
} mr_ckpt_file;

/* A slice of a tensor, and its place in a file. */
typedef struct mr_piece {
    const int64_t *bounds; /* for a box: from, to of each dimension; for a range: from, to */
    int64_t offset;        /* file offset of its first byte */
    int file;
} mr_piece;

typedef struct mr_manifest_tensor {
    mr_st_tensor is; /* file and offset: those of its first piece */
    mr_ckpt_cut cut; /* kind of all its pieces: boxes or ranges */
    int first, n;    /* its pieces in mr_manifest.pieces */
} mr_manifest_tensor;

typedef struct mr_manifest {
    char *facts; /* JSON: all members but files, tensors and the self hash */
    int64_t schema, step, fence, save, attempt, rank, ranks;
    char run[40];
    mr_ckpt_file *files;
    mr_manifest_tensor *tensors; /* sorted by file and offset of their first piece */
    mr_piece *pieces;            /* pieces of each tensor are adjacent, in element order */
    int n_files, n_tensors, n_pieces, cap_files, cap_tensors, cap_pieces;
    mr_arena arena; /* memory of texts, hashes and bounds */
} mr_manifest;

void mr_manifest_init(mr_manifest *m);
void mr_manifest_fini(mr_manifest *m);
/* Append a cleared entry to a list; NULL: no memory. */
mr_ckpt_file *mr_manifest_add_file(mr_manifest *m, const char *name, int64_t bytes);
mr_manifest_tensor *mr_manifest_add_tensor(mr_manifest *m, const mr_st_tensor *is, mr_ckpt_cut cut);
mr_piece *mr_manifest_add_piece(mr_manifest *m, int n_bounds); /* to the last tensor */
/* The slice of a piece. */
mr_ckpt_slice mr_piece_slice(const mr_manifest_tensor *t, const mr_piece *p);
mr_span mr_piece_span(const mr_manifest_tensor *t, const mr_piece *p);

/* Add a file of items with the layout of mr_safetensors_header; each item becomes a tensor of one
 * piece.
 * Errors: MR_E_MEMORY */
mr_status mr_manifest_add(mr_manifest *m, const mr_ckpt_file *file, const mr_ckpt_item *items,
                          const int64_t *offsets, int n);
/* Merge the parts of all ranks, in rank order. Collects the pieces of each tensor.
 * Errors: MR_E_CKPT a tensor has another shape, dtype or cut in another part; MR_E_MEMORY */
mr_status mr_manifest_merge(mr_manifest *m, const mr_manifest *parts, int n_parts);
/* Check that every element of every tensor is in exactly one piece. Errors: MR_E_CKPT names tensor
 * and place; MR_E_MEMORY. `path` is for messages; pieces are sorted. */
mr_status mr_manifest_check(const char *path, mr_manifest *m);
/* The hash of a file: the hash of the text of its block hashes. *text is that text: 32 characters
 * per block and a zero; NULL: no memory. Owns: caller frees it with mr_free */
mr_hash128 mr_ckpt_file_hash(const mr_ckpt_file *file, char **text);

/* End of a manifest; the hash of all earlier bytes is between these two. */
#define MR_SELF_HEAD ",\n \"self\": \""
#define MR_SELF_TAIL "\"\n}\n"

/* Check that the caller's meta has the required members and no reserved ones. Errors: MR_E_USAGE
 * names the member. */
mr_status mr_manifest_check_meta(const json_t *meta);
/* Write a manifest as text: facts of `m` (run, fence, step, ranks), the members of `meta`, files,
 * tensors, and the self hash. meta NULL: a rank's part, with rank, save and attempt.
 * Owns: caller frees *text with mr_free. */
mr_status mr_manifest_build(const mr_manifest *m, json_t *meta, char **text, size_t *bytes);
/* Read a manifest and check self hash, schema and sizes. If it is not a part, also check that the
 * pieces of each tensor cover it. Reads the text piece by piece, so memory use is a few times its
 * size. Call _fini after a failure too. Errors: MR_E_FORMAT damaged; MR_E_CKPT, MR_E_UNSUPPORTED
 * undamaged but not readable; MR_E_IO; MR_E_MEMORY. */
mr_status mr_manifest_read(const char *path, bool part, mr_manifest *m);

#endif
