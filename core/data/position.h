/* data, inside: the position of a stream as text, also of an epoch that is planned again.
 * Licence: Apache-2.0 */
#ifndef MR_DATA_POSITION_H
#define MR_DATA_POSITION_H

#include "moonreel/position.h"

/* A position as text, for an order of these rows, of a rule with this hash, and seed. */
mr_status position_text(const mr_position *p, const mr_index_facts *facts, uint64_t rule,
                        uint64_t seed, bool brief, char **text);

#endif
