/* data, inside: merges several sources into one stream. Licence: Apache-2.0 */
#ifndef MR_DATA_BLEND_H
#define MR_DATA_BLEND_H

#include "data/order.h"
#include "moonreel/blend.h"

typedef struct blend_source {
    mr_order *order;
    char *name;
    mr_weight *weights;
    int32_t n_weights;
    uint64_t epochs;
} blend_source;

struct mr_blend {
    int32_t n;
    blend_source sources[MR_SOURCES_MAX];
    mr_blend_shares at;
};

/* The position of a stream of several sources. */
typedef struct blend_position {
    int32_t n;
    mr_position at[MR_SOURCES_MAX];
    mr_blend_shares shares;
} blend_position;
mr_status blend_position_init(blend_position *p, const mr_blend *blend);
void blend_position_fini(blend_position *p);
void blend_position_advance(blend_position *p, const mr_draw *draw);
mr_status blend_position_text(const blend_position *p, const mr_blend *blend, bool brief,
                              char **text);
/* Restore the shares from the text of a state; each source restores its own part. */
mr_status blend_restore(mr_blend *blend, const char *text);
/* The part of a text for a source of that name: the lines after "source NAME", up to the next such
 * line. A text without such lines belongs to the source without a name. The caller frees *out;
 * NULL: the text has no such part. */
mr_status blend_part(const char *text, const char *name, char **out);
/* Write the line "source NAME" that precedes the lines of a source, if it has a name. */
void blend_put_name(mr_text *out, const char *name);

/* Check that each length of the rule can get a sample of some source, for some draw; cover.c.
 * Errors: MR_E_DATA */
mr_status blend_check_cover(mr_blend *blend);

#endif
