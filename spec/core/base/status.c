/* base/status: the error record, its cause chain, and its transfer between threads.
 * Covers: core/base/log.c */
#include "check.h"

#include <pthread.h>
#include <stdlib.h>

static mr_status deepest(void)
{
    return mr_fail(MR_E_DATA, "clip '%s' has %d frames", "a.mp4", 3);
}
static mr_status middle(void)
{
    mr_status st = deepest();
    return st == MR_OK ? st : mr_fail_note("sample %d could not be read", 17);
}

static void chain(void)
{
    char text[1024];
    CHECK_INT(middle(), MR_E_DATA);
    mr_fail_where("decode", "loader", "recipe.lua:4");
    mr_error_format(mr_error_last(), text, sizeof text);
    CHECK_STR(
        text,
        "recipe.lua:4: decode 'loader': sample 17 could not be read\n  clip 'a.mp4' has 3 frames");
    CHECK_INT(mr_status_exit(mr_error_last()->code), 4);
    CHECK(strstr(mr_error_last()->file, "status.c") != NULL);
    // control characters of a hostile name are removed
    mr_fail(MR_E_DATA, "clip '%s'", "a\033[2J\a\177b");
    CHECK_STR(mr_error_last()->text, "clip 'a?[2J??b'");
    // a new failure starts a new error record
    mr_fail(MR_E_USAGE, "no such option");
    CHECK(mr_error_last()->cause == NULL);
    // text is cut off to a small buffer, and its whole length is reported
    CHECK_INT(mr_error_format(mr_error_last(), text, 5), 14);
    CHECK_STR(text, "no s");
    // after many notes the newest remain, and the chain ends
    mr_fail(MR_E_IO, "first");
    for (int i = 0; i < 50; i++)
        mr_fail_note("note %d", i);
    int n = 0;
    for (const mr_error *e = mr_error_last(); e; e = e->cause)
        n++;
    CHECK(n >= 2 && n <= 8);
    CHECK_STR(mr_error_last()->text, "note 49");
    mr_error_clear();
    CHECK(mr_error_last() == NULL);
}

// what to try ends the message about the contents of a file, once
static void tries(void)
{
    char text[1024];
    CHECK_INT(mr_fail_try(middle(), "copy it again"), MR_E_DATA);
    mr_fail_try(mr_fail_note("index.mrx"), "build it again");
    mr_error_format(mr_error_last(), text, sizeof text);
    CHECK_STR(text, "index.mrx\n  sample 17 could not be read\n    clip 'a.mp4' has 3 frames; try: "
                    "copy it again");
    mr_fail(MR_E_FORMAT, "a header is cut off; try: another file");
    mr_fail_try(mr_fail_note("a.bin"), "copy it again");
    CHECK_STR(mr_error_last()->text, "a.bin");
    CHECK_STR(mr_error_last()->cause->text, "a header is cut off; try: another file");
    // neither a failure of the disk nor of memory is one of the contents
    CHECK_INT(mr_fail_try(mr_fail(MR_E_IO, "cannot open"), "copy it again"), MR_E_IO);
    CHECK_STR(mr_error_last()->text, "cannot open");
    mr_fail(MR_E_CKPT, "%*s", (int)sizeof text, "long");
    CHECK_INT(strlen(mr_error_last()->text), sizeof mr_error_last()->text - 1);
    CHECK_INT(mr_fail_try(MR_E_CKPT, "copy it again"), MR_E_CKPT);
    CHECK_INT(strlen(mr_error_last()->text), sizeof mr_error_last()->text - 1);
    mr_error_clear();
    CHECK_INT(mr_fail_try(MR_OK, "copy it again"), MR_OK);
}

static void *on_thread(void *out)
{
    middle();
    *(mr_error **)out = mr_error_copy(mr_error_last());
    return NULL;
}

static void carried(void)
{
    pthread_t t;
    mr_error *err = NULL;
    mr_error_clear();
    pthread_create(&t, NULL, on_thread, &err);
    pthread_join(t, NULL);
    CHECK(mr_error_last() == NULL); // each thread has its own record
    CHECK_INT(mr_error_adopt(err), MR_E_DATA);
    mr_error_free(err);
    CHECK_STR(mr_error_last()->text, "sample 17 could not be read");
    CHECK_STR(mr_error_last()->cause->text, "clip 'a.mp4' has 3 frames");
}

static void names(void)
{
    for (int i = 0; i < MR_STATUS_COUNT; i++)
        CHECK_INT(mr_status_from_name(mr_status_name((mr_status)i)), i);
    CHECK_INT(mr_status_from_name("MR_E_NOBODY"), MR_STATUS_COUNT);
    CHECK_INT(mr_status_exit(MR_E_RECIPE), 3);
    CHECK_INT(mr_status_exit(MR_E_LOCK), 8);
}

int main(void)
{
    chain();
    tries();
    carried();
    names();
    return check_done();
}
