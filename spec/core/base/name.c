/* base/name.c: the known name that is nearest to a misspelled one. */
#include "moonreel/base.h"
#include "check.h"

static void distances(void)
{
    CHECK_INT(mr_name_distance("seed", "seed", 3), 0);
    CHECK_INT(mr_name_distance("epoch", "epochs", 3), 1);
    CHECK_INT(mr_name_distance("sede", "seed", 3), 1); // neighbours swapped
    CHECK_INT(mr_name_distance("warmup-steps", "Warmup_Steps", 3), 0);
    CHECK_INT(mr_name_distance("kitten", "sitting", 9), 3);
    CHECK_INT(mr_name_distance("kitten", "sitting", 1), 2); // cut off: limit + 1
    CHECK_INT(mr_name_distance("", "abc", 9), 3);
}

static void nearest(void)
{
    static const char *const fields[] = {"training", "ema", "no_moments", NULL};
    CHECK_STR(mr_name_nearest("trainign", fields), "training");
    CHECK_STR(mr_name_nearest("emma", fields), "ema");
    CHECK(mr_name_nearest("banana", fields) == NULL);
    static const char *const equals[] = {"ac", "ab", NULL}, *const none[] = {NULL};
    CHECK_STR(mr_name_nearest("aa", equals), "ab");
    CHECK(mr_name_nearest("aa", none) == NULL);
}

static void long_names(void)
{
    char a[200], b[200];
    memset(a, 'x', sizeof a), memset(b, 'x', sizeof b);
    a[199] = b[199] = 0;
    b[100] = 'y'; // beyond the compared length
    CHECK_INT(mr_name_distance(a, b, 100), 0);
    b[10] = 'y';
    CHECK_INT(mr_name_distance(a, b, 100), 1);
}

int main(void)
{
    distances();
    nearest();
    long_names();
    return check_done();
}
