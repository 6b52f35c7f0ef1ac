/* x265 keeps its parameters for ever, which the leak sanitizer must ignore. Once per spec that
 * encodes with it. */
#ifndef MR_X265_H
#define MR_X265_H
#include "moonreel/base.h"

MR_API const char *__lsan_default_suppressions(void);
MR_API const char *__lsan_default_options(void);
const char *__lsan_default_options(void)
{
    return "print_suppressions=0";
}
const char *__lsan_default_suppressions(void)
{
    return "leak:libx265\n";
}

#endif
