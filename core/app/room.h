/* app: Lua modules and recipes embedded in the program. Licence: Apache-2.0 */
#ifndef MOONREEL_EMBEDDED_H
#define MOONREEL_EMBEDDED_H
#include <stddef.h>
typedef struct mr_embedded_file {
    const char *path;
    const unsigned char *bytes;
    size_t size;
} mr_embedded_file;
extern const mr_embedded_file mr_embedded[]; /* ends with path == NULL */
#endif
