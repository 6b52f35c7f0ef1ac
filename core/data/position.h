/* data, inside: the position of a stream as text, even of an epoch that is planned again.
 * Licence: Apache-2.0 */
#ifndef MR_DATA_POSITION_H
#define MR_DATA_POSITION_H

#include "moonreel/position.h"

/* A position as text, for an order with these rows, rule hash and seed. */
mr_status position_text(const mr_position *p, const mr_index_facts *facts, uint64_t rule,
                        uint64_t seed, bool brief, char **text);

#endif
