/* Many ranks in one process, for spec/support/virtual.lua: a world of rings in memory, and one
 * thread per rank while all of them split a group or run their programs. The messages that each
 * rank sends and receives are recorded; a message may be lost on purpose. */
#include "bind/room.h"
#include "moonreel/comm.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS "spec.VirtualRanks"
enum { STACK_BYTES = 512 << 10, DEADLINE_S = 300 };

/* A call that a rank took part in, as in its messages. */
typedef struct report {
    int lane;
    mr_comm_head head;
    uint64_t bytes; /* that it sent */
} report;

typedef struct ranks ranks;

/* A rank's transport, which passes all calls on to the shared one. */
typedef struct noting {
    mr_transport transport;
    mr_transport *inner;
    ranks *all;
    uint64_t seen; /* moves of all ranks when it last paused */
    /* Moves of all ranks since which it has found nothing to do; OVER: its thread has ended. */
    _Atomic uint64_t stuck;
    report *list;
    int n, cap;
    int64_t until_lost; /* messages before the one that is not sent; below 0: all are */
} noting;

typedef struct rank {
    ranks *all;
    int at;
    noting transport;
    mr_comm *world;
    /* what it does next: either */
    mr_comm *of;
    int color, key, lane;
    mr_comm *made;
    mr_program *program;
    mr_status (*next)(struct rank *r);
    mr_status st;
    char text[1024];
} rank;

static const uint64_t OVER = UINT64_MAX;

struct ranks {
    int n, n_groups;
    _Atomic uint64_t moves; /* anything that any rank has sent or received */
    mr_segment *segment;
    rank *list;
    mr_comm **groups; /* the worlds, then all split groups, by their number in Lua */
};

/* ---- the transport ---- */

static void note(noting *w, const mr_parcel *p, uint64_t bytes)
{
    report *last = w->n ? &w->list[w->n - 1] : NULL;
    if (!last || last->head.group != p->head.group || last->head.seq != p->head.seq) {
        if (w->n == w->cap) {
            w->cap = w->cap ? 2 * w->cap : 64;
            w->list = realloc(w->list, (size_t)w->cap * sizeof *w->list);
        }
        last = &w->list[w->n++];
        *last = (report){.lane = p->lane, .head = p->head};
    }
    last->bytes += bytes;
}

static noting *noting_of(mr_transport *w)
{
    return (noting *)w;
}
static mr_status send(mr_transport *w, mr_parcel *p)
{
    noting *n = noting_of(w);
    bool headed = p->headed;
    if (!headed && n->until_lost >= 0 && n->until_lost-- == 0) {
        p->headed = p->done = true, p->moved = p->bytes;
        return MR_OK;
    }
    size_t before = p->moved;
    mr_status st = n->inner->ops->send(n->inner, p);
    if (!headed && p->headed)
        note(n, p, p->bytes);
    n->all->moves += headed != p->headed || before != p->moved;
    return st;
}
static mr_status receive(mr_transport *w, mr_parcel *p)
{
    noting *n = noting_of(w);
    bool headed = p->headed;
    size_t before = p->moved;
    mr_status st = n->inner->ops->receive(n->inner, p);
    if (!headed && p->headed)
        note(n, p, 0);
    n->all->moves += headed != p->headed || before != p->moved;
    return st;
}
static void drop(mr_transport *w, mr_parcel *p)
{
    noting_of(w)->inner->ops->drop(noting_of(w)->inner, p);
}
static bool has_left(mr_transport *w, int rank)
{
    return noting_of(w)->inner->ops->left(noting_of(w)->inner, rank);
}
static uint32_t look(mr_transport *w)
{
    return noting_of(w)->inner->ops->look(noting_of(w)->inner);
}
/* Has each rank that still runs found nothing to do since the last move of any? */
static bool all_stuck(ranks *all, uint64_t moves)
{
    for (int i = 0; i < all->n; i++) {
        uint64_t stuck = all->list[i].transport.stuck;
        if (stuck != OVER && stuck != moves)
            return false;
    }
    return all->moves == moves;
}
static void pause_until(mr_transport *w, uint32_t seen)
{
    noting *n = noting_of(w);
    uint64_t moves = n->all->moves;
    // between two pauses all messages are checked
    if (moves == n->seen) {
        n->stuck = moves;
        if (all_stuck(n->all, moves))
            mr_segment_abort(n->all->segment, "all ranks wait for each other");
    }
    n->seen = moves;
    n->inner->ops->pause(n->inner, seen);
}
static void give_up(mr_transport *w, const char *text)
{
    noting_of(w)->inner->ops->abort(noting_of(w)->inner, text);
}
static bool is_aborted(mr_transport *w, char *text, size_t cap)
{
    return noting_of(w)->inner->ops->aborted(noting_of(w)->inner, text, cap);
}
static void close_transport(mr_transport *w, bool clean)
{
    noting *n = noting_of(w);
    n->inner->ops->close(n->inner, clean);
    free(n->list);
    n->list = NULL;
}
static const mr_transport_ops noting_ops = {.send = send,
                                            .receive = receive,
                                            .drop = drop,
                                            .left = has_left,
                                            .look = look,
                                            .pause = pause_until,
                                            .abort = give_up,
                                            .aborted = is_aborted,
                                            .close = close_transport};

/* ---- all ranks at once ---- */

static void *rank_thread(void *arg)
{
    rank *r = arg;
    r->st = r->next(r);
    r->transport.stuck = OVER;
    if (r->st != MR_OK) {
        snprintf(r->text, sizeof r->text, "%s", mr_error_last()->text);
        // a rank that fails ends the others, which would wait for it
        mr_segment_abort(r->all->segment, r->text);
    }
    return NULL;
}

/* Each rank runs `next` in a thread of its own. Returns the first that failed, or -1. */
static int together(ranks *all, mr_status (*next)(rank *r))
{
    pthread_t *threads = calloc((size_t)all->n, sizeof *threads);
    pthread_attr_t small;
    int started = 0;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK_BYTES);
    // before any begins: one that is still to begin is not over
    for (int i = 0; i < all->n; i++) {
        all->list[i].next = next;
        all->list[i].transport.seen = OVER, all->list[i].transport.stuck = 0;
    }
    for (; started < all->n; started++)
        if (pthread_create(&threads[started], &small, rank_thread, &all->list[started]) != 0)
            break;
    if (started < all->n) {
        mr_segment_abort(all->segment, "no more threads");
        all->list[started].st = MR_E_MEMORY;
        snprintf(all->list[started].text, sizeof all->list[0].text, "no more threads");
    }
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    pthread_attr_destroy(&small);
    free(threads);
    // the others only report it
    int first = -1;
    for (int i = all->n; i-- > 0;)
        if (all->list[i].st != MR_OK && (first < 0 || !strstr(all->list[i].text, "gave up")))
            first = i;
    return first;
}

static void check(lua_State *L, const ranks *all, int failed)
{
    if (failed >= 0)
        luaL_error(L, "rank %d of %d: %s", failed, all->n, all->list[failed].text);
}

static ranks *ranks_at(lua_State *L)
{
    ranks **box = luaL_checkudata(L, 1, RANKS);
    return *box ? *box : (luaL_error(L, "these ranks are closed"), NULL);
}

static int r_close(lua_State *L)
{
    ranks **box = luaL_checkudata(L, 1, RANKS);
    ranks *all = *box;
    *box = NULL;
    if (!all)
        return 0;
    for (int i = all->n_groups; i-- > 0;)
        mr_comm_free(all->groups[i]);
    mr_segment_free(all->segment);
    free(all->groups), free(all->list), free(all);
    return 0;
}

/* ---- worlds, splits, runs ---- */

static int add_group(ranks *all, mr_comm *c)
{
    all->groups = realloc(all->groups, (size_t)(all->n_groups + 1) * sizeof *all->groups);
    all->groups[all->n_groups++] = c;
    return all->n_groups; // as Lua counts
}

static mr_status meet(rank *r)
{
    const mr_comm_options options = {.deadline_s = DEADLINE_S};
    mr_transport *inner;
    MR_TRY(mr_segment_transport(r->all->segment, r->at, &inner));
    r->transport.transport = (mr_transport){&noting_ops, r->at, r->all->n};
    r->transport.inner = inner;
    return mr_comm_world(&r->transport.transport, &options, &r->world);
}

/* new(n) -> ranks whose groups 1 to n are the worlds */
static int b_new(lua_State *L)
{
    const int n = (int)luaL_checkinteger(L, 1);
    ranks **box = lua_newuserdatauv(L, sizeof *box, 0), *all = calloc(1, sizeof *all);
    *box = all;
    luaL_setmetatable(L, RANKS);
    all->n = n, all->moves = 1;
    all->list = calloc((size_t)n, sizeof *all->list);
    if (mr_segment_new(n, &all->segment) != MR_OK)
        return luaL_error(L, "%s", mr_error_last()->text);
    for (int i = 0; i < n; i++)
        all->list[i] = (rank){.all = all, .at = i, .transport = {.all = all, .until_lost = -1}};
    int failed = together(all, meet);
    for (int i = 0; i < n; i++)
        add_group(all, all->list[i].world);
    check(L, all, failed);
    return 1;
}

static mr_status split(rank *r)
{
    return mr_comm_split(r->of, r->color, r->key, r->lane, &r->made);
}

/* split({{group, color, key, lane}, ...}) -> {number or false, ...}, one per rank */
static int r_split(lua_State *L)
{
    ranks *all = ranks_at(L);
    for (int i = 0; i < all->n; i++) {
        int *fields[] = {NULL, &all->list[i].color, &all->list[i].key, &all->list[i].lane};
        lua_rawgeti(L, 2, i + 1);
        for (int k = 0; k < 4; k++) {
            lua_rawgeti(L, -1, k + 1);
            int x = (int)luaL_checkinteger(L, -1);
            if (k == 0)
                all->list[i].of = all->groups[x - 1];
            else
                *fields[k] = x;
            lua_pop(L, 1);
        }
        lua_pop(L, 1);
    }
    check(L, all, together(all, split));
    lua_createtable(L, all->n, 0);
    for (int i = 0; i < all->n; i++) {
        if (all->list[i].made)
            lua_pushinteger(L, add_group(all, all->list[i].made));
        else
            lua_pushboolean(L, false);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static mr_status run(rank *r)
{
    return mr_program_run(r->program);
}

/* run({program, ...}) */
static int r_run(lua_State *L)
{
    ranks *all = ranks_at(L);
    for (int i = 0; i < all->n; i++) {
        lua_rawgeti(L, 2, i + 1);
        program *const *box = luaL_checkudata(L, -1, "mr.Program");
        all->list[i].program = (*box)->prog;
        lua_pop(L, 1);
    }
    check(L, all, together(all, run));
    return 0;
}

/* ---- facts ---- */

static mr_comm *group_at(lua_State *L, int arg)
{
    return ranks_at(L)->groups[luaL_checkinteger(L, arg) - 1];
}
/* group(number) -> rank, size */
static int r_group(lua_State *L)
{
    lua_pushinteger(L, mr_comm_rank(group_at(L, 2)));
    lua_pushinteger(L, mr_comm_size(group_at(L, 2)));
    return 2;
}
/* op_group(number) -> number for ops */
static int r_op_group(lua_State *L)
{
    int64_t number;
    if (mr_comm_op_group(group_at(L, 2), &number) != MR_OK)
        return luaL_error(L, "%s", mr_error_last()->text);
    lua_pushinteger(L, number);
    return 1;
}

/* reported(rank) -> {"lane op count", ...} since the last call of it, and the bytes that were
 * sent */
static int r_reported(lua_State *L)
{
    noting *w = &ranks_at(L)->list[luaL_checkinteger(L, 2)].transport;
    uint64_t bytes = 0;
    lua_createtable(L, w->n, 0);
    for (int i = 0; i < w->n; i++) {
        const report *t = &w->list[i];
        lua_pushfstring(L, "%d %s %I", t->lane, mr_comm_op_name((mr_comm_op)t->head.op),
                        (LUAI_UACINT)t->head.count);
        lua_rawseti(L, -2, i + 1);
        bytes += t->bytes;
    }
    w->n = 0;
    lua_pushinteger(L, (lua_Integer)bytes);
    return 2;
}

/* lose(rank, n): its n-th message from now on, from 0, is not sent */
static int r_lose(lua_State *L)
{
    ranks_at(L)->list[luaL_checkinteger(L, 2)].transport.until_lost = luaL_checkinteger(L, 3);
    return 0;
}

static const luaL_Reg methods[] = {
    {"split", r_split},       {"run", r_run},   {"group", r_group}, {"op_group", r_op_group},
    {"reported", r_reported}, {"lose", r_lose}, {"close", r_close}, {"__gc", r_close},
    {"__close", r_close},     {NULL, NULL}};

MR_API int luaopen_virtual_ranks(lua_State *L);
MR_API int luaopen_virtual_ranks(lua_State *L)
{
    luaL_newmetatable(L, RANKS);
    luaL_setfuncs(L, methods, 0);
    lua_pushvalue(L, -1), lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, b_new);
    return 1;
}
