/* data, inside: the quarantine and a loader with its slabs. Licence: Apache-2.0 */
#ifndef MR_DATA_ROOM_H
#define MR_DATA_ROOM_H

#include "data/blend.h"
#include "data/position.h"
#include "moonreel/data.h"

#include <pthread.h>

/* ---- quarantine.c: samples that failed, and who is left out from the next epoch on ---- */

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
