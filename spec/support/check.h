/* Asserts of the C specs. They print file, line and both values, count failures, and fail the
 * program at the end. Each returns whether it passed. Use: int main(void) { CHECK_INT(f(1), 2);
 * return check_done(); } */
#ifndef MR_CHECK_H
#define MR_CHECK_H
#include "moonreel/base.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* This many failures are enough to read; a broken loop would print without end. */
enum { CHECK_MOST_FAILED = 1000 };

/* Counted by all threads of a spec. The GPU emulator lacks the atomics that the thread sanitizer
 * watches. */
static int check_passed, check_failed;
static __attribute__((noinline, unused, no_sanitize_thread)) int check_count(int *n, int more)
{
    return __atomic_add_fetch(n, more, __ATOMIC_RELAXED);
}

#define CHECK(cond) check_bool((cond) != 0, #cond, __FILE__, __LINE__)
#define CHECK_INT(got, want)                                                                       \
    check_int((long long)(got), (long long)(want), #got, __FILE__, __LINE__)
#define CHECK_STR(got, want)          check_str((got), (want), #got, __FILE__, __LINE__)
#define CHECK_NEAR(got, want, tol)    check_near((got), (want), (tol), #got, __FILE__, __LINE__)
#define CHECK_OK(call)                check_status((call), MR_OK, #call, __FILE__, __LINE__)
#define CHECK_FAILS(call, code, part) check_fails((call), (code), (part), #call, __FILE__, __LINE__)

// whether the text of the last failure, with its causes, says what to try
static inline int check_tries(void)
{
    char text[4096];
    return mr_error_format(mr_error_last(), text, sizeof text) && strstr(text, "try: ");
}

static inline int check_done(void)
{
    int failed = check_count(&check_failed, 0);
    printf("%d passed, %d failed\n", check_count(&check_passed, 0), failed);
    return failed ? 1 : 0;
}
static inline int check_note(int ok)
{
    if (!ok && check_count(&check_failed, 0) >= CHECK_MOST_FAILED) {
        printf("more than %d failed: the rest is not run\n", CHECK_MOST_FAILED);
        exit(check_done());
    }
    check_count(ok ? &check_passed : &check_failed, 1);
    return ok;
}
static inline int check_bool(int ok, const char *what, const char *file, int line)
{
    if (!check_note(ok))
        printf("%s:%d: not true: %s\n", file, line, what);
    return ok;
}
static inline int check_int(long long got, long long want, const char *what, const char *file,
                            int line)
{
    if (!check_note(got == want))
        printf("%s:%d: %s is %lld, expected %lld\n", file, line, what, got, want);
    return got == want;
}
static inline int check_str(const char *got, const char *want, const char *what, const char *file,
                            int line)
{
    int ok = check_note(got && strcmp(got, want) == 0);
    if (!ok)
        printf("%s:%d: %s is \"%s\", expected \"%s\"\n", file, line, what, got ? got : "(null)",
               want);
    return ok;
}
static inline int check_near(double got, double want, double tol, const char *what,
                             const char *file, int line)
{
    int ok = check_note(fabs(got - want) <= tol);
    if (!ok)
        printf("%s:%d: %s is %.9g, expected %.9g within %.3g\n", file, line, what, got, want, tol);
    return ok;
}
static inline int check_status(mr_status st, mr_status want, const char *what, const char *file,
                               int line)
{
    if (check_note(st == want))
        return 1;
    char text[4096];
    mr_error_format(mr_error_last(), text, sizeof text);
    printf("%s:%d: %s returned %s, expected %s\n  %s\n", file, line, what, mr_status_name(st),
           mr_status_name(want), text);
    return 0;
}
/* The call fails with `code` and its message contains `part`. */
static inline int check_fails(mr_status st, mr_status code, const char *part, const char *what,
                              const char *file, int line)
{
    char text[4096] = "";
    if (st != MR_OK)
        mr_error_format(mr_error_last(), text, sizeof text);
    int ok = check_note(st == code && strstr(text, part));
    if (!ok)
        printf("%s:%d: %s returned %s: \"%s\"; expected %s with \"%s\"\n", file, line, what,
               mr_status_name(st), text, mr_status_name(code), part);
    return ok;
}
#endif
