/* base, for rooms: how failed file calls are reported. Licence: Apache-2.0 */
#ifndef MR_BASE_FILE_H
#define MR_BASE_FILE_H

#include "moonreel/base.h"

/* "PATH: cannot VERB: " and the text of errno: MR_E_IO. */
mr_status mr_fail_io(const char *verb, const char *path);

#endif
