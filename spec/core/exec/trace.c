/* exec/trace: the Chrome trace file of a timed run. (spec/lua/core/exec_spec.lua checks that it is
 * JSON.) */
#include "check.h"
#include "moonreel/exec.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OK(call) CHECK_OK(call)

/* The first event of an op: its begin and end in microseconds. */
static void event_of(const char *text, int pid, int tid, double *start, double *end)
{
    char head[64];
    double length = 0;
    snprintf(head, sizeof head, "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,", pid, tid);
    const char *at = strstr(text, head);
    CHECK(at && sscanf(at + strlen(head), "\"ts\":%lf,\"dur\":%lf", start, &length) == 2);
    *end = *start + length;
}
static void event(const char *text, int tid, double *start, double *end)
{
    event_of(text, 2, tid, start, end);
}

/* A copy that is not waited for begins with the run, though it ran after an op. (On a device with
 * edges the run first copies its inputs.) */
static void copy_at_start(mr_device *dev)
{
    mr_exec *e = NULL;
    mr_graph *g = NULL;
    mr_program *p = NULL;
    mr_ref x, y;
    int64_t n = 4096;
    float *data = calloc((size_t)n, sizeof *data);
    mr_view v = {data, mr_desc_dense(MR_F32, 1, &n)};
    OK(mr_exec_new(dev, NULL, NULL, &e));
    OK(mr_graph_new(NULL, NULL, &g));
    OK(mr_graph_input(g, "x", MR_F32, 1, &n, &x));
    OK(mr_graph_add(g, "silu", MR_NO_ATTRS, &x, 1, &y));
    OK(mr_graph_set_queue(g, MR_Q_H2D, NULL));
    OK(mr_graph_add(g, "copy", MR_NO_ATTRS, &x, 1, &x));
    OK(mr_graph_set_queue(g, MR_Q_COMPUTE, NULL));
    OK(mr_graph_add(g, "add", MR_NO_ATTRS, (mr_ref[]){x, y}, 2, &y));
    OK(mr_graph_output(g, "y", y));
    OK(mr_graph_finish(g));
    OK(mr_exec_compile(e, g, &p));
    OK(mr_program_set(p, "x", &v));
    OK(mr_program_time(p, true));
    OK(mr_program_run(p));
    char path[64], *text = NULL;
    size_t bytes;
    snprintf(path, sizeof path, "/tmp/moonreel-trace-side-%d.json", (int)getpid());
    OK(mr_program_trace(p, path));
    OK(mr_file_read_all(path, &text, &bytes));
    double silu[2], copy[2];
    event(text, MR_Q_COMPUTE, &silu[0], &silu[1]);
    event(text, MR_Q_H2D, &copy[0], &copy[1]);
    CHECK(!dev->host || (silu[0] == 0 && copy[0] == 0));
    CHECK(silu[1] > 0 && copy[1] > 0);
    CHECK(strstr(text, "queues side by side"));
    unlink(path);
    mr_free(text);
    mr_exec_free(e);
    mr_graph_free(g);
    free(data);
}

/* Begin and end of a copy of the second process, by its name and what it copies. */
static void copy_of(const char *text, const char *what, const char *of, double *start, double *end)
{
    char tail[128];
    snprintf(tail, sizeof tail, "\"name\":\"%s\",\"args\":{\"of\":\"%s\"", what, of);
    const char *at = strstr(text, tail);
    double length = 0;
    while (at && at > text && at[-1] != '\n')
        at--;
    const char *ts = at ? strstr(at, "\"ts\":") : NULL;
    CHECK(ts && sscanf(ts, "\"ts\":%lf,\"dur\":%lf", start, &length) == 2);
    *end = *start + length;
}

/* Inputs and results that are copied: as they ran, and in parallel with the steps of a series of
 * runs. */
static void edges(void)
{
    mr_device *dev = NULL;
    mr_exec *e = NULL;
    mr_graph *g = NULL;
    mr_program *p = NULL;
    mr_ref x, y;
    int64_t n = 64;
    float data[64] = {1};
    mr_view v = {data, mr_desc_dense(MR_F32, 1, &n)};
    OK(mr_device_open("shadow", 1, &dev));
    OK(mr_exec_new(dev, NULL, NULL, &e));
    OK(mr_graph_new(NULL, NULL, &g));
    OK(mr_graph_input(g, "x", MR_F32, 1, &n, &x));
    OK(mr_graph_add(g, "silu", MR_NO_ATTRS, &x, 1, &y));
    OK(mr_graph_output(g, "y", y));
    OK(mr_graph_finish(g));
    OK(mr_exec_compile(e, g, &p));
    OK(mr_program_time(p, true));
    OK(mr_program_set(p, "x", &v));
    OK(mr_program_run(p));
    uint64_t ticket;
    OK(mr_program_fetch(p, "y", &ticket));
    char path[64], *text = NULL, *steps = NULL;
    size_t bytes;
    snprintf(path, sizeof path, "/tmp/moonreel-edges-%d.json", (int)getpid());
    OK(mr_program_trace(p, path));
    OK(mr_file_read_all(path, &text, &bytes));
    double in[2], take[2], back[2], silu[2], next[2], last[2];
    // as they ran: one after the other
    copy_of(text, "copy in", "x", &in[0], &in[1]);
    copy_of(text, "take in", "x", &take[0], &take[1]);
    copy_of(text, "copy back", "y", &back[0], &back[1]);
    CHECK(in[0] == 0 && in[1] <= take[0] + 0.001 && take[1] < back[0]);
    // in a series of runs: the next input is copied during silu, the last result, too
    event(text, MR_Q_COMPUTE, &take[0], &take[1]);
    const char *second = strstr(text, "copy in for the run after");
    event(second ? second : "", MR_Q_COMPUTE, &silu[0], &silu[1]);
    copy_of(text, "copy in for the run after", "x", &next[0], &next[1]);
    copy_of(text, "copy back from the run before", "y", &last[0], &last[1]);
    CHECK(take[0] == 0 && silu[0] == take[1] && next[0] == take[1] && last[0] == 0);
    OK(mr_program_schedule(p, &steps));
    CHECK(strstr(steps, "copy in 'x'  during the run before"));
    CHECK(strstr(steps, "copy back 'y'  during the run after"));
    unlink(path);
    mr_free(text), mr_free(steps);
    mr_exec_free(e);
    mr_graph_free(g);
    mr_device_close(dev);
}

/* Work that a queue begins before the first step of the list has no time below zero, also the
 * result of the run before. A program that has not run since it is timed has no events. */
static void early(void)
{
    mr_device *dev = NULL;
    mr_exec *e = NULL;
    mr_graph *g = NULL;
    mr_program *p = NULL;
    mr_ref x, y, z;
    int64_t n = 64;
    float data[64] = {1};
    mr_view v = {data, mr_desc_dense(MR_F32, 1, &n)};
    OK(mr_device_open("shadow", 1, &dev));
    OK(mr_exec_new(dev, NULL, NULL, &e));
    OK(mr_graph_new(NULL, NULL, &g));
    // an invalid UTF-8 name between valid ones
    mr_graph_set_origin(g, "caf\xc3\xa9/\xf0\x28\xff.lua:1");
    OK(mr_graph_input(g, "x", MR_F32, 1, &n, &x));
    OK(mr_graph_set_queue(g, MR_Q_COMM_INTRA, NULL));
    OK(mr_graph_add(g, "copy", MR_NO_ATTRS, &x, 1, &z));
    OK(mr_graph_set_queue(g, MR_Q_COMPUTE, NULL));
    OK(mr_graph_add(g, "silu", MR_NO_ATTRS, &x, 1, &y));
    OK(mr_graph_add(g, "add", MR_NO_ATTRS, (mr_ref[]){y, z}, 2, &y));
    OK(mr_graph_output(g, "y", y));
    OK(mr_graph_finish(g));
    OK(mr_exec_compile(e, g, &p));
    OK(mr_program_set(p, "x", &v));
    OK(mr_program_run(p));
    char path[64], *text = NULL;
    size_t bytes;
    snprintf(path, sizeof path, "/tmp/moonreel-early-%d.json", (int)getpid());
    CHECK_FAILS(mr_program_trace(p, path), MR_E_USAGE, "the program was not timed in a run");
    OK(mr_program_time(p, true));
    CHECK_FAILS(mr_program_trace(p, path), MR_E_USAGE, "the program was not timed in a run");
    int first = 0;
    for (int run = 0; run < 8; run++) {
        uint64_t ticket;
        double copy[2], silu[2];
        OK(mr_program_run(p));
        OK(mr_program_trace(p, path));
        OK(mr_file_read_all(path, &text, &bytes));
        CHECK(!strstr(text, "\"ts\":-"));
        CHECK(strstr(text, "\"origin\":\"caf\xc3\xa9/\\\\xF0(\\\\xFF.lua:1\""));
        event_of(text, 1, MR_Q_COMM_INTRA, &copy[0], &copy[1]);
        event_of(text, 1, MR_Q_COMPUTE, &silu[0], &silu[1]);
        first += silu[0] < copy[0];
        mr_free(text);
        if (run % 2)
            OK(mr_program_fetch(p, "y", &ticket));
    }
    CHECK(first > 0); // otherwise this spec has tested nothing
    unlink(path);
    mr_exec_free(e);
    mr_graph_free(g);
    mr_device_close(dev);
}

int main(void)
{
    mr_device *dev = NULL;
    mr_exec *e = NULL;
    mr_graph *g = NULL;
    mr_program *p = NULL;
    mr_ref x;
    float data[6] = {1, 2, 3, 4, 5, 6};
    int64_t n = 6;
    mr_view v = {data, mr_desc_dense(MR_F32, 1, &n)};
    const char *device = getenv("MOONREEL_DEVICE");
    OK(mr_device_open(device && *device ? device : "cpu", 1, &dev));
    OK(mr_exec_new(dev, NULL, NULL, &e));
    OK(mr_graph_new(NULL, NULL, &g));
    mr_graph_set_origin(g, "a \"quoted\\path\".lua:3");
    OK(mr_graph_input(g, "x", MR_F32, 1, &n, &x));
    OK(mr_graph_block_begin(g, "blocks.0", false));
    for (int i = 0; i < 3; i++)
        OK(mr_graph_add(g, "silu", MR_NO_ATTRS, &x, 1, &x));
    OK(mr_graph_block_end(g));
    OK(mr_graph_output(g, "y", x));
    OK(mr_graph_finish(g));
    OK(mr_exec_compile(e, g, &p));
    OK(mr_program_set(p, "x", &v));
    mr_program_time(p, true);
    OK(mr_program_run(p));
    char path[64], *text = NULL;
    size_t bytes;
    snprintf(path, sizeof path, "/tmp/moonreel-trace-%d.json", (int)getpid());
    OK(mr_program_trace(p, path));
    OK(mr_file_read_all(path, &text, &bytes));
    int rows = 0;
    for (const char *at = text; (at = strstr(at, "\"name\":\"silu\"")); at++)
        rows++;
    CHECK_INT(rows, 3);
    CHECK(strstr(text, "\"cat\":\"blocks.0\""));
    CHECK(strstr(text, "a \\\"quoted\\\\path\\\".lua:3"));
    CHECK(strstr(text, "\"copy out\""));
    CHECK(strstr(text, "\"flop\":"));
    CHECK(!dev->host || !strstr(text, "\"pid\":2")); // nothing to run in parallel
    mr_step_time rows3[3];
    CHECK_INT(mr_program_times(p, rows3, 3), 3);
    for (int i = 0; i < 3; i++)
        CHECK(rows3[i].seconds > 0 && rows3[i].node->block == 0);
    CHECK_FAILS(mr_program_trace(p, "/no/such/folder/t.json"), MR_E_IO, "/no/such/folder");
    unlink(path);
    mr_free(text);
    mr_exec_free(e);
    mr_graph_free(g);
    copy_at_start(dev);
    edges();
    early();
    mr_device_close(dev);
    return check_done();
}
