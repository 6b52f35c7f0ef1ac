/* token: finds pieces by their text. Pieces sorted by bytes form a trie: those with one prefix are
 * adjacent, and each further byte narrows the range. Licence: Apache-2.0 */
#include "token/room.h"

#include <stdlib.h>
#include <string.h>

static int compare(const mr_piece *a, const mr_piece *b)
{
    int order = memcmp(a->text, b->text, MR_MIN(a->bytes, b->bytes));
    return order ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

// merge sort of ids; qsort cannot pass the pieces to its comparison
static void sort(const mr_piece *pieces, int *ids, int *room, int n)
{
    if (n < 2)
        return;
    int half = n / 2, a = 0, b = half;
    sort(pieces, ids, room, half);
    sort(pieces, ids + half, room, n - half);
    memcpy(room, ids, sizeof *ids * (size_t)n);
    for (int i = 0; i < n; i++) {
        bool left = a < half && (b == n || compare(&pieces[room[a]], &pieces[room[b]]) <= 0);
        ids[i] = left ? room[a++] : room[b++];
    }
}

// the first piece of a sorted list that equals its neighbour
static const mr_piece *twice(const mr_piece *pieces, const int *ids, int n)
{
    for (int i = 1; i < n; i++)
        if (compare(&pieces[ids[i - 1]], &pieces[ids[i]]) == 0)
            return &pieces[ids[i]];
    return NULL;
}

static bool is_cut_into(const mr_piece *p)
{
    return p->kind == MR_PIECE_NORMAL || p->kind == MR_PIECE_USER || p->kind == MR_PIECE_UNUSED;
}

const mr_piece *mr_pieces_sort(mr_tokenizer *t)
{
    for (int i = 0; i < t->n; i++) {
        if (is_cut_into(&t->pieces[i]))
            t->sorted[t->n_sorted++] = i;
        else
            t->others[t->n_others++] = i;
    }
    // the free end of `others` has room for the merge of either list
    int *room = t->others + t->n_others;
    sort(t->pieces, t->sorted, room, t->n_sorted);
    sort(t->pieces, t->others, room, t->n_others);
    const mr_piece *found = twice(t->pieces, t->sorted, t->n_sorted);
    return found ? found : twice(t->pieces, t->others, t->n_others);
}

mr_piece_range mr_pieces_all(const mr_tokenizer *t)
{
    return (mr_piece_range){0, t->n_sorted, 0};
}

/* The first position in the range whose piece has a byte >= `least` at the depth of the range.
 * Pieces that end at that depth come first. */
static int first_from(const mr_tokenizer *t, const mr_piece_range *r, int least)
{
    int lo = r->lo, hi = r->hi;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        const mr_piece *p = &t->pieces[t->sorted[mid]];
        if (p->bytes > r->depth && (unsigned char)p->text[r->depth] >= least)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

bool mr_pieces_step(const mr_tokenizer *t, mr_piece_range *range, unsigned char byte)
{
    range->lo = first_from(t, range, byte);
    range->hi = first_from(t, range, byte + 1);
    range->depth++;
    return range->lo < range->hi;
}

int mr_pieces_here(const mr_tokenizer *t, const mr_piece_range *range)
{
    int id = t->sorted[range->lo];
    return t->pieces[id].bytes == range->depth ? id : -1;
}

int mr_tokenizer_find(const mr_tokenizer *t, const char *text, size_t bytes)
{
    // special pieces (control, byte, unknown) precede pieces of text
    for (int lo = 0, hi = t->n_others; lo < hi;) {
        mr_piece wanted = {.text = text, .bytes = (uint32_t)MR_MIN(bytes, UINT32_MAX)};
        int mid = lo + (hi - lo) / 2, order = compare(&wanted, &t->pieces[t->others[mid]]);
        if (order == 0)
            return t->others[mid];
        if (order < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    mr_piece_range range = mr_pieces_all(t);
    for (size_t i = 0; i < bytes; i++)
        if (!mr_pieces_step(t, &range, (unsigned char)text[i]))
            return -1;
    return bytes ? mr_pieces_here(t, &range) : -1;
}
