/* attention_tasks: chooses the kernel of a call, computes its scratch memory, and splits its work
 * into tasks for a team.
 *
 * A task is one head of one sequence, or a vector of short ones. If there are few heads, a task is
 * a range of queries (forward) or of keys (backward) of one head. The number of threads does not
 * change the bits: a row's result does not depend on the tasks, key ranges follow from the shapes,
 * and sums over tiles of queries, key ranges and samples have a fixed order. Licence: Apache-2.0 */
#include "op/attention_job.h"

// backward: split heads into key ranges if there are fewer heads than this
enum { TASKS = 16 };

/* ---- form and memory of a call ---- */

static int64_t units_of(const mr_call *c)
{
    const int64_t *n = c->in[0].desc.dim;
    return n[0] * n[1] * n[3];
}

/* Keys of one range. With a bias, whose gradient sums over samples, a task is a head of all
 * samples. */
static int64_t range_keys_of(const mr_call *c)
{
    const int64_t M = c->in[1].desc.dim[2];
    int64_t tasks = mr_given(&c->in[9]) ? c->in[0].desc.dim[3] : units_of(c),
            wanted = (TASKS + MR_MAX(tasks, 1) - 1) / MR_MAX(tasks, 1);
    wanted = MR_MAX(MR_MIN(wanted, M / KEYS), 1);
    return attention_pad((M + wanted - 1) / wanted, KEYS);
}

/* Compute everything that follows from the shapes. The layout is made before the instruction set is
 * chosen, so the scratch memory is that of the form that needs most. */
static attention_job job_of(const mr_call *c, bool backward, attention_form form)
{
    const int64_t N = c->in[0].desc.dim[2], M = c->in[1].desc.dim[2];
    attention_job jb = {.call = c,
                        .bias = &c->in[backward ? 8 : 4],
                        .scale = (float)attention_scale(c),
                        .splits = 1,
                        .split_rows = MR_MAX(N, 1),
                        .ranges = 1,
                        .range_keys = MR_MAX(M, 1)};
    if (backward && mr_given(&c->in[9]))
        jb.dbias = c->out[3].data;
    jb.form = lanes_fit(c, jb.bias) ? LANES : form;
    size_t bytes = (size_t)tile_scratch(c, backward).worker * 4;
    if (backward && jb.form != LANES && M > KEYS) {
        jb.range_keys = range_keys_of(c);
        jb.ranges = (M + jb.range_keys - 1) / jb.range_keys;
    }
    if (jb.form == LANES)
        bytes = (size_t)lanes_scratch(c, backward) * 4;
    else if (form != TILES)
        bytes = MR_MAX(bytes, (size_t)amx_scratch(c, jb.range_keys, backward).bytes);
    jb.worker_bytes = (bytes + 63) / 64 * 64;
    return jb;
}

#ifdef MR_ISA_base
/* The form of a bf16 call. AMX and DOTS need dense head dimensions, and have no f32 score
 * gradients, which the gradient of a bias needs: TILES takes these calls. */
static attention_form bf16_form(const mr_call *c, const mr_facts *facts, bool backward)
{
    bool fits = c->in[0].desc.dtype == MR_BF16 && c->in[0].desc.dim[4] % 2 == 0 &&
                c->in[2].desc.dim[4] % 2 == 0 && !(backward && mr_given(&c->in[9]));
    for (int i = 0; i < c->n_in; i++)
        fits = fits && (c->in[i].desc.rank != 5 || c->in[i].desc.stride[4] == 1);
    for (int i = 0; i < c->n_out; i++)
        fits = fits && (c->out[i].desc.rank != 5 || c->out[i].desc.stride[4] == 1);
    if (fits && facts->amx)
        return AMX;
    return fits && facts->bf16 && !facts->bf16_by_f32 ? DOTS : TILES;
}

/* `state` is the form of a call, unless its sequences are short. */
mr_status mr_attention_prepare(const mr_call *c, const mr_facts *facts, void **state)
{
    *state = (void *)(intptr_t)bf16_form(c, facts, false);
    return MR_OK;
}
mr_status mr_attention_grad_prepare(const mr_call *c, const mr_facts *facts, void **state)
{
    *state = (void *)(intptr_t)bf16_form(c, facts, true);
    return MR_OK;
}

size_t mr_attention_workspace(const mr_call *c, const mr_facts *facts)
{
    return job_of(c, false, bf16_form(c, facts, false)).worker_bytes * (size_t)facts->threads;
}
size_t mr_attention_grad_workspace(const mr_call *c, const mr_facts *facts)
{
    const int64_t *n = c->in[0].desc.dim;
    attention_job jb = job_of(c, true, bf16_form(c, facts, true));
    int64_t parts = jb.ranges > 1 ? units_of(c) * jb.ranges * n[2] * attention_pad(n[4], 16) : 0;
    return jb.worker_bytes * (size_t)facts->threads + (size_t)parts * sizeof(float);
}
#endif

/* ---- forward ---- */

// Heads per chunk: a chunk has many short sequences, since each chunk has a cost.
static int64_t grain_of(const attention_job *jb)
{
    const mr_call *c = jb->call;
    const int64_t *n = c->in[0].desc.dim;
    double flop = 2.0 * (double)(n[2] * c->in[1].desc.dim[2] * (n[4] + c->in[2].desc.dim[4]));
    return attention_pad((int64_t)MR_MAX(1.0, 2.5e5 / MR_MAX(flop, 1.0)),
                         jb->form == LANES ? 16 : 1);
}

static void forward_part(void *user, int64_t begin, int64_t end, int worker)
{
    const attention_job *jb = user;
    const int64_t *n = jb->call->in[0].desc.dim;
    void *at = (char *)jb->call->workspace + (size_t)worker * jb->worker_bytes;
    if (jb->form == LANES) {
        for (int64_t u = begin; u < end; u += VF_LANES)
            lanes_forward(jb, u, MR_MIN(end - u, (int64_t)VF_LANES), at);
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        int64_t u = i / jb->splits, first = i % jb->splits * jb->split_rows,
                last = MR_MIN(first + jb->split_rows, n[2]);
        int64_t b = u / n[3] / n[1], g = u / n[3] % n[1], h = u % n[3];
        if (jb->form == TILES)
            tile_forward(jb, b, g, h, first, last, at);
#if defined(ATTENTION_AMX)
        else if (jb->form == AMX)
            mr_attention_amx_forward(jb, b, g, h, first, last, at);
        else
            mr_attention_dots_forward(jb, b, g, h, first, last, at);
#endif
    }
}

/* Queries of one task. Long sequences are split into spans that share a tile of keys, and further
 * if there are few heads for the team. */
static int64_t split_rows_of(const attention_job *jb)
{
    const int64_t N = jb->call->in[0].desc.dim[2], units = units_of(jb->call),
                  team = 4 * jb->call->threads;
    int64_t rows = jb->form == TILES ? MR_MIN(jb->split_rows, SPAN) : jb->split_rows;
    if (jb->form == LANES || units == 0 || units >= team || N <= 2 * QUERIES)
        return rows;
    int64_t splits = MR_MIN((team + units - 1) / units, N / QUERIES);
    return MR_MIN(rows, attention_pad((N + splits - 1) / splits, QUERIES));
}

void attention_forward(const mr_call *c)
{
    const int64_t N = c->in[0].desc.dim[2];
    attention_job jb = job_of(c, false, (attention_form)(intptr_t)c->state);
    jb.split_rows = split_rows_of(&jb);
    jb.splits = (N + jb.split_rows - 1) / jb.split_rows;
    mr_cpu_for(units_of(c) * jb.splits, jb.splits > 1 ? 1 : grain_of(&jb), c->threads, forward_part,
               &jb);
}

/* ---- backward ---- */

// Compute one key range of one head: of one sample, or of all samples if a bias has a gradient.
static void backward_task(const attention_job *jb, int64_t task, void *at)
{
    const int64_t *n = jb->call->in[0].desc.dim;
    int64_t range = task % jb->ranges, lead = task / jb->ranges,
            times = jb->dbias ? n[0] * n[1] : 1;
    for (int64_t t = 0; t < times; t++) {
        int64_t u = jb->dbias ? t * n[3] + lead : lead;
        int64_t b = u / n[3] / n[1], g = u / n[3] % n[1], h = u % n[3];
        if (jb->form == TILES)
            tile_backward(jb, b, g, h, range, at);
#if defined(ATTENTION_AMX)
        else if (jb->form == AMX)
            mr_attention_amx_backward(jb, b, g, h, range, at);
        else
            mr_attention_dots_backward(jb, b, g, h, range, at);
#endif
    }
}

static void backward_part(void *user, int64_t begin, int64_t end, int worker)
{
    const attention_job *jb = user;
    void *at = (char *)jb->call->workspace + (size_t)worker * jb->worker_bytes;
    int64_t step = jb->form == LANES ? VF_LANES : 1;
    for (int64_t u = begin; u < end; u += step) {
        if (jb->form == LANES)
            lanes_backward(jb, u, MR_MIN(end - u, step), at);
        else
            backward_task(jb, u, at);
    }
}

// dq of rows begin .. end of [B, G, h, N]: the sum of the shares of all key ranges, in order. The
// scale is applied here for the tile form.
static void add_parts(void *user, int64_t begin, int64_t end, int worker)
{
    const attention_job *jb = user;
    const mr_view *dq = &jb->call->out[0];
    const int64_t *n = dq->desc.dim, *s = dq->desc.stride, width = attention_pad(n[4], 16);
    vf scale = vf_set(jb->form == TILES ? jb->scale : 1);
    (void)worker;
    for (int64_t row = begin; row < end; row++) {
        int64_t i = row % n[2], u = row / n[2], h = u % n[3], g = u / n[3] % n[1],
                b = u / n[3] / n[1];
        int64_t at = b * s[0] + g * s[1] + i * s[2] + h * s[3];
        for (int64_t e = 0; e < n[4]; e += VF_LANES) {
            vf sum = vf_zero();
            for (int64_t r = 0; r < jb->ranges; r++)
                sum = sum + vf_load(attention_parts(jb, b, g, h, r) + i * width + e);
            vf_stx(dq->data, at + e * s[4], s[4], sum * scale, MR_MIN(n[4] - e, (int64_t)VF_LANES),
                   dq->desc.dtype);
        }
    }
}

void attention_backward(const mr_call *c)
{
    attention_job jb = job_of(c, true, (attention_form)(intptr_t)c->state);
    const int64_t *n = c->in[0].desc.dim;
    int64_t lead = jb.dbias ? n[3] : units_of(c);
    jb.parts = (float *)(void *)((char *)c->workspace + jb.worker_bytes * (size_t)c->threads);
    mr_cpu_for(lead * jb.ranges, jb.dbias || jb.ranges > 1 ? 1 : grain_of(&jb), c->threads,
               backward_part, &jb);
    if (jb.ranges > 1)
        mr_cpu_for(units_of(c) * n[2], QUERIES, c->threads, add_parts, &jb);
}
