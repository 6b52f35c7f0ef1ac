/* comm: moves all messages of one call together until all have arrived, the deadline passes or a
 * rank gives up. Every header that arrives is compared with the call of this rank.
 * Licence: Apache-2.0 */
#include "comm/room.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

enum { PATIENCE = 16 }; /* rounds without progress before this rank sleeps */

const char *mr_comm_op_name(mr_comm_op op)
{
    static const char *const names[MR_COMM_OP_COUNT] = {
        "hello",          "leave",      "check",      "split",     "barrier", "all_reduce",
        "reduce_scatter", "all_gather", "all_to_all", "broadcast", "send",    "shift"};
    return (unsigned)op < MR_COMM_OP_COUNT ? names[op] : "?";
}

const char *comm_call_text(const mr_comm_head *head, char *buf, size_t cap)
{
    static const char *const details[MR_COMM_OP_COUNT] = {
        [MR_COMM_BROADCAST] = "from", [MR_COMM_SPLIT] = "on lane", [MR_COMM_SHIFT] = "by"};
    const mr_comm_op op = (mr_comm_op)head->op;
    int n = snprintf(buf, cap, "%s %u", mr_comm_op_name(op), head->seq);
    if (op < MR_COMM_OP_COUNT && details[op])
        n += snprintf(buf + n, cap - (size_t)n, " %s %u", details[op], head->detail);
    else if (head->detail)
        n += snprintf(buf + n, cap - (size_t)n, " %s", mr_comm_kind_name(head->detail));
    if (head->count)
        snprintf(buf + n, cap - (size_t)n, " (%lld %s)", (long long)head->count,
                 mr_dtype_name((mr_dtype)head->dtype));
    return buf;
}

/* ---- the end of a world ---- */

mr_status comm_break(mr_comm *c, mr_status st)
{
    world *w = c->world;
    char text[sizeof w->why];
    const mr_error *err = mr_error_last();
    w->broken = st;
    snprintf(w->why, sizeof w->why, "%s", err ? err->text : mr_status_name(st));
    if (w->transport) {
        snprintf(text, sizeof text, "rank %d gave up: %.900s", w->transport->rank, w->why);
        w->transport->ops->abort(w->transport, text);
    }
    return st;
}

/* The error that a rank makes another call than this one, or the same with other sizes. */
static mr_status misfit(const mr_comm *c, const mr_comm_head *want, const mr_parcel *p)
{
    const mr_comm_head *got = &p->head;
    const int self = c->world->transport->rank;
    char theirs[96], ours[96];
    comm_call_text(got, theirs, sizeof theirs), comm_call_text(want, ours, sizeof ours);
    if (got->op == MR_COMM_LEAVE)
        return mr_fail(MR_E_NODE, "%s: rank %d has left the world", ours, p->peer);
    bool same = got->group == want->group && got->seq == want->seq && got->op == want->op &&
                got->detail == want->detail;
    if (same && (got->dtype != want->dtype || got->count != want->count))
        return mr_fail(
            MR_E_SHAPE,
            "rank %d calls %s, this rank, %d, calls %s: expected equal dtypes and counts", p->peer,
            theirs, self, ours);
    if (same && got->part == want->part)
        return mr_fail(MR_E_SHAPE,
                       "%s: rank %d sends %llu bytes to this rank, %d, which expects %llu: "
                       "counts of ranks do not match",
                       ours, p->peer, (unsigned long long)got->bytes, self,
                       (unsigned long long)p->bytes);
    return mr_fail(MR_E_NODE,
                   "rank %d is at %s%s, this rank, %d, at %s; try: the same calls in the same "
                   "order on all ranks",
                   p->peer, theirs, got->group == want->group ? "" : " of another group", self,
                   ours);
}

static mr_status check_head(const mr_comm *c, const mr_comm_head *want, const mr_parcel *p)
{
    const mr_comm_head *got = &p->head;
    bool fits = got->group == want->group && got->seq == want->seq && got->part == want->part &&
                got->op == want->op && got->dtype == want->dtype && got->detail == want->detail &&
                got->count == want->count && got->bytes == p->bytes;
    return fits ? MR_OK : misfit(c, want, p);
}

/* The ranks whose messages are missing: "2, 3 and 5 more". */
static const char *missing(const mr_comm *c, char *buf, size_t cap)
{
    enum { NAMED = 8 };
    int found = 0;
    size_t n = 0;
    buf[0] = 0;
    for (int i = 0; i < c->n_receives; i++) {
        if (c->receives[i].done || found++ >= NAMED)
            continue;
        n += (size_t)snprintf(buf + n, cap - n, n ? ", %d" : "%d", c->receives[i].peer);
    }
    if (found > NAMED)
        snprintf(buf + n, cap - n, " and %d more", found - NAMED);
    return buf;
}

static mr_status late(mr_comm *c, const mr_comm_head *call, double deadline_s)
{
    char text[96], ranks[128];
    comm_call_text(call, text, sizeof text);
    if (missing(c, ranks, sizeof ranks)[0])
        return mr_fail(MR_E_NODE,
                       "%s: received nothing from rank %s in %g s; try: check what these ranks do",
                       text, ranks, deadline_s);
    for (int i = 0; i < c->n_sends; i++)
        if (!c->sends[i].done)
            return mr_fail(MR_E_NODE,
                           "%s: rank %d received nothing in %g s; try: check what it does", text,
                           c->sends[i].peer, deadline_s);
    return MR_OK;
}

mr_status comm_look(mr_transport *w, int gone, const char *call)
{
    char why[900];
    if (w->ops->aborted(w, why, sizeof why))
        return mr_fail(MR_E_NODE, "%s%s", call, why);
    return gone < 0 ? MR_OK : mr_fail(MR_E_NODE, "%srank %d has left the world", call, gone);
}

// a number that grows with each byte of a message that is transferred
static size_t progress(const mr_parcel *p)
{
    return p->moved + p->passed + p->headed + p->done;
}

/* Check for a rank that ended before it sent its message, or gave up. */
static mr_status look_for_losses(mr_comm *c, const mr_comm_head *head)
{
    mr_transport *w = c->world->transport;
    char text[96], call[100];
    snprintf(call, sizeof call, "%s: ", comm_call_text(head, text, sizeof text));
    MR_TRY(comm_look(w, -1, call));
    for (int i = 0; i < c->n_receives; i++) {
        mr_parcel *p = &c->receives[i];
        if (p->done || !w->ops->left(w, p->peer))
            continue;
        // it can have sent the message before it left
        const size_t before = progress(p);
        MR_TRY(w->ops->receive(w, p));
        return progress(p) == before ? comm_look(w, p->peer, call) : MR_OK;
    }
    for (int i = 0; i < c->n_sends; i++)
        if (!c->sends[i].done && w->ops->left(w, c->sends[i].peer))
            return comm_look(w, c->sends[i].peer, call);
    return MR_OK;
}

/* ---- transfer ---- */

/* Continue one message; *news is true if any byte was transferred. */
static mr_status go_on(mr_comm *c, const mr_comm_head *call, mr_parcel *p, bool receives,
                       bool *news)
{
    mr_transport *w = c->world->transport;
    const size_t before = progress(p);
    const bool headed = p->headed;
    MR_TRY(receives ? w->ops->receive(w, p) : w->ops->send(w, p));
    *news |= progress(p) != before;
    return receives && p->headed && !headed ? check_head(c, call, p) : MR_OK;
}

static mr_status one_round(mr_comm *c, const mr_comm_head *call, bool *news, int *pending)
{
    *news = false, *pending = 0;
    for (int i = 0; i < c->n_sends + c->n_receives; i++) {
        bool receives = i >= c->n_sends;
        mr_parcel *p = receives ? &c->receives[i - c->n_sends] : &c->sends[i];
        if (!p->done)
            MR_TRY(go_on(c, call, p, receives, news));
        *pending += !p->done;
    }
    return MR_OK;
}

static mr_status move(mr_comm *c, const mr_comm_head *call, double deadline_s)
{
    mr_transport *w = c->world->transport;
    const double end = mr_now_s() + deadline_s;
    for (int idle = 0;;) {
        bool news;
        int pending;
        uint32_t look = w->ops->look(w);
        MR_TRY(one_round(c, call, &news, &pending));
        if (!pending)
            return MR_OK;
        idle = news ? 0 : idle + 1;
        if (idle == 0)
            continue;
        if (idle < PATIENCE) {
            sched_yield();
            continue;
        }
        MR_TRY(mr_interrupt_check());
        MR_TRY(look_for_losses(c, call));
        if (mr_now_s() > end)
            return late(c, call, deadline_s);
        w->ops->pause(w, look);
    }
}

void comm_record(mr_comm *c, const mr_comm_head *call)
{
    mr_life_op op = {.group = call->group, .seq = call->seq, .count = call->count};
    snprintf(op.kind, sizeof op.kind, "%s", mr_comm_op_name((mr_comm_op)call->op));
    if (call->count)
        snprintf(op.dtype, sizeof op.dtype, "%s", mr_dtype_name((mr_dtype)call->dtype));
    c->op = mr_life_op_begin(&op);
}

static uint64_t bytes_sent(const mr_comm *c)
{
    uint64_t bytes = 0;
    for (int i = 0; i < c->n_sends; i++)
        bytes += c->sends[i].bytes;
    return bytes;
}

mr_status comm_complete(mr_comm *c, const mr_comm_head *call, double deadline_s)
{
    if (c->n_sends + c->n_receives == 0)
        return MR_OK;
    const double limit = deadline_s > 0 ? deadline_s : c->world->options.deadline_s;
    mr_life_op_wait(c->op);
    mr_status st = move(c, call, limit);
    if (st == MR_OK) {
        mr_life_op_end(c->op, bytes_sent(c));
    } else {
        for (int i = 0; i < c->n_sends; i++)
            c->world->transport->ops->drop(c->world->transport, &c->sends[i]);
        for (int i = 0; i < c->n_receives; i++)
            c->world->transport->ops->drop(c->world->transport, &c->receives[i]);
        comm_break(c, st);
    }
    c->n_sends = c->n_receives = 0;
    return st;
}

static void add(mr_comm *c, mr_parcel *p, const mr_comm_head *call, int rank, void *data,
                size_t bytes)
{
    *p = (mr_parcel){
        .peer = c->world_rank[rank], .lane = c->lane, .head = *call, .data = data, .bytes = bytes};
    p->head.bytes = bytes;
}

void comm_send(mr_comm *c, const mr_comm_head *call, int rank, const void *data, size_t bytes)
{
    add(c, &c->sends[c->n_sends++], call, rank, (void *)(uintptr_t)data, bytes);
    c->world->counted[call->op].bytes += (int64_t)bytes;
}

void comm_receive(mr_comm *c, const mr_comm_head *call, int rank, void *data, size_t bytes)
{
    add(c, &c->receives[c->n_receives++], call, rank, data, bytes);
}
