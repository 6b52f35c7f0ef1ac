/* comm: starts the ranks of this host as processes of this program, watches them, and ends them
 * together.
 * Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "base/process.h"
#include "comm/room.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GUARD_LOOK_MS = 50 };
/* The time for a last checkpoint after the launcher or another rank is lost. */
static const double SAVE_S = 25;

struct mr_ranks {
    mr_segment *segment;
    mr_life *page;
    mr_life_launch about;
    pid_t *pid; /* [ranks] 0: has ended */
    int *code;  /* [ranks] exit code */
    bool *hit;  /* [ranks] ended by a signal */
    pid_t guard;
    int ranks, running;
    int first, world;       /* first of these ranks, and all ranks of the run */
    int asked, asked_times; /* the first stop signal that this process received; how many */
    int last;               /* the last stop signal, and its time */
    double last_s;
    double grace_s;
    double failed_at; /* when ranks were notified of a failure; 0: no failure */
    double stop_at;   /* when they get the next signal */
    int next;         /* the next signal */
    int failed;       /* rank that mr_ranks_fail named, or -1 */
    char why[512];
    sigset_t heard;
    bool hears;
};

/* The signal state before the first launch of this process. */
static sigset_t before;
static struct sigaction child;
static int hearing; /* number of launches */

static const char *const place[] = {
    "MOONREEL_RANK",    "MOONREEL_WORLD_SIZE", "MOONREEL_LOCAL_RANK", "MOONREEL_LOCAL_SIZE",
    "MOONREEL_SEGMENT", "MOONREEL_PAGE",       "MOONREEL_LAUNCH"};

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

static void forget_place(void)
{
    for (size_t i = 0; i < MR_COUNT(place); i++)
        unsetenv(place[i]);
}

static void signal_all(const mr_ranks *l, int number)
{
    for (int r = 0; r < l->ranks; r++)
        if (l->pid[r] > 0)
            kill(l->pid[r], number);
}

/* ---- the guard ---- */

/* Close every inherited file of the guard except for the page. If the guard kept an end of a pipe
 * open, the process at the other end would never see the pipe close. */
static void let_go(const mr_ranks *l)
{
    const int page = mr_life_fd(l->page), null = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3 && null >= 0; i++)
        dup2(null, i);
    if (page > 3)
        syscall(SYS_close_range, 3, page - 1, 0);
    syscall(SYS_close_range, page + 1, ~0U, 0);
}

/* Start the guard, a process that outlives the launcher and then ends remaining ranks. */
static void stand_guard(const mr_ranks *l, pid_t launcher)
{
    static const int deaf[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    for (size_t i = 0; i < MR_COUNT(deaf); i++)
        signal(deaf[i], SIG_IGN);
    prctl(PR_SET_NAME, "moonreel-guard");
    let_go(l);
    // normally the launcher ends the guard; SIGUSR1 says that the launcher is lost
    sigset_t lost;
    sigemptyset(&lost), sigaddset(&lost, SIGUSR1);
    sigprocmask(SIG_BLOCK, &lost, NULL);
    prctl(PR_SET_PDEATHSIG, SIGUSR1);
    while (getppid() == launcher)
        sigwaitinfo(&lost, NULL);
    // the system has sent the signal to all ranks; a stopped one does not receive it
    const double end = mr_now_s() + SAVE_S;
    mr_life_process one;
    while (mr_life_processes(l->about.token, l->about.uid, &one, 1) > 0 && mr_now_s() < end)
        poll(NULL, 0, GUARD_LOOK_MS);
    while (mr_life_signal_all(l->about.token, l->about.uid, SIGKILL) > 0)
        poll(NULL, 0, GUARD_LOOK_MS);
    mr_life_free(l->page);
    _exit(0);
}

/* ---- starting ---- */

/* Run in the child before exec; nothing here can take a lock. */
static void become_rank(const mr_ranks *l, int rank, char *const *argv, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    sigprocmask(SIG_SETMASK, &before, NULL);
    mr_life_take(l->page, rank);
    char file[4096];
    mr_program_file(file);
    if (getppid() == parent)
        execv(file, argv);
    _exit(127);
}

static mr_status start(mr_ranks *l, char *const *argv)
{
    const pid_t self = getpid();
    const bool shares = !getenv("OMP_NUM_THREADS");
    // each rank gets its share of the processors, unless the environment says otherwise
    if (shares)
        set_number("OMP_NUM_THREADS", MR_MAX(1, (int)sysconf(_SC_NPROCESSORS_ONLN) / l->ranks));
    set_number("MOONREEL_WORLD_SIZE", l->world), set_number("MOONREEL_LOCAL_SIZE", l->ranks);
    set_number("MOONREEL_SEGMENT", mr_segment_fd(l->segment));
    set_number("MOONREEL_PAGE", mr_life_fd(l->page));
    setenv("MOONREEL_LAUNCH", l->about.token, 1);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    l->guard = fork();
    if (l->guard == 0)
        stand_guard(l, self);
    mr_status st = MR_OK;
    for (int r = 0; r < l->ranks && st == MR_OK; r++) {
        set_number("MOONREEL_RANK", l->first + r), set_number("MOONREEL_LOCAL_RANK", r);
        l->pid[r] = fork();
        if (l->pid[r] == 0)
            become_rank(l, r, argv, self);
        if (l->pid[r] > 0) {
            l->running++;
            continue;
        }
        l->pid[r] = 0;
        st = mr_fail(MR_E_IO, "cannot start rank %d of %d: %s; try: fewer ranks", l->first + r,
                     l->world, strerror(errno));
    }
    forget_place();
    if (shares)
        unsetenv("OMP_NUM_THREADS");
    return st;
}

/* Block signals until mr_ranks_look reads them. An ignored SIGCHLD would lose exit codes. */
static void hear(mr_ranks *l)
{
    struct sigaction usual = {.sa_handler = SIG_DFL};
    sigemptyset(&l->heard);
    sigaddset(&l->heard, SIGCHLD), sigaddset(&l->heard, SIGINT), sigaddset(&l->heard, SIGTERM);
    // an ignored SIGHUP (nohup) would still be delivered to a process that blocks it
    struct sigaction hangup;
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
        sigaddset(&l->heard, SIGHUP);
    l->hears = true;
    if (hearing++ > 0)
        return;
    sigprocmask(SIG_BLOCK, &l->heard, &before);
    sigaction(SIGCHLD, &usual, &child);
}

mr_status mr_ranks_start(char *const *argv, int ranks, int first, int world, double grace_s,
                         mr_ranks **out)
{
    *out = NULL;
    if (ranks < 1 || first < 0 || first > world - ranks)
        return mr_fail(MR_E_USAGE, "ranks %d to %d of %d", first, first + ranks - 1, world);
    mr_ranks *l = mr_calloc(1, sizeof *l);
    if (!l)
        return mr_fail_memory(sizeof *l);
    l->ranks = ranks, l->first = first, l->world = world, l->grace_s = grace_s, l->failed = -1;
    mr_status st = mr_segment_new(ranks, &l->segment);
    if (st == MR_OK)
        st = mr_life_new(ranks, first, world, &l->page);
    if (st == MR_OK) {
        mr_life_about(l->page, &l->about);
        l->pid = mr_calloc((size_t)ranks, sizeof *l->pid);
        l->code = mr_calloc((size_t)ranks, sizeof *l->code);
        l->hit = mr_calloc((size_t)ranks, sizeof *l->hit);
        st = l->pid && l->code && l->hit ? MR_OK : mr_fail_memory((size_t)ranks * sizeof *l->pid);
    }
    if (st == MR_OK) {
        hear(l);
        st = start(l, argv);
    }
    if (st != MR_OK) {
        mr_ranks_free(l);
        return st;
    }
    *out = l;
    return MR_OK;
}

/* ---- watching ---- */

// whether a signal asks to save and end
static bool is_stop(int number)
{
    return number == SIGINT || number == SIGTERM || number == SIGHUP;
}

static void say_how(const mr_ranks *l, int rank, char *text, size_t cap)
{
    int code = l->code[rank];
    bool hit = l->hit[rank], asked = is_stop(code - 128);
    rank += l->first;
    if (hit)
        snprintf(text, cap, "rank %d was ended by signal %d (%s)", rank, code - 128,
                 strsignal(code - 128));
    else if (asked)
        snprintf(text, cap, "rank %d ended as signal %d (%s) asked", rank, code - 128,
                 strsignal(code - 128));
    else
        snprintf(text, cap, "rank %d ended with exit code %d", rank, code);
}

static void tell_others(mr_ranks *l, const char *text)
{
    mr_segment_abort(l->segment, text);
    if (l->failed_at == 0)
        l->failed_at = mr_now_s(), l->stop_at = l->failed_at + l->grace_s, l->next = SIGTERM;
}

static void note_ends(mr_ranks *l)
{
    for (int r = 0; r < l->ranks; r++) {
        int how;
        if (!l->pid[r] || waitpid(l->pid[r], &how, WNOHANG) != l->pid[r])
            continue;
        l->pid[r] = 0, l->running--;
        l->hit[r] = !WIFEXITED(how);
        l->code[r] = l->hit[r] ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
        // tell the others how it ended before they notice that it is gone
        if (l->code[r] && l->failed_at == 0) {
            char text[128];
            say_how(l, r, text, sizeof text);
            tell_others(l, text);
        }
        mr_segment_mark_left(l->segment, r);
    }
}

static void hand_on(mr_ranks *l, int number, bool send)
{
    // a closing terminal and its shell each send a SIGHUP
    if (l->asked && number == SIGHUP)
        return;
    l->asked = l->asked ? l->asked : number;
    if (send)
        signal_all(l, l->asked_times ? SIGKILL : number);
    l->asked_times++;
}

void mr_ranks_signal(mr_ranks *l, int number)
{
    hand_on(l, number, true);
}

/* Whether a signal reaches the ranks without us: one from a terminal, or from a rank whose prompt
 * forwards it to all. A hangup reaches only the leader of the session; a rank treats two as one. */
static bool reaches_all(const mr_ranks *l, const siginfo_t *info)
{
    bool ours = info->si_code == SI_KERNEL && info->si_signo != SIGHUP;
    for (int r = 0; r < l->ranks && !ours; r++)
        ours = info->si_code == SI_USER && info->si_pid == l->pid[r];
    return ours;
}

/* Whether a rank writes a checkpoint because of a failure. A rank that fails notifies the others
 * before we see it. */
static bool one_saves(const mr_ranks *l)
{
    const double since = l->failed_at - l->grace_s;
    for (int r = 0; r < l->ranks; r++) {
        mr_life_rank now;
        mr_life_look(l->page, r, &now);
        if (l->pid[r] && now.phase_s > since &&
            (now.phase == MR_PHASE_SNAPSHOT || now.phase == MR_PHASE_PERSIST))
            return true;
    }
    return false;
}

/* Send the next signal to ranks that should have ended. While a checkpoint is written, wait for a
 * limited time. */
static void press(mr_ranks *l)
{
    const double now = mr_now_s();
    if (now < l->stop_at || (one_saves(l) && now < l->failed_at + SAVE_S))
        return;
    signal_all(l, l->next);
    l->stop_at = now + l->grace_s, l->next = SIGKILL;
}

int mr_ranks_look(mr_ranks *l, int ms)
{
    const struct timespec most = {ms / 1000, ms % 1000 * 1000000L};
    siginfo_t info;
    int number = l->running ? sigtimedwait(&l->heard, &info, &most) : 0;
    if (is_stop(number)) {
        const double now = mr_now_s();
        if (!mr_stop_again(l->last, number, now - l->last_s))
            hand_on(l, number, !reaches_all(l, &info));
        l->last = number, l->last_s = now;
    }
    note_ends(l);
    if (l->running && l->failed_at > 0)
        press(l);
    return l->running;
}

void mr_ranks_fail(mr_ranks *l, int rank, const char *text)
{
    if (l->failed_at > 0 || !l->pid[rank])
        return;
    l->failed = rank;
    snprintf(l->why, sizeof l->why, "%s", text);
    tell_others(l, text);
    kill(l->pid[rank], SIGKILL);
}

void mr_ranks_stop(mr_ranks *l, const char *text)
{
    tell_others(l, text);
}

const mr_life *mr_ranks_page(const mr_ranks *l)
{
    return l->page;
}

int mr_ranks_asked(const mr_ranks *l)
{
    return l->asked;
}

void mr_ranks_ended(const mr_ranks *l, mr_ranks_end *end)
{
    *end = (mr_ranks_end){.rank = -1};
    if (l->failed >= 0) {
        end->rank = l->first + l->failed, end->exit = mr_status_exit(MR_E_NODE);
        snprintf(end->text, sizeof end->text, "%s", l->why);
        return;
    }
    // the failed rank that left first: the exit code of the others says that they failed because of
    // it
    const int heard = mr_status_exit(MR_E_NODE);
    int first = 0;
    for (int r = 0; r < l->ranks; r++) {
        int left = mr_segment_left(l->segment, r);
        bool sooner = end->rank < 0 || (end->exit == heard) > (l->code[r] == heard) ||
                      ((end->exit == heard) == (l->code[r] == heard) && left < first);
        if (l->code[r] && sooner)
            first = left, end->rank = r, end->exit = l->code[r];
    }
    if (end->rank < 0)
        return;
    say_how(l, end->rank, end->text, sizeof end->text);
    end->rank += l->first;
}

/* End the processes that ranks have left behind; they have become our children. */
static void end_orphans(const mr_ranks *l)
{
    mr_life_process left;
    while (mr_life_processes(l->about.token, l->about.uid, &left, 1) > 0) {
        if (mr_life_signal(left.pid, left.start, l->about.uid, SIGKILL) != MR_OK)
            mr_error_clear();
        waitpid((pid_t)left.pid, NULL, 0);
    }
}

void mr_ranks_free(mr_ranks *l)
{
    if (!l)
        return;
    if (l->pid && l->running)
        signal_all(l, SIGKILL);
    for (int r = 0; r < l->ranks && l->pid; r++)
        if (l->pid[r] > 0)
            waitpid(l->pid[r], NULL, 0);
    if (l->guard > 0) {
        kill(l->guard, SIGKILL);
        waitpid(l->guard, NULL, 0);
        end_orphans(l);
        prctl(PR_SET_CHILD_SUBREAPER, 0);
    }
    if (l->hears && --hearing == 0) {
        sigaction(SIGCHLD, &child, NULL);
        sigprocmask(SIG_SETMASK, &before, NULL);
    }
    mr_free(l->pid), mr_free(l->code), mr_free(l->hit);
    mr_life_free(l->page);
    mr_segment_free(l->segment);
    mr_free(l);
}
