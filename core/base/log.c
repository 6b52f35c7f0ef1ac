/* base: log lines to a replaceable sink. Licence: Apache-2.0 */
#include "moonreel/base.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mr_log_sink *sink;
static void *sink_user;

static void to_stderr(mr_log_level level, const char *line)
{
    const char *want = getenv("MOONREEL_LOG");
    mr_log_level least = !want                        ? MR_LOG_WARN
                         : strcmp(want, "debug") == 0 ? MR_LOG_DEBUG
                         : strcmp(want, "info") == 0  ? MR_LOG_INFO
                                                      : MR_LOG_WARN;
    static const char *const tag[] = {"debug: ", "", "warning: ", "error: "};
    if (level >= least)
        fprintf(stderr, "moonreel: %s%s\n", tag[level], line);
}

void mr_log(mr_log_level level, const char *fmt, ...)
{
    char line[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&lock);
    if (sink)
        sink(sink_user, level, line);
    else
        to_stderr(level, line);
    pthread_mutex_unlock(&lock);
}

void mr_log_set_sink(mr_log_sink *s, void *user)
{
    pthread_mutex_lock(&lock);
    sink = s, sink_user = user;
    pthread_mutex_unlock(&lock);
}
