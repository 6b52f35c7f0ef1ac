/* Rows of regions for executor specs. */
#ifndef MR_ADAMROWS_H
#define MR_ADAMROWS_H
#include "moonreel/exec.h"

/* The regions of AdamW; the last one, averages, may be left out. */
static const mr_region adam_rows[] = {
    {.name = "grad", .dtype = MR_F32},
    {.name = "master", .dtype = MR_F32, .role = MR_ROLE_MASTER, .prefix = "master."},
    {.name = "adam_m", .dtype = MR_F32, .prefix = "adam_m."},
    {.name = "adam_v", .dtype = MR_F32, .prefix = "adam_v."},
    {.name = "ema", .dtype = MR_F32, .role = MR_ROLE_AVERAGE, .prefix = "ema."}};
#define TRAINING     .regions = adam_rows, .n_regions = 4
#define TRAINING_EMA .regions = adam_rows, .n_regions = 5

#endif
