/* token: splits a normalized text into the pieces with the best sum of scores (Viterbi). Each start
 * of a character records the best segmentation of the text before it. Licence: Apache-2.0 */
#include "token/room.h"

#include <string.h>

enum { POLL = 4096 };

/* A character that no piece covers scores this much below the worst piece. */
static const float unknown_cost = 10;

/* The best segmentation of the text before a position: its score, and the id and start of its last
 * piece. from is -1 if there is no segmentation. */
typedef struct place {
    float score;
    int32_t id, from;
} place;

/* Length of a character by its first byte, even if the bytes after it are not valid UTF-8. */
static size_t character(const char *s, size_t n)
{
    static const unsigned char length[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4};
    return MR_MIN((size_t)length[(unsigned char)*s >> 4], n);
}

/* The score of a user-defined piece depends on its length alone, so that it almost always wins. */
static float score_of(const mr_piece *p)
{
    return p->kind == MR_PIECE_USER ? (float)(0.1 * p->bytes - 0.1) : p->score;
}

static void offer(place *to, int id, size_t from, float score)
{
    if (to->from < 0 || score > to->score)
        *to = (place){score, id, (int32_t)from};
}

/* Extend the segmentation that ends at `at` by each piece that matches there. */
static void go_on(const mr_tokenizer *t, const char *s, size_t n, size_t at, place *places)
{
    size_t first = character(s + at, n - at);
    float here = places[at].score;
    bool covered = false;
    mr_piece_range range = mr_pieces_all(t);
    for (size_t i = at; i < n && mr_pieces_step(t, &range, (unsigned char)s[i]); i++) {
        int id = mr_pieces_here(t, &range);
        if (id < 0 || t->pieces[id].kind == MR_PIECE_UNUSED)
            continue;
        offer(&places[i + 1], id, at, score_of(&t->pieces[id]) + here);
        covered = covered || i + 1 - at == first;
    }
    if (!covered)
        offer(&places[at + first], t->unknown, at, t->worst - unknown_cost + here);
}

static mr_status find_ways(const mr_tokenizer *t, const char *s, size_t n, place *places)
{
    for (size_t i = 0; i <= n; i++)
        places[i] = (place){.from = -1};
    for (size_t at = 0, k = 0; at < n; at += character(s + at, n - at), k++) {
        if (k % POLL == 0)
            MR_TRY(mr_interrupt_check());
        go_on(t, s, n, at, places);
    }
    return MR_OK;
}

/* Collect the ids of the best segmentation in order. For that, first reverse the links: each
 * position gets the next one. */
static size_t collect(const mr_tokenizer *t, const char *s, size_t n, place *places, int32_t *ids)
{
    size_t used = 0;
    int32_t next = -1;
    for (int32_t at = (int32_t)n; at >= 0;) {
        int32_t before = places[at].from;
        places[at].from = next;
        next = at, at = before;
    }
    bool after_unknown = false;
    for (int32_t at = 0, to = places[0].from; to >= 0; at = to, to = places[to].from) {
        int32_t id = places[to].id;
        bool unknown = id == t->unknown;
        if (unknown && t->by_bytes) {
            for (int32_t i = at; i < to; i++)
                ids[used++] = t->bytes[(unsigned char)s[i]];
        } else if (!unknown || !after_unknown) {
            ids[used++] = id;
        }
        after_unknown = unknown;
    }
    return used;
}

mr_status mr_tokenizer_encode(const mr_tokenizer *t, const char *text, size_t bytes, int32_t **ids,
                              size_t *n)
{
    mr_text normal = {0};
    char *s;
    size_t size;
    *ids = NULL, *n = 0;
    MR_TRY(mr_token_take(&normal, mr_normalize(t, &t->normal, text, bytes, &normal), &s, &size));
    place *places = mr_alloc(sizeof *places * (size + 1));
    int32_t *out = mr_alloc(sizeof *out * (size + 1));
    mr_status st = places && out ? find_ways(t, s, size, places)
                                 : mr_fail_memory((sizeof *places + sizeof *out) * (size + 1));
    if (st == MR_OK)
        *ids = out, *n = collect(t, s, size, places, out);
    else
        mr_free(out);
    mr_free(places);
    mr_free(s);
    return st;
}
