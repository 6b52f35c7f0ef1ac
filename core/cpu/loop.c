/* cpu: implements loops over strided views of one shape. Licence: Apache-2.0 */
#include "cpu/cpu.h"

void mr_loop_init(mr_loop *loop, const mr_desc *const *descs, int n_args)
{
    loop->n_args = n_args;
    // order dimensions by the output's strides, largest first; equal strides keep their order
    int order[MR_MAX_RANK], n = 0;
    for (int d = 0; d < descs[0]->rank; d++) {
        if (descs[0]->dim[d] == 1)
            continue;
        int at = n++;
        while (at > 0 && descs[0]->stride[order[at - 1]] < descs[0]->stride[d])
            order[at] = order[at - 1], at--;
        order[at] = d;
    }
    loop->rank = 0;
    for (int i = 0; i < n; i++) {
        int d = order[i], last = loop->rank - 1;
        bool merge = last >= 0;
        for (int a = 0; merge && a < n_args; a++)
            merge = loop->stride[a][last] == descs[a]->stride[d] * descs[a]->dim[d];
        if (merge) {
            loop->dim[last] *= descs[0]->dim[d];
        } else {
            last = loop->rank++;
            loop->dim[last] = descs[0]->dim[d];
        }
        for (int a = 0; a < n_args; a++)
            loop->stride[a][last] = descs[a]->stride[d];
    }
    if (loop->rank == 0) {
        loop->rank = 1, loop->dim[0] = 1;
        for (int a = 0; a < n_args; a++)
            loop->stride[a][0] = 1;
    }
}

typedef struct job {
    const mr_loop *loop;
    mr_loop_body *body;
    void *user;
    int64_t pieces; /* calls of body per innermost row */
} job;

static void part(void *user, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const job *j = user;
    const mr_loop *l = j->loop;
    int in = l->rank - 1;
    int64_t step[MR_LOOP_ARGS] = {0};
    for (int a = 0; a < l->n_args; a++)
        step[a] = l->stride[a][in];
    // compute the index of the first row by division, and increment it for the next ones
    int64_t index[MR_MAX_RANK] = {0}, row = begin / j->pieces, piece = begin % j->pieces,
            at[MR_LOOP_ARGS] = {0};
    for (int d = in - 1; d >= 0; d--) {
        index[d] = row % l->dim[d], row /= l->dim[d];
        for (int a = 0; a < l->n_args; a++)
            at[a] += index[d] * l->stride[a][d];
    }
    for (int64_t i = begin; i < end; i++) {
        int64_t from[MR_LOOP_ARGS], first = piece * MR_LOOP_PIECE;
        for (int a = 0; a < l->n_args; a++)
            from[a] = at[a] + first * step[a];
        j->body(j->user, from, MR_MIN(l->dim[in] - first, (int64_t)MR_LOOP_PIECE), step);
        if (++piece < j->pieces)
            continue;
        piece = 0;
        for (int d = in - 1; d >= 0; d--) {
            for (int a = 0; a < l->n_args; a++)
                at[a] += l->stride[a][d];
            if (++index[d] < l->dim[d])
                break;
            for (int a = 0; a < l->n_args; a++)
                at[a] -= l->dim[d] * l->stride[a][d];
            index[d] = 0;
        }
    }
}

void mr_loop_run(const mr_loop *loop, int threads, mr_loop_body *body, void *user)
{
    int64_t rows = 1, inner = loop->dim[loop->rank - 1];
    for (int d = 0; d < loop->rank - 1; d++)
        rows *= loop->dim[d];
    if (rows * inner == 0)
        return;
    job j = {loop, body, user, (inner + MR_LOOP_PIECE - 1) / MR_LOOP_PIECE};
    int64_t grain = inner >= MR_LOOP_PIECE ? 1 : MR_LOOP_PIECE / inner;
    mr_cpu_for(rows * j.pieces, grain, threads, part, &j);
}

void mr_loop_call(const mr_call *call, int first, int n, mr_loop_body *body)
{
    const mr_desc *descs[MR_LOOP_ARGS] = {&call->out[0].desc};
    for (int a = 0; a < n; a++)
        descs[a + 1] = &call->in[first + a].desc;
    mr_loop loop;
    mr_loop_init(&loop, descs, n + 1);
    mr_loop_run(&loop, call->threads, body, (void *)call);
}
