/* data: the order of an index's samples, and batches of decoded clips.
 *
 * Stream: index -> order (a pure function of index, bucket rule, seed and epoch) -> loader (decode
 * threads, slabs) -> batch. Rules: reference dataplane, sections 4 and 5.
 *
 * Threads: an order and a position belong to one thread at a time, a finished bucket rule to any;
 * a loader has worker threads of its own and one caller.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_DATA_H
#define MOONREEL_DATA_H

#include "moonreel/index.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- generators that references draw from ---- */

/* The Mersenne twister; plain data. Seeded as torch seeds it, or by an array as Python does (the
 * words of a seed, least significant first). Threads: one at a time. */
enum { MR_TWISTER_WORDS = 624 };
typedef struct mr_twister {
    uint32_t words[MR_TWISTER_WORDS];
    int32_t at;
} mr_twister;
MR_API void mr_twister_seed(mr_twister *t, uint32_t seed);
MR_API void mr_twister_seed_words(mr_twister *t, const uint32_t *words, int32_t n);
MR_API uint32_t mr_twister_next(mr_twister *t);

/* numpy.random.default_rng(seed); plain data. */
typedef struct mr_pcg64 {
    uint64_t high, low, add_high, add_low;
} mr_pcg64;
MR_API void mr_pcg64_seed(mr_pcg64 *p, uint64_t seed);
MR_API double mr_pcg64_next(mr_pcg64 *p); /* in [0, 1), of 53 bits */

/* ---- buckets ---- */

/* A bucket is samples with one (frames, height, width). The rule says which bucket a sample enters:
 * resolutions from high to low, lengths from long to short, with probabilities drawn from the
 * sample's key. Ref: Open-Sora 1.2 bucket assignment, with U(purpose, key) instead of a generator
 * seeded by row number. */
typedef struct mr_bucket_length {
    int32_t frames;
    double keep;   /* probability of entering when it fits */
    double tries;  /* probability of being looked at; NaN: not given, which is 1 */
    int32_t batch; /* samples of a micro-batch; 0 only with keep 0 */
    double cost;   /* of a micro-batch, in any unit; 0: its pixels */
} mr_bucket_length;
/* ratio = height / width */
typedef struct mr_bucket_aspect {
    double ratio;
    int32_t height, width;
} mr_bucket_aspect;
typedef struct mr_bucket_resolution {
    const char *name;
    double pixels; /* samples below 0.8 of it do not enter */
    const mr_bucket_aspect *aspects;
    int32_t n_aspects;
    const mr_bucket_length *lengths;
    int32_t n_lengths;
} mr_bucket_resolution;

typedef struct mr_bucket {
    const char *resolution;
    int32_t frames, height, width, batch;
    double cost; /* of a micro-batch */
} mr_bucket;

/* Why a row enters no bucket in an epoch. */
typedef enum mr_drop {
    MR_DROP_NONE,
    MR_DROP_SMALL,
    MR_DROP_SHORT,
    MR_DROP_IMAGE,
    MR_DROP_CHANCE,
    MR_DROP_QUARANTINE,
    MR_DROP_SEEN,    /* trained in this epoch before data or rule changed */
    MR_DROP_OUTSIDE, /* no sample of the source */
    MR_DROP_LEFT,    /* of no whole batch, where a reference drops those */
    MR_DROP_COUNT
} mr_drop;
MR_API const char *mr_drop_text(
    mr_drop why); /* "below 0.8 of the pixels of every resolution", ...; lent, static */

typedef struct mr_bucket_rule mr_bucket_rule;
/* interval    frames between two used ones: a clip of N frames needs (N-1)*interval+1
 * compat      as Open-Sora 1.2: it needs more than N*interval, and its frames are taken as there
 * Errors: MR_E_RECIPE for an empty or contradicting rule, MR_E_MEMORY. Copies everything. */
MR_API mr_status mr_bucket_rule_new(const mr_bucket_resolution *resolutions, int32_t n,
                                    int32_t interval, bool compat, mr_bucket_rule **out);
MR_API void mr_bucket_rule_free(mr_bucket_rule *rule);
MR_API int32_t mr_bucket_rule_count(const mr_bucket_rule *rule);
MR_API mr_bucket mr_bucket_rule_get(const mr_bucket_rule *rule, int32_t bucket);
/* From epoch `epochs` on draws repeat: bucket, start and caption of a sample in epoch e are those
 * of epoch mr_bucket_rule_draws, which is e modulo epochs. 0, as a rule begins: they never do.
 * Before the rule is used. */
MR_API void mr_bucket_rule_repeat(mr_bucket_rule *rule, uint64_t epochs);
MR_API uint64_t mr_bucket_rule_draws(const mr_bucket_rule *rule, uint64_t epoch);
/* Of all but batch sizes and costs; members, NULL: all samples, those that an order takes. */
typedef struct mr_subset mr_subset;
MR_API uint64_t mr_bucket_rule_hash_of(const mr_bucket_rule *rule, const mr_subset *members);
/* The bucket of a sample in an epoch, or -1 and why. `row` is its number in the index, which counts
 * where the rule follows a reference. Threads: any. */
MR_API int32_t mr_bucket_rule_assign(const mr_bucket_rule *rule, uint64_t seed, uint64_t epoch,
                                     uint64_t row, const mr_hot *hot, mr_drop *why);

/* Whose assignment and order of batches is followed, number for number, generators included: those
 * of Open-Sora 1.2 or 2.0 in training. Orders of such a rule are the reference's epochs: samples
 * that make no whole batch of their bucket, and batches that not every rank has one of, are left
 * out. Before the rule is used.
 *
 * fps_max  2.0: faster clips are thinned to at most this many frames a second; 0: none are
 * Errors: MR_E_RECIPE a pair of probabilities for pictures */
typedef enum mr_reference { MR_REFERENCE_NONE, MR_REFERENCE_12, MR_REFERENCE_20 } mr_reference;
MR_API mr_status mr_bucket_rule_follow(mr_bucket_rule *rule, mr_reference reference,
                                       double fps_max);
MR_API mr_reference mr_bucket_rule_follows(const mr_bucket_rule *rule);
/* Frames from one that a sample takes to the next, of a clip of that rate (0: not known). */
MR_API int32_t mr_bucket_rule_interval(const mr_bucket_rule *rule, uint32_t fps_milli);

/* What each length of the rule says of a sample, in the order in which they are asked. */
typedef enum mr_said {
    MR_SAID_NOTHING, /* not asked: a longer one did not keep it, or one before took it */
    MR_SAID_SMALL,
    MR_SAID_UNFIT, /* too short, or a picture */
    MR_SAID_NOT_TRIED,
    MR_SAID_NOT_KEPT,
    MR_SAID_TAKES
} mr_said;
typedef struct mr_asked {
    const char *resolution; /* lent by the rule */
    int32_t frames;
    double keep, tries;
    mr_said said;
    int32_t n_draws;
    double draws[2]; /* in 0..1 */
} mr_asked;
MR_API int32_t mr_bucket_rule_lengths(const mr_bucket_rule *rule);
/* asked    [mr_bucket_rule_lengths(rule)] */
MR_API void mr_bucket_rule_ask(const mr_bucket_rule *rule, uint64_t seed, uint64_t epoch,
                               uint64_t row, const mr_hot *hot, mr_asked *asked);

/* Which frames of a clip of `have` frames a sample takes: the first one is one of `starts`, from 0
 * on, and mr_clip_frame tells the others. Every interval-th frame; under compat, and where the rule
 * follows a reference, as Open-Sora takes them: spread over frames * interval ones, the last
 * possible start left out. */
typedef struct mr_crop {
    int64_t starts; /* >= 1 */
    int32_t frames, step;
    int64_t spread; /* as of mr_clip_request */
} mr_crop;
MR_API mr_crop mr_bucket_rule_crop(const mr_bucket_rule *rule, int32_t frames, int64_t have,
                                   int32_t interval);
MR_API int64_t mr_crop_frame(const mr_crop *crop, int64_t start, int32_t i);

/* ---- order ---- */

/* P(j): the keyed permutation of [0, n) that orders a bucket. Ref: dataplane 4.3; 8-round Feistel
 * network on max(2, ceil(log2 n)) bits with cycle walking. j < n. */
MR_API uint64_t mr_permute(uint64_t key, uint64_t n, uint64_t j);

/* A slot that is begun: draws that are left in it, 0: none; their class of cost, -1: mixed, near to
 * that of the first bucket. */
typedef struct mr_slot {
    int32_t left, class, first;
} mr_slot;

/* What several sources had of a stream. Ref: dataplane 4.10 */
enum { MR_SOURCES_MAX = 32 };
typedef struct mr_blend_shares {
    uint64_t samples;                /* drawn of all */
    uint64_t taken[MR_SOURCES_MAX];  /* of each */
    int64_t deficit[MR_SOURCES_MAX]; /* samples that are due to each, 32.32 bits; 0 in sum */
} mr_blend_shares;

/* What an epoch left over for the next one; see mr_order_options. */
typedef struct mr_tail mr_tail;

typedef struct mr_draw {    /* one micro-batch, as row ids */
    uint64_t epoch, number; /* number: of this draw in its epoch, from 0 */
    int32_t source;         /* of a blend; an order by itself leaves it and `shares` alone */
    mr_blend_shares shares; /* behind it */
    int32_t bucket, n;      /* n <= batch of the bucket: the last one of a bucket may be short */
    bool last;              /* of its epoch */
    uint64_t digest;        /* sum of mix(key_lo) over its samples */
    mr_slot slot;           /* behind it */
    mr_tail *tail;          /* that its epoch began with; lent by the order until the next draw */
    uint64_t *ids, *keys;   /* [n] row ids and key_lo; in the caller's arrays */
} mr_draw;

/* Where a stream of draws stands; counts samples, never steps. */
typedef struct mr_position {
    uint64_t epoch, number, digest;
    uint64_t excluded_n, excluded_hash;
    uint64_t seen_n, seen_hash; /* of an mr_subset in force */
    mr_slot slot;
    int32_t n_buckets;
    mr_tail *tail;   /* that this epoch began with, or NULL */
    uint64_t *taken; /* [n_buckets] samples consumed in this epoch, those of the tail first */
} mr_position;

/* Some samples of an index, a bit for each row: those that an epoch trained before its data or rule
 * changed, or those that belong to a source. Immutable; shared: _ref, _unref, NULL is fine. */
/* The samples between two quantiles of a column, 0 <= from < to <= 1, of those that have a value;
 * of these the share `trim_top` with the largest ones is left out first. Neighbours hold each
 * sample once; equal values come in the order of the rows. bounds: the least and the largest value
 * in it. Errors: MR_E_DATA no such column, no sample has a value, no sample is left; MR_E_MEMORY */
typedef struct mr_quantiles {
    const char *column;
    double from, to, trim_top;
} mr_quantiles;
MR_API mr_status mr_subset_quantiles(mr_index *index, const mr_quantiles *which, mr_subset **out,
                                     mr_number bounds[2]);
/* held: the samples that training never takes; else all others. hold_back > 0; below 1 it is a
 * share of the samples, and the hash of a sample's key alone decides; from 1 on it is a count, and
 * the samples with the least hashes are held back. The order of the rows, epochs and ranks do not
 * matter. of: only samples of this subset; NULL: of the whole index. Borrows both.
 * Errors: MR_E_DATA the subset is empty; MR_E_MEMORY */
MR_API mr_status mr_subset_hold(mr_index *index, const mr_subset *of, double hold_back, bool held,
                                mr_subset **out);
MR_API bool mr_subset_has(const mr_subset *set, uint64_t row);
MR_API mr_subset *mr_subset_ref(mr_subset *seen);
MR_API void mr_subset_unref(mr_subset *seen);
MR_API uint64_t mr_subset_count(const mr_subset *seen); /* samples */
MR_API uint64_t mr_subset_rows(const mr_subset *set);   /* of its index */
MR_API uint64_t
mr_subset_hash(const mr_subset *seen); /* of what it holds; states name it by that */
/* As a file, there whole or not at all. Errors: MR_E_IO */
MR_API mr_status mr_subset_write(const mr_subset *seen, const char *path);
/* Errors: MR_E_IO, MR_E_DATA damaged (says at which byte), MR_E_MEMORY */
MR_API mr_status mr_subset_read(const char *path, mr_subset **out);

typedef struct mr_order_options {
    uint64_t seed;
    /* Micro-batches that are drawn together, of costs within 5 %, so that ranks which share them
     * end at the same time; 0 or 1: each by itself. Ref: dataplane 4.5. Where the rule follows a
     * reference: its ranks, an epoch has a multiple of them. */
    int32_t slot;
    mr_subset *members; /* samples that it is of; NULL: all; keeps a reference */
    /* What is left of a bucket at an epoch's end and is no whole micro-batch comes first in the
     * next epoch, instead of in a short one; not at the end of epoch number `epochs` (0: never).
     * Ref: dataplane 4.4 */
    bool carry;
    uint64_t epochs;
    /* Where the rule follows a reference, not as it trains: what is no whole batch is filled up
     * from the front instead of left out; nothing is shuffled. */
    bool fill, unshuffled;
} mr_order_options;

typedef struct mr_order mr_order;
/* The order of all micro-batches for (index, rule, seed), at epoch 0. Keeps the index, borrows the
 * rule.
 * Errors: MR_E_DATA when no row enters any bucket, with the rows removed by each rule; MR_E_RECIPE
 * the rule follows a reference, which knows no carried samples and no members */
MR_API mr_status mr_order_new(mr_index *index, const mr_bucket_rule *rule,
                              const mr_order_options *options, mr_order **out);
MR_API void mr_order_free(mr_order *order);
/* Largest batch of the rule: the room that ids and keys of a draw need. */
MR_API int32_t mr_order_batch_max(const mr_order *order);
/* Take the next micro-batch; a new epoch is planned when the last one is used up.
 * Errors: MR_E_DATA, MR_E_MEMORY; MR_E_INTERNAL when an epoch's accounts do not match */
MR_API mr_status mr_order_next(mr_order *order, mr_draw *draw);
/* Keys (low halves) left out from the next planned epoch on; copies. */
MR_API mr_status mr_order_exclude(mr_order *order, const uint64_t *keys, uint64_t n);
/* This epoch: samples of bucket b that are drawn; rows dropped for a reason; micro-batches in all.
 */
MR_API uint64_t mr_order_samples(const mr_order *order, int32_t bucket);
MR_API uint64_t mr_order_dropped(const mr_order *order, mr_drop why);
MR_API uint64_t mr_order_batches(const mr_order *order);
/* Epoch `epoch` from its beginning. Errors: those of mr_order_next */
MR_API mr_status mr_order_begin(mr_order *order, uint64_t epoch);
/* One of the rows that a reference leaves out because they make no whole batch; false: none. */
MR_API bool mr_order_left_row(const mr_order *order, uint64_t *row);

/* Keys (low halves) that a quarantine.jsonl leaves out of an epoch of the index with this
 * fp_order, a source of that name, ascending; the caller frees them with mr_free. A file that is
 * not there leaves out none. Errors: MR_E_IO, MR_E_MEMORY */
MR_API mr_status mr_quarantine_excluded(const char *path, mr_hash128 fp_order, const char *source,
                                        uint64_t epoch, uint64_t **keys, uint64_t *n);

/* The same of a text of mr_loader_excluded, for the epoch it is of. Errors: MR_E_FORMAT,
 * MR_E_MEMORY
 */
MR_API mr_status mr_quarantine_keys(const char *text, uint64_t **keys, uint64_t *n);

/* Positions: a copy of the order's, moved along by draws that are done with. */
MR_API mr_status mr_position_init(mr_position *p, const mr_order *order);
MR_API void mr_position_fini(mr_position *p);
MR_API void mr_position_advance(mr_position *p, const mr_draw *draw);
/* As text, which the caller frees with mr_free. A brief one is below 4 KB for 200 buckets: more
 * than some samples that an epoch left over are named by a hash, and stand in the text beside it.
 */
MR_API mr_status mr_position_text(const mr_position *p, const mr_order *order, bool brief,
                                  char **text);
/* A brief text of one source and what mr_loader_excluded says beside it, as mr_order_restore takes
 * it; the caller frees *out with mr_free. Errors: MR_E_DATA the list is not there, or another one
 */
MR_API mr_status mr_position_whole(const char *text, const char *beside, char **out);
/* Continue from a text. Micro-batch sizes and slots may differ; `excluded` are the keys in force in
 * that epoch, `seen` what it trained before a change, NULL when there was none; keeps a reference.
 * Errors: MR_E_DATA other data, rule, seed, exclusions or seen samples (says which), MR_E_FORMAT */
MR_API mr_status mr_order_restore(mr_order *order, const char *text, const uint64_t *excluded,
                                  uint64_t n, mr_subset *seen);

/* A state, and what it is a state of. */
typedef struct mr_carry {
    mr_index *index;
    const mr_bucket_rule *rule;
    uint64_t seed;
    const char *text;
    const uint64_t *excluded; /* keys in force in that epoch, ascending */
    uint64_t n_excluded;
    mr_subset *seen, *members; /* or NULL */
} mr_carry;
/* The same place in the data for another index, another rule or both: what was trained in this
 * epoch is left out of the rest of it, sample by sample, and the rest is planned anew. Owns: the
 * caller frees *text with mr_free and unrefs *seen.
 * Errors: those of mr_order_new and mr_order_restore for the old state */
MR_API mr_status mr_order_carry(const mr_carry *from, mr_index *index, const mr_bucket_rule *rule,
                                const mr_subset *members, char **text, mr_subset **seen);
/* The epoch a state text stands in, to find the exclusions in force. */
MR_API mr_status mr_position_epoch(const char *text, uint64_t *epoch);

/* What planning takes: an order over `rows` made-up rows, and its first some thousand samples.
 * Errors: those of mr_order_new */
typedef struct mr_order_times {
    double plan_s, select_s; /* of a processor: all rows; one sample */
    size_t bytes;            /* private memory of the plan */
    size_t state_bytes;
    int32_t buckets, used; /* of the rule; with samples */
} mr_order_times;
MR_API mr_status mr_order_measure(const mr_bucket_rule *rule, uint64_t rows, mr_order_times *out);

/* ---- several sources ---- */

/* A share that changes with the samples drawn of all sources: linear between two of these, constant
 * before the first and behind the last one. Two of the same place: it jumps there. */
typedef struct mr_weight {
    uint64_t samples;
    double weight; /* >= 0, against those of other sources */
} mr_weight;

typedef struct mr_source {
    const char *name; /* of letters, digits, "_", "-", "."; "" for one that is alone */
    mr_index *index;
    const mr_weight *weights; /* ascending */
    int32_t n_weights;        /* 0: 1 all the time */
    mr_subset *members;       /* samples that it is of; NULL: all */
    uint64_t epochs;          /* after this many epochs its share goes to the others; 0: never */
    const char *seen; /* file of mr_subset_write, where its state is one of mr_order_carry */
    uint64_t epoch;   /* where a state says nothing of it: begin at this one */
} mr_source;

/* Orders of several sources as one stream: each is the one that it is alone, epoch after epoch, and
 * the next micro-batch, or slot, is of the source to which most samples are due. A source of weight
 * 0 has none. Ref: dataplane 4.10 */
typedef struct mr_blend mr_blend;
/* Copies names and weights, keeps the indexes, borrows the rule.
 * Errors: those of mr_order_new; MR_E_RECIPE names, weights, or more than MR_SOURCES_MAX sources */
MR_API mr_status mr_blend_new(const mr_source *sources, int32_t n, const mr_bucket_rule *rule,
                              const mr_order_options *options, mr_blend **out);
MR_API void mr_blend_free(mr_blend *blend);
MR_API mr_order *mr_blend_order(mr_blend *blend, int32_t source); /* lent */
/* Take the next micro-batch. Errors: those of mr_order_next; MR_E_RANGE all is over */
MR_API mr_status mr_blend_next(mr_blend *blend, mr_draw *draw);
/* Is there nothing more to draw, or has every source that will still have a share been drawn
 * `epochs` times (0: never), or as often as it is allowed to be? */
MR_API bool mr_blend_over(const mr_blend *blend, uint64_t epochs);
/* Pass over whole epochs of at most `most` micro-batches, none drawn, up to the end of epoch number
 * `epochs` (0: no end); settled: a later epoch leaves out the same samples as this one,
 * else one epoch at most. *n micro-batches were passed over, up to *epoch; 0: the next epoch ends
 * behind `most`, or shares of several sources decide, which follow from draws alone.
 * Errors: those of mr_order_next; MR_E_STOPPED */
MR_API mr_status mr_blend_pass(mr_blend *blend, uint64_t most, uint64_t epochs, bool settled,
                               uint64_t *n, uint64_t *epoch);
/* The most micro-batches that come before mr_blend_over; UINT64_MAX: no bound is known. */
MR_API uint64_t mr_blend_most(const mr_blend *blend, uint64_t epochs);
/* What a text of mr_loader_state says of one source, as mr_order_restore takes it; the caller frees
 * it with mr_free; NULL: nothing. Errors: MR_E_FORMAT, MR_E_MEMORY */
MR_API mr_status mr_blend_state_of(const char *text, const char *name, char **out);

/* ---- loader ---- */

typedef struct mr_loader_options {
    uint64_t seed;
    int32_t threads;   /* decode workers; 0: one per processor */
    int32_t prefetch;  /* batches decoded ahead; 0: 2 */
    int64_t epochs;    /* end after this many in all, of each source; 0: never */
    const char *state; /* text of mr_loader_state, or NULL: from the start */
    /* text of mr_loader_excluded at that state; NULL: what the quarantine file says */
    const char *excluded;
    const char *quarantine; /* quarantine.jsonl to read and append to; NULL: kept in memory */
    int32_t slot;           /* as of mr_order_options */
    bool carry;             /* too */
    double deadline_s;      /* per clip; 0: 60 */
    mr_filter filter;
    bool isolated; /* each worker decodes in a process of its own: mr_media_guarded */
    /* lengths of the rule that no sample can enter are left out, not refused */
    bool allow_empty;
    /* Several ranks share an order: this one is `part` of `parts` (0: alone) and decodes its draws
     * alone. Of every `group` draws (0: `parts`), counted from where the loader begins, each rank
     * has every parts-th. */
    int32_t part, parts, group;
    /* Instead of taking turns in a group, its costliest draw goes to the rank that has least to do
     * so far, then the next one. Ref: dataplane 4.5 */
    bool lpt;
    /* nothing is decoded: pixels mean nothing, no sample fails */
    bool blind;
    /* only samples of this part, from 1, of sample_parts are decoded: those for which
     * mr_sample_in_part holds; sample_parts 0: all */
    int32_t sample_part, sample_parts;
    int32_t node;        /* of memory (NUMA) that slabs shall lie on, from 1; 0: any */
    int32_t local_ranks; /* that share this machine's memory; 0: one */
} mr_loader_options;

/* One micro-batch. Slots n .. size-1 of a short one, and failed samples, have weight 0 and the
 * pixels of a good sample. */
typedef struct mr_batch {
    uint64_t epoch, draw; /* draw: number in its epoch */
    uint64_t drawn;       /* the epoch that buckets, starts and captions are drawn for */
    int32_t source;       /* number of the source that it is of; epochs and rows are that one's */
    int32_t bucket, size, n;
    mr_bucket shape; /* resolution, frames, height, width */
    bool last;       /* of its epoch */
    bool other;      /* of another rank: only the fields above, ids and keys are there */
    uint8_t *pixels; /* [size][frames][3][height][width] u8 RGB */
    size_t bytes;
    const float *weights;  /* [size] 1 or 0 */
    const uint64_t *ids;   /* [size] rows; of empty slots: those of slot 0 */
    const uint64_t *keys;  /* [size] key_lo */
    const int64_t *starts; /* [size] first frame_idx */
    const float *fps;      /* [size] floor(native fps / interval); 24 unknown, 120 pictures */
    const float *native_fps;
    const int32_t *native_height, *native_width; /* [size] as displayed */
    const char *const *captions;                 /* [size] */
    double wait_s;                               /* how long this batch was waited for */
    void *slab;
} mr_batch;

/* Does a sample belong to a part of the samples? The parts hold each of them once. */
static inline bool mr_sample_in_part(uint64_t key_lo, int32_t part, int32_t parts)
{
    return parts < 2 || (key_lo >> 32) % (uint64_t)parts == (uint64_t)part - 1;
}

typedef struct mr_loader mr_loader;
/* Start decode threads on the indexes of n sources. Takes `rule`, also when it fails; keeps
 * references of the indexes.
 * All slabs are allocated and touched here. What comes out depends on neither threads nor
 * prefetch.
 * Errors: those of mr_order_new and mr_order_restore; MR_E_DATA a length of the rule that no sample
 * can enter (with what keeps the rows out); MR_E_MEMORY slabs above a quarter of a rank's share of
 * the memory, with the bucket */
MR_API mr_status mr_loader_new(const mr_source *sources, int32_t n, mr_bucket_rule *rule,
                               const mr_loader_options *options, mr_loader **out);
/* Stops at any moment; batches become invalid. NULL is fine. */
MR_API void mr_loader_free(mr_loader *loader);
/* The next batch, in draw order, valid until it is released; *out NULL after the last epoch. Draws
 * of other ranks come as batches without pixels, so that every rank stands where all of them do.
 * Errors: MR_E_DATA too many failed samples (dataplane 5), damaged index; MR_E_MEMORY. A failed
 * loader keeps failing. MR_E_STOPPED a person interrupted the wait: the next call goes on.
 * MR_E_USAGE one of several ranks has not received what failed on the others in the epoch before.
 * Threads: one caller at a time */
MR_API mr_status mr_loader_next(mr_loader *loader, const mr_batch **out);
MR_API void mr_loader_release(mr_loader *loader, const mr_batch *batch);
/* Which samples failed here since the last call, as text; and what failed on all other ranks, their
 * texts one behind the other. Ranks exchange both when an epoch is over, before its successor is
 * planned, and before a state is kept: then all leave out the same. Caller frees with mr_free.
 * Errors: MR_E_FORMAT no such text; MR_E_MEMORY */
MR_API mr_status mr_loader_failures(mr_loader *loader, char **text);
MR_API mr_status mr_loader_agree(mr_loader *loader, const char *others);
/* State after the batch given out last; batches decoded ahead do not count. Caller frees with
 * mr_free. */
MR_API mr_status mr_loader_state(mr_loader *loader, char **text);
/* The samples that the quarantine leaves out where that state stands, and of the epoch after it;
 * and those that an epoch left over for that of the state which was saved last, where they are
 * many. Belongs to the checkpoint beside the state, which knows only number and hash of both: with
 * it a damaged or lost quarantine file does no harm. 17 bytes a sample; usually empty. Caller frees
 * with mr_free. */
MR_API mr_status mr_loader_excluded(mr_loader *loader, char **text);
/* Row ids of the samples to come, each in its source, without decoding; fewer than n only at the
 * end of the last epoch. */
MR_API mr_status mr_loader_peek(mr_loader *loader, uint64_t *ids, int64_t n, int64_t *got);

/* Facts of the epoch the loader began in, and counters. */
typedef struct mr_loader_facts {
    uint64_t epoch, samples, batches, dropped[MR_DROP_COUNT];
    size_t slab_bytes;
    double pool_s;      /* that touching the slabs took */
    size_t small_bytes; /* of them not in large pages, which took too long to find */
    int32_t slabs, threads;
    uint64_t delivered, failed; /* samples */
    /* batches that were ready when asked for, and that were not; pixels of both; ready now */
    uint64_t hits, waits, bytes;
    int32_t ready;
    double wait_s;
} mr_loader_facts;
MR_API mr_loader_facts mr_loader_get_facts(mr_loader *loader);
/* Of one source: its epoch, what that has, and how much was given out of it. */
typedef struct mr_source_facts {
    const char *name; /* lent */
    uint64_t rows, epoch, samples, batches, delivered;
} mr_source_facts;
MR_API int32_t mr_loader_sources(const mr_loader *loader);
MR_API mr_source_facts mr_loader_source(mr_loader *loader, int32_t source);
MR_API int32_t mr_loader_buckets(const mr_loader *loader);
MR_API mr_bucket mr_loader_bucket(const mr_loader *loader, int32_t bucket, uint64_t *samples);

/* ---- pixels at another size, as Open-Sora makes them ---- */

/* Scale a picture so that it covers a size, keeping its aspect, and take the middle: Pillow's
 * bicubic filter, which widens when shrinking, bit for bit.
 *
 * in       [3][height][width] u8
 * out      [3][to_height][to_width] u8
 * Sides are 1 or more. Errors: MR_E_MEMORY. Threads: any. */
MR_API mr_status mr_resize_picture(const uint8_t *in, int64_t height, int64_t width,
                                   int64_t to_height, int64_t to_width, uint8_t *out);
/* The same of a frame of a video: between two neighbours a side, however much it shrinks.
 *
 * out      [3][to_height][to_width] f32, -1..1 */
MR_API void mr_resize_frame(const uint8_t *in, int64_t height, int64_t width, int64_t to_height,
                            int64_t to_width, float *out);

#ifdef __cplusplus
}
#endif
#endif
