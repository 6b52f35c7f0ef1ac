/* rows: finds positions of rows, and computes dense strides in a given order.
 * Licence: Apache-2.0 */
#include "cpu/rows.h"

void mr_rows_init(mr_rows *rows, const mr_desc *const *descs, int n_args)
{
    mr_desc outer[MR_LOOP_ARGS];
    const mr_desc *p[MR_LOOP_ARGS];
    for (int a = 0; a < n_args; a++) {
        outer[a] = *descs[a], outer[a].rank--;
        p[a] = &outer[a];
    }
    mr_loop_init(&rows->loop, p, n_args);
    rows->count = mr_desc_count(p[0]);
}

void mr_rows_seek(const mr_rows *rows, int64_t row, mr_rows_pos *pos)
{
    const mr_loop *l = &rows->loop;
    *pos = (mr_rows_pos){0};
    for (int k = l->rank - 1; k >= 0; k--) {
        int64_t dim = MR_MAX(l->dim[k], 1);
        pos->index[k] = row % dim;
        row /= dim;
        for (int a = 0; a < l->n_args; a++)
            pos->at[a] += pos->index[k] * l->stride[a][k];
    }
}

void mr_desc_dense_like(const mr_desc *like, mr_desc *out)
{
    int last = out->rank - 1, order[MR_MAX_RANK];
    if (last < 0)
        return;
    for (int k = 0; k < last; k++) {
        int j = k;
        for (; j > 0 && like->stride[order[j - 1]] < like->stride[k]; j--)
            order[j] = order[j - 1];
        order[j] = k;
    }
    out->stride[last] = 1;
    int64_t step = out->dim[last];
    for (int i = last - 1; i >= 0; i--) {
        out->stride[order[i]] = step;
        step *= out->dim[order[i]];
    }
}
