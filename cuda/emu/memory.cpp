// Shared and global memory with a shadow that checks bounds, first write before first read, and the
// order of accesses.
#include "room.h"
#include <algorithm>
#include <stdio.h>
#include <sys/mman.h>

namespace emu
{

unsigned char *shared_memory;

// the memory of alloc_sparse follows that of alloc, if the host has enough address space
static const size_t ARENA_BYTES = 256 << 20, SPARSE_BYTES = (size_t)512 << 30, GUARD_BYTES = 4096;
static size_t all_bytes;
enum { POISON = 0xFF, FEW = 4 };
enum Byte : unsigned char { OUTSIDE, ALLOCATED, WRITTEN }; // of global memory

/* State of two bytes of shared memory: the last write, and the reads since then. Up to FEW readers
 * are stored here. With more readers, `crowd` is the index of a clock with one moment per thread.
 */
struct SharedCell {
    uint32_t written_at, crowd, read_at[FEW];
    uint16_t writer, reader[FEW];
    uint8_t readers;
    bool written;
    bool landing; // destination of an asynchronous copy that has not completed
    bool plain;   // written by an ordinary store, which the async proxy sees only after a fence
};

// The last access to two bytes of global memory: launch, block, moment and thread.
struct Visit {
    uint32_t in_launch, block, when;
    uint16_t thread;
};
struct GlobalCell {
    Visit write, read;
};
static const uint32_t MANY = UINT32_MAX; // several blocks have read the cell

static unsigned char *shared_of[SEATS];
static std::vector<SharedCell> cells_of[SEATS];
static std::vector<Clock> crowds_of[SEATS]; // index 0 means no crowd
static unsigned char *arena, *bytes_of;
static GlobalCell *global_cells;

// NULL if the system cannot reserve this many addresses
static void *reserve(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    // small pages: sparse memory touches only few bytes in each region
    madvise(p, bytes, MADV_NOHUGEPAGE);
    return p;
}

static bool reserve_tables(size_t bytes)
{
    arena = (unsigned char *)reserve(bytes);
    bytes_of = (unsigned char *)reserve(bytes);
    global_cells = (GlobalCell *)reserve(bytes / 2 * sizeof *global_cells);
    all_bytes = bytes;
    return arena && bytes_of && global_cells;
}

static void map_once()
{
    if (all_bytes)
        return;
    if (!reserve_tables(ARENA_BYTES + SPARSE_BYTES) && !reserve_tables(ARENA_BYTES)) {
        perror("emu: address space");
        abort();
    }
    // tiles with the 128-byte swizzle need a multiple of 1024
    for (unsigned char *&shared : shared_of)
        shared =
            (unsigned char *)(((uintptr_t)reserve(SHARED_MAX + 2048) + 1023) & ~(uintptr_t)1023);
}

static size_t arena_offset(const void *p)
{
    return (uintptr_t)p - (uintptr_t)arena;
}

static std::map<size_t, size_t> blocks; // offset in the arena -> bytes

// the first hole that fits the bytes and a guard on both sides, or ARENA_BYTES
static size_t hole_for(size_t bytes)
{
    size_t at = GUARD_BYTES;
    for (auto &b : blocks) {
        if (b.first >= at + bytes + GUARD_BYTES)
            return at;
        at = (b.first + b.second + GUARD_BYTES + 255) & ~(size_t)255;
    }
    return bytes < ARENA_BYTES && at + bytes + GUARD_BYTES <= ARENA_BYTES ? at : ARENA_BYTES;
}

void *alloc(size_t bytes)
{
    map_once();
    size_t at = hole_for(bytes);
    if (at == ARENA_BYTES)
        return NULL;
    blocks[at] = bytes;
    memset(arena + at, POISON, bytes);
    memset(bytes_of + at, ALLOCATED, bytes);
    return arena + at;
}

static void forget_block(const std::pair<const size_t, size_t> &b)
{
    memset(bytes_of + b.first, OUTSIDE, b.second);
}

void free(void *p)
{
    auto b = blocks.find((size_t)((unsigned char *)p - arena));
    forget_block(*b);
    blocks.erase(b);
}

// ranges of sparse memory that are in bounds, and the end of sparse memory
static std::vector<std::pair<const size_t, size_t>> opened;
static size_t sparse_end = ARENA_BYTES;

void *alloc_sparse(size_t bytes)
{
    map_once();
    // leave a gap on both sides, so that an offset that overflows 32 bits is out of bounds
    const size_t apart = (size_t)9 << 30, at = sparse_end + apart;
    if (bytes > all_bytes - at || at + bytes + apart > all_bytes)
        return NULL;
    sparse_end = (at + bytes + 1023) & ~(size_t)1023;
    return arena + at;
}

void open(void *p, size_t bytes)
{
    const size_t at = arena_offset(p);
    opened.push_back({at, bytes});
    memset(arena + at, POISON, bytes);
    memset(bytes_of + at, ALLOCATED, bytes);
}

void free_all()
{
    map_once();
    for (auto &b : blocks)
        forget_block(b);
    blocks.clear();
    for (auto &range : opened)
        forget_block(range);
    opened.clear();
    sparse_end = ARENA_BYTES;
}

size_t free_bytes()
{
    size_t sum = 0;
    for (auto &b : blocks)
        sum += b.second + GUARD_BYTES;
    return ARENA_BYTES - sum;
}

void host_wrote(void *p, size_t bytes)
{
    memset(bytes_of + arena_offset(p), WRITTEN, bytes);
}

bool all_written(const void *p, size_t bytes)
{
    const unsigned char *first = bytes_of + arena_offset(p);
    return std::all_of(first, first + bytes, [](unsigned char b) { return b == WRITTEN; });
}

void copy(void *to, const void *from, size_t bytes)
{
    bool into = arena_offset(to) < all_bytes, out = arena_offset(from) < all_bytes;
    memmove(to, from, bytes);
    if (into && out)
        memmove(bytes_of + arena_offset(to), bytes_of + arena_offset(from), bytes);
    else if (into)
        host_wrote(to, bytes);
}

void memory_sit()
{
    map_once();
    shared_memory = shared_of[seat];
}

void memory_begin(size_t shared)
{
    memory_sit();
    memset(shared_memory, POISON, shared);
    cells_of[seat].assign(shared / 2 + 16, SharedCell());
    crowds_of[seat].assign(1, Clock());
}

// ---- shared memory ----

static const int NO_THREAD = -1;

// a thread whose read of the cell is not ordered before f, or NO_THREAD
static int unordered_reader(const SharedCell &c, const Fiber *f)
{
    if (c.crowd) {
        const uint32_t *read = crowds_of[seat][c.crowd].data(), *known = f->known->data();
        unsigned n = (unsigned)fibers().size(), late = 0;
        for (unsigned i = 0; i < n; i++)
            late += read[i] > known[i];
        // a thread's own reads are always ordered
        if (late == (read[f->linear] > known[f->linear]))
            return NO_THREAD;
        for (unsigned i = 0;; i++)
            if (!ordered(f, i, read[i]))
                return (int)i;
    }
    for (int i = 0; i < c.readers; i++)
        if (!ordered(f, c.reader[i], c.read_at[i]))
            return c.reader[i];
    return NO_THREAD;
}

static void remember_read(SharedCell &c, const Fiber *f)
{
    if (c.crowd) {
        crowds_of[seat][c.crowd][f->linear] = f->now;
        return;
    }
    // replace a read that happened before this one
    int i = 0;
    while (i < c.readers && !ordered(f, c.reader[i], c.read_at[i]))
        i++;
    if (i < FEW) {
        c.reader[i] = f->linear;
        c.read_at[i] = f->now;
        c.readers = std::max<int>(c.readers, i + 1);
        return;
    }
    c.crowd = crowds_of[seat].size();
    crowds_of[seat].push_back(Clock(fibers().size(), 0));
    for (i = 0; i < FEW; i++)
        crowds_of[seat][c.crowd][c.reader[i]] = c.read_at[i];
    crowds_of[seat][c.crowd][f->linear] = f->now;
}

// Check one access to one cell and record it. False: an error was reported.
static bool visit_shared(SharedCell &c, const Access &a, const Fiber *f)
{
    const char *kind = a.write ? "write" : "read";
    unsigned from = (unsigned)(a.at - (uintptr_t)shared_memory), to = from + (unsigned)a.bytes;
    if (c.landing) {
        report_place(
            "%s of shared memory [%u, %u) while an asynchronous copy into it is in flight; "
            "expected a wait for the copy before",
            kind, from, to);
        return false;
    }
    if (!a.write && !c.written) {
        report_place("read of unwritten shared memory [%u, %u); expected a write before", from, to);
        return false;
    }
    if (c.written_at && !ordered(f, c.writer, c.written_at)) {
        report_place(
            "race: %s of shared memory [%u, %u), written by thread %u without synchronisation; "
            "expected a barrier",
            kind, from, to, c.writer);
        return false;
    }
    if (!a.write && a.proxy && c.plain && c.written_at > fibers()[c.writer].fenced) {
        report_place("asynchronous read of shared memory [%u, %u), stored by thread %u; expected "
                     "fence.proxy.async in that thread after the store",
                     from, to, c.writer);
        return false;
    }
    if (!a.write) {
        remember_read(c, f);
        return true;
    }
    int reader = unordered_reader(c, f);
    c.written_at = f->now;
    c.writer = f->linear;
    c.readers = 0;
    c.crowd = 0;
    c.written = true;
    c.plain = !a.proxy;
    if (reader != NO_THREAD)
        report_place(
            "race: write of shared memory [%u, %u), read by thread %d without synchronisation; "
            "expected a barrier",
            from, to, reader);
    return reader == NO_THREAD;
}

static void watch_shared(const Access &a, const Fiber *f)
{
    size_t from = a.at - (uintptr_t)shared_memory;
    (a.write ? counts.shared_written : counts.shared_read) += a.bytes;
    if (from + a.bytes > shared_bytes) {
        report_place("%s of shared memory [%zu, %zu) out of bounds; the launch gave %zu bytes",
                     a.write ? "write" : "read", from, from + a.bytes, shared_bytes);
        return;
    }
    for (size_t cell = from / 2; cell < (from + a.bytes + 1) / 2; cell++)
        if (!visit_shared(cells_of[seat][cell], a, f))
            return;
}

void set_landing(void *shared, size_t bytes, bool landing)
{
    size_t from = ((uintptr_t)shared - (uintptr_t)shared_memory) / 2;
    for (size_t cell = from; cell < from + (bytes + 1) / 2 && cell < cells_of[seat].size(); cell++)
        cells_of[seat][cell].landing = landing;
}

// ---- global memory ----

// do all these bytes, of a size that one instruction moves, have this kind?
static bool all_are(const unsigned char *p, size_t bytes, Byte kind)
{
    unsigned char of[16];
    memset(of, kind, sizeof of);
    switch (bytes) {
    case 1: return *p == kind;
    case 2: return memcmp(p, of, 2) == 0;
    case 4: return memcmp(p, of, 4) == 0;
    case 8: return memcmp(p, of, 8) == 0;
    case 16: return memcmp(p, of, 16) == 0;
    default: return false;
    }
}

// False: a byte is out of bounds or read before its first write; the error was reported.
static bool may_visit(size_t from, const Access &a)
{
    for (size_t i = from; i < from + a.bytes; i++) {
        if (bytes_of[i] == OUTSIDE) {
            report_place("%s of global memory %p, %zu bytes, out of bounds: byte %zu belongs to no "
                         "allocation",
                         a.write ? "write" : "read", (void *)a.at, a.bytes, i - from);
            return false;
        }
        if (!a.write && bytes_of[i] == ALLOCATED) {
            report_place("read of unwritten global memory %p, %zu bytes; expected a write before",
                         (void *)a.at, a.bytes);
            return false;
        }
    }
    return true;
}

static bool visit_bytes(size_t from, const Access &a)
{
    unsigned char *bytes = bytes_of + from;
    if (!all_are(bytes, a.bytes, WRITTEN) && !(a.write && all_are(bytes, a.bytes, ALLOCATED)) &&
        !may_visit(from, a))
        return false;
    if (a.write)
        memset(bytes, WRITTEN, a.bytes);
    return true;
}

// did the visit, made in this launch, happen before the current action of f?
static inline bool visit_ordered(const Visit &v, const Fiber *f)
{
    if (v.block == block_number)
        return ordered(f, v.thread, v.when);
    return v.block != MANY && heard_of(f, v.block, v.thread) >= v.when;
}

// Report the block or thread with which the access clashes.
static void report_clash(const Visit &v, const char *before, const Access &a)
{
    const char *kind = a.write ? "write" : "read";
    if (v.block != block_number) {
        report_place(
            "race between blocks: %s of global memory %p, %s by %s in this launch; expected "
            "a single block, or a wait for a turn",
            kind, (void *)a.at, before,
            v.block == MANY ? "several blocks" : ("block " + std::to_string(v.block)).c_str());
        return;
    }
    report_place(
        "race: %s of global memory %p, %s by thread %u of this block without synchronisation; "
        "expected a barrier",
        kind, (void *)a.at, before, v.thread);
}

// Does the access clash with an earlier access of this launch?
static inline bool clashes(const Visit &v, const char *before, const Access &a, const Fiber *f)
{
    if (v.in_launch != launch_number || visit_ordered(v, f))
        return false;
    report_clash(v, before, a);
    return true;
}

static void watch_global(const Access &a, const Fiber *f)
{
    size_t from = arena_offset((void *)a.at);
    (a.write ? counts.global_written : counts.global_read) += a.bytes;
    if (a.at % std::min<size_t>(a.bytes, 16))
        report_place("%s of global memory %p, %zu bytes; expected an aligned address",
                     a.write ? "write" : "read", (void *)a.at, a.bytes);
    // a cell has two bytes, and two threads may write one byte each
    if (!visit_bytes(from, a) || a.bytes == 1)
        return;
    for (size_t cell = from / 2; cell < (from + a.bytes + 1) / 2; cell++) {
        GlobalCell &c = global_cells[cell];
        if (clashes(c.write, "written", a, f) || (a.write && clashes(c.read, "read", a, f)))
            return;
        bool others = !a.write && c.read.in_launch == launch_number &&
                      c.read.block != block_number && !visit_ordered(c.read, f);
        Visit now = {launch_number, others ? MANY : block_number, f->now, (uint16_t)f->linear};
        (a.write ? c.write : c.read) = now;
    }
}

uint32_t atomic_add(uint32_t *p, uint32_t (*add)(uint32_t, uint32_t), uint32_t value)
{
    // atomic accesses never race: check only bounds and first write
    Access a = {0, (uintptr_t)p, 4, false, false};
    uint32_t old = *p;
    bool shared = (uintptr_t)p - (uintptr_t)shared_memory < shared_bytes;
    if (shared || visit_bytes(arena_offset(p), a))
        *p = add(old, value);
    return old;
}

uint32_t *word_of_blocks(const void *p, bool write)
{
    Access a = {0, (uintptr_t)p, 4, write, false};
    return visit_bytes(arena_offset(p), a) ? (uint32_t *)p : NULL;
}

void watch(const Access &a)
{
    Fiber *f = self();
    bool shared = a.at - (uintptr_t)shared_memory < SHARED_MAX;
    if (!shared && arena_offset((void *)a.at) >= all_bytes) {
        // arguments, constants or the stack: only accumulators of products in flight matter here
        for (auto &range : f->in_product)
            if (a.at - range.first < range.second)
                report_place("%s of an accumulator of a product in flight; expected "
                             "wgmma.wait_group before",
                             a.write ? "write" : "read");
        return;
    }
    if (shared)
        watch_shared(a, f);
    else
        watch_global(a, f);
    if (options.counting && !a.proxy)
        count(a, shared);
}

} // namespace emu
