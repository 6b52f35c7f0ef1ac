/* app: Lua modules and recipes embedded in the program (cmake/embed.c). Licence: Apache-2.0 */
#ifndef MOONREEL_EMBEDDED_H
#define MOONREEL_EMBEDDED_H
#include <stddef.h>
typedef struct mr_embedded_file {
    const char *path;
    const unsigned char *bytes;
    size_t size;
    const unsigned char *code; /* bytecode of a module; NULL: none */
    size_t code_size;
} mr_embedded_file;
extern const mr_embedded_file mr_embedded[]; /* ends with path == NULL */
extern const char mr_embedded_lua[];         /* the release of Lua that made the bytecode */
#endif
