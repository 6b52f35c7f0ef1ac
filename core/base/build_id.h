/* base, for rooms: which build of the program runs. Licence: Apache-2.0 */
#ifndef MR_BASE_BUILD_ID_H
#define MR_BASE_BUILD_ID_H

#include "moonreel/base.h"

/* A hash of the build id that the linker has put into this program, which a strip leaves as it is;
 * where the toolchain writes none, of the whole file. Plug-ins do not count.
 * Errors: MR_E_IO, MR_E_MEMORY for the file. Threads: any. */
mr_status mr_build_id(mr_hash128 *out);

#endif
