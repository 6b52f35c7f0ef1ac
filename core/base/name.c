/* base: the known name that a mistyped one most likely meant. Licence: Apache-2.0 */
#include "moonreel/base.h"

#include <ctype.h>
#include <string.h>

enum { LONGEST = 63 };

static int letter(char c)
{
    return c == '-' ? '_' : tolower((unsigned char)c);
}

int mr_name_distance(const char *a, const char *b, int limit)
{
    // the last three rows of the distance table; entry (i, j) compares the first i and the first j
    // letters
    int rows[3][LONGEST + 1];
    int m = (int)strnlen(a, LONGEST), n = (int)strnlen(b, LONGEST);
    for (int j = 0; j <= n; j++)
        rows[0][j] = j;
    for (int i = 1; i <= m; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *two_above = rows[(i + 1) % 3];
        int least = row[0] = i;
        for (int j = 1; j <= n; j++) {
            int same = letter(a[i - 1]) == letter(b[j - 1]);
            int steps = MR_MIN(above[j - 1] + !same, MR_MIN(above[j], row[j - 1]) + 1);
            bool swapped = i > 1 && j > 1 && letter(a[i - 1]) == letter(b[j - 2]) &&
                           letter(a[i - 2]) == letter(b[j - 1]);
            if (swapped)
                steps = MR_MIN(steps, two_above[j - 2] + 1);
            row[j] = steps;
            least = MR_MIN(least, steps);
        }
        if (least > limit)
            return limit + 1;
    }
    return MR_MIN(rows[m % 3][n], limit + 1);
}

const char *mr_name_nearest(const char *name, const char *const *names)
{
    int limit = MR_MAX(1, (int)strnlen(name, LONGEST) / 4), least = limit + 1;
    const char *found = NULL;
    for (; *names; names++) {
        int d = mr_name_distance(name, *names, limit);
        if (d < least || (found && d == least && strcmp(*names, found) < 0))
            least = d, found = *names;
    }
    return found;
}
