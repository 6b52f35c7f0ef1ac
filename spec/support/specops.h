/* Ops that exist in executor specs only: one that uses a workspace, one that updates in place, and
 * some that misbehave. Include before any other moonreel header. */
#ifndef MR_SPECOPS_H
#define MR_SPECOPS_H
#define MR_ISA      base
#define MR_ISA_base 1
#include "moonreel/exec.h"
#include <stdatomic.h>
#include <string.h>

static mr_status spec_like(mr_infer *c)
{
    c->out[0] = mr_desc_dense(c->in[0]->dtype, c->in[0]->rank, c->in[0]->dim);
    return MR_OK;
}
static int64_t spec_count(const mr_call *c)
{
    return mr_desc_count(&c->in[0].desc);
}

/* y = a + k b, through a workspace; may be in a's place */
typedef struct spec_blend_attr {
    double k;
} spec_blend_attr;
static mr_status spec_blend_run(const mr_call *c)
{
    const float *a = c->in[0].data, *b = c->in[1].data;
    float *y = c->out[0].data, *w = c->workspace, k = (float)((const spec_blend_attr *)c->attr)->k;
    for (int64_t i = 0, n = spec_count(c); i < n; i++)
        w[i] = k * b[i];
    for (int64_t i = 0, n = spec_count(c); i < n; i++)
        y[i] = a[i] + w[i];
    return MR_OK;
}
static size_t spec_blend_workspace(const mr_call *c, const mr_facts *f)
{
    (void)f;
    return (size_t)spec_count(c) * 4;
}
MR_OP(spec_blend) = {
    .name = "spec_blend",
    .doc = "y = a + k b",
    .hidden = true,
    .in = {{"a", "[...] f32", MR_CONTIG, 0}, {"b", "like a", MR_CONTIG, 0}},
    .out = {{"y", "like a", 1, false, MR_CONTIG}},
    .attr = {{"k", MR_ATTR_F64, offsetof(spec_blend_attr, k), 1, 0, 0, false, "factor"}},
    .infer = spec_like,
    .cpu = {.run = {spec_blend_run}, .workspace = spec_blend_workspace},
};

/* w' = w + g in the place of w: an update */
static mr_status spec_update_run(const mr_call *c)
{
    float *w = c->out[0].data;
    const float *g = c->in[1].data;
    for (int64_t i = 0, n = spec_count(c); i < n; i++)
        w[i] += g[i];
    return MR_OK;
}
MR_OP(spec_update) = {
    .name = "spec_update",
    .doc = "w += g",
    .hidden = true,
    .in = {{"w", "[...] f32", MR_CONTIG, 0}, {"g", "like w", MR_CONTIG, 0}},
    .out = {{"w", "like w", 1, true, MR_CONTIG}},
    .infer = spec_like,
    .cpu = {.run = {spec_update_run}},
};

/* y = x as soon as the host opens the gate: work enqueued after it waits. */
static atomic_bool spec_gate_open = true;
static mr_status spec_gate_run(const mr_call *c)
{
    while (!atomic_load(&spec_gate_open))
        mr_clock_table()->sleep_ns(1000000);
    memcpy(c->out[0].data, c->in[0].data, mr_desc_span_bytes(&c->out[0].desc));
    return MR_OK;
}
MR_OP(spec_gate) = {
    .name = "spec_gate",
    .doc = "waits for the host",
    .hidden = true,
    .in = {{"x", "[...] any dtype", MR_CONTIG, 0}},
    .out = {{"y", "like x", 0, false, MR_CONTIG}},
    .infer = spec_like,
    .cpu = {.run = {spec_gate_run}},
};

/* Misbehaviour: leaves the last element unwritten, writes one too many, fails. */
static mr_status spec_partial_run(const mr_call *c)
{
    memcpy(c->out[0].data, c->in[0].data,
           (size_t)(spec_count(c) - 1) * mr_dtype_bytes(c->in[0].desc.dtype));
    return MR_OK;
}
MR_OP(spec_partial) = {
    .name = "spec_partial",
    .doc = "forgets the last element",
    .hidden = true,
    .in = {{"x", "[...] any dtype", MR_CONTIG, 0}},
    .out = {{"y", "like x", 0, false, MR_CONTIG}},
    .infer = spec_like,
    .cpu = {.run = {spec_partial_run}},
};
static mr_status spec_overrun_run(const mr_call *c)
{
    memset(c->out[0].data, 0, (size_t)(spec_count(c) + 1) * mr_dtype_bytes(c->in[0].desc.dtype));
    return MR_OK;
}
MR_OP(spec_overrun) = {
    .name = "spec_overrun",
    .doc = "writes one element too many",
    .hidden = true,
    .in = {{"x", "[...] any dtype", MR_CONTIG, 0}},
    .out = {{"y", "like x", 0, false, MR_CONTIG}},
    .infer = spec_like,
    .cpu = {.run = {spec_overrun_run}},
};
static mr_status spec_fail_run(const mr_call *c)
{
    (void)c;
    return mr_fail(MR_E_DATA, "this row always fails");
}
MR_OP(spec_fail) = {
    .name = "spec_fail",
    .doc = "fails",
    .hidden = true,
    .in = {{"x", "[...] any dtype", MR_CONTIG, 0}},
    .out = {{"y", "like x", 0, false, MR_CONTIG}},
    .infer = spec_like,
    .cpu = {.run = {spec_fail_run}},
};
/* Copies; the spec changes its addresses. Counts its runs. */
static _Atomic int spec_moves;
static mr_status spec_move_run(const mr_call *c)
{
    spec_moves++;
    memcpy(c->out[0].data, c->in[0].data,
           (size_t)spec_count(c) * mr_dtype_bytes(c->in[0].desc.dtype));
    return MR_OK;
}
MR_OP(spec_move) = {
    .name = "spec_move",
    .doc = "y = x",
    .hidden = true,
    .in = {{"x", "[...] any dtype", MR_CONTIG, 0}},
    .out = {{"y", "like x", 0, false, MR_CONTIG}},
    .infer = spec_like,
    .cpu = {.run = {spec_move_run}},
};
#endif
