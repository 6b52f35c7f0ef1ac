/* ckpt, inside: weights saved by torch, read as data. Licence: Apache-2.0 */
#ifndef MR_CKPT_TORCH_H
#define MR_CKPT_TORCH_H

#include "moonreel/ckpt.h"

#define MR_CKPT_AGAIN "copy or download it again" /* a damaged file of weights */

/* A range of bytes in a file, by name: an entry of a zip, or a storage of an older file. */
typedef struct mr_entry {
    char *name;
    int64_t at, bytes;
    uint32_t crc;
    bool has_sum; /* crc is the CRC-32 of the bytes */
    bool proven;  /* the CRC was compared */
} mr_entry;

/* Sorted by name; released by mr_entries_free. */
typedef struct mr_entries {
    mr_entry *list;
    int n;
} mr_entries;

enum { MR_ENTRY_NAME = 256 }; /* room for an entry's name */

/* Sort by name. Errors: MR_E_FORMAT a name occurs twice */
mr_status mr_entries_sort(const char *path, mr_entries *entries);
mr_entry *mr_entries_find(const mr_entries *entries, const char *name); /* borrowed; NULL: none */
void mr_entries_free(mr_entries *entries);

/* The entries of a zip: stored, plain, inside the file, no name twice. `path` is for messages.
 * Owns: caller frees *out, after a failure too. Errors: MR_E_FORMAT, MR_E_UNSUPPORTED a build
 * without minizip, MR_E_MEMORY */
mr_status mr_zip_list(const char *path, int fd, int64_t size, mr_entries *out);
/* Read a whole entry to dst [bytes]. Compares its CRC if it has one. Errors: MR_E_FORMAT damaged,
 * MR_E_IO */
mr_status mr_entry_read(const char *path, int fd, mr_entry *e, void *dst);
/* Read an entry and compare its CRC. Does nothing if it has none. Errors: as above, MR_E_MEMORY */
mr_status mr_entry_check(const char *path, int fd, mr_entry *e);

/* A value of a pickle. The mr_pickle owns it. */
typedef enum mr_pickled_kind {
    MR_P_NOTHING, /* None and unused values */
    MR_P_NUMBER,
    MR_P_BIG, /* an integer larger than 8 bytes: its bytes, in .text */
    MR_P_TEXT,
    MR_P_TUPLE,
    MR_P_LIST, /* sets too */
    MR_P_DICT,
    MR_P_NAME,  /* a name on the list in rebuild.c */
    MR_P_CLASS, /* a name that is not on the list */
    MR_P_MODULE,
    MR_P_STORAGE,
    MR_P_TENSOR,
    MR_P_MARK,
    MR_P_COUNT
} mr_pickled_kind;

typedef struct mr_torch_entry mr_torch_entry;

typedef struct mr_pickled {
    uint8_t kind;
    bool open, barren; /* for torch_names.c: being visited; contains no tensor */
    int n;             /* bytes of a text, items of a container */
    union {
        int64_t number;
        const char *text;          /* inside the pickle, not terminated */
        struct mr_pickled **items; /* for a dictionary: key, value, key, value */
        const mr_torch_entry *row;
        struct mr_torch_class *class;
        struct mr_torch_module *module;
        struct mr_torch_storage *storage;
        struct mr_torch_tensor *tensor;
    };
} mr_pickled;

enum { MR_TORCH_NAME = 128 }; /* room for a module's or class's name in a pickle */

typedef struct mr_torch_class {
    char module[MR_TORCH_NAME], name[MR_TORCH_NAME];
    bool is_module; /* an instance was filled as a torch module */
    int unfilled;   /* number of instances not filled yet */
    struct mr_torch_class *next;
} mr_torch_class;

typedef struct mr_torch_module {
    mr_torch_class *class;
    mr_pickled *parameters, *buffers, *modules; /* dictionaries */
    mr_pickled *unsaved;                        /* names of buffers that are not weights; or NULL */
} mr_torch_module;

typedef struct mr_torch_storage {
    const mr_torch_entry *row;
    const mr_pickled *key;   /* a text */
    int64_t elements, bytes; /* according to the pickle; the file may differ */
    int size;                /* bytes per element */
    int64_t first, window;   /* range of elements that tensors may use */
    struct mr_torch_storage *next;
} mr_torch_storage;

typedef struct mr_torch_tensor {
    mr_st_tensor at;                       /* dtype, shape and bytes */
    int64_t stride[MR_ST_RANK_MAX], first; /* in elements; inside the storage's window */
    const mr_torch_storage *storage;
    const char *why; /* reason why it cannot be read, and no other field is set; NULL: it can be
                      * read */
} mr_torch_tensor;

/* An interpreter of the pickles at the start of a text. */
typedef struct mr_pickle {
    const char *path;
    const unsigned char *at, *end; /* the unread bytes */
    mr_arena arena;                /* memory of all values */
    size_t used;
    mr_pickled **stack, **memo, *bare[MR_P_COUNT];
    int n_stack, n_memo, n_ops;
    mr_torch_class *classes;
    mr_torch_storage *storages; /* all storages named so far, newest first */
} mr_pickle;

/* Begin with `text`; borrows it until the close. Call close after a failure too. */
mr_status mr_pickle_open(mr_pickle *p, const char *path, const void *text, size_t bytes);
/* Read the next pickle; *out is its value. Errors: MR_E_FORMAT cut off, an opcode or name that
 * weights do not need (named), a limit passed; MR_E_MEMORY */
mr_status mr_pickle_next(mr_pickle *p, mr_pickled **out);
void mr_pickle_close(mr_pickle *p);

/* In pickled.c: cleared memory, and a value of a kind; NULL: failed, and the error is set. */
void *mr_pickle_alloc(mr_pickle *p, size_t bytes);
mr_pickled *mr_pickle_new(mr_pickle *p, mr_pickled_kind kind);
bool mr_pickled_is(const mr_pickled *x, const char *text);

/* For pickle.c: interpret names, references, calls, instances and states of torch. Errors:
 * MR_E_FORMAT, MR_E_MEMORY */
typedef mr_status mr_torch_made(mr_pickle *p, mr_pickled *what, mr_pickled *args, mr_pickled **out);
mr_status mr_torch_name(mr_pickle *p, const char *module, const char *name, mr_pickled **out);
mr_status mr_torch_reference(mr_pickle *p, mr_pickled *id, mr_pickled **out);
mr_torch_made mr_torch_call, mr_torch_instance;
mr_status mr_torch_build(mr_pickle *p, mr_pickled *object, mr_pickled *state);
/* Check that every named class is the class of a module. */
mr_status mr_torch_check_classes(const mr_pickle *p);

/* Call `found` for each tensor below `root`, with its name "a.b.c" from nested dictionaries and
 * modules. The arguments are valid during the call only. Errors: MR_E_FORMAT not a dictionary, too
 * deep, too many paths; those of `found` */
typedef mr_status mr_torch_found(void *user, const char *name, const mr_torch_tensor *tensor);
mr_status mr_torch_names(const char *path, mr_pickled *root, mr_torch_found *found, void *user);

/* Read a file of torch before 1.6: several pickles, then the storages. `p` is open at the start of
 * the file. *root is the saved value; the storages become entries. Owns: caller frees *out, after a
 * failure too. Errors: MR_E_FORMAT, MR_E_IO, MR_E_MEMORY */
mr_status mr_legacy_read(mr_pickle *p, int fd, int64_t size, mr_pickled **root, mr_entries *out);

/* Copy the elements [from, from + n), counted in row-major order, of a strided tensor to out [n *
 * size], contiguously. `first` points to element (0, 0, ...); strides are in elements. */
void mr_strided_gather(const void *first, size_t size, int rank, const int64_t *shape,
                       const int64_t *stride, int64_t from, int64_t n, void *out);

typedef struct mr_torch mr_torch;

/* Open a file of torch.save. Reads no tensor data.
 * Errors: MR_E_FORMAT damaged or with anything that weights do not need; MR_E_UNSUPPORTED a zip in
 * a build without minizip; MR_E_IO; MR_E_MEMORY */
mr_status mr_torch_open(const char *path, mr_torch **out);
void mr_torch_close(mr_torch *torch); /* NULL is fine */
int mr_torch_count(const mr_torch *torch);
const mr_st_tensor *mr_torch_at(const mr_torch *torch, int i); /* lent */
/* Tensors in the file that cannot be read, with the reason. Borrowed. */
int mr_torch_refused_count(const mr_torch *torch);
const mr_st_refused *mr_torch_refused_at(const mr_torch *torch, int i);
/* Read bytes [offset, offset + n) of the i-th tensor in row-major order. Compares a storage with
 * its CRC before it returns the first byte. A strided tensor keeps its range of the storage in
 * memory until its last byte is read. Errors: MR_E_IO, MR_E_FORMAT, MR_E_MEMORY
 * Threads: one call at a time */
mr_status mr_torch_read(mr_torch *torch, int i, void *dst, int64_t offset, int64_t n);
/* Compare every entry with its CRC. Errors: MR_E_USAGE the file has none; as above */
mr_status mr_torch_verify(mr_torch *torch);

#endif
