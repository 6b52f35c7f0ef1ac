/* layout: fixed offsets for every arena storage of a finished graph, and the peak before the run.
 *
 * Knows graphs and facts, no device.
 *
 * Threads: any; a layout is immutable once made, and reads a finished graph.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_LAYOUT_H
#define MOONREEL_LAYOUT_H

#include "moonreel/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_layout mr_layout;
typedef struct mr_layout_options {
    const size_t *workspace;   /* bytes per node, mr_graph_nodes long; NULL = none */
    bool no_reuse;             /* specs: every entry its own range */
    const char *const *shared; /* of mr_schedule_new */
    int n_shared;
    /* A region at the arena's start, and its bytes; NULL: none. */
    const char *transient;
    size_t transient_bytes;
} mr_layout_options;

/* How a run uses the transient region. NOTHING: not at all, and other entries use its bytes. MADE:
 * it writes all of it before it reads any, so other entries use its bytes before. KEPT: it
 * continues with the contents from the previous run. */
typedef enum mr_hold { MR_HOLD_NOTHING, MR_HOLD_MADE, MR_HOLD_KEPT } mr_hold;

typedef struct mr_layout_entry {
    int storage;     /* -1: a workspace, or all of a region */
    int node;        /* the first node in the list that accesses it */
    mr_space space;  /* entries of different spaces never overlap */
    int first, last; /* nodes, both included; outputs live to the end */
    size_t bytes;    /* multiple of 64 */
    size_t offset;
    bool fixed; /* of the transient region: its offset is given */
} mr_layout_entry;

/* Choose an offset for every entry so that no two entries live at the same time overlap. Reads
 * first, last and bytes (rounded up to 64 in place) and writes offset, which for a fixed entry is
 * read; fixed entries do not overlap. `bound`, `bound_at` (may be NULL): largest sum of entries
 * live at the same time and the node where it is reached. Best fit in several orders, then repair
 * of the best one within a fixed number of comparisons: deterministic.
 * Errors: MR_E_MEMORY. Threads: any. */
MR_API mr_status mr_layout_place(mr_layout_entry *entries, int n, size_t *peak, size_t *bound,
                                 int *bound_at);

/* Place the arena storages and workspaces of a finished graph by their lifetimes. A storage lives
 * from the first write to the last read of any value on it, outputs to the end; a workspace lives
 * at its node. An entry that a node on another queue accesses lives as long as any node that is not
 * ordered after all its users may run: bytes are reused only where the schedule guarantees that the
 * old users have finished. Setup nodes run alone, so their workspaces are behind the transient
 * region and have no entry.
 * Owns: borrows g for life, copies options. Errors: MR_E_MEMORY. */
MR_API mr_status mr_layout_new(const mr_graph *g, const mr_layout_options *options,
                               mr_layout **out);
MR_API void mr_layout_free(mr_layout *layout);
/* Every tensor begins at a multiple of MR_GRANULE bytes of its space, and takes whole granules. */
#define MR_GRANULE ((size_t)64)
static inline size_t mr_granules(size_t bytes)
{
    return (bytes + MR_GRANULE - 1) & ~(MR_GRANULE - 1);
}
/* Arena bytes needed: on the device, in any space. */
MR_API size_t mr_layout_peak(const mr_layout *layout);
MR_API size_t mr_layout_peak_in(const mr_layout *layout, mr_space space);
/* largest sum of the device's storages live at the same time */
MR_API size_t mr_layout_bound(const mr_layout *layout);
MR_API mr_hold mr_layout_hold(const mr_layout *layout);
/* Bytes from the arena's start: of a storage (0 when it is not in the arena), of a node's workspace
 * (0 when it has none). */
MR_API size_t mr_layout_offset(const mr_layout *layout, int storage);
MR_API size_t mr_layout_workspace(const mr_layout *layout, int node);
/* The execution order on which lifetimes are based; lent. */
MR_API const mr_schedule *mr_layout_schedule(const mr_layout *layout);
/* Entries in order of `node`, then those of the transient region; lent. */
MR_API int mr_layout_entries(const mr_layout *layout);
MR_API const mr_layout_entry *mr_layout_at(const mr_layout *layout, int i);
/* The entry of a storage, of a node's workspace; -1 if it is not in the arena. */
MR_API int mr_layout_storage_entry(const mr_layout *layout, int storage);
MR_API int mr_layout_workspace_entry(const mr_layout *layout, int node);
/* The entries of the device's arena that live at the node where the bound is reached, largest
 * first. out: space for mr_layout_entries; lent. Returns their number. */
MR_API int mr_layout_live(const mr_layout *layout, const mr_layout_entry **out);
/* Bytes of the device's entries over a run: for each of n equal parts of the node list the largest
 * sum live at the same time. Errors: MR_E_MEMORY */
MR_API mr_status mr_layout_profile(const mr_layout *layout, size_t *out, int n);
/* Purpose of an entry: "kept" for the backward pass, "gradient" of a computed value, "region",
 * "workspace", or "forward"; lent. */
MR_API const char *mr_layout_purpose(const mr_layout *layout, const mr_layout_entry *entry);
/* Report of the entries that live at the node where the bound is reached: block, op, bytes, largest
 * first, and advice.
 * Owns: caller frees with mr_free. Errors: MR_E_MEMORY */
MR_API mr_status mr_layout_report(const mr_layout *layout, char **text);

#ifdef __cplusplus
}
#endif
#endif
