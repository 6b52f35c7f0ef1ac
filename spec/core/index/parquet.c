/* index/parquet: a child gives Parquet as JSON lines; which one, what it says when it fails, and
 * that none stays behind. Programs of the spec stand for duckdb and python3. */
#include "base/process.h"
#include "check.h"
#include "clips.h"
#include "index/room.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char bin[300], file[300];

// what a child prints for a row
#define ROW(path, text) "printf '{\"path\":\"%s\",\"text\":\"%s\"}\\n' \"" path "\" " text "; "

// a program that only these specs know
static void program(const char *name, const char *script)
{
    char path[400], text[600];
    snprintf(path, sizeof path, "%s/%s", bin, name);
    if (!script) {
        unlink(path);
        return;
    }
    snprintf(text, sizeof text, "#!/bin/sh\n%s\n", script);
    CHECK_OK(mr_file_replace(path, text, strlen(text)));
    CHECK_INT(chmod(path, 0755), 0);
}

static int rows;
static char last[100];
static mr_status count_row(void *user, const index_input *in)
{
    (void)user;
    rows++;
    snprintf(last, sizeof last, "%s: %s", in->path, in->text);
    return strcmp(in->path, "stop") ? MR_OK : mr_fail(MR_E_RANGE, "a row to stop at");
}

static mr_status read_file(void)
{
    index_scores scores = {0};
    rows = 0;
    return index_table_read(file, &scores, count_row, NULL);
}

// no child is left, running or dead
static bool alone(void)
{
    return waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD;
}

int main(void)
{
    mr_streams_hold(); // as the program does: its children take theirs from it
    snprintf(bin, sizeof bin, "%s", clips_path("bin"));
    CHECK_OK(mr_dir_make(bin));
    snprintf(file, sizeof file, "%s", clips_path("it's.parquet"));
    CHECK_OK(mr_file_replace(file, "", 0));
    setenv("PATH", bin, 1);
    CHECK_FAILS(read_file(), MR_E_UNSUPPORTED,
                "duckdb command, or by python3 with pyarrow, and "
                "neither is here");
    program("python3", "exit 77");
    CHECK_FAILS(read_file(), MR_E_UNSUPPORTED, "neither is here");
    program("python3", ROW("$3", "one"));
    CHECK_OK(read_file());
    CHECK_INT(rows, 1);
    CHECK(strstr(last, "it's.parquet: one"));
    // duckdb comes first, and gets the name as an SQL text
    program("duckdb", ROW("$2", "two") ROW("3.mp4", "three"));
    CHECK_OK(read_file());
    CHECK_INT(rows, 2);
    CHECK_STR(last, "3.mp4: three");
    program("duckdb", ROW("$2", "two"));
    CHECK_OK(read_file());
    CHECK(strstr(last, "COPY (SELECT * FROM read_parquet('/"));
    CHECK(strstr(last, "it''s.parquet'"));
    // its failure counts, also behind rows, and its own words are told
    program("duckdb", ROW("1.mp4", "one") "echo 'no such' >&2; echo column >&2; exit 3");
    CHECK_FAILS(read_file(), MR_E_DATA, "the child that reads Parquet failed: no such column");
    CHECK_INT(rows, 1);
    program("duckdb", "kill -9 $$");
    CHECK_FAILS(read_file(), MR_E_DATA, "failed: it said nothing");
    // what is wrong with a row is told, and the child ends though it has more to say
    program("duckdb", ROW("stop", "one") "while :; do " ROW("a.mp4", "more") "done");
    CHECK_FAILS(read_file(), MR_E_RANGE, "a row to stop at");
    CHECK_INT(rows, 1);
    program("duckdb", "while :; do echo '{\"path\":\"a.mp4\",\"caption\":null}'; done");
    CHECK_FAILS(read_file(), MR_E_DATA,
                "it's.parquet:1: no text value 'text'; values found: path, caption; expected path "
                "and text; try: --columns path=NAME");
    // as lists and nulls come
    program("duckdb", "echo '{\"path\":\"a.mp4\",\"text\":[\"one\",null,\"two\"]}'; "
                      "echo '{\"path\":\"b.mp4\",\"text\":null,\"flow\":NaN}'");
    CHECK_OK(read_file());
    CHECK_INT(rows, 2);
    CHECK_STR(last, "b.mp4: ");
    // a person interrupts one that says nothing
    program("duckdb", "while :; do :; done");
    mr_interrupt_set(true);
    CHECK_INT(read_file(), MR_E_STOPPED);
    mr_interrupt_set(false);
    CHECK(alone());
    snprintf(file, sizeof file, "%s", clips_path("none.parquet"));
    CHECK_FAILS(read_file(), MR_E_DATA, "none.parquet: cannot open: No such file");
    return check_done();
}
