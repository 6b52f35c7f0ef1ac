/* data: the inside of a loader, shared by its workers and its front. Licence: Apache-2.0 */
#ifndef MR_DATA_LOADER_H
#define MR_DATA_LOADER_H

#include "data/order.h"
#include "data/quarantine.h"

#include <pthread.h>
#include <stdatomic.h>

enum { LOADER_THREADS = 256, LOADER_WINDOW = 1000 };

typedef enum slab_state { FREE, FILLING, READY, OUT } slab_state;

typedef struct slab {
    mr_batch batch;
    slab_state state;
    mr_draw draw;
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

struct mr_loader {
    mr_index *index;
    mr_bucket_rule *rule;
    mr_order *order;      /* runs ahead */
    mr_position position; /* after the batch given out last */
    quarantine *bad;
    const mr_media *media;
    mr_loader_options options;
    mr_loader_facts facts;
    uint64_t *plan; /* [bucket] samples of the first epoch */
    slab *slabs;
    int32_t n_slabs, batch_max;
    uint8_t *pool;
    size_t pool_bytes;

    pthread_mutex_t lock;
    pthread_cond_t work, ready;
    pthread_t threads[LOADER_THREADS];
    int32_t n_threads;
    uint64_t planned, delivered;  /* batches */
    bool epoch_over, all_planned; /* the last planned draw ended an epoch; ended the last one */
    atomic_bool stop;
    mr_error *error; /* why it failed for good */
    mr_status failed;

    uint8_t window[LOADER_WINDOW]; /* failures among the last samples given out */
    uint64_t seen;
    int32_t window_failures;
    int32_t row_of[64]; /* failures in a row, by root */
    char why[1024];     /* the newest failure */
};

/* worker.c: a thread's life; `user` is the loader. */
void *loader_worker(void *user);
/* With the lock held: the first failure stays, everyone is woken. */
void loader_fail(mr_loader *l, mr_status st);
/* Tell `order` who is left out from its next planned epoch on: failures before `epoch`. */
mr_status loader_exclude(const mr_loader *l, mr_order *order, uint64_t epoch);

#endif
