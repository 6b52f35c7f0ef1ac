/* cuda/rt: the driver table for the emulator, for specs. Streams run late and out of order, kernels
 * run on fibers that check every access, products are plain loops.
 *
 * MOONREEL_CUDAEMU injects errors, as words with commas between:
 *   absent      no driver is installed
 *   none        the host has no GPU
 *   old         the driver is too old
 *   devices=2   number of GPUs
 *   arch=70     compute capability
 *   memory=N    bytes of device memory
 *   fail=N      from the N-th task on, every call fails with error=E (719)
 *   lost=FILE   the same, once FILE exists
 *   full=N      the N-th handle or block cannot be allocated
 *   refuse=N    the N-th launch is not accepted
 *   once=N      only the N-th of the other calls fails, with error=E, and does nothing
 *   seed=S      selects all orders
 *   eager       copies inside kernels complete at once
 *   task=MS     milliseconds per task (2: short for the probes of core/exec/rates.c)
 *   rated       the device reports this time beforehand, and nothing is probed
 * Licence: Apache-2.0 */
#include "cuda/emu/emu.h"
#include "cuda/rt/driver.h"
#include <algorithm>
#include <map>
#include <stdio.h>
#include <unistd.h>

namespace
{

// ---- injected errors ----

struct Wrong {
    bool absent, none, old, eager, rated;
    long arch = 90, fail = -1, error = MR_CUDA_LAUNCH_FAILURE, seed = 1, devices = 1;
    long full = -1, refuse = -1, once = -1;
    size_t memory = (size_t)200 << 20;
    double task_ms = 2;
    std::string file;
} wrong;

int lost;   // the permanent error
long works; // tasks that have run
char said[1024];
size_t used; // bytes that are allocated
int handles; // streams, events, graphs and plans that are open
long gifts;  // handles and blocks that were requested
long asked;  // calls of `launched`
long calls;  // other calls that may fail

const char *value_of(const char *word, const char *key)
{
    size_t n = strlen(key);
    return strncmp(word, key, n) == 0 ? word + n : NULL;
}

void read_environment()
{
    const char *env = getenv("MOONREEL_CUDAEMU");
    std::string all = env ? env : "";
    wrong = Wrong();
    for (size_t at = 0; at < all.size();) {
        size_t end = std::min(all.find(',', at), all.size());
        std::string word = all.substr(at, end - at);
        at = end + 1;
        wrong.absent |= word == "absent";
        wrong.none |= word == "none";
        wrong.old |= word == "old";
        wrong.eager |= word == "eager";
        wrong.rated |= word == "rated";
        if (const char *v = value_of(word.c_str(), "arch="))
            wrong.arch = atol(v);
        if (const char *v = value_of(word.c_str(), "devices="))
            wrong.devices = atol(v);
        if (const char *v = value_of(word.c_str(), "memory="))
            wrong.memory = strtoull(v, NULL, 10);
        if (const char *v = value_of(word.c_str(), "fail="))
            wrong.fail = atol(v);
        if (const char *v = value_of(word.c_str(), "full="))
            wrong.full = atol(v);
        if (const char *v = value_of(word.c_str(), "refuse="))
            wrong.refuse = atol(v);
        if (const char *v = value_of(word.c_str(), "once="))
            wrong.once = atol(v);
        if (const char *v = value_of(word.c_str(), "task="))
            wrong.task_ms = atof(v);
        if (const char *v = value_of(word.c_str(), "lost="))
            wrong.file = v;
        if (const char *v = value_of(word.c_str(), "error="))
            wrong.error = atol(v);
        if (const char *v = value_of(word.c_str(), "seed="))
            wrong.seed = atol(v);
    }
    emu::options.seed = (unsigned)wrong.seed;
    emu::options.async = wrong.eager ? emu::Async::eager : emu::Async::late;
    emu::options.counting = false; // not needed here
    emu::stream_order((unsigned)wrong.seed);
}

// before each task of a stream: copy, kernel, product, captured run
bool begins()
{
    bool falls =
        works++ == wrong.fail || (!wrong.file.empty() && !access(wrong.file.c_str(), F_OK));
    if (!lost && falls)
        lost = (int)wrong.error;
    return !lost;
}

// a device on which the emulator found an error is lost
void ends()
{
    if (lost || emu::reports().empty())
        return;
    lost = MR_CUDA_LAUNCH_FAILURE;
    snprintf(said, sizeof said, "%s", emu::reports()[0].c_str());
    emu::forget_reports();
}

// true for the one call that must fail without any effect
bool fails()
{
    return !lost && calls++ == wrong.once;
}
#define MAY_FAIL                                                                                   \
    do {                                                                                           \
        if (fails())                                                                               \
            return (int)wrong.error;                                                               \
    } while (0)

// ---- device, memory ----

int facts(int ordinal, mr_cuda_facts *out)
{
    read_environment();
    emu::stream_watch(begins, ends);
    lost = 0;
    works = gifts = asked = calls = 0;
    said[0] = 0;
    *out = {};
    snprintf(out->name, sizeof out->name, "emulated GPU");
    snprintf(out->bus, sizeof out->bus, "0000:1B:00.0");
    out->major = (int)wrong.arch / 10;
    out->minor = (int)wrong.arch % 10;
    out->need = 12040;
    out->driver = wrong.absent ? 0 : wrong.old ? 11080 : 13000;
    out->devices = wrong.none ? 0 : (int)wrong.devices;
    out->task_s = wrong.rated ? wrong.task_ms / 1000 : 0;
    if (wrong.absent || wrong.none)
        return MR_CUDA_NO_DEVICE;
    if (wrong.old)
        return MR_CUDA_OLD_DRIVER;
    return ordinal < out->devices ? 0 : MR_CUDA_BAD_ORDINAL;
}

int use(int)
{
    MAY_FAIL;
    return lost;
}

int memory(size_t *free_bytes, size_t *total_bytes)
{
    MAY_FAIL;
    *total_bytes = wrong.memory;
    *free_bytes = wrong.memory - used;
    return lost;
}

std::vector<std::pair<void *, size_t>> blocks;

int alloc(size_t bytes, bool pinned, void **out)
{
    if (emu::capturing())
        return MR_CUDA_CAPTURE;
    if (lost)
        return lost;
    if (gifts++ == wrong.full || (!pinned && bytes > wrong.memory - used))
        return MR_CUDA_MEMORY;
    *out = emu::alloc(bytes);
    if (!*out)
        return MR_CUDA_MEMORY;
    blocks.push_back({*out, pinned ? 0 : bytes});
    used += blocks.back().second;
    return 0;
}

// device and pinned memory have separate calls, as in a driver
int release(void *p, bool pinned)
{
    for (size_t i = 0; i < blocks.size(); i++)
        if (blocks[i].first == p && pinned == (blocks[i].second == 0)) {
            used -= blocks[i].second;
            blocks.erase(blocks.begin() + i);
            emu::free(p);
            return lost;
        }
    return 1;
}

// ---- streams, events ----

// may a handle be allocated?
int given()
{
    int error = lost ? lost : gifts++ == wrong.full ? MR_CUDA_MEMORY : 0;
    handles += !error;
    return error;
}

cudaStream_t stream_of(void *stream)
{
    return (cudaStream_t)stream;
}

int stream_new(void **out)
{
    int error = given();
    if (!error)
        *out = emu::stream_new();
    return error;
}

int stream_free(void *stream)
{
    emu::stream_free(stream_of(stream));
    handles--;
    return 0;
}

int stream_sync(void *stream)
{
    MAY_FAIL;
    if (emu::capturing())
        return MR_CUDA_CAPTURE;
    bool over = emu::stream_sync(stream_of(stream));
    ends();
    if (!over && !lost) {
        lost = MR_CUDA_LAUNCH_FAILURE;
        snprintf(said, sizeof said, "streams wait for each other");
    }
    return lost;
}

// run a task on a stream, or at once if a spec of a single op passes no stream
void work(void *stream, const emu::Task &task)
{
    if (!stream)
        return task();
    emu::enqueue(stream_of(stream), task);
}

emu::Event *event_of(void *event)
{
    return (emu::Event *)event;
}

int event_new(bool, void **out)
{
    int error = given();
    if (!error)
        *out = emu::event_new();
    return error;
}

int event_free(void *event)
{
    emu::event_free(event_of(event));
    handles--;
    return 0;
}

int event_record(void *event, void *stream)
{
    MAY_FAIL;
    emu::event_record(event_of(event), stream_of(stream));
    return lost;
}

int event_wait(void *event, void *stream)
{
    MAY_FAIL;
    emu::event_wait(event_of(event), stream_of(stream));
    return lost;
}

int event_reached(void *event, bool block, bool *out)
{
    MAY_FAIL;
    if (emu::capturing())
        return MR_CUDA_CAPTURE;
    *out = emu::event_reached(event_of(event), block);
    if (!*out && block && !lost) {
        lost = MR_CUDA_LAUNCH_FAILURE;
        snprintf(said, sizeof said, "streams wait for each other");
    }
    return lost;
}

// milliseconds in f32, as the driver reports them
int event_seconds(void *from, void *to, double *seconds)
{
    MAY_FAIL;
    double turns = (double)emu::event_turn(event_of(to)) - (double)emu::event_turn(event_of(from));
    *seconds = (double)(float)(wrong.task_ms * turns) / 1e3;
    return lost;
}

// ---- work ----

int copy(void *to, const void *from, size_t bytes, void *stream)
{
    MAY_FAIL;
    work(stream, [=] { emu::copy(to, from, bytes); });
    return lost;
}

int fill(void *to, int byte, size_t bytes, void *stream)
{
    MAY_FAIL;
    work(stream, [=] {
        memset(to, byte, bytes);
        emu::host_wrote(to, bytes);
    });
    return lost;
}

int call(void (*fn)(void *), void *user, void *stream)
{
    MAY_FAIL;
    work(stream, [=] { fn(user); });
    return lost;
}

int launched()
{
    return lost ? lost : asked++ == wrong.refuse ? MR_CUDA_NO_IMAGE : 0;
}

int capture_begin(void *stream)
{
    MAY_FAIL;
    emu::capture_begin(stream_of(stream));
    return lost;
}

int capture_end(void *stream, void **graph)
{
    const char *why = NULL;
    emu::Graph *whole = emu::capture_end(stream_of(stream), &why);
    if (why)
        snprintf(said, sizeof said, "%s", why);
    int error = why ? MR_CUDA_CAPTURE : fails() ? (int)wrong.error : given();
    if (error && whole)
        emu::graph_free(whole);
    *graph = error ? NULL : whole;
    return error;
}

int graph_run(void *graph, void *stream)
{
    MAY_FAIL;
    emu::graph_run((emu::Graph *)graph, stream_of(stream));
    return lost;
}

int graph_free(void *graph)
{
    emu::graph_free((emu::Graph *)graph);
    handles--;
    return 0;
}

// ---- products, as plain loops over columns ----

bool is_f8(mr_dtype type)
{
    return type == MR_F8_E4M3 || type == MR_F8_E5M2;
}

float element(const void *p, int64_t i, mr_dtype type)
{
    if (is_f8(type))
        return mr_f8_to_f32(type, ((const uint8_t *)p)[i]);
    return type == MR_BF16 ? mr_bf16_to_f32(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

// the rows of an operand one after another, `along` elements each
std::vector<float> rows_of(const char *name, const void *p, mr_dtype type, int64_t rows,
                           int64_t along, int64_t row, int64_t step)
{
    const size_t bytes = mr_dtype_bytes(type);
    std::vector<float> all((size_t)(rows * along));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < along; k++) {
            int64_t at = i * row + k * step;
            if (!emu::all_written((const char *)p + at * (int64_t)bytes, bytes))
                emu::report("product: element (%lld, %lld) of %s is unwritten", (long long)i,
                            (long long)k, name);
            all[(size_t)(i * along + k)] = element(p, at, type);
        }
    return all;
}

void put(void *p, int64_t i, mr_dtype type, float x)
{
    if (type == MR_BF16)
        ((uint16_t *)p)[i] = mr_f32_to_bf16(x);
    else
        ((float *)p)[i] = x;
    emu::host_wrote((char *)p + i * (int64_t)mr_dtype_bytes(type), mr_dtype_bytes(type));
}

// gelu in its tanh form, or its slope
float gelu(float x, bool slope)
{
    const float root = 0.79788456f, u = root * (x + 0.044715f * x * x * x), t = tanhf(u);
    if (!slope)
        return 0.5f * x * (1 + t);
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * root * (1 + 3 * 0.044715f * x * x);
}

// the value to store for a sum; `at` is its index in aux
float ended(const mr_cuda_product &p, float sum, void *aux, int64_t at)
{
    switch (p.ending) {
    case MR_CUDA_SUMS:
    case MR_CUDA_BIAS_GRADIENT: return sum;
    case MR_CUDA_GELU: return gelu(sum, false);
    case MR_CUDA_GELU_KEEP: put(aux, at, p.out, sum); return gelu(sum, false);
    case MR_CUDA_GELU_SLOPE: break;
    }
    const size_t bytes = mr_dtype_bytes(p.out);
    if (!emu::all_written((const char *)aux + at * (int64_t)bytes, bytes))
        emu::report("product: element %lld of aux is unwritten", (long long)at);
    return sum * gelu(element(aux, at, p.out), true);
}

// sum in four interleaved parts
template <class Term> float sum_of(int64_t n, Term term)
{
    float part[4] = {0, 0, 0, 0};
    for (int64_t k = 0; k < n; k++)
        part[k % 4] += term(k);
    return part[0] + part[1] + (part[2] + part[3]);
}

// x truncated to 14 bits
float cut(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    bits &= ~0u << 10;
    memcpy(&x, &bits, 4);
    return x;
}

/* Sums 8-bit products as tensor cores of sm_89 and sm_90 do: 32 at a time, keeping 14 bits. Each
 * 128 go to a sum in f32; in fast mode, only the final sum does. The internal rounding is not
 * published. Ref: DeepSeek-AI 2024, arXiv:2412.19437, 3.3.2. */
template <class Term> float sum_of_f8(int64_t n, bool fast, Term term)
{
    enum { AT_ONCE = 32, KEPT = 128 };
    float all = 0, kept = 0;
    for (int64_t from = 0; from < n; from += AT_ONCE) {
        float some = 0;
        for (int64_t k = from; k < n && k < from + AT_ONCE; k++)
            some += term(k);
        kept = cut(kept + some);
        if (!fast && (from + AT_ONCE) % KEPT == 0) {
            all += kept;
            kept = 0;
        }
    }
    return all + kept;
}

// the factor of an 8-bit product
float scale_of(const mr_cuda_product &p, const float *scale_a, const float *scale_b)
{
    if (!is_f8(p.in))
        return 1;
    for (const float *scale : {scale_a, scale_b})
        if (!emu::all_written(scale, sizeof *scale))
            emu::report("product: the scale of %s is unwritten", scale == scale_a ? "A" : "B");
    return *scale_a * *scale_b;
}

void multiply(const mr_cuda_product &p, const void *a, const void *b, float scale, const void *bias,
              void *aux, void *d)
{
    const int64_t in = (int64_t)mr_dtype_bytes(p.in);
    const mr_dtype bias_type = is_f8(p.in) ? MR_BF16 : p.out;
    for (int64_t s = 0; s < p.batch; s++) {
        auto left = rows_of("A", (const char *)a + s * p.step_a * in, p.in, p.m, p.k,
                            p.ta ? p.lda : 1, p.ta ? 1 : p.lda);
        auto right = rows_of("B", (const char *)b + s * p.step_b * in, p.in_b, p.n, p.k,
                             p.tb ? 1 : p.ldb, p.tb ? p.ldb : 1);
        for (int64_t j = 0; j < p.n; j++) {
            const float *y = &right[(size_t)(j * p.k)];
            if (p.ending == MR_CUDA_BIAS_GRADIENT)
                put(aux, j, p.out, sum_of(p.k, [&](int64_t k) { return y[k]; }));
            for (int64_t i = 0; i < p.m; i++) {
                const float *x = &left[(size_t)(i * p.k)];
                auto term = [&](int64_t k) { return x[k] * y[k]; };
                float sum = is_f8(p.in) ? scale * sum_of_f8(p.k, p.fast, term) : sum_of(p.k, term);
                int64_t to = s * p.step_d + j * p.ldd + i;
                if (p.accumulate)
                    sum += element(d, to, p.out);
                if (p.bias)
                    sum += element(bias, i, bias_type);
                put(d, to, p.out, ended(p, sum, aux, j * p.ldaux + i));
            }
        }
    }
}

// does cuBLASLt accept this combination with an epilogue? Follows its manual; accepts no other case
bool serves(const mr_cuda_product *p)
{
    if (is_f8(p->in) != is_f8(p->in_b) || (!is_f8(p->in) && p->in != p->in_b))
        return false;
    // columns must not overlap
    if (p->lda < (p->ta ? p->k : p->m) || p->ldb < (p->tb ? p->n : p->k) || p->ldd < p->m)
        return false;
    if (is_f8(p->in))
        return wrong.arch >= 89 && p->ta && !p->tb && p->batch == 1 && p->ending == MR_CUDA_SUMS &&
               p->align == 16 && (p->m | p->k | p->lda | p->ldb) % 16 == 0 &&
               (p->in == MR_F8_E4M3 || p->in_b == MR_F8_E4M3);
    bool aux = p->ending == MR_CUDA_GELU_KEEP || p->ending == MR_CUDA_GELU_SLOPE;
    if (p->ending == MR_CUDA_BIAS_GRADIENT && (p->bias || p->batch != 1))
        return false;
    if (!aux)
        return p->ldaux == 0;
    return p->ldaux % 8 == 0 && p->ldaux >= p->m && p->batch == 1;
}

// bytes of workspace that a product takes if allowed, and their alignment
enum { TAKEN = 256, GRID = 256 };

int product_new(const mr_cuda_product *p, size_t *bytes, void **plan)
{
    if (!serves(p))
        return 1;
    *bytes = std::min(*bytes, (size_t)TAKEN);
    int error = given();
    if (!error)
        *plan = new mr_cuda_product(*p);
    return error;
}

int product_run(void *plan, const void *a, const void *b, const float *const *scales,
                const void *bias, void *aux, void *d, void *workspace, size_t bytes, void *stream)
{
    MAY_FAIL;
    const mr_cuda_product p = *(const mr_cuda_product *)plan;
    // cuBLASLt chose its loads and stores for this alignment
    bool has_aux = p.ldaux || p.ending == MR_CUDA_BIAS_GRADIENT;
    uintptr_t optional = (uintptr_t)(p.bias ? bias : NULL) | (uintptr_t)(has_aux ? aux : NULL);
    if (((uintptr_t)a | (uintptr_t)b | (uintptr_t)d | optional) % (uintptr_t)p.align)
        emu::report("product: an address is not a multiple of the promised %lld bytes",
                    (long long)p.align);
    if (bytes && (uintptr_t)workspace % GRID)
        emu::report("product: the workspace is not aligned to %d bytes", GRID);
    const float *scale_a = scales ? scales[0] : NULL, *scale_b = scales ? scales[1] : NULL;
    work(stream, [=] {
        if (bytes) {
            memset(workspace, 0xFF, bytes);
            emu::host_wrote(workspace, bytes);
        }
        multiply(p, a, b, scale_of(p, scale_a, scale_b), bias, aux, d);
    });
    return lost;
}

int product_free(void *plan)
{
    delete (mr_cuda_product *)plan;
    handles--;
    return 0;
}

// returns 1, an invalid value, for a map that a driver would refuse
int tensor_map(const mr_cuda_tensor *t, void *map)
{
    MAY_FAIL;
    emu::TensorMap m = {};
    bool good = (uintptr_t)t->base % 16 == 0 && (t->swizzle == 32 || t->swizzle == 128) &&
                t->box[0] * 2 <= (unsigned)t->swizzle && t->box[0] % 8 == 0;
    m.base = t->base;
    m.rank = MR_CUDA_TENSOR_RANK;
    m.swizzle = t->swizzle;
    m.element_bytes = 2;
    for (int i = 0; i < MR_CUDA_TENSOR_RANK; i++) {
        m.size[i] = t->size[i];
        m.stride[i] = t->step_bytes[i];
        m.box[i] = t->box[i];
        good = good && t->size[i] >= 1 && t->size[i] <= 1ull << 32 && t->box[i] >= 1 &&
               t->box[i] <= 256;
        good = good && (i == 0 || (t->step_bytes[i] % 16 == 0 && t->step_bytes[i] < 1ull << 40));
        // drivers may refuse overlapping steps; the step along a dimension of size 1 may be
        // anything
        good = good && (i == 0 || t->size[i] > 1 ||
                        t->step_bytes[i] >= t->step_bytes[i - 1] * t->size[i - 1]);
    }
    memcpy(map, &m, sizeof m);
    return lost ? lost : good ? 0 : 1;
}

std::vector<std::string> inside;        // ranges that are open
std::map<std::string, int> ranges_left; // how often each range was closed

void range(const char *name)
{
    if (name) {
        inside.push_back(name);
    } else if (inside.empty()) {
        lost = MR_CUDA_UNKNOWN; // the stack of a profiler would be wrong from here on
    } else {
        ranges_left[inside.back()]++;
        inside.pop_back();
    }
}

const char *text(int error)
{
    if (*said)
        return said;
    switch (error) {
    case MR_CUDA_MEMORY: return "out of memory";
    case MR_CUDA_OLD_DRIVER: return "CUDA driver version is insufficient for CUDA runtime version";
    case MR_CUDA_NO_DEVICE: return "no CUDA-capable device is detected";
    case MR_CUDA_BAD_ORDINAL: return "invalid device ordinal";
    case MR_CUDA_NO_IMAGE: return "no kernel image is available for execution on the device";
    case MR_CUDA_ECC: return "uncorrectable ECC error encountered";
    case MR_CUDA_LAUNCH_FAILURE: return "unspecified launch failure";
    case MR_CUDA_CAPTURE: return "operation not permitted when stream is capturing";
    default: return "unknown error";
    }
}

} // namespace

extern const mr_cuda_driver mr_cuda = {
    "cudaemu",   facts,         use,           memory,    alloc,      release,
    stream_new,  stream_free,   stream_sync,   event_new, event_free, event_record,
    event_wait,  event_reached, event_seconds, copy,      fill,       call,
    launched,    capture_begin, capture_end,   graph_run, graph_free, product_new,
    product_run, product_free,  tensor_map,    range,     text,
};

// for specs: how often ranges of this name were closed, -1 while one is open
extern "C" int mr_cudaemu_ranges(const char *name)
{
    return std::count(inside.begin(), inside.end(), name) ? -1 : ranges_left[name];
}

// for specs: memory blocks, streams, events, graphs and plans that are still open
extern "C" int mr_cudaemu_open(void)
{
    return (int)blocks.size() + handles;
}
