/* data: samples that failed, and who is left out from the next epoch on. Licence: Apache-2.0 */
#ifndef MR_DATA_QUARANTINE_H
#define MR_DATA_QUARANTINE_H

#include "data/data.h"

typedef struct quarantine quarantine;
typedef struct quarantine_event {
    uint64_t key_lo, epoch;
    int32_t attempt;
    mr_fault fault;
} quarantine_event;

/* path NULL: in memory only. Reads the events of this index from an existing file. */
mr_status quarantine_open(const char *path, mr_hash128 fp_order, quarantine **out);
void quarantine_close(quarantine *q);
/* One line, one write. */
mr_status quarantine_add(quarantine *q, const quarantine_event *e, const mr_row *row,
                         const char *detail);
/* Keys with two failed attempts of permanent classes in epochs before `epoch`; caller frees. */
mr_status quarantine_excluded(const quarantine *q, uint64_t epoch, uint64_t **keys, uint64_t *n);

#endif
