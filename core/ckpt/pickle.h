/* ckpt: the pickle that names the tensors of a torch file, walked as data. Licence: Apache-2.0 */
#ifndef MR_CKPT_PICKLE_H
#define MR_CKPT_PICKLE_H

#include "moonreel/ckpt.h"

/* A dense tensor `name` ("a.b.c", from nested dictionaries) inside the storage `key`;
 * tensor->offset in bytes from the storage's start, its name not set. All lent for the call. */
typedef mr_status mr_pickle_found(void *user, const char *name, const char *key,
                                  const mr_st_tensor *tensor);

/* Walk a pickle and tell its tensors; `path` is for messages.
 * Errors: MR_E_FORMAT cut off, an opcode or name that weights do not need (named), a limit passed;
 * MR_E_UNSUPPORTED a strided view; MR_E_MEMORY; those of `found` */
mr_status mr_pickle_walk(const char *path, const void *pickle, size_t bytes, mr_pickle_found *found,
                         void *user);

#endif
