/* data, inside: what the files of the room share. Licence: Apache-2.0 */
#ifndef MR_DATA_ROOM_H
#define MR_DATA_ROOM_H

#include "base/text.h"
#include "moonreel/data.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

/* ---- the inside of a bucket rule ---- */

typedef struct bucket_length {
    int32_t frames, batch, first; /* first: bucket number of the first aspect */
    int64_t needs;                /* frames that a clip must have */
    double keep, tries, cost;
    bool pair; /* tries was given, a reference then draws for it whatever it is */
} bucket_length;

typedef struct bucket_ratio {
    double ratio;
    int32_t aspect;
} bucket_ratio;

typedef struct bucket_resolution {
    const char *name;
    double pixels;
    mr_bucket_aspect *aspects;
    bucket_ratio *ratios; /* low to high */
    int32_t n_aspects, n_ratios, n_lengths;
    bucket_length *lengths; /* long to short */
} bucket_resolution;

/* A draw that a row meets on its way from the highest resolution down. Whether a length is tried
 * comes before whether it keeps; a probability of one to be tried needs no step. */
typedef struct bucket_step {
    uint64_t word, limit; /* purpose of the draw, and what its 53 bits must stay below */
    int32_t yes, no;      /* the next step; below 0: BUCKET_END, or bucket_taken of a length */
} bucket_step;
enum { BUCKET_END = -1 };
/* A length as the end of a way, and back: by the bucket number of its first aspect. */
static inline int32_t bucket_taken(int32_t first)
{
    return -2 - first;
}

/* Where a bucket stands in the rule. */
typedef struct bucket_place {
    int32_t resolution, aspect;
    const bucket_length *length;
} bucket_place;

struct mr_bucket_rule {
    mr_arena arena;
    bucket_resolution *resolutions; /* high to low */
    int32_t n, interval, count;
    bool compat;
    mr_reference follows;
    double fps_max; /* of 2.0; 0: none */
    mr_bucket *buckets;
    bucket_place *places; /* [bucket] */
    int64_t *needs;       /* frames that some length needs of a clip, ascending */
    int32_t n_needs;
    /* Clips that reach k of all needs go way k through the lengths, pictures the last one:
     * begins[way][resolution], of n + 1, is the first step from there on. */
    bucket_step *steps;
    int32_t *begins;
    uint64_t hash, repeat; /* repeat: epochs after which draws come again; 0: never */
};

/* Does a clip of `have` frames fit a length? Pictures fit lengths of 1 only. */
bool bucket_fits(const bucket_length *l, int64_t have);

/* What a size decides, kept for rows of the same size: the first resolution that it reaches, and
 * its aspect in each one (0xffff: not asked yet). All zero: of no size. */
enum { BUCKET_SIZE_RESOLUTIONS = 12 };
typedef struct bucket_size {
    uint32_t key; /* 0: none */
    int32_t first;
    uint16_t aspect[BUCKET_SIZE_RESOLUTIONS];
} bucket_size;
/* 1 << log of them, found by hash. */
typedef struct bucket_sizes {
    bucket_size *of;
    int32_t log;
} bucket_sizes;
/* mr_bucket_rule_assign of n <= BUCKET_ROWS rows at once, the first one number `row`, with what was
 * kept of sizes under the same rule. out[i]: a bucket, or the mr_drop of row i times -1. */
enum { BUCKET_ROWS = 256 };
void bucket_assign(const mr_bucket_rule *rule, bucket_sizes sizes, uint64_t seed, uint64_t epoch,
                   uint64_t row, const mr_hot *rows, int32_t n, int32_t *out);
/* The length that takes one sample, asked one by one; NULL and why: none. `epoch` is that of draws;
 * asked as of mr_bucket_rule_ask, or NULL. */
const bucket_length *bucket_walk(const mr_bucket_rule *rule, uint64_t seed, uint64_t epoch,
                                 uint64_t row, const mr_hot *hot, mr_asked *asked, mr_drop *why);
/* Does no draw decide who enters which bucket, so that all epochs are alike? */
bool bucket_is_certain(const mr_bucket_rule *rule);
/* Frames of a clip as lengths of the rule count them. */
int64_t bucket_frames(const mr_bucket_rule *rule, const mr_hot *hot);
/* What a draw of our own is for, as a word of its hash. */
uint64_t bucket_word(const char *purpose, const bucket_resolution *resolution, int32_t frames);
/* Could some draw of some epoch lead this row to a bucket? */
bool bucket_may_take(const mr_bucket_rule *rule, bucket_sizes sizes, const mr_hot *hot,
                     int32_t bucket);

/* ---- the inside of an order ---- */

enum { ORDER_STRIDE = 64, ORDER_SIZES_LOG = 10 };
/* Up to this many rows keep their buckets in memory; of more a chunk is looked through for each
 * sample. Specs change it. */
extern uint64_t order_kept_rows;

/* Where an order reads its rows; an index usually. */
typedef struct order_rows {
    /* chunk c of MR_HOT_ROWS, the last one shorter; lent until the next call */
    mr_status (*read)(void *user, uint64_t chunk, const mr_hot **rows, int32_t *n);
    void *user;
    mr_index_facts facts;
    const char *name; /* for errors */
} order_rows;

typedef struct order_cost {
    double cost; /* of a micro-batch */
    int32_t bucket;
} order_cost;

static inline bool order_is_of(mr_hash128 a, mr_hash128 b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

struct mr_subset {
    atomic_int refs;
    mr_hash128 fp_order; /* of the index whose rows these are */
    uint64_t rows, count, hash;
    uint8_t *bits;    /* [(rows + 7) / 8] */
    mr_hash128 *gone; /* keys of trained samples that the index lacks, ascending */
    uint64_t n_gone, cap_gone;
};
/* An empty one. Then samples and keys without a row are added, and it is closed: count and hash
 * follow bits and keys. */
mr_status subset_new(mr_hash128 fp_order, uint64_t rows, mr_subset **out);
void subset_add(mr_subset *s, uint64_t row);
mr_status subset_add_gone(mr_subset *s, mr_hash128 key);
void subset_close(mr_subset *s);

/* An epoch of a reference, which is made of lists; lists.c. */
typedef struct order_lists {
    uint32_t *rows; /* each bucket's one behind the other, in their order; room for all rows */
    uint64_t room;
    uint64_t *first; /* [bucket] where its rows begin */
    uint16_t *turns; /* [n] bucket of each micro-batch */
    uint64_t n;
    uint64_t left; /* one of the rows that are left out; UINT64_MAX: none is */
} order_lists;

struct mr_order {
    order_rows rows;
    mr_index_reader *reader; /* what `rows` reads; keeps the index */
    const mr_bucket_rule *rule;
    uint64_t seed;
    int32_t slot;
    bool carry;
    uint64_t epochs; /* the number of epochs; the last carries nothing */
    uint64_t chunks, strides;
    uint8_t *counts;   /* [bucket][chunk] what a byte of the count holds */
    uint8_t **above;   /* [bucket][chunk] the byte above it; NULL: none has any */
    uint64_t *prefix;  /* [bucket][stride]: samples before every ORDER_STRIDE-th chunk */
    uint64_t *samples; /* [bucket] */
    order_cost *costs; /* all buckets, cheap to dear */
    int32_t *class_of; /* [bucket] */
    uint64_t dropped[MR_DROP_COUNT];
    uint64_t in_epoch, batches, expected; /* samples, micro-batches, digest of this epoch */
    mr_position at;
    uint64_t *excluded, n_excluded;
    uint64_t *next_excluded, n_next_excluded; /* from the next epoch on, when has_next */
    bool has_next;
    mr_subset *members;
    mr_subset *seen, *next_seen; /* in this epoch; in the one that begins next */
    bucket_sizes sizes;          /* of rows met lately */
    uint16_t *entered;           /* [row] bucket, 0xffff: none; NULL: too many rows to keep */
    order_lists *lists;          /* of this epoch, where the rule follows a reference */
    bool fill, unshuffled;       /* as of mr_order_options */
};

/* ---- what an epoch left over; tail.c ---- */

struct mr_tail {
    atomic_int refs;
    int32_t n_buckets;
    uint64_t *first; /* [bucket + 1] in the lists, which stand in the order of the buckets */
    uint64_t *ids, *keys, n, cap, digest;
};
mr_tail *tail_ref(mr_tail *t); /* NULL is fine */
void tail_unref(mr_tail *t);
/* An empty one, and one more sample of a bucket, which does not come before the bucket of the last
 * one. */
mr_status tail_new(int32_t n_buckets, mr_tail **out);
mr_status tail_add(mr_tail *t, int32_t bucket, uint64_t id, uint64_t key);
/* As a line of a state, none when it is empty; and back, from behind the line's name. A brief one
 * names a long list by its hash, and the list stands in a line of the text beside the state. */
void tail_put(const mr_tail *t, bool brief, mr_text *out);
void tail_put_beside(const mr_tail *t, mr_text *out);
mr_status tail_read(mr_order *o, const char *line, mr_tail **out);
/* What an order has not drawn yet of its tail, for another index, rule or members: as rows of
 * those, in a bucket of the same shape, or in the one that its key leads to. Who has none is given
 * up. */
mr_status tail_move(mr_order *o, const mr_carry *from, mr_index *now, const mr_bucket_rule *rule,
                    const mr_subset *members, mr_tail **out);
static inline uint64_t tail_count(const mr_tail *t, int32_t bucket)
{
    return t ? t->first[bucket + 1] - t->first[bucket] : 0;
}

/* Samples of bucket b that this epoch is to draw, those left over by the last one first. */
static inline uint64_t order_total(const mr_order *o, int32_t b)
{
    return o->samples[b] + tail_count(o->at.tail, b);
}
/* What is left of an order's epoch. *out is the caller's, also after a failure. */
mr_status order_left_over(mr_order *o, mr_tail **out);

/* mr_order_new over any rows; what `rows` reads stays the caller's. */
mr_status order_new_of(order_rows rows, const mr_bucket_rule *rule, const mr_order_options *options,
                       mr_order **out);
/* The buckets of n <= BUCKET_ROWS rows from row `id` on in this epoch, or why not, times -1. */
void order_buckets_of(const mr_order *o, uint64_t id, const mr_hot *rows, int32_t n, int32_t *out);
/* The key of a bucket's permutation in this epoch, and the j whose P(j) is p. */
uint64_t order_bucket_key(const mr_order *o, int32_t bucket);
uint64_t order_unpermute(uint64_t key, uint64_t n, uint64_t p);
/* A position as text, for an order of these rows, of a rule with this hash, and seed. */
mr_status position_text(const mr_position *p, const mr_index_facts *facts, uint64_t rule,
                        uint64_t seed, bool brief, char **text);

/* Errors: MR_E_RECIPE, MR_E_DATA an order of a reference that cannot be; MR_E_MEMORY */
mr_status lists_new(mr_order *o);
void lists_free(mr_order *o);
size_t lists_bytes(const mr_order *o);
/* This epoch's lists: samples, micro-batches and what is expected of them follow. */
mr_status lists_plan(mr_order *o);

/* ---- the inside of a blend; blend.c ---- */

typedef struct blend_source {
    mr_order *order;
    char *name;
    mr_weight *weights;
    int32_t n_weights;
    uint64_t epochs;
} blend_source;

struct mr_blend {
    int32_t n;
    blend_source sources[MR_SOURCES_MAX];
    mr_blend_shares at;
};

/* Where all of it stands. */
typedef struct blend_position {
    int32_t n;
    mr_position at[MR_SOURCES_MAX];
    mr_blend_shares shares;
} blend_position;
mr_status blend_position_init(blend_position *p, const mr_blend *blend);
void blend_position_fini(blend_position *p);
void blend_position_advance(blend_position *p, const mr_draw *draw);
mr_status blend_position_text(const blend_position *p, const mr_blend *blend, bool brief,
                              char **text);
/* The shares that a state's text tells; what it says of the sources is restored by them. */
mr_status blend_restore(mr_blend *blend, const char *text);
/* The part of a text for a source of that name: from behind a line "source NAME" to the next such
 * line. A text without such lines belongs to the source without a name. The caller frees *out;
 * NULL: there is none. */
mr_status blend_part(const char *text, const char *name, char **out);
/* Lines for a source are begun by that line where it has a name. */
void blend_put_name(mr_text *out, const char *name);

/* MR_E_DATA when a length of the rule can get no sample of any source, whatever the draws; cover.c.
 */
mr_status blend_check_cover(mr_blend *blend);

/* Are all micro-batches of the epoch drawn? How many are not? */
bool order_is_used_up(const mr_order *o);
uint64_t order_rest(const mr_order *o);
/* Does the epoch leave to the next one what is no whole micro-batch? */
bool order_carries(const mr_order *o);
/* Has the next epoch the samples of this one, each in the same bucket? */
bool order_is_alike(const mr_order *o);
/* The next epoch, with what this one leaves over. */
mr_status order_go_on(mr_order *o);
/* Pass over the rest of the epoch and over those behind it while `most` micro-batches hold them
 * whole and there are `epochs` of them (0: no end): as if they were drawn, and none is. It stands
 * at an end or a beginning then. One at most, where not `settled`: who is left out is asked anew.
 * *n micro-batches were passed over, of *samples samples.
 * Errors: those of mr_order_next; MR_E_STOPPED */
mr_status order_pass(mr_order *o, uint64_t most, uint64_t epochs, bool settled, uint64_t *n,
                     uint64_t *samples);

/* Samples that failed, and who is left out from the next epoch on. */

typedef struct quarantine quarantine;
typedef struct quarantine_event {
    uint64_t key_lo, epoch;
    int32_t attempt;
    mr_fault fault;
    bool sent; /* other ranks know of it */
} quarantine_event;

/* path NULL: in memory only. Reads the events of this index from an existing file, those of the
 * source of that name alone. */
mr_status quarantine_open(const char *path, mr_hash128 fp_order, const char *source,
                          quarantine **out);
/* What a checkpoint of `epoch` knows, as quarantine_text wrote it. It holds whatever became of the
 * file since: up to `epoch` it alone decides, later what fails in addition. Errors: MR_E_FORMAT */
mr_status quarantine_take(quarantine *q, uint64_t epoch, const char *text);
/* Keys left out in `epoch`, and those that will be left out of the next, as a text for a
 * checkpoint; caller frees with mr_free. */
mr_status quarantine_text(const quarantine *q, uint64_t epoch, char **text);
void quarantine_close(quarantine *q);
/* One line, one write. */
mr_status quarantine_add(quarantine *q, const quarantine_event *e, const mr_row *row,
                         const char *detail);
/* Events not yet sent, a line each, which count as sent from now on; caller frees. And those of
 * another rank, which its own list remembers; they are not sent again. Errors: MR_E_FORMAT */
mr_status quarantine_tell(quarantine *q, char **text);
mr_status quarantine_hear(quarantine *q, const char *text);
/* Keys left out in `epoch`, ascending: two failed attempts of permanent classes in epochs before
 * it; caller frees. */
mr_status quarantine_excluded(const quarantine *q, uint64_t epoch, uint64_t **keys, uint64_t *n);

/* ---- the inside of a loader, shared by its workers and its front ---- */

enum { LOADER_THREADS = 256, LOADER_WINDOW = 1000 };

typedef enum slab_state { FREE, FILLING, READY, OUT } slab_state;

typedef struct slab {
    mr_batch batch;
    slab_state state;
    int32_t buffer; /* of its pixels */
    mr_draw draw;
    mr_tail *tail;                      /* of the draw, kept */
    uint64_t excluded_n, excluded_hash; /* in force in its epoch */
    int32_t started, done;              /* slots */
    uint8_t *pixels;
    float *weights, *fps, *native_fps;
    uint64_t *ids, *keys;
    int64_t *starts;
    int32_t *native_height, *native_width;
    mr_fault *faults; /* [slot] NONE: good */
    uint16_t *roots;
    char **captions; /* [slot] grown buffers */
    size_t *caption_cap;
} slab;

/* ---- pool.c: the memory that batches are decoded into ---- */

typedef struct slab_pool {
    uint8_t *at; /* at a border of large pages */
    size_t bytes;
    double seconds; /* that touching it took */
    size_t small;   /* bytes that were not asked for in large pages any more */
    void *base;
    size_t mapped;
} slab_pool;

/* Map `bytes`, on memory of a node (-1: any) where the kernel can, and touch them, so that no page
 * is looked for later; not `touched`: memory that will not be written.
 * Call pool_close after failures too. Errors: MR_E_MEMORY */
mr_status pool_open(slab_pool *p, size_t bytes, int32_t node, bool touched);
void pool_close(slab_pool *p);

typedef struct loader_source {
    mr_index *index;
    mr_subset *carried; /* of the state it began with, in its epoch */
    uint64_t carried_epoch;
    mr_tail *saved; /* of the state that was saved last */
    quarantine *bad;
    uint64_t samples, batches, epoch, delivered; /* of the epoch it began in; samples given out */
} loader_source;

struct mr_loader {
    loader_source *sources;
    mr_bucket_rule *rule;
    mr_blend *blend;         /* runs ahead */
    blend_position position; /* after the batch given out last */
    const mr_media *media;
    mr_loader_options options;
    mr_loader_facts facts;
    uint64_t *plan; /* [bucket] samples of the first epoch of all sources */
    slab *slabs;
    int32_t n_slabs, batch_max;
    /* Pixels of the batches that are decoded here, one after the other; every slab is such a batch
     * where the order is not shared. */
    int32_t n_buffers;
    bool *in_use; /* [buffer] */
    uint64_t own; /* batches planned that are decoded here */
    /* Draws that are known and not planned yet: as many of a group as must be, to say who has each
     * of them. */
    mr_draw *ahead; /* [group] */
    int32_t *owner; /* [group] rank of each */
    double *load;   /* [parts] cost of what each has of the group at hand */
    uint64_t *ahead_ids;
    int32_t n_ahead, next_ahead;
    bool agreed;    /* what failed on other ranks in the epochs so far is known */
    slab_pool pool; /* of all buffers */

    pthread_mutex_t lock;
    pthread_cond_t work, ready;
    pthread_t threads[LOADER_THREADS];
    int32_t n_threads;
    uint64_t planned, delivered;  /* batches */
    bool epoch_over, all_planned; /* the last planned draw ended an epoch; ended the last one */
    int32_t ended;                /* the source whose epoch was over last */
    bool planning;                /* a worker plans: order and next slab are its own */
    bool stop;
    mr_error *error; /* why it failed for good */
    mr_status failed;

    uint8_t window[LOADER_WINDOW]; /* failures among the last samples given out */
    uint64_t seen;
    int32_t window_failures;
    int32_t row_of[64]; /* failures in a row, by root */
    char why[1024];     /* the newest failure */
};

/* slab.c: make the slabs that rule, prefetch and ranks ask for; batch_max is known. Call
 * slabs_close after failures too. Errors: MR_E_MEMORY, also more than a quarter of a rank's share
 * of the memory, with the bucket and what would fit */
mr_status slabs_open(mr_loader *l);
void slabs_close(mr_loader *l);
/* worker.c: a thread's life; `user` is the loader. */
void *loader_worker(void *user);
/* How a worker takes the next draw, without the lock: mr_blend_next; specs look in. */
extern mr_status (*loader_draw)(mr_blend *blend, mr_draw *draw);
/* With the lock held: an epoch is over and another rank's failures in it are not known. */
bool loader_must_agree(const mr_loader *l);
/* Tell the order of a source who is left out from its next epoch on: failures before that one. */
mr_status loader_exclude(const mr_loader *l, int32_t source, uint64_t epoch);
/* With the lock held: the first failure stays, everyone is woken. */
void loader_fail(mr_loader *l, mr_status st);

#endif
