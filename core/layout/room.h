/* layout, inside: the laid-out graph and the text buffer of reports. Licence: Apache-2.0 */
#ifndef MR_LAYOUT_ROOM_H
#define MR_LAYOUT_ROOM_H

#include "moonreel/layout.h"

struct mr_layout {
    const mr_graph *graph;
    mr_schedule *schedule;
    mr_layout_entry *entry;
    int n, bound_at;
    size_t peak[MR_SPACE_COUNT], bound; /* bound: of the device, and its time */
    size_t transient;                   /* bytes of the region at the start of the arena */
    mr_hold hold;
    int *of_storage; /* entry of a storage; -1: not in the arena */
    int *of_node;    /* entry of a node's workspace; -1: no workspace */
};

/* Add the entries of the region in the arena (region.c). */
mr_status layout_region(mr_layout *l, const char *name);
/* Extend the lifetimes of entries that side queues use (widen.c). */
mr_status layout_widen(mr_layout *l);

#endif
