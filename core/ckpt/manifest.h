/* ckpt: the manifest of a checkpoint directory: built by the writer, parsed by readers. Inside the
 * room.
 * Licence: Apache-2.0 */
#ifndef MR_CKPT_MANIFEST_H
#define MR_CKPT_MANIFEST_H

#include "moonreel/ckpt.h"

#include <jansson.h>

enum { MR_CKPT_SCHEMA = 1, MR_CKPT_BLOCK = 1 << 20 };
#define MR_CKPT_MANIFEST "MANIFEST.json"

static inline int64_t mr_ckpt_blocks(int64_t bytes)
{
    return (bytes + MR_CKPT_BLOCK - 1) / MR_CKPT_BLOCK;
}

/* The failure of a json_load call: memory, or what stands in the text of `path`. */
mr_status mr_json_fail(mr_status code, const char *path, const json_error_t *err);

typedef struct mr_ckpt_file {
    const char *name; /* inside the directory */
    int64_t bytes;
    mr_hash128 whole, *blocks; /* one per MiB; NULL: a plain file without hashes */
} mr_ckpt_file;

typedef struct mr_manifest {
    char *text; /* zero-terminated */
    size_t text_bytes;
    int64_t step, fence;
    char run[40];
    mr_ckpt_file *files;
    int n_files;
    mr_st_tensor *tensors; /* by file and offset */
    int n_tensors;
    mr_arena arena; /* holds all but `text` */
} mr_manifest;

/* Members that the caller's meta must and must not have. Errors: MR_E_USAGE naming the member. */
mr_status mr_manifest_check_meta(const json_t *meta);
/* The text of a manifest: facts, the members of `meta`, files, slices, self hash last.
 * Owns: caller frees *text with mr_free. */
mr_status mr_manifest_build(const char *run, int64_t fence, int64_t step, json_t *meta,
                            const mr_ckpt_file *file, const mr_ckpt_item *items,
                            const int64_t *offsets, int n, char **text, size_t *bytes);
/* Read and check <dir>/MANIFEST.json: self hash, schema, sizes that fit together. `m` is closed by
 * _fini, also after a failure. Errors: MR_E_FORMAT damaged; MR_E_CKPT, MR_E_UNSUPPORTED undamaged
 * but not readable; MR_E_IO; MR_E_MEMORY. */
mr_status mr_manifest_read(const char *dir, mr_manifest *m);
void mr_manifest_fini(mr_manifest *m);

#endif
