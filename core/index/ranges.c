/* index: reads lists inside a row of a table. Each range of a list of time ranges becomes one
 * sample, with the captions and numbers at the same position of other lists. A list of captions
 * alone gives several captions of one sample. Lists without a meaning are counted.
 * Licence: Apache-2.0 */
#include "index/table.h"

#include <string.h>

static const char *name_of(const index_making *w, index_meaning is)
{
    static const char *const names[] = {[INDEX_TEXT] = "text",
                                        [INDEX_MORE] = "text_2",
                                        [INDEX_START] = "start_s",
                                        [INDEX_END] = "end_s"};
    return is < INDEX_SCORE ? names[is] : w->scores->of[is - INDEX_SCORE].column;
}

// Finds the list whose length is the number of samples; NULL: one sample. Records faults of the
// lists as a whole.
static const index_list *find_leader(index_making *w)
{
    const index_list *leader = NULL, *pair = NULL;
    for (int32_t i = 0; i < w->n_lists; i++) {
        index_list *list = &w->lists[i];
        list->use = index_shape_use(w, list);
        if (list->use == INDEX_PAIR && pair)
            index_making_wrong(w, "both %s and %s are ranges", name_of(w, pair->is),
                               name_of(w, list->is));
        pair = list->use == INDEX_PAIR ? list : pair;
        if (list->use != INDEX_LEADS)
            continue;
        bool edges =
            leader && leader->is < INDEX_SCORE && list->is < INDEX_SCORE && leader->is != list->is;
        if (leader && !edges)
            index_making_wrong(w, "both %s and %s are lists of ranges", name_of(w, leader->is),
                               name_of(w, list->is));
        leader = leader ? leader : list;
    }
    bool own = w->start_us || w->end_us;
    if (leader && (pair || own))
        index_making_wrong(w, "%s is a list of ranges, and the row has times of its own",
                           name_of(w, leader->is));
    else if (pair && own)
        index_making_wrong(w, "%s is a range, and the row has other times", name_of(w, pair->is));
    return leader;
}

static void check_lengths(index_making *w, const index_list *leader)
{
    size_t n = json_array_size(leader->value), edges = 0;
    if (!n)
        index_making_wrong(w, "%s is an empty list", name_of(w, leader->is));
    if (w->first.n && *w->first.bytes.bytes == '[')
        index_making_wrong(w, "text is not a readable list: %.60s",
                           (const char *)w->first.bytes.bytes);
    if (n > 1 && w->first.n + w->more.n)
        index_making_wrong(w, "%s has %zu items, but there is one caption; expected equal numbers",
                           name_of(w, leader->is), n);
    for (int32_t i = 0; i < w->n_lists; i++) {
        const index_list *list = &w->lists[i];
        edges += list->is == INDEX_START || list->is == INDEX_END;
        size_t has = json_array_size(list->value);
        if (list->use != INDEX_UNREAD && has != n)
            index_making_wrong(w, "%s has %zu items, %s has %zu; expected equal numbers",
                               name_of(w, list->is), has, name_of(w, leader->is), n);
    }
    if (edges == 1)
        index_making_wrong(w, "%s is a list; expected a list for the other edge too",
                           name_of(w, leader->is));
}

static mr_status take_texts(index_making *w, const index_pieces *t, index_meaning is,
                            const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        if (text)
            MR_TRY(index_making_caption(is == INDEX_TEXT ? &w->first : &w->more, t, text));
    }
    return MR_OK;
}

static mr_status take_pair(index_making *w, const index_pieces *t, const json_t *pair)
{
    MR_TRY(index_making_json(w, t, INDEX_START, json_array_get(pair, 0)));
    return index_making_json(w, t, INDEX_END, json_array_get(pair, 1));
}

// takes the part of a list or object that belongs to one sample
static mr_status take_item(index_making *w, const index_pieces *t, index_meaning is, json_t *item)
{
    bool text = is == INDEX_TEXT || is == INDEX_MORE;
    if (text && index_shape_is_texts(item))
        return take_texts(w, t, is, item);
    if (text && json_is_string(item))
        return index_making_caption(is == INDEX_TEXT ? &w->first : &w->more, t,
                                    json_string_value(item));
    if (index_shape_has_times(w, is) && index_shape_is_pair(item))
        return take_pair(w, t, item);
    if (text && !json_is_null(item))
        index_making_wrong(w, "%s has an item that is not text", name_of(w, is));
    else if (index_shape_has_times(w, is) || (is < INDEX_SCORE && index_shape_is_container(item)))
        index_making_wrong(w, "%s has an item that is not a range; expected [from, to]",
                           name_of(w, is));
    else if (index_shape_is_container(item))
        index_scores_unread(w->scores, (int32_t)is - INDEX_SCORE, "inside a list", w->line);
    else if (!text)
        return index_making_json(w, t, is, item);
    return MR_OK;
}

static mr_status take_object(index_making *w, const index_pieces *t, json_t *object)
{
    const char *name;
    json_t *item;
    bool timed = false;
    json_object_foreach(object, name, item)
    {
        index_meaning is = index_scores_meaning(w->scores, name);
        timed |= is == INDEX_START || is == INDEX_END || index_shape_has_times(w, is);
        if (is >= INDEX_TEXT)
            MR_TRY(take_item(w, t, is, item));
    }
    // the caption of the item does not describe the whole file
    if (!timed)
        index_making_wrong(w, "one of its items has no times");
    return MR_OK;
}

static mr_status take_sample(index_making *w, const index_pieces *t, size_t i)
{
    for (int32_t k = 0; k < w->n_lists; k++) {
        const index_list *list = &w->lists[k];
        json_t *item = json_array_get(list->value, i);
        if (list->use == INDEX_UNREAD)
            continue;
        if (list->is >= INDEX_SCORE && json_is_object(item))
            MR_TRY(take_object(w, t, item));
        else
            MR_TRY(take_item(w, t, list->is, item));
    }
    return MR_OK;
}

// the values of the row itself; each sample starts from them
typedef struct base {
    uint64_t numbers[INDEX_SCORES];
    uint32_t wholes;
    size_t first_bytes, more_bytes;
    int32_t first, more;
} base;

static mr_status take_all(index_making *w, const index_pieces *t, const char *path, size_t n)
{
    base b = {.wholes = w->wholes,
              .first_bytes = w->first.bytes.n,
              .more_bytes = w->more.bytes.n,
              .first = w->first.n,
              .more = w->more.n};
    memcpy(b.numbers, w->numbers, sizeof b.numbers);
    for (size_t i = 0; i < n; i++) {
        memcpy(w->numbers, b.numbers, sizeof b.numbers);
        w->wholes = b.wholes, w->start_us = w->end_us = 0, *w->wrong = 0;
        w->first.bytes.n = b.first_bytes, w->first.n = b.first;
        w->more.bytes.n = b.more_bytes, w->more.n = b.more;
        MR_TRY(take_sample(w, t, i));
        MR_TRY(index_making_sample(w, path));
    }
    return MR_OK;
}

// takes the lists of a row that is one sample
static mr_status take_single(index_making *w, const index_pieces *t)
{
    for (int32_t i = 0; i < w->n_lists; i++) {
        const index_list *list = &w->lists[i];
        if (list->use == INDEX_PAIR)
            MR_TRY(take_pair(w, t, list->value));
        if (list->use != INDEX_FOLLOWS || list->is >= INDEX_SCORE)
            continue;
        if (!index_shape_is_texts(list->value))
            return mr_fail(MR_E_DATA, "%s:%llu: %s[%zu] is not text; expected a list of captions",
                           t->file, (unsigned long long)w->line, name_of(w, list->is),
                           index_shape_first_no_text(list->value));
        MR_TRY(take_texts(w, t, list->is, list->value));
    }
    return MR_OK;
}

// counts unused lists. Unreadable captions and times refuse the row
static void count_unread(index_making *w, bool single)
{
    for (int32_t i = 0; i < w->n_lists; i++) {
        const index_list *list = &w->lists[i];
        bool unread = list->use == INDEX_UNREAD || (list->use == INDEX_FOLLOWS && single);
        if (list->is >= INDEX_SCORE && unread)
            index_scores_unread(w->scores, (int32_t)list->is - INDEX_SCORE,
                                json_is_array(list->value) ? "a list" : "an object", w->line);
        else if (list->use == INDEX_UNREAD)
            index_making_wrong(w, "%s is an object; expected a value or a list of them",
                               name_of(w, list->is));
    }
}

// Passes one sample for each range in the lists of a row. *done stays false if they have no range,
// or have a fault, which is recorded.
static mr_status end_ranges(index_making *w, const index_pieces *t, const char *path, bool *done)
{
    const index_list *leader = find_leader(w);
    count_unread(w, !leader);
    if (!leader)
        return take_single(w, t);
    check_lengths(w, leader);
    if (*w->wrong)
        return MR_OK;
    *done = true;
    return take_all(w, t, path, json_array_size(leader->value));
}

mr_status index_making_end(index_making *w, const index_pieces *t, const char *path)
{
    bool done = false;
    if (w->n_lists)
        MR_TRY(end_ranges(w, t, path, &done));
    return done ? MR_OK : index_making_sample(w, path);
}
