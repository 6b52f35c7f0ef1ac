/* base: status and error record, log, memory, arenas, hashes, random numbers, files and clocks.
 *
 * The left-most room: knows no other. Functions that can fail return mr_status. The details of a
 * failure (text, place, cause) are kept per thread; mr_error_last() reads them.
 *
 * Threads: status codes, logs, memory, hashes, random numbers and files may be used by any thread;
 * an arena belongs to one thread at a time. The error record is per thread.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_BASE_H
#define MOONREEL_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MR_API               __attribute__((visibility("default")))
#define MR_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define MR_COUNT(a)          (sizeof(a) / sizeof((a)[0]))
#define MR_MIN(a, b)         ((a) < (b) ? (a) : (b))
#define MR_MAX(a, b)         ((a) > (b) ? (a) : (b))
#define MR_VERSION           "0.5.0"

/* ---- status and error record ---- */

typedef enum mr_status {
#define MR_STATUS(name, text, exit) MR_##name,
#include "moonreel/status.def"
#undef MR_STATUS
    MR_STATUS_COUNT
} mr_status;

/* One failure. Plain data; `cause` is the underlying failure or NULL. */
typedef struct mr_error {
    mr_status code;
    char text[1024];  /* the value received, what was expected, what to try */
    char op[64];      /* op name or empty */
    char node[96];    /* graph node or empty */
    char origin[256]; /* recipe or model file:line or empty */
    const char *file; /* C source file */
    int line;
    struct mr_error *cause;
} mr_error;

MR_API const char *mr_status_name(mr_status code);      /* "MR_E_DATA"; lent, static */
MR_API int mr_status_exit(mr_status code);              /* exit code of the program */
MR_API mr_status mr_status_from_name(const char *name); /* MR_STATUS_COUNT when unknown */

/* Start a failure: replaces this thread's record. Returns `code`.
 * mr_fail_note makes a new record with the same code, whose cause is the present record. */
#define mr_fail(code, ...) mr_fail_at((code), __FILE__, __LINE__, __VA_ARGS__)
#define mr_fail_note(...)  mr_fail_note_at(__FILE__, __LINE__, __VA_ARGS__)
MR_API mr_status mr_fail_at(mr_status code, const char *file, int line, const char *fmt, ...)
    MR_PRINTF(4, 5);
MR_API mr_status mr_fail_note_at(const char *file, int line, const char *fmt, ...) MR_PRINTF(3, 4);
/* Adds `; try: HINT` at the end of the message if `code` blames the contents of a file (MR_E_CKPT,
 * MR_E_DATA, MR_E_DECODE, MR_E_FORMAT) and the message does not say yet what to try. Returns
 * `code`. Who opens a file knows what its user can do about it; who reads it knows what is wrong.
 */
MR_API mr_status mr_fail_try(mr_status code, const char *hint);
/* Fill op, node and origin of the newest record if they are still empty. NULL skips a field. */
MR_API void mr_fail_where(const char *op, const char *node, const char *origin);

#define MR_TRY(call)                                                                               \
    do {                                                                                           \
        mr_status mr_try_status_ = (call);                                                         \
        if (mr_try_status_ != MR_OK)                                                               \
            return mr_try_status_;                                                                 \
    } while (0)
/* The same inside functions that free at a label `out` and keep `mr_status st`. */
#define MR_TRY_GOTO(call)                                                                          \
    do {                                                                                           \
        if ((st = (call)) != MR_OK)                                                                \
            goto out;                                                                              \
    } while (0)

/* Lend this thread's newest record; NULL when none. Valid until the thread's next mr_fail. */
MR_API const mr_error *mr_error_last(void);
/* Write the record in the house format (origin: op 'node': text, then causes, indented).
 * Returns the length of the whole text, as snprintf. */
MR_API size_t mr_error_format(const mr_error *err, char *buf, size_t cap);
MR_API void mr_error_clear(void);
/* Copy a record (with causes) to pass it to another thread; free with mr_error_free. */
MR_API mr_error *mr_error_copy(const mr_error *err);
MR_API void mr_error_free(mr_error *err);
/* Make a copied record this thread's newest; copies again, borrows `err`. Returns its code. */
MR_API mr_status mr_error_adopt(const mr_error *err);

/* ---- log ---- */

typedef enum mr_log_level { MR_LOG_DEBUG, MR_LOG_INFO, MR_LOG_WARN, MR_LOG_ERROR } mr_log_level;
/* Receives complete lines without a newline; called from any thread, one at a time. */
typedef void mr_log_sink(void *user, mr_log_level level, const char *line);
MR_API void mr_log(mr_log_level level, const char *fmt, ...) MR_PRINTF(2, 3);
/* NULL restores the default (warnings and errors to stderr; MOONREEL_LOG=debug|info lowers it). */
MR_API void mr_log_set_sink(mr_log_sink *sink, void *user);

/* ---- names ---- */

/* The number of letters to add, drop, change or swap with their neighbour to make b from a; "did
 * you mean" uses it. Case does not matter, `-` equals `_`. Names count up to their 63rd byte; more
 * than `limit` changes count as limit + 1. Threads: any. */
MR_API int mr_name_distance(const char *a, const char *b, int limit);
/* The name of `names` (ended by NULL) that is nearest to a mistyped one; the alphabetically first
 * of equally near ones; NULL if more than a quarter of its letters would have to change. Threads:
 * any. */
MR_API const char *mr_name_nearest(const char *name, const char *const *names);

/* ---- interruption ---- */

/* A user at the prompt asks to stop the running command (Ctrl-C; nothing else sets the flag). Long
 * loops poll it: scans, decoding, kernels, whole-file reads. Setting it is safe inside a signal
 * handler. mr_interrupt_check fails with MR_E_STOPPED while it is set. Threads: any. */
MR_API void mr_interrupt_set(bool on);
/* Whether a stop signal only repeats the one that came after_s seconds before it: timeout(1) sends
 * each signal twice, to the program and to its group. Safe in a handler. */
MR_API bool mr_stop_again(int before, int number, double after_s);
MR_API bool mr_interrupt_get(void);
MR_API mr_status mr_interrupt_check(void);
/* memmove in pieces with checks for Ctrl-C between them: after MR_E_STOPPED the copy is incomplete.
 */
MR_API mr_status mr_interrupt_copy(void *dst, const void *src, size_t bytes);

/* Bytes that processors transfer together. */
enum { MR_CACHE_LINE = 64 };

/* ---- memory ---- */

/* All heap memory of moonreel's own code comes from here. A failing allocation returns NULL.
 * Sizes in bytes. mr_alloc is not cleared, mr_calloc is. Threads: any. */
MR_API void *mr_alloc(size_t bytes);
MR_API void *mr_calloc(size_t n, size_t bytes);
MR_API void *mr_realloc(void *p, size_t bytes);
MR_API void mr_free(void *p);
MR_API char *mr_strdup(const char *s);
/* Tests: let the n-th allocation from now (1 = the next) fail once; 0 turns it off. */
MR_API void mr_alloc_fail_at(int64_t n);
/* Number of mr_alloc/mr_calloc/mr_realloc calls of this process so far. */
MR_API int64_t mr_alloc_count(void);
#define MR_NEW(ptr) ((ptr) = mr_calloc(1, sizeof *(ptr)))
/* bytes: 0 where the size is not known */
#define mr_fail_memory(bytes)                                                                      \
    mr_fail(MR_E_MEMORY, "cannot allocate %.0zu%s; try: a smaller batch or fewer workers",         \
            (size_t)(bytes), (size_t)(bytes) > 0 ? " bytes" : "memory")

/* A growing block of small allocations that are freed together. Pointers stay valid until release.
 */
typedef struct mr_arena {
    struct mr_arena_block *block;
    size_t used;
} mr_arena;
typedef struct mr_arena_mark {
    struct mr_arena_block *block;
    size_t used;
} mr_arena_mark;
MR_API void mr_arena_init(mr_arena *arena);
MR_API void mr_arena_fini(mr_arena *arena);
/* 16-byte aligned, cleared; NULL when out of memory */
MR_API void *mr_arena_alloc(mr_arena *arena, size_t bytes);
MR_API char *mr_arena_strdup(mr_arena *arena, const char *s);
MR_API mr_arena_mark mr_arena_get_mark(const mr_arena *arena);
MR_API void mr_arena_release(mr_arena *arena, mr_arena_mark mark);

/* ---- hashes ---- */

typedef struct mr_hash128 {
    uint64_t lo, hi;
} mr_hash128;
MR_API uint64_t mr_hash64(const void *data, size_t bytes);       /* XXH3-64 */
MR_API mr_hash128 mr_hash128_of(const void *data, size_t bytes); /* XXH3-128 */
MR_API void mr_hash128_hex(mr_hash128 h, char out[33]);

enum { MR_SHA256_BYTES = 32, MR_SHA256_BLOCK = 64 };
/* SHA-256 of text that comes in parts. Ref: FIPS 180-4. Plain data. */
typedef struct mr_sha256 {
    uint32_t h[8];
    uint8_t block[MR_SHA256_BLOCK];
    uint64_t bytes; /* so far */
} mr_sha256;
MR_API void mr_sha256_begin(mr_sha256 *s);
MR_API void mr_sha256_add(mr_sha256 *s, const void *data, size_t bytes);
MR_API void mr_sha256_finish(mr_sha256 *s, uint8_t out[MR_SHA256_BYTES]);

/* Checksums of records in files of other programs; no protection against manipulation. For text in
 * parts pass the sum so far, 0 at the beginning.
 * mr_crc32   IEEE 802.3, as zlib (reflected polynomial 0xEDB88320)
 * mr_crc32c  Castagnoli, as iSCSI, RFC 3720 B.4 (reflected polynomial 0x82F63B78) */
MR_API uint32_t mr_crc32(uint32_t so_far, const void *data, size_t bytes);
MR_API uint32_t mr_crc32c(uint32_t so_far, const void *data, size_t bytes);
/* Streaming XXH3-128. _new returns NULL when out of memory. */
typedef struct mr_hasher mr_hasher;
MR_API mr_hasher *mr_hasher_new(void);
MR_API void mr_hasher_add(mr_hasher *h, const void *data, size_t bytes);
MR_API mr_hash128 mr_hasher_digest(const mr_hasher *h);
MR_API void mr_hasher_free(mr_hasher *h);
/* mix(...): XXH3-64 of the words as little-endian u64 (reference: dataplane 4.1). */
MR_API uint64_t mr_mix(const uint64_t *words, size_t n);
#define MR_MIX(...)                                                                                \
    mr_mix((const uint64_t[]){__VA_ARGS__}, MR_COUNT(((const uint64_t[]){__VA_ARGS__})))
/* The hash of a short text as one word of a mix. */
MR_API uint64_t mr_name_word(const char *name);
/* 53-bit fraction in [0, 1). */
static inline double mr_fraction(uint64_t word)
{
    return (double)(word >> 11) * 0x1.0p-53;
}

/* ---- random numbers ---- */

/* Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"); its arithmetic
 * is in random_inline.h. */
/* Words of the stream (seed, purpose) for one sample: counter = (key_lo low, key_lo high, epoch,
 * block), key = mix(seed, purpose). Element e of a tensor is word e % 4 of block e / 4. */
MR_API void mr_random_block(uint64_t seed, uint64_t purpose, uint64_t sample_key, uint32_t epoch,
                            uint32_t block, uint32_t out[4]);
/* Uniform in (0, 1) and standard normal for element `element`. Our own polynomials with explicit
 * fma give the same bits on every device. Elements 2i and 2i+1 of a normal share one Box-Muller
 * pair and the words of its blocks. */
MR_API float mr_random_uniform(uint64_t seed, uint64_t purpose, uint64_t sample_key, uint32_t epoch,
                               uint64_t element);
MR_API float mr_random_normal(uint64_t seed, uint64_t purpose, uint64_t sample_key, uint32_t epoch,
                              uint64_t element);
/* The same for n consecutive elements from `first`. */
MR_API void mr_random_fill_uniform(float *out, int64_t n, uint64_t seed, uint64_t purpose,
                                   uint64_t sample_key, uint32_t epoch, uint64_t first);
MR_API void mr_random_fill_normal(float *out, int64_t n, uint64_t seed, uint64_t purpose,
                                  uint64_t sample_key, uint32_t epoch, uint64_t first);

/* ---- files and clocks ---- */

/* Bytes of the UTF-8 sequence at the start of text[n], its code point in *code. 0 if it is invalid:
 * a stray or missing byte, an overlong form, a UTF-16 surrogate, beyond U+10FFFF, or n = 0. */
MR_API size_t mr_utf8(const char *text, size_t n, uint32_t *code);

/* Every system call on files goes through this table; tests replace it. Semantics are POSIX:
 * -1 and errno on failure. */
typedef struct mr_io {
    int (*open)(const char *path, int flags, int mode);
    ssize_t (*read)(int fd, void *buf, size_t n);
    ssize_t (*write)(int fd, const void *buf, size_t n);
    ssize_t (*pread)(int fd, void *buf, size_t n, int64_t at);
    ssize_t (*pwrite)(int fd, const void *buf, size_t n, int64_t at);
    int (*fallocate)(int fd, int64_t bytes);
    int (*ftruncate)(int fd, int64_t bytes);
    int (*fsync)(int fd);
    int (*close)(int fd);
    int (*rename)(const char *from, const char *to);
    /* swap two names atomically; ENOSYS or EINVAL if the file system cannot */
    int (*exchange)(const char *a, const char *b);
    int (*unlink)(const char *path);
    int (*rmdir)(const char *path);
    int (*mkdir)(const char *path, int mode);
    int64_t (*free_bytes)(const char *path);
} mr_io;
MR_API const mr_io *mr_io_table(void); /* the table in force; lent */
/* NULL restores the real one; borrows `table` */
MR_API void mr_io_replace(const mr_io *table);
typedef struct mr_clock {
    int64_t (*monotonic_ns)(void);
    int64_t (*wall_ns)(void); /* since 1970, for display only */
    void (*sleep_ns)(int64_t ns);
} mr_clock;
MR_API const mr_clock *mr_clock_table(void);
MR_API void mr_clock_replace(const mr_clock *table);
MR_API double mr_now_s(void); /* monotonic seconds */

/* Whole operations on top of the table: loop over short counts, repeat on EINTR.
 * Errors: MR_E_IO with path and reason. */
/* owns: caller frees *data with mr_free; zero-terminated */
MR_API mr_status mr_file_read_all(const char *path, char **data, size_t *bytes);
/* The same for a regular file of at most `most` bytes: pipes and devices are refused at once, and a
 * larger file is never read. Errors: MR_E_IO, MR_E_FORMAT too large, MR_E_MEMORY */
MR_API mr_status mr_file_read_small(const char *path, size_t most, char **data, size_t *bytes);
MR_API mr_status mr_file_write_full(int fd, const void *data, size_t bytes, const char *path);
MR_API mr_status mr_file_read_at(int fd, void *data, size_t bytes, int64_t at, const char *path);
/* Write a small file completely or not at all: temporary name, sync, rename, sync of the directory.
 */
MR_API mr_status mr_file_replace(const char *path, const void *data, size_t bytes);
/* The name PATH.tmp-PID under which a file is written until it is complete. Removes files that
 * earlier writers of the same path left under such names, if their process has ended and no process
 * holds the file.
 * Errors: MR_E_IO the path is too long. Threads: any */
MR_API mr_status mr_temporary_path(const char *path, char *out, size_t size);
/* Lock an open file of such a name. The lock protects it from a writer on another host or in
 * another container, which does not see this process. Closing the file ends the lock. On a file
 * system without such locks no file is locked and none is removed. Threads: any */
MR_API void mr_temporary_hold(int fd);
MR_API mr_status mr_dir_sync(const char *path);
MR_API mr_status mr_dir_make(const char *path);   /* with parents; existing is fine */
MR_API mr_status mr_dir_remove(const char *path); /* recursive; missing is fine */
MR_API bool mr_path_exists(const char *path);
/* Sorted names in a directory without . and ..; owns: free each and the list with mr_free. */
MR_API mr_status mr_dir_list(const char *path, char ***names, int *n);
MR_API void mr_dir_list_free(char **names, int n);

#ifdef __cplusplus
}
#endif
#endif
