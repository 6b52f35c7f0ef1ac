/* index: recognises the contents of a list or object inside a row - time ranges, captions, numbers.
 * Licence: Apache-2.0 */
#include "index/table.h"

bool index_shape_is_container(const json_t *value)
{
    return json_is_array(value) || json_is_object(value);
}

// a pair of times, which may be null
bool index_shape_is_pair(const json_t *value)
{
    return json_array_size(value) == 2 && !index_shape_is_container(json_array_get(value, 0)) &&
           !index_shape_is_container(json_array_get(value, 1));
}

bool index_shape_has_times(const index_making *w, index_meaning is)
{
    return is >= INDEX_SCORE && w->scores->of[is - INDEX_SCORE].times;
}

// checks the keys of an object, or of the first object of a list
static bool first_has(const index_making *w, const json_t *value, bool times)
{
    const char *name;
    json_t *item, *first = json_is_array(value) ? json_array_get(value, 0) : (json_t *)value;
    json_object_foreach(first, name, item)
    {
        bool ranges;
        index_meaning is = index_scores_look(w->scores, name, &ranges);
        if (times ? is == INDEX_START || is == INDEX_END || ranges : is == INDEX_TEXT)
            return true;
    }
    return false;
}

bool index_shape_captioned(const index_making *w, const json_t *value)
{
    return first_has(w, value, true) && first_has(w, value, false);
}

bool index_shape_timed(const index_making *w, index_meaning is, const json_t *value)
{
    return index_shape_has_times(w, is) || first_has(w, value, true);
}

// the index of the first item that is neither a text nor null, or the length
size_t index_shape_first_no_text(const json_t *list)
{
    size_t i = 0;
    while (i < json_array_size(list) &&
           (json_is_string(json_array_get(list, i)) || json_is_null(json_array_get(list, i))))
        i++;
    return i;
}

bool index_shape_is_texts(const json_t *value)
{
    return json_is_array(value) && index_shape_first_no_text(value) == json_array_size(value);
}

bool index_shape_are_captions(const json_t *value)
{
    size_t n = json_array_size(value);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(value, i);
        if (!json_is_string(one) && !json_is_null(one) && !index_shape_is_texts(one))
            return false;
    }
    return json_is_array(value);
}

// numbers, possibly with words among them
static bool is_numbers(const json_t *value)
{
    bool any = false;
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *one = json_array_get(value, i);
        if (index_shape_is_container(one))
            return false;
        any |= json_is_number(one) || json_is_boolean(one);
    }
    return any;
}

index_use index_shape_use(const index_making *w, const index_list *list)
{
    if (!json_is_array(list->value))
        return INDEX_UNREAD;
    if (list->is == INDEX_START || list->is == INDEX_END)
        return INDEX_LEADS;
    if (list->is == INDEX_TEXT || list->is == INDEX_MORE)
        return INDEX_FOLLOWS;
    if (index_shape_has_times(w, list->is))
        return index_shape_is_pair(list->value) ? INDEX_PAIR : INDEX_LEADS;
    if (first_has(w, list->value, true))
        return INDEX_LEADS;
    return is_numbers(list->value) ? INDEX_FOLLOWS : INDEX_UNREAD;
}
