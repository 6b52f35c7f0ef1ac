/* attention_job: what the forms of the attention kernels share: the call, its scale and key counts,
 * and the scratch memory of a worker. Licence: Apache-2.0 */
#ifndef MR_ATTENTION_JOB_H
#define MR_ATTENTION_JOB_H

#include "cpu/rows.h"
#include "op/row.h"

typedef struct attention_attr {
    double scale;
} attention_attr;

typedef struct attention_job {
    const mr_call *call;
    float scale;
    size_t worker_bytes;        /* scratch of one worker */
    int64_t splits, split_rows; /* forward: query ranges per head */
} attention_job;

/* keys of sample b */
MR_ROW_FN int64_t attention_keys(const mr_call *c, int64_t b)
{
    int64_t M = c->in[1].desc.dim[2];
    if (!mr_given(&c->in[3]))
        return M;
    int64_t len = ((const int32_t *)c->in[3].data)[b];
    return MR_MAX(0, MR_MIN(len, M));
}

MR_ROW_FN double attention_scale(const mr_call *c)
{
    const attention_attr *a = c->attr;
    return a->scale != 0 ? a->scale : 1 / sqrt((double)c->in[0].desc.dim[4]);
}

MR_ROW_FN int64_t attention_pad(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* rows of [B, G, h, N] statistics of one head */
MR_ROW_FN int64_t attention_stat(const mr_call *c, int64_t b, int64_t g, int64_t h)
{
    const int64_t *n = c->in[0].desc.dim;
    return ((b * n[1] + g) * n[3] + h) * n[2];
}

#endif
