/* Good files changed at random, for specs that feed hostile ones.
 * MOONREEL_FUZZ=N runs N rounds per kind of file; MOONREEL_FUZZ_SECONDS=S runs as many as fit into
 * S seconds for each kind; MOONREEL_FUZZ_SEED=S draws other changes. For long runs build with
 * -DMR_SANITIZE=address,undefined. A crash leaves the file that caused it. */
#ifndef MR_MUTATOR_H
#define MR_MUTATOR_H
#include "blob.h"

#include "moonreel/base.h"

#include <stdbool.h>

/* ---- rounds ---- */

typedef struct fuzz_rounds {
    uint64_t most, seed, n;
    double seconds, end; /* 0: `most` rounds */
} fuzz_rounds;

static inline uint64_t fuzz_number(const char *name, uint64_t def)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : def;
}
/* Before each kind of file. */
static inline fuzz_rounds fuzz_start(uint64_t usual)
{
    double seconds = (double)fuzz_number("MOONREEL_FUZZ_SECONDS", 0);
    return (fuzz_rounds){.most = fuzz_number("MOONREEL_FUZZ", usual),
                         .seed = fuzz_number("MOONREEL_FUZZ_SEED", 1),
                         .seconds = seconds,
                         .end = mr_now_s() + seconds};
}

static uint64_t fuzz_state = 1;
/* Is there another round of kind k? Its random numbers depend on no earlier round. */
static inline bool fuzz_next(fuzz_rounds *r, uint64_t k)
{
    if (r->seconds > 0 ? mr_now_s() >= r->end : r->n >= r->most)
        return false;
    fuzz_state = MR_MIX(r->seed, k, r->n);
    r->n++;
    return true;
}

/* ---- random numbers and changes ---- */

static inline uint32_t draw(uint32_t below)
{
    fuzz_state = fuzz_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(fuzz_state >> 33) % below;
}

/* One change; `words` are pieces that have a meaning for the reader. */
static inline void change(blob *b, const char *const *words, uint32_t n_words)
{
    static const uint64_t numbers[] = {0,           1,           7,          255,       0x7fffffff,
                                       0x80000000u, 0xffffffffu, 1ull << 40, INT64_MAX, UINT64_MAX};
    if (b->n < 8)
        return;
    size_t at = draw((uint32_t)b->n), left = b->n - at, n = 1 + draw(24);
    n = n < left ? n : left;
    const char *word = words[draw(n_words)];
    uint64_t number = numbers[draw(MR_COUNT(numbers))];
    size_t wide = (size_t)1 << draw(4);
    char copy[24];
    switch (draw(9)) {
    case 0: b->data[at] ^= (char)(1 << draw(8)); break;
    case 1: b->data[at] = (char)draw(256); break;
    case 2: splice(b, at, n, "", 0); break;
    case 3: splice(b, at, 0, word, strlen(word)); break;
    case 4: splice(b, at, strlen(word) < left ? strlen(word) : left, word, strlen(word)); break;
    case 5: memcpy(b->data + at, &number, wide < left ? wide : left); break;
    case 6: memset(b->data + at, (int[]){0, 255, 0x80, '"'}[draw(4)], n); break;
    case 7: // a piece once more, at another place
        memcpy(copy, b->data + at, n);
        splice(b, draw((uint32_t)b->n), 0, copy, n);
        break;
    case 8: b->n = draw(8) ? b->n : at; break;
    }
}
static inline void change_some(blob *b, const char *const *words, uint32_t n_words)
{
    for (uint32_t k = 1 + draw(4) * draw(3); k > 0; k--)
        change(b, words, n_words);
}

#endif
