/* exec: runs one step on the shadow device with checks. Before it runs, inputs must be written,
 * outputs must be in writable memory, and outputs and workspace are poisoned. After it, every
 * element of every output must be written, nothing beyond, and no input changed.
 *
 * An element counts as unwritten if it is still poison after a run, and after a second run with
 * another poison. An output that overwrites an input cannot be poisoned. Licence: Apache-2.0 */
#include "exec/shadow.h"

#include <string.h>

enum { OTHER_POISON = 0x5a };

/* ---- the bytes of a view as runs ---- */

typedef struct runs {
    int rank;
    int64_t dim[MR_MAX_RANK], step[MR_MAX_RANK]; /* outer loops, strides in bytes */
    size_t bytes;                                /* of one run */
} runs;

/* The order does not matter, so dimensions are sorted by stride and merged. */
static runs runs_of(const mr_desc *d)
{
    runs r = {.bytes = mr_dtype_bytes(d->dtype)};
    for (int i = 0; i < d->rank; i++) {
        if (d->dim[i] == 1 || (d->stride[i] == 0 && d->dim[i] > 0))
            continue;
        int at = r.rank++;
        int64_t step = d->stride[i] * (int64_t)mr_dtype_bytes(d->dtype);
        for (; at > 0 && r.step[at - 1] < step; at--)
            r.step[at] = r.step[at - 1], r.dim[at] = r.dim[at - 1];
        r.step[at] = step, r.dim[at] = d->dim[i];
    }
    while (r.rank && r.step[r.rank - 1] == (int64_t)r.bytes)
        r.bytes *= (size_t)r.dim[--r.rank];
    for (int i = 0; i < d->rank; i++)
        if (d->dim[i] == 0)
            r.rank = 0, r.bytes = 0;
    return r;
}

/* Call body for each run until it returns false. */
typedef bool run_body(void *user, shadow_block *b, mr_dptr at, size_t bytes);
static bool each_run(const runs *r, int dim, shadow_block *b, mr_dptr at, run_body *body,
                     void *user)
{
    if (dim == r->rank)
        return !r->bytes || body(user, b, at, r->bytes);
    for (int64_t i = 0; i < r->dim[dim]; i++)
        if (!each_run(r, dim + 1, b, at + (mr_dptr)(i * r->step[dim]), body, user))
            return false;
    return true;
}

/* ---- one argument ---- */

typedef struct arg {
    const mr_view *view; /* NULL: absent, or without elements */
    const char *name;
    shadow_block *block;
    size_t span;
    runs runs;
    bool in_place; /* this output overlaps an input, or this input overlaps an output */
    uint64_t hash; /* hash of an input before the step, of an output after its first run */
} arg;

static mr_status arg_of(const shadow_memory *m, const mr_view *v, const char *name, arg *a)
{
    *a = (arg){.name = name};
    if (!v->data || v->desc.rank < 0)
        return MR_OK;
    a->span = mr_desc_span_bytes(&v->desc);
    if (a->span == 0)
        return MR_OK;
    MR_TRY(shadow_find(m, (mr_dptr)v->data, a->span, name, &a->block));
    a->view = v, a->runs = runs_of(&v->desc);
    return MR_OK;
}

static bool is_written(void *user, shadow_block *b, mr_dptr at, size_t bytes)
{
    size_t n = shadow_unwritten(b, at, bytes);
    *(mr_dptr *)user = at + n;
    return n == bytes;
}

static mr_status check_written(const arg *a)
{
    mr_dptr at = 0;
    if (!a->view || each_run(&a->runs, 0, a->block, (mr_dptr)a->view->data, is_written, &at))
        return MR_OK;
    char shape[128];
    return mr_fail(MR_E_INTERNAL, "reads '%s' %s, whose byte %zu was not written", a->name,
                   mr_desc_text(&a->view->desc, shape, sizeof shape),
                   (size_t)(at - (mr_dptr)a->view->data));
}

static bool poison(void *user, shadow_block *b, mr_dptr at, size_t bytes)
{
    shadow_poison(b, at, bytes, *(const int *)user);
    return true;
}

static bool mark(void *user, shadow_block *b, mr_dptr at, size_t bytes)
{
    (void)user;
    shadow_mark(b, at, bytes);
    return true;
}

/* Find the first element that is still poison: its offset in bytes from the start of the view, or
 * -1. */
typedef struct hunt {
    int byte;
    size_t size;
    mr_dptr found;
} hunt;
static bool no_poison(void *user, shadow_block *b, mr_dptr at, size_t bytes)
{
    hunt *h = user;
    unsigned char want[8];
    memset(want, h->byte, sizeof want);
    const unsigned char *real = b->real + (at - b->at);
    for (size_t i = 0; i + h->size <= bytes; i += h->size) {
        if (real[i] != want[0] || memcmp(real + i, want, h->size) != 0)
            continue;
        h->found = at + i;
        return false;
    }
    return true;
}

static int64_t left_over(const arg *a, int byte)
{
    hunt h = {.byte = byte, .size = mr_dtype_bytes(a->view->desc.dtype)};
    mr_dptr start = (mr_dptr)a->view->data;
    return each_run(&a->runs, 0, a->block, start, no_poison, &h) ? -1 : (int64_t)(h.found - start);
}

/* ---- the step ---- */

typedef struct frame {
    const mr_step *step;
    mr_call call, real; /* with device addresses; with real addresses */
    arg in[MR_MAX_IN], out[MR_MAX_OUT];
    shadow_block *workspace;
    bool any_in_place;
} frame;

static void *to_real(const shadow_block *b, const void *at)
{
    return b ? b->real + ((mr_dptr)at - b->at) : NULL;
}

static mr_status open_frame(const shadow_memory *m, frame *f)
{
    const mr_step *s = f->step;
    const mr_call *c = &f->call;
    mr_step_call(s, &f->call);
    f->real = f->call;
    for (int i = 0; i < c->n_in; i++) {
        MR_TRY(arg_of(m, &c->in[i], s->op ? s->op->in[i].name : "source", &f->in[i]));
        f->real.in[i].data = to_real(f->in[i].block, c->in[i].data);
    }
    for (int i = 0; i < c->n_out; i++) {
        arg *o = &f->out[i];
        MR_TRY(arg_of(m, &c->out[i], s->op ? s->op->out[i].name : "result", o));
        f->real.out[i].data = to_real(o->block, c->out[i].data);
        for (int k = 0; o->view && k < c->n_in; k++) {
            arg *in = &f->in[k];
            if (!in->view || (char *)in->view->data >= (char *)o->view->data + o->span ||
                (char *)o->view->data >= (char *)in->view->data + in->span)
                continue;
            in->in_place = o->in_place = f->any_in_place = true;
        }
    }
    if (c->workspace)
        MR_TRY(
            shadow_find(m, (mr_dptr)c->workspace, s->workspace_bytes, "workspace", &f->workspace));
    f->real.workspace = to_real(f->workspace, c->workspace);
    return MR_OK;
}

static bool add_hash(void *user, shadow_block *b, mr_dptr at, size_t bytes)
{
    uint64_t *hash = user;
    uint64_t both[2] = {*hash, mr_hash64(b->real + (at - b->at), bytes)};
    *hash = mr_hash64(both, sizeof both);
    return true;
}

static uint64_t hash_of(const arg *a)
{
    uint64_t hash = 0;
    if (a->view)
        each_run(&a->runs, 0, a->block, (mr_dptr)a->view->data, add_hash, &hash);
    return hash;
}

static mr_status check_inputs(frame *f)
{
    const mr_step *s = f->step;
    for (int i = 0; i < s->n_in; i++) {
        MR_TRY(check_written(&f->in[i]));
        f->in[i].hash = hash_of(&f->in[i]);
    }
    return MR_OK;
}

/* Check that outputs are in memory that steps can write. */
static mr_status check_guards(const frame *f)
{
    const mr_step *s = f->step;
    for (int i = 0; i < s->n_out; i++) {
        const arg *a = &f->out[i];
        // the graph names the target of a copy between memories
        bool named = s->kind == MR_STEP_COPY || s->placed || s->op->out[i].must;
        char shape[128];
        if (!a->view || a->block->guard == MR_GUARD_NONE ||
            (a->block->guard == MR_GUARD_NAMED && named))
            continue;
        return mr_fail(MR_E_INTERNAL, "writes '%s' %s into %s", a->name,
                       mr_desc_text(&a->view->desc, shape, sizeof shape),
                       a->block->guard == MR_GUARD_ALL
                           ? "constants"
                           : "an input or a region that its definition does not declare as output");
    }
    return MR_OK;
}

static mr_status run_over(frame *f, int byte)
{
    const mr_step *s = f->step;
    for (int i = 0; i < s->n_out; i++)
        if (f->out[i].view && !f->out[i].in_place)
            each_run(&f->out[i].runs, 0, f->out[i].block, (mr_dptr)f->out[i].view->data, poison,
                     &byte);
    if (f->workspace)
        shadow_poison(f->workspace, (mr_dptr)f->call.workspace, s->workspace_bytes, byte);
    return mr_step_run(s, &f->real);
}

static mr_status check_outputs(frame *f)
{
    bool again = false, suspect[MR_MAX_OUT] = {false};
    for (int i = 0; i < f->step->n_out; i++) {
        if (!f->out[i].view || f->out[i].in_place)
            continue;
        suspect[i] = left_over(&f->out[i], MR_POISON) >= 0;
        // an integer can be -1, which equals poison: without a second run it counts as written
        if (f->any_in_place && !mr_dtype_is_float(f->out[i].view->desc.dtype))
            suspect[i] = false;
        again |= suspect[i] && !f->any_in_place;
        f->out[i].hash = suspect[i] ? hash_of(&f->out[i]) : 0;
    }
    if (again)
        MR_TRY(run_over(f, OTHER_POISON));
    for (int i = 0; i < f->step->n_out; i++) {
        // written bytes can equal a poison; unwritten ones differ between the runs
        if (!suspect[i] || (again && hash_of(&f->out[i]) == f->out[i].hash))
            continue;
        int64_t at = left_over(&f->out[i], again ? OTHER_POISON : MR_POISON);
        char shape[128];
        if (at >= 0)
            return mr_fail(MR_E_INTERNAL, "leaves '%s' %s unwritten from byte %lld on",
                           f->out[i].name, mr_desc_text(&f->out[i].view->desc, shape, sizeof shape),
                           (long long)at);
    }
    return MR_OK;
}

static mr_status close_frame(frame *f)
{
    const mr_step *s = f->step;
    for (int i = 0; i < s->n_out; i++) {
        if (!f->out[i].view)
            continue;
        if (!shadow_intact(f->out[i].block))
            return mr_fail(MR_E_INTERNAL, "writes beyond the end of '%s'", f->out[i].name);
        each_run(&f->out[i].runs, 0, f->out[i].block, (mr_dptr)f->out[i].view->data, mark, NULL);
    }
    for (int i = 0; i < s->n_in; i++)
        if (!f->in[i].in_place && hash_of(&f->in[i]) != f->in[i].hash)
            return mr_fail(MR_E_INTERNAL, "changes its input '%s'", f->in[i].name);
    if (f->workspace && !shadow_intact(f->workspace))
        return mr_fail(MR_E_INTERNAL, "writes beyond the end of its workspace");
    return MR_OK;
}

static mr_status poison_span(const shadow_memory *m, const mr_span *span)
{
    shadow_block *b = NULL;
    MR_TRY(shadow_find(m, span->at, span->bytes, "arena range", &b));
    shadow_poison(b, span->at, span->bytes, MR_POISON);
    return MR_OK;
}

/* The first user of a range poisons it, and so does the last one. */
static mr_status come(const shadow_memory *m, const mr_step *s)
{
    for (int i = 0; i < s->n_spans; i++)
        if (!s->spans[i]->seen++)
            MR_TRY(poison_span(m, s->spans[i]));
    return MR_OK;
}

static mr_status leave(const shadow_memory *m, const mr_step *s)
{
    for (int i = 0; i < s->n_spans; i++)
        if (s->spans[i]->seen == s->spans[i]->users) {
            s->spans[i]->seen = 0;
            MR_TRY(poison_span(m, s->spans[i]));
        }
    return MR_OK;
}

static mr_status checked(const shadow_memory *m, frame *f)
{
    const mr_step *s = f->step;
    MR_TRY(come(m, s));
    MR_TRY(open_frame(m, f));
    MR_TRY(check_guards(f));
    MR_TRY(check_inputs(f));
    MR_TRY(run_over(f, MR_POISON));
    MR_TRY(check_outputs(f));
    MR_TRY(close_frame(f));
    return leave(m, s);
}

mr_status shadow_step(const shadow_memory *m, const mr_step *step)
{
    frame f = {.step = step};
    mr_status st = checked(m, &f);
    if (st != MR_OK)
        mr_fail_where(step->op ? step->op->name : "copy out", step->node ? step->node->name : NULL,
                      step->node ? step->node->origin : NULL);
    return st;
}
