/* media: keeps log lines of the libraries per thread for error texts, and never prints them.
 * Licence: Apache-2.0 */
#include "media/room.h"

#include <libavutil/log.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINES = 4, LINE_BYTES = 160 };
static _Thread_local char ring[LINES][LINE_BYTES];
static _Thread_local unsigned next;
static _Thread_local char joined[LINES * (LINE_BYTES + 2)];

// remove addresses, as in "[mov @ 0x7f12ab] text": they differ from run to run
static void drop_addresses(char *line)
{
    for (char *at; (at = strstr(line, " @ 0x"));) {
        char *end = at + 5 + strspn(at + 5, "0123456789abcdef");
        memmove(at, end, strlen(end) + 1);
    }
}

static void keep(void *object, int level, const char *fmt, va_list ap)
{
    if (level > AV_LOG_WARNING)
        return;
    int prefix = 1;
    char *line = ring[next % LINES];
    av_log_format_line2(object, level, fmt, ap, line, LINE_BYTES, &prefix);
    drop_addresses(line);
    size_t n = strlen(line);
    while (n && (line[n - 1] == '\n' || line[n - 1] == ' '))
        line[--n] = 0;
    if (n)
        next++;
}

static void install(void)
{
    av_log_set_callback(keep);
    // SVT-AV1 prints its settings by default; keep a value that the user has set
    setenv("SVT_LOG", "1", 0);
}

void media_log_install(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
}

void media_log_clear(void)
{
    memset(ring, 0, sizeof ring);
    next = 0;
}

const char *media_log_text(void)
{
    size_t n = 0;
    joined[0] = 0;
    for (unsigned i = next > LINES ? next - LINES : 0; i < next; i++)
        n +=
            (size_t)snprintf(joined + n, sizeof joined - n, "%s%s", n ? "; " : "", ring[i % LINES]);
    return joined;
}
