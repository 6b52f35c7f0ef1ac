/* index: makes paths absolute, and resolves the paths in the rows of a list. Licence: Apache-2.0 */
#include "index/list.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

mr_status index_path_absolute(const char *path, char out[4096])
{
    char cwd[4096] = "";
    if (path[0] != '/' && !getcwd(cwd, sizeof cwd))
        return mr_fail(MR_E_IO, "%s: the working directory was removed", path);
    // takes the path part by part, drops "." and resolves ".." by name
    size_t n = 0;
    for (int round = path[0] == '/'; round < 2; round++)
        for (const char *p = round ? path : cwd; *p;) {
            size_t len = strcspn(p, "/");
            if (len == 2 && p[0] == '.' && p[1] == '.') {
                while (n && out[--n] != '/') {}
            } else if (len && !(len == 1 && p[0] == '.')) {
                if (n + len + 2 > 4096)
                    return mr_fail(MR_E_IO, "%.200s...: path is too long", path);
                out[n++] = '/';
                memcpy(out + n, p, len);
                n += len;
            }
            p += len + (p[len] == '/');
        }
    if (!n)
        out[n++] = '/';
    out[n] = 0;
    return MR_OK;
}

mr_status index_source_path(const index_source *s, const char *path, char full[4096],
                            const char **relative)
{
    char file[8300];
    if (path[0] != '/' && snprintf(file, sizeof file, "%s/%s", s->root, path) >= (int)sizeof file)
        return mr_fail(MR_E_IO, "%.200s...: path is too long", path);
    MR_TRY(index_path_absolute(path[0] == '/' ? path : file, full));
    size_t n = strlen(s->root);
    bool below = strncmp(full, s->root, n) == 0 && full[n] == '/';
    *relative = below ? full + n + 1 : full;
    return MR_OK;
}
