/* data: a builder as its files see it. Licence: Apache-2.0 */
#ifndef MR_DATA_BUILDER_H
#define MR_DATA_BUILDER_H

#include "data/data.h"

// refused rows wait in a table of their own: they are committed together with the rows between them
enum { DATA_REFUSED = DATA_TABLES, DATA_BUILD_TABLES };

struct mr_index_builder {
    char path[4096], tmp[4200];
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi tables[DATA_BUILD_TABLES];
    size_t map_bytes, used_bytes; // used: an upper bound of what the tables hold
    uint64_t commit_rows, committed_rows;
    double committed_s;
    mr_index_built built;
    mr_hot *chunk; // the unfinished one
    data_keymap_entry *keymap;
    uint64_t keymap_cap;
    data_pack order_hashes, pack; // row hashes in id order; scratch
    data_squeeze *squeeze;        // NULL: captions stay plain
    mr_hash128 set;
    char roots[16][4096];
    int n_roots;
    bool resume, finished;
    bool ours, kept; // tmp: made or taken up by us; holds rows for the next one
};

/* ---- note.c: what memory keeps of rows ---- */

/* Take note of the next row, added or read again. Errors: MR_E_MEMORY */
mr_status data_builder_note(mr_index_builder *b, const mr_row *row);

/* ---- resume.c: what killed builders left ---- */

/* Remove it; with b->resume the newest one becomes b->tmp instead, when it is no whole index. */
mr_status data_builder_leftovers(mr_index_builder *b);
/* Before anything is read: the file is as long as it says. */
mr_status data_builder_whole(const mr_index_builder *b);
/* Take up the rows of the last commit, in the first transaction: again as if they had just been
 * added. */
mr_status data_builder_reload(mr_index_builder *b);

#endif
