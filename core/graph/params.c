/* graph: the parameter table of a model: computes its flat ranges and initial values.
 * Licence: Apache-2.0 */
#include "moonreel/graph.h"

#include <math.h>
#include <string.h>

struct mr_params {
    mr_dtype compute;
    mr_arena arena;
    mr_param *rows;
    int n, cap;
    int *slots, n_slots; /* hash table of names: index + 1; 0: free */
    bool sealed;
    int64_t elements[2];     /* trainable, frozen */
    int64_t split, matrices; /* where the ranges begin */
    int ranks, buckets;
    int64_t *bucket_end;
    mr_param_shares shares;
};

mr_status mr_params_new(mr_dtype compute, mr_params **out)
{
    if (compute != MR_F32 && compute != MR_BF16)
        return mr_fail(MR_E_USAGE, "compute dtype is %s, expected f32 or bf16",
                       mr_dtype_name(compute));
    mr_params *p;
    if (!MR_NEW(p))
        return mr_fail_memory(sizeof *p);
    p->compute = compute;
    mr_arena_init(&p->arena);
    *out = p;
    return MR_OK;
}

void mr_params_free(mr_params *p)
{
    if (!p)
        return;
    mr_arena_fini(&p->arena);
    mr_free(p->rows);
    mr_free(p->slots);
    mr_free(p->bucket_end);
    mr_free(p);
}

static int *slot_of(const mr_params *p, const char *name)
{
    if (!p->n_slots)
        return NULL;
    for (uint64_t h = mr_name_word(name);; h++) {
        int *slot = &p->slots[h % (uint64_t)p->n_slots];
        if (!*slot || strcmp(p->rows[*slot - 1].name, name) == 0)
            return slot;
    }
}

int mr_params_find(const mr_params *p, const char *name)
{
    int *slot = slot_of(p, name);
    return slot ? *slot - 1 : -1;
}

static mr_status grow(mr_params *p)
{
    if (p->n < p->cap)
        return MR_OK;
    int cap = p->cap ? p->cap * 2 : 256;
    mr_param *rows = mr_realloc(p->rows, sizeof *rows * (size_t)cap);
    if (!rows)
        return mr_fail_memory(sizeof *rows * (size_t)cap);
    p->rows = rows, p->cap = cap;
    int *slots = mr_calloc((size_t)cap * 4, sizeof *slots);
    if (!slots)
        return mr_fail_memory((size_t)cap * 16);
    mr_free(p->slots);
    p->slots = slots, p->n_slots = cap * 4;
    for (int i = 0; i < p->n; i++)
        *slot_of(p, p->rows[i].name) = i + 1;
    return MR_OK;
}

/* Compute this rank's share of `row`, whose whole shape and split are set. */
static mr_status take_share(mr_param *row)
{
    const mr_split *s = &row->split;
    char text[128];
    int64_t sum = 0, dim[MR_MAX_RANK];
    row->desc = row->whole;
    if (s->ranks == 0)
        return MR_OK;
    mr_desc_text(&row->whole, text, sizeof text);
    if (s->axis >= row->whole.rank || s->at >= s->ranks || row->init.kind == MR_INIT_VALUES)
        return mr_fail(MR_E_SHAPE, "parameter '%s' %s: rank %d of %d ranks has no share of axis %d",
                       row->name, text, s->at, s->ranks, s->axis);
    for (int i = 0; i < s->parts; i++) {
        sum += s->part[i];
        if (s->part[i] % s->ranks)
            return mr_fail(MR_E_SHAPE,
                           "parameter '%s' %s: %d ranks cannot share %lld positions of "
                           "axis %d",
                           row->name, text, s->ranks, (long long)s->part[i], s->axis);
    }
    if (sum != row->whole.dim[s->axis])
        return mr_fail(
            MR_E_SHAPE,
            "parameter '%s' %s: the parts add up to %lld positions, not to the length of axis %d",
            row->name, text, (long long)sum, s->axis);
    memcpy(dim, row->whole.dim, sizeof dim);
    dim[s->axis] /= s->ranks;
    row->desc = mr_desc_dense(row->whole.dtype, row->whole.rank, dim);
    if (s->axis > 0 && s->parts > 1) {
        const int64_t count = mr_desc_count(&row->desc);
        row->desc = mr_desc_dense(row->whole.dtype, 1, &count);
    }
    return MR_OK;
}

mr_status mr_params_add(mr_params *p, const mr_param *param, int *id)
{
    char a[128], b[128];
    int have = mr_params_find(p, param->name);
    if (have >= 0) {
        if (!mr_desc_same_shape(&p->rows[have].whole, &param->desc))
            return mr_fail(MR_E_SHAPE, "parameter '%s' is declared twice: %s and %s", param->name,
                           mr_desc_text(&p->rows[have].whole, a, sizeof a),
                           mr_desc_text(&param->desc, b, sizeof b));
        *id = have;
        return MR_OK;
    }
    if (p->sealed)
        return mr_fail(MR_E_USAGE,
                       "parameter '%s' %s is declared after the table was sealed; try: declare it "
                       "with the model",
                       param->name, mr_desc_text(&param->desc, a, sizeof a));
    if (mr_desc_check(p->compute, param->desc.rank, param->desc.dim) != MR_OK)
        return mr_fail_note("parameter '%s'", param->name);
    MR_TRY(grow(p));
    mr_param row = *param;
    row.whole = mr_desc_dense(p->compute, param->desc.rank, param->desc.dim);
    row.block = 0;
    MR_TRY(take_share(&row));
    if (!(row.name = mr_arena_strdup(&p->arena, param->name)))
        return mr_fail_memory(strlen(param->name));
    if (param->init.kind == MR_INIT_VALUES) {
        size_t bytes = (size_t)mr_desc_count(&row.desc) * 4;
        float *copy = mr_arena_alloc(&p->arena, bytes);
        if (!copy)
            return mr_fail_memory(bytes);
        row.init.values = memcpy(copy, param->init.values, bytes);
    }
    int *slot = slot_of(p, row.name);
    p->rows[p->n] = row;
    *slot = ++p->n;
    *id = p->n - 1;
    return MR_OK;
}

static int64_t round_up(int64_t n, int64_t granule)
{
    return (n + granule - 1) / granule * granule;
}

/* Close the current bucket, with padding. */
static void close_bucket(mr_params *p, int64_t granule)
{
    int64_t start = p->buckets ? p->bucket_end[p->buckets - 1] : 0, *end = &p->elements[false];
    if (*end == start)
        return;
    *end = start + round_up(*end - start, granule);
    p->bucket_end[p->buckets++] = *end;
}

static mr_status check_cut(const mr_params *p, const mr_cut *cut)
{
    const int64_t width = (int64_t)mr_dtype_bytes(p->compute);
    char text[128];
    if (cut->ranks < 1 || cut->elements < 0)
        return mr_fail(MR_E_RANGE,
                       "buckets of %lld elements for %d ranks; expected at least 1 rank",
                       (long long)cut->elements, cut->ranks);
    if (cut->granule < 0 || cut->granule % (MR_PARAM_ALIGN * width))
        return mr_fail(MR_E_RANGE, "chunks of multiples of %lld bytes; expected a multiple of %lld",
                       (long long)cut->granule, (long long)(MR_PARAM_ALIGN * width));
    if (cut->block < 0 || cut->block % MR_PARAM_ALIGN)
        return mr_fail(MR_E_RANGE, "matrices in blocks of %lld elements; expected a multiple of %d",
                       (long long)cut->block, MR_PARAM_ALIGN);
    for (int i = 0; cut->block && i < p->n; i++)
        if (cut->matrix[i] && (p->rows[i].frozen || mr_desc_count(&p->rows[i].desc) % cut->block))
            return mr_fail(MR_E_RANGE,
                           "parameter '%s' %s: expected a trained one of whole blocks of %lld "
                           "elements",
                           p->rows[i].name, mr_desc_text(&p->rows[i].desc, text, sizeof text),
                           (long long)cut->block);
    return MR_OK;
}

/* Lay out the parameters of a class. A bucket has at most `most` elements, and its size is a
 * multiple of `granule` elements. No two models share a bucket. */
static void lay(mr_params *p, int class, int64_t granule, int64_t most)
{
    int model = 0;
    for (int i = 0; i < p->n; i++) {
        mr_param *row = &p->rows[i];
        if (mr_param_class(row) != class)
            continue;
        int64_t *end = &p->elements[row->frozen],
                size = round_up(mr_desc_count(&row->desc), MR_PARAM_ALIGN),
                start = p->buckets ? p->bucket_end[p->buckets - 1] : 0;
        if (!row->frozen && (*end - start > most - size || row->model != model))
            close_bucket(p, granule);
        model = row->frozen ? model : row->model;
        row->offset = *end;
        *end += size;
    }
    close_bucket(p, granule);
}

mr_status mr_params_seal(mr_params *p, const mr_cut *cut)
{
    enum { CHUNK_BYTES = 65536 };
    if (p->sealed)
        return MR_OK;
    if (cut)
        MR_TRY(check_cut(p, cut));
    p->bucket_end = mr_alloc(((size_t)p->n + 1) * sizeof *p->bucket_end);
    if (!p->bucket_end)
        return mr_fail_memory(((size_t)p->n + 1) * sizeof *p->bucket_end);
    int64_t granule = MR_PARAM_ALIGN, most = INT64_MAX;
    p->ranks = 1;
    if (cut) {
        granule = cut->ranks * ((cut->granule ? cut->granule : CHUNK_BYTES) /
                                (int64_t)mr_dtype_bytes(p->compute));
        most = cut->elements ? cut->elements : most;
        p->ranks = cut->ranks;
    }
    for (int i = 0; cut && cut->block && i < p->n; i++)
        p->rows[i].block = cut->matrix[i] ? cut->block : 0;
    lay(p, 0, granule, most);
    p->split = p->elements[false];
    lay(p, 1, granule, most);
    p->matrices = p->elements[false];
    if (cut && cut->block) {
        granule = cut->ranks * cut->block;
        lay(p, 2, granule, MR_MAX(most / granule, 1) * granule);
    }
    p->sealed = true;
    return MR_OK;
}

int mr_param_class(const mr_param *row)
{
    return row->block ? 2 : row->split.ranks ? 1 : 0;
}

int mr_params_buckets(const mr_params *p)
{
    return p->buckets;
}

void mr_params_bucket(const mr_params *p, int i, int64_t *start, int64_t *stop)
{
    *start = i ? p->bucket_end[i - 1] : 0, *stop = p->bucket_end[i];
}

void mr_params_owned(const mr_params *p, int i, int rank, int64_t *start, int64_t *stop)
{
    int64_t from, to;
    mr_params_bucket(p, i, &from, &to);
    int64_t chunk = (to - from) / p->ranks;
    *start = from + rank * chunk, *stop = *start + chunk;
}

int mr_params_bucket_of(const mr_params *p, int64_t element)
{
    int low = 0, high = p->buckets - 1;
    while (low < high) {
        int mid = (low + high) / 2;
        if (p->bucket_end[mid] <= element)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

mr_status mr_params_share(mr_params *p, const mr_param_shares *shares)
{
    int ranks = 1;
    if (!p->sealed)
        return mr_fail(MR_E_USAGE, "the table is not sealed; try: seal it for its ranks first");
    for (int i = 0; i < shares->hops; i++) {
        const mr_hop *hop = &shares->hop[i];
        if (hop->ranks < 1 || hop->at < 0 || hop->at >= hop->ranks)
            return mr_fail(
                MR_E_RANGE,
                "hop %d: index %d of %d ranks; expected 0 or more and less than the ranks", i + 1,
                hop->at, hop->ranks);
        ranks *= hop->ranks;
    }
    if (shares->hops && ranks != p->ranks)
        return mr_fail(MR_E_RANGE, "the hops have %d ranks; expected %d, those of the table", ranks,
                       p->ranks);
    p->shares = *shares;
    return MR_OK;
}

const mr_param_shares *mr_params_shares(const mr_params *p)
{
    return &p->shares;
}

void mr_params_chunk(const mr_params *p, int i, int64_t *start, int64_t *stop)
{
    mr_params_bucket(p, i, start, stop);
    for (int k = 0; k < p->shares.hops; k++) {
        const mr_hop *hop = &p->shares.hop[k];
        int64_t piece = (*stop - *start) / hop->ranks;
        *start += hop->at * piece, *stop = *start + piece;
    }
}

bool mr_params_sealed(const mr_params *p)
{
    return p->sealed;
}
int mr_params_count(const mr_params *p)
{
    return p->n;
}
const mr_param *mr_params_at(const mr_params *p, int id)
{
    return id >= 0 && id < p->n ? &p->rows[id] : NULL;
}
mr_dtype mr_params_compute(const mr_params *p)
{
    return p->compute;
}
int64_t mr_params_elements(const mr_params *p, bool frozen)
{
    return p->elements[frozen];
}
int64_t mr_params_matrices(const mr_params *p)
{
    return p->matrices;
}

int64_t mr_params_split(const mr_params *p)
{
    return p->split;
}

/* Draw n consecutive initial values of a parameter, from element `first` of the whole parameter
 * on. */
static void draw(const mr_param *row, uint64_t seed, double bound, int64_t first, int64_t n,
                 float *out)
{
    const uint64_t purpose = mr_name_word("init"), key = mr_name_word(row->name);
    if (row->init.kind == MR_INIT_NORMAL) {
        mr_random_fill_normal(out, n, seed, purpose, key, 0, (uint64_t)first);
        for (int64_t i = 0; i < n; i++)
            out[i] *= (float)row->init.scale;
        return;
    }
    mr_random_fill_uniform(out, n, seed, purpose, key, 0, (uint64_t)first);
    for (int64_t i = 0; i < n; i++)
        out[i] = (2 * out[i] - 1) * (float)bound;
}

/* Draw the initial values of this rank's share, one contiguous run at a time. */
static void draw_share(const mr_param *row, uint64_t seed, double bound, float *out)
{
    const mr_split *s = &row->split;
    const mr_desc *whole = &row->whole;
    if (!s->ranks) {
        draw(row, seed, bound, 0, mr_desc_count(whole), out);
        return;
    }
    int64_t outer = 1, inner = 1, before = 0;
    for (int d = 0; d < whole->rank; d++)
        *(d < s->axis ? &outer : &inner) *= d == s->axis ? 1 : whole->dim[d];
    for (int i = 0; i < s->parts; before += s->part[i++]) {
        const int64_t share = s->part[i] / s->ranks;
        for (int64_t k = 0; k < outer; k++, out += share * inner)
            draw(row, seed, bound, (k * whole->dim[s->axis] + before + s->at * share) * inner,
                 share * inner, out);
    }
}

mr_status mr_params_init(const mr_params *p, int id, uint64_t seed, float *out)
{
    const mr_param *row = &p->rows[id];
    int64_t n = mr_desc_count(&row->desc);
    double bound = row->init.scale;
    switch (row->init.kind) {
    case MR_INIT_ZEROS: memset(out, 0, (size_t)n * 4); break;
    case MR_INIT_ONES:
        for (int64_t i = 0; i < n; i++)
            out[i] = 1;
        break;
    case MR_INIT_VALUES: memcpy(out, row->init.values, (size_t)n * 4); break;
    case MR_INIT_XAVIER:
        // Glorot & Bengio 2010: fan out is the first dimension, fan in the product of the others
        if (row->whole.rank < 2)
            return mr_fail(MR_E_USAGE, "parameter '%s': xavier init needs two dimensions",
                           row->name);
        bound = sqrt(
            6.0 / ((double)row->whole.dim[0] +
                   (double)(mr_desc_count(&row->whole) / MR_MAX(row->whole.dim[0], (int64_t)1))));
        // fall through
    case MR_INIT_NORMAL:
    case MR_INIT_UNIFORM: draw_share(row, seed, bound, out); break;
    }
    return MR_OK;
}
