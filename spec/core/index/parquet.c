/* index/parquet: a child converts Parquet to JSON lines; which one, its error when it fails, and
 * that no child remains. Programs of the spec replace duckdb and python3. */
#include "base/process.h"
#include "check.h"
#include "clips.h"
#include "index/table.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char bin[300], file[300];

// a child's output for a row
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
static mr_number number;
static mr_status count_row(void *user, const index_input *in)
{
    (void)user;
    rows++;
    snprintf(last, sizeof last, "%s: %s", in->path, in->text);
    number = index_input_number(in, 0);
    return strcmp(in->path, "stop") ? MR_OK : mr_fail(MR_E_RANGE, "a row to stop at");
}

static mr_status read_file(void)
{
    index_scores scores = {0};
    rows = 0;
    return index_table_read(file, &scores, count_row, NULL);
}

// a file of one row whose path identifies the file
static void put(const char *name)
{
    char text[200];
    snprintf(file, sizeof file, "%s", clips_path(name));
    snprintf(text, sizeof text, "{\"path\":\"of %c%zu\",\"text\":\"\"}\n", *name, strlen(name));
    CHECK_OK(mr_file_replace(file, text, strlen(text)));
}

// The name of a file is used as it is. duckdb would read it as a pattern, as a shell does, and the
// names of directories above a file as columns.
static void read_names(void)
{
    static const char *const names[][2] = {{"a[1].parquet", "a1.parquet"},
                                           {"b*.parquet", "bxyz.parquet"},
                                           {"c?.parquet", "c12.parquet"},
                                           {"d\\[1].parquet", "d1.parquet"},
                                           {"it's.parquet", "its.parquet"}};
    char want[40];
    program("duckdb", "name=${2#*read_parquet(\\'}; name=${name%%\\'*}; "
                      "for one in $name; do while read -r row; do echo \"$row\"; done <\"$one\"; "
                      "done");
    for (size_t i = 0; i < MR_COUNT(names); i++) {
        put(names[i][1]), put(names[i][0]);
        CHECK_OK(read_file());
        CHECK_INT(rows, 1);
        snprintf(want, sizeof want, "of %c%zu: ", names[i][0][0], strlen(names[i][0]));
        CHECK_STR(last, want);
    }
}

// no child remains, running or dead
static bool alone(void)
{
    return waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD;
}

// a clock that advances when a process sleeps, `jumps` times
static mr_clock real, quick;
static int64_t ahead_ns;
static int jumps;
static bool interrupts;
static int64_t quick_ns(void)
{
    return real.monotonic_ns() + ahead_ns;
}
static void quick_sleep(int64_t ns)
{
    real.sleep_ns(ns);
    if (interrupts && !mr_interrupt_get())
        mr_interrupt_set(true);
    else if (jumps > 0)
        jumps--, ahead_ns += 1000000000000;
}

// children that do not end by themselves
#define ON "while :; do :; done"
static void outlast(void)
{
    real = quick = *mr_clock_table();
    quick.monotonic_ns = quick_ns, quick.sleep_ns = quick_sleep;
    mr_clock_replace(&quick);
    // it closed its output: it is asked to end, and its output is reported
    program("duckdb", ROW("1.mp4", "one") "trap 'echo as you say >&2; exit 0' TERM; exec >&-; " ON);
    jumps = 1;
    CHECK_FAILS(read_file(), MR_E_DATA,
                "the child that reads Parquet has closed its output, but not ended in 5 s, so "
                "that rows may be missing: as you say; try: export CSV");
    CHECK_INT(rows, 1);
    // and one that ignores this is killed
    program("duckdb", "trap '' TERM; exec >&-; " ON);
    jumps = 2;
    CHECK_FAILS(read_file(), MR_E_DATA, "rows may be missing: it printed no error");
    // Ctrl-C ends the wait for it
    jumps = 1, interrupts = true;
    CHECK_FAILS(read_file(), MR_E_STOPPED, "stopped");
    mr_interrupt_set(interrupts = false);
    CHECK_INT(jumps, 0);
    // nor is a child waited for whose output is not read further
    program("duckdb", "trap '' TERM PIPE; " ROW("stop", "one") ON);
    jumps = 1;
    CHECK_FAILS(read_file(), MR_E_RANGE, "a row to stop at");
    mr_clock_replace(NULL);
    CHECK(alone());
}

int main(void)
{
    mr_streams_hold(); // as in the program: its children inherit these streams
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
    // duckdb comes first, and gets the file without its name
    program("duckdb", ROW("$2", "two") ROW("3.mp4", "three"));
    CHECK_OK(read_file());
    CHECK_INT(rows, 2);
    CHECK_STR(last, "3.mp4: three");
    program("duckdb", ROW("$2", "two"));
    CHECK_OK(read_file());
    CHECK_STR(last, "COPY (SELECT * FROM read_parquet('/dev/stdin')) TO '/dev/stdout' "
                    "(FORMAT JSON): two");
    // its failure counts, also after rows, and its own error is reported
    program("duckdb", ROW("1.mp4", "one") "echo 'no such' >&2; echo column >&2; exit 3");
    CHECK_FAILS(read_file(), MR_E_DATA, "the child that reads Parquet failed: no such column");
    CHECK_INT(rows, 1);
    program("duckdb", "kill -9 $$");
    CHECK_FAILS(read_file(), MR_E_DATA, "failed: it printed no error");
    // an error of a row is reported, and the child ends although it has more output
    program("duckdb", ROW("stop", "one") "while :; do " ROW("a.mp4", "more") "done");
    CHECK_FAILS(read_file(), MR_E_RANGE, "a row to stop at");
    CHECK_INT(rows, 1);
    program("duckdb", "while :; do echo '{\"path\":\"a.mp4\",\"caption\":null}'; done");
    CHECK_FAILS(read_file(), MR_E_DATA,
                "it's.parquet:1: no text value 'text'; values found: path, caption; expected path "
                "and text; try: --columns path=NAME");
    // the forms of lists and nulls
    program("duckdb", "echo '{\"path\":\"a.mp4\",\"text\":[\"one\",null,\"two\"]}'; "
                      "echo '{\"path\":\"b.mp4\",\"text\":null,\"flow\":NaN}'");
    CHECK_OK(read_file());
    CHECK_INT(rows, 2);
    CHECK_STR(last, "b.mp4: ");
    // a number of f32 is printed with the digits of f64, and is equal to the original
    program("duckdb", "echo '{\"path\":\"a\",\"text\":\"b\",\"aes\":5.099999904632568}'");
    CHECK_OK(read_file());
    CHECK(number.f == 5.1);
    program("duckdb", "echo '{\"path\":\"a\",\"text\":\"b\",\"aes\":5.0999999046325}'");
    CHECK_OK(read_file());
    CHECK(number.f == 5.0999999046325);
    // a user interrupts one that prints nothing
    program("duckdb", "while :; do :; done");
    mr_interrupt_set(true);
    CHECK_INT(read_file(), MR_E_STOPPED);
    mr_interrupt_set(false);
    CHECK(alone());
    read_names();
    outlast();
    snprintf(file, sizeof file, "%s", clips_path("folder.parquet"));
    CHECK_OK(mr_dir_make(file));
    CHECK_FAILS(read_file(), MR_E_DATA,
                "folder.parquet: is not a regular file; expected a .parquet file");
    snprintf(file, sizeof file, "%s", clips_path("none.parquet"));
    CHECK_FAILS(read_file(), MR_E_DATA, "none.parquet: cannot open: No such file");
    return check_done();
}
