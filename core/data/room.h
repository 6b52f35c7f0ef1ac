/* data, inside: the quarantine and a loader with its slabs. Licence: Apache-2.0 */
#ifndef MR_DATA_ROOM_H
#define MR_DATA_ROOM_H

#include "data/blend.h"
#include "data/position.h"
#include "moonreel/data.h"

#include <pthread.h>

/* ---- quarantine.c: failed samples, and those excluded from the next epoch on ---- */

typedef struct quarantine quarantine;
typedef struct quarantine_event {
    uint64_t key_lo, epoch;
    int32_t attempt;
    mr_fault fault;
    bool sent; /* sent to other ranks */
} quarantine_event;

/* path NULL: in memory only. From an existing file it reads the events of this index and of the
 * source of that name. */
mr_status quarantine_open(const char *path, mr_hash128 fp_order, const char *source,
                          quarantine **out);
/* Take over the text of a checkpoint of `epoch`, which quarantine_text wrote. Up to `epoch` only
 * this text decides, whatever the file contains; later failures count in addition. Errors:
 * MR_E_FORMAT */
mr_status quarantine_take(quarantine *q, uint64_t epoch, const char *text);
/* Keys excluded from `epoch`, and further ones from the next epoch, as text for a checkpoint;
 * caller frees with mr_free. */
mr_status quarantine_text(const quarantine *q, uint64_t epoch, char **text);
void quarantine_close(quarantine *q);
/* Add an event; writes one line in one call. */
mr_status quarantine_add(quarantine *q, const quarantine_event *e, const mr_row *row,
                         const char *detail);
/* tell: events not yet sent to other ranks, one line each; they count as sent then; caller frees.
 * hear: adds the events of another rank, which are not sent again. Errors: MR_E_FORMAT */
mr_status quarantine_tell(quarantine *q, char **text);
mr_status quarantine_hear(quarantine *q, const char *text);
/* Keys excluded from `epoch`, ascending: samples with two failed attempts of permanent classes in
 * earlier epochs; caller frees. */
mr_status quarantine_excluded(const quarantine *q, uint64_t epoch, uint64_t **keys, uint64_t *n);

/* ---- the inside of a loader, shared by its workers and its front ---- */

enum { LOADER_THREADS = 256, LOADER_WINDOW = 1000 };

typedef enum slab_state { FREE, FILLING, READY, OUT } slab_state;

typedef struct slab {
    mr_batch batch;
    slab_state state;
    int32_t buffer; /* buffer of its pixels */
    mr_draw draw;
    mr_tail *tail;                      /* of the draw */
    uint64_t excluded_n, excluded_hash; /* excluded samples of its epoch */
    int32_t started, done;              /* slots */
    uint8_t *pixels;
    float *weights, *fps, *native_fps;
    uint64_t *ids, *keys;
    int64_t *starts;
    int32_t *native_height, *native_width;
    mr_fault *faults; /* [slot] NONE: no fault */
    uint16_t *roots;
    char **captions; /* [slot] grown buffers */
    size_t *caption_cap;
} slab;

/* ---- pool.c: the memory that batches are decoded into ---- */

typedef struct slab_pool {
    uint8_t *at; /* aligned to large pages */
    size_t bytes;
    double seconds; /* time of touching it */
    size_t small;   /* bytes for which small pages were requested instead */
    void *base;
    size_t mapped;
} slab_pool;

/* Map `bytes`, in memory of a NUMA node (-1: any) if possible, and touch them, so that no page
 * fault comes later. `touched` false: the memory will not be written. Call pool_close after
 * failures, too. Errors: MR_E_MEMORY */
mr_status pool_open(slab_pool *p, size_t bytes, int32_t node, bool touched);
void pool_close(slab_pool *p);

typedef struct loader_source {
    mr_index *index;
    mr_subset *carried; /* from the state at the start, for its epoch */
    uint64_t carried_epoch;
    mr_tail *saved; /* of the last saved state */
    quarantine *bad;
    uint64_t samples, batches, epoch, delivered; /* of the first epoch; delivered: samples given
                                                  * out */
} loader_source;

struct mr_loader {
    loader_source *sources;
    mr_bucket_rule *rule;
    mr_blend *blend;         /* ahead of the batches given out */
    blend_position position; /* after the last batch given out */
    const mr_media *media;
    mr_loader_options options;
    mr_loader_facts facts;
    uint64_t *plan; /* [bucket] samples of the first epoch of all sources */
    slab *slabs;
    int32_t n_slabs, batch_max;
    /* Buffers for the pixels of batches that this rank decodes; every slab has one if ranks do not
     * share the order. */
    int32_t n_buffers;
    bool *in_use; /* [buffer] */
    uint64_t own; /* number of planned batches that this rank decodes */
    /* Known draws that are not planned yet: as many of a group as needed to assign them to
     * ranks. */
    mr_draw *ahead; /* [group] */
    int32_t *owner; /* [group] rank that decodes the draw */
    double *load;   /* [parts] cost of the draws of each rank in the current group */
    uint64_t *ahead_ids;
    int32_t n_ahead, next_ahead;
    bool agreed;    /* failures of other ranks in the epochs so far are known */
    slab_pool pool; /* of all buffers */

    pthread_mutex_t lock;
    pthread_cond_t work, ready;
    pthread_t threads[LOADER_THREADS];
    int32_t n_threads;
    uint64_t planned, delivered;  /* batches */
    bool epoch_over, all_planned; /* the last planned draw ended an epoch; ended the last epoch */
    int32_t ended;                /* the source whose epoch ended last */
    bool planning;                /* a worker plans, and has exclusive use of order and next slab */
    bool stop;
    mr_error *error; /* the error that stopped it */
    mr_status failed;

    uint8_t window[LOADER_WINDOW]; /* failures among the last samples given out */
    uint64_t seen;
    int32_t window_failures;
    int32_t row_of[64]; /* failures in a row, by root */
    char why[1024];     /* the newest failure */
};

/* slab.c: create the slabs for rule, prefetch and ranks; batch_max is set. Call slabs_close after
 * failures, too. Errors: MR_E_MEMORY, even if the slabs need more than a quarter of a rank's share
 * of memory; the text names the bucket and what would fit */
mr_status slabs_open(mr_loader *l);
void slabs_close(mr_loader *l);
/* worker.c: the function of a decode thread; `user` is the loader. */
void *loader_worker(void *user);
/* How a worker takes the next draw, without the lock: mr_blend_next; specs replace it. */
extern mr_status (*loader_draw)(mr_blend *blend, mr_draw *draw);
/* Whether an epoch is over and the failures of other ranks in it are not known. The lock is
 * held. */
bool loader_must_agree(const mr_loader *l);
/* Pass the samples that failed before `epoch` to the order of a source, which excludes them from
 * its next epoch on. */
mr_status loader_exclude(const mr_loader *l, int32_t source, uint64_t epoch);
/* Record the first failure and wake all threads. The lock is held. */
void loader_fail(mr_loader *l, mr_status st);

#endif
