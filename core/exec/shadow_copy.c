/* exec: runs copies on the shadow device. It detects copies of unwritten bytes, and a host that
 * changes pinned memory while a copy is in flight. Licence: Apache-2.0 */
#include "exec/shadow.h"

static mr_status ends_of(const shadow_memory *m, const mr_copy *c, shadow_block **to,
                         shadow_block **from)
{
    mr_status st = shadow_find(m, c->from, c->bytes, "source of a copy", from);
    if (st == MR_OK)
        st = shadow_find(m, c->to, c->bytes, "end of a copy", to);
    return st == MR_OK ? st : mr_fail_note("copy of '%s'", c->name);
}

static void *bytes_at(const shadow_block *b, mr_dptr at)
{
    return b->real + (at - b->at);
}

mr_status shadow_copy_begin(const shadow_memory *m, const mr_copy *c, uint64_t *hash)
{
    shadow_block *to = NULL, *from = NULL;
    MR_TRY(ends_of(m, c, &to, &from));
    if (to->pinned)
        shadow_poison(to, c->to, c->bytes, MR_POISON);
    *hash = from->pinned ? mr_hash64(bytes_at(from, c->from), c->bytes) : 0;
    return MR_OK;
}

mr_status shadow_copy(const shadow_memory *m, const mr_copy *c, uint64_t hash)
{
    shadow_block *to = NULL, *from = NULL;
    double start = mr_now_s();
    MR_TRY(ends_of(m, c, &to, &from));
    size_t written = shadow_unwritten(from, c->from, c->bytes);
    if (written < c->bytes)
        return mr_fail(MR_E_INTERNAL, "copy of '%s': reads its byte %zu, which was not written",
                       c->name, written);
    if (from->pinned && mr_hash64(bytes_at(from, c->from), c->bytes) != hash)
        return mr_fail(MR_E_INTERNAL,
                       "copy of '%s': the host changed its bytes before they were copied", c->name);
    MR_TRY(mr_interrupt_copy(bytes_at(to, c->to), bytes_at(from, c->from), c->bytes));
    shadow_mark(to, c->to, c->bytes);
    if (c->clock)
        *c->clock = (mr_step_clock){start, mr_now_s() - start};
    return MR_OK;
}
