/* comm: ranks of this host as processes of this program: started, watched, ended together.
 * Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/room.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOOK_MS = 100 }; /* between two looks at the time */

typedef struct launch {
    mr_meeting *meeting;
    pid_t *pid; /* [ranks] 0: ended */
    int *code;  /* [ranks] exit code */
    int ranks, running;
    int asked;      /* signals that this process was sent */
    double stop_at; /* when ranks get the next signal; 0: nothing has failed */
    int next;       /* that signal */
} launch;

static const char *const place[] = {"MOONREEL_RANK", "MOONREEL_WORLD_SIZE", "MOONREEL_LOCAL_RANK",
                                    "MOONREEL_MEETING"};

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

static void signal_all(const launch *l, int number)
{
    for (int r = 0; r < l->ranks; r++)
        if (l->pid[r] > 0)
            kill(l->pid[r], number);
}

/* ---- starting ---- */

/* What a child does before it is the program; nothing here may take a lock. */
static void become_rank(char *const *argv, const sigset_t *mask, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    sigprocmask(SIG_SETMASK, mask, NULL);
    if (getppid() == parent)
        execv("/proc/self/exe", argv);
    _exit(127);
}

static mr_status start(launch *l, char *const *argv, const sigset_t *mask)
{
    const pid_t self = getpid();
    // each its share of the processors, where nobody says otherwise
    if (!getenv("OMP_NUM_THREADS"))
        set_number("OMP_NUM_THREADS", MR_MAX(1, (int)sysconf(_SC_NPROCESSORS_ONLN) / l->ranks));
    set_number(place[1], l->ranks), set_number(place[3], mr_meeting_fd(l->meeting));
    for (int r = 0; r < l->ranks; r++) {
        set_number(place[0], r), set_number(place[2], r);
        l->pid[r] = fork();
        if (l->pid[r] == 0)
            become_rank(argv, mask, self);
        if (l->pid[r] < 0) {
            l->pid[r] = 0;
            return mr_fail(MR_E_IO, "cannot start rank %d of %d: %s; try: fewer ranks", r, l->ranks,
                           strerror(errno));
        }
        l->running++;
    }
    return MR_OK;
}

/* ---- watching ---- */

static void say_how(const launch *l, int rank, char *text, size_t cap)
{
    int code = l->code[rank];
    if (code > 128)
        snprintf(text, cap, "rank %d was ended by signal %d (%s)", rank, code - 128,
                 strsignal(code - 128));
    else
        snprintf(text, cap, "rank %d ended with exit code %d", rank, code);
}

static void note_ends(launch *l, double grace_s)
{
    for (int r = 0; r < l->ranks; r++) {
        int how;
        if (!l->pid[r] || waitpid(l->pid[r], &how, WNOHANG) != l->pid[r])
            continue;
        l->pid[r] = 0, l->running--;
        l->code[r] = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
        mr_meeting_mark_left(l->meeting, r);
        if (!l->code[r] || l->stop_at > 0)
            continue;
        char text[128];
        say_how(l, r, text, sizeof text);
        mr_meeting_abort(l->meeting, text);
        l->stop_at = mr_now_s() + grace_s, l->next = SIGTERM;
    }
}

static void watch(launch *l, const sigset_t *heard, double grace_s)
{
    const struct timespec most = {0, LOOK_MS * 1000000L};
    while (l->running) {
        siginfo_t info;
        int number = sigtimedwait(heard, &info, &most);
        // a terminal's signal reaches the ranks without us
        if ((number == SIGINT || number == SIGTERM) && info.si_code != SI_KERNEL)
            signal_all(l, l->asked++ ? SIGKILL : number);
        note_ends(l, grace_s);
        if (l->stop_at > 0 && mr_now_s() > l->stop_at) {
            signal_all(l, l->next);
            l->stop_at = mr_now_s() + grace_s, l->next = SIGKILL;
        }
    }
}

/* The failed rank that left first: others fail because it did. */
static void tell_end(const launch *l, mr_ranks_end *end)
{
    *end = (mr_ranks_end){.rank = -1};
    int first = 0;
    for (int r = 0; r < l->ranks; r++) {
        int left = mr_meeting_left(l->meeting, r);
        if (!l->code[r] || (end->rank >= 0 && left > first))
            continue;
        first = left, end->rank = r, end->exit = l->code[r];
    }
    if (end->rank >= 0)
        say_how(l, end->rank, end->text, sizeof end->text);
}

mr_status mr_ranks_run(char *const *argv, int ranks, double grace_s, mr_ranks_end *end)
{
    launch l = {.ranks = ranks};
    MR_TRY(mr_meeting_new(ranks, &l.meeting));
    l.pid = mr_calloc((size_t)ranks, sizeof *l.pid);
    l.code = mr_calloc((size_t)ranks, sizeof *l.code);
    mr_status st = l.pid && l.code ? MR_OK : mr_fail_memory((size_t)ranks * sizeof *l.pid);
    if (st == MR_OK) {
        // signals wait until watch() asks for them; an ignored SIGCHLD would lose exit codes
        sigset_t heard, before;
        struct sigaction usual = {.sa_handler = SIG_DFL}, child;
        sigemptyset(&heard);
        sigaddset(&heard, SIGCHLD), sigaddset(&heard, SIGINT), sigaddset(&heard, SIGTERM);
        sigprocmask(SIG_BLOCK, &heard, &before);
        sigaction(SIGCHLD, &usual, &child);
        st = start(&l, argv, &before);
        forget_place();
        if (st != MR_OK)
            signal_all(&l, SIGKILL);
        watch(&l, &heard, grace_s);
        sigaction(SIGCHLD, &child, NULL);
        sigprocmask(SIG_SETMASK, &before, NULL);
        tell_end(&l, end);
    }
    mr_free(l.pid), mr_free(l.code);
    mr_meeting_free(l.meeting);
    return st;
}
