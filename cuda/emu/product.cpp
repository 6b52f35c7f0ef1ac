// Matrix fragments and products: of a warp (ldmatrix, mma.sync) and of a warp group (wgmma).
#include "room.h"

namespace emu
{

static float bf16_to_f32(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

// half `i` of a register with two bf16 values
static float half_of(uint32_t pair, int i)
{
    return bf16_to_f32((uint16_t)(pair >> 16 * i));
}

// ---- ldmatrix: lane i gives the address of row i % 8 of matrix i / 8 ----

struct Load {
    const void *row;
    uint32_t *out;
    int matrices;
    bool transposed;
};

static void load_together(void **args)
{
    int matrices = ((Load *)args[0])->matrices;
    for (int m = 0; m < matrices; m++) {
        uint16_t value[8][8];
        for (int row = 0; row < 8; row++)
            memcpy(value[row], ((Load *)args[m * 8 + row])->row, 16);
        for (int lane = 0; lane < 32; lane++) {
            Load *l = (Load *)args[lane];
            int r = lane / 4, c = lane % 4 * 2;
            uint16_t low = l->transposed ? value[c][r] : value[r][c];
            uint16_t high = l->transposed ? value[c + 1][r] : value[r][c + 1];
            l->out[m] = low | (uint32_t)high << 16;
        }
    }
}

void load_matrix(uint32_t *out, int matrices, bool transposed, const void *row)
{
    static const unsigned char nothing[16] = {};
    Load mine = {row, out, matrices, transposed};
    size_t at = (uintptr_t)row - (uintptr_t)shared_memory;
    if (current->lane < (unsigned)matrices * 8) {
        if (at % 16)
            report_place("ldmatrix row at shared memory %zu; expected a multiple of 16", at);
        watch({(uintptr_t)__builtin_return_address(0), (uintptr_t)row, 16, false, false});
        if (at + 16 > shared_bytes)
            mine.row = nothing; // reported by watch
    }
    meet_warp(~0u, matrices == 4 ? "ldmatrix.x4" : "ldmatrix.x2", &mine, load_together);
}

// ---- mma.sync m16n8k16 and m16n8k8: d += a b; each lane has a few elements ----

struct Product {
    float *d;
    uint32_t a[4], b[2];
    int k;
};

static void multiply_together(void **args)
{
    float a[16][16] = {}, b[16][8] = {};
    int k = ((Product *)args[0])->k;
    for (int lane = 0; lane < 32; lane++) {
        Product *p = (Product *)args[lane];
        int row = lane / 4, col = lane % 4 * 2;
        for (int e = 0; e < 2; e++)
            for (int q = 0; q < k / 8; q++) {
                a[row][q * 8 + col + e] = half_of(p->a[q * 2], e);
                a[row + 8][q * 8 + col + e] = half_of(p->a[q * 2 + 1], e);
                b[q * 8 + col + e][row] = half_of(p->b[q], e);
            }
    }
    float sum[16][8] = {};
    for (int row = 0; row < 16; row++)
        for (int j = 0; j < k; j++)
            for (int col = 0; col < 8; col++)
                sum[row][col] += a[row][j] * b[j][col];
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++)
            ((Product *)args[lane])->d[i] += sum[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
    counts.product_flop += 2ull * 16 * 8 * k;
}

void product_16x8(float *d, const uint32_t *a, const uint32_t *b, int k)
{
    Product mine = {
        d, {a[0], a[1], k == 16 ? a[2] : 0, k == 16 ? a[3] : 0}, {b[0], k == 16 ? b[1] : 0}, k};
    meet_warp(~0u, k == 16 ? "mma.m16n8k16" : "mma.m16n8k8", &mine, multiply_together);
}

// ---- wgmma m64nNk16: d = a b (+ d); b, and a unless in registers, by shared-memory descriptor
// ----

struct GroupProduct {
    float *d;
    int n;
    bool a_in_registers;
    uint32_t a[4];
    uint64_t a_desc, b_desc;
    bool a_transposed, b_transposed, accumulate;
    Fiber *f;
    uintptr_t place;
    std::vector<float> before; // accumulators before; empty if an earlier product saved them
};
typedef std::vector<GroupProduct> GroupProducts; // of the 128 threads

struct Queue {
    std::vector<Action> open;
    std::deque<std::vector<Action>> groups;
};
static std::map<unsigned, Queue> queues[SEATS]; // by warp group

void products_begin()
{
    queues[seat].clear();
}

/* Offset of element (mn, k) of an operand, from its descriptor: start, leading and stride offsets
 * in units of 16 bytes, and the swizzle. Ref: canonical layouts of the PTX manual, wgmma. */
static size_t operand_at(uint64_t desc, int mn, int k, bool mn_major)
{
    static const int widths[] = {16, 128, 64, 32};
    size_t start = (desc & 0x3FFF) << 4, lead = (desc >> 16 & 0x3FFF) << 4,
           stride = (desc >> 32 & 0x3FFF) << 4;
    int swizzle = desc >> 62, width = widths[swizzle];
    size_t at;
    if (!mn_major && swizzle)
        at = start + mn / 8 * stride + mn % 8 * width + k * 2;
    else if (!mn_major)
        at = start + mn / 8 * stride + k / 8 * lead + mn % 8 * 16 + k % 8 * 2;
    else if (swizzle)
        at =
            start + mn / (width / 2) * lead + mn % (width / 2) * 2 + k / 8 * stride + k % 8 * width;
    else
        at = start + mn / 8 * stride + mn % 8 * 2 + k / 8 * lead + k % 8 * 16;
    return swizzle ? at ^ (at >> 7 & (width / 16 - 1)) << 4 : at;
}

static float operand(uint64_t desc, int mn, int k, bool mn_major)
{
    size_t at = operand_at(desc, mn, k, mn_major);
    uint16_t h = 0;
    if (at + 2 <= shared_bytes)
        memcpy(&h, shared_memory + at, 2);
    return bf16_to_f32(h);
}

// check both operands as reads of 16 bytes by the async proxy
static void watch_operands(const GroupProduct &p)
{
    Thread *keep = current;
    current = p.f;
    auto piece = [&](uint64_t desc, int mn, int k, bool mn_major) {
        uintptr_t at = (uintptr_t)shared_memory + operand_at(desc, mn, k, mn_major);
        watch({p.place, at, 16, false, true});
    };
    auto pieces = [&](uint64_t desc, int n, bool mn_major) {
        for (int mn = 0; mn < n; mn += mn_major ? 8 : 1)
            for (int k = 0; k < 16; k += mn_major ? 1 : 8)
                piece(desc, mn, k, mn_major);
    };
    pieces(p.b_desc, p.n, p.b_transposed);
    if (!p.a_in_registers)
        pieces(p.a_desc, 64, p.a_transposed);
    current = keep;
}

static void gather(const GroupProducts &all, float (*a)[16], float (*b)[256])
{
    const GroupProduct &p = all[0];
    for (int n = 0; n < p.n; n++)
        for (int k = 0; k < 16; k++)
            b[k][n] = operand(p.b_desc, n, k, p.b_transposed);
    for (int m = 0; m < 64 && !p.a_in_registers; m++)
        for (int k = 0; k < 16; k++)
            a[m][k] = operand(p.a_desc, m, k, p.a_transposed);
    for (int t = 0; t < WARP_GROUP && p.a_in_registers; t++)
        for (int r = 0; r < 4; r++)
            for (int e = 0; e < 2; e++) {
                int row = t / 32 * 16 + t % 32 / 4 + r % 2 * 8, col = t % 4 * 2 + r / 2 * 8 + e;
                a[row][col] = half_of(all[t].a[r], e);
            }
}

static void run(GroupProducts &all)
{
    static float a[64][16], b[16][256], sum[64][256];
    watch_operands(all[0]);
    gather(all, a, b);
    memset(sum, 0, sizeof sum);
    for (int row = 0; row < 64; row++)
        for (int k = 0; k < 16; k++)
            for (int col = 0; col < all[0].n; col++)
                sum[row][col] += a[row][k] * b[k][col];
    for (int t = 0; t < WARP_GROUP; t++) {
        GroupProduct &p = all[t];
        for (int i = 0; i < p.n / 2; i++) {
            int row = t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8, col = i / 4 * 8 + t % 4 * 2 + i % 2;
            float old = p.before.empty() ? p.d[i] : p.before[i];
            p.d[i] = (p.accumulate ? old : 0) + sum[row][col];
        }
    }
    counts.product_flop += 2ull * 64 * all[0].n * 16;
}

// the thread may not use the accumulators until it waits for the product
static void take_accumulators(GroupProduct &p)
{
    std::pair<uintptr_t, size_t> range((uintptr_t)p.d, p.n / 2 * sizeof *p.d);
    for (auto &other : p.f->in_product)
        if (other.first == range.first) {
            p.f->in_product.push_back(range);
            return;
        }
    p.before.assign(p.d, p.d + p.n / 2);
    p.f->in_product.push_back(range);
    for (int i = 0; i < p.n / 2; i++)
        p.d[i] = NAN;
}

static void give_back(GroupProduct &p)
{
    auto &list = p.f->in_product;
    for (size_t i = 0; i < list.size(); i++)
        if (list[i].first == (uintptr_t)p.d) {
            list.erase(list.begin() + i);
            return;
        }
}

static void multiply_group(void **args)
{
    auto all = std::make_shared<GroupProducts>();
    for (int t = 0; t < WARP_GROUP; t++) {
        all->push_back(*(GroupProduct *)args[t]);
        if (all->back().b_desc != all->front().b_desc || all->back().a_desc != all->front().a_desc)
            return report(
                "wgmma: thread %u of the group has other descriptors than thread 0; expected "
                "equal ones",
                t);
    }
    if (options.async == Async::eager)
        return run(*all);
    watch_operands(all->front());
    for (GroupProduct &p : *all)
        take_accumulators(p);
    queues[seat][all->front().f->warp / 4].open.push_back([all] {
        for (GroupProduct &p : *all)
            give_back(p);
        run(*all);
    });
}

void group_product(float *d, int n, const uint32_t *a, uint64_t a_desc, bool a_transposed,
                   uint64_t b_desc, bool b_transposed, bool accumulate)
{
    GroupProduct mine = {};
    mine.d = d;
    mine.n = n;
    mine.a_in_registers = a != NULL;
    if (a)
        memcpy(mine.a, a, sizeof mine.a);
    mine.a_desc = a_desc;
    mine.b_desc = b_desc;
    mine.a_transposed = a_transposed;
    mine.b_transposed = b_transposed;
    mine.accumulate = accumulate;
    mine.f = self();
    mine.place = (uintptr_t)__builtin_return_address(0);
    meet_group("wgmma", &mine, multiply_group);
}

void group_commit()
{
    meet_group("wgmma.commit_group", NULL, [](void **) {
        Queue &q = queues[seat][current->warp / 4];
        q.groups.push_back(std::move(q.open));
        q.open.clear();
    });
}

void group_wait(int pending)
{
    meet_group("wgmma.wait_group", &pending, [](void **args) {
        Queue &q = queues[seat][current->warp / 4];
        while ((int)q.groups.size() > *(int *)args[0]) {
            for (Action &product : q.groups.front())
                product();
            q.groups.pop_front();
        }
    });
}

} // namespace emu
