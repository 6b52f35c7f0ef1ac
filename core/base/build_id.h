/* base, for rooms: the identifier of the running build. Licence: Apache-2.0 */
#ifndef MR_BASE_BUILD_ID_H
#define MR_BASE_BUILD_ID_H

#include "moonreel/base.h"

/* A hash of what the system loads of this program: instructions, constants, embedded files, initial
 * values. A strip leaves it as it is. Plug-ins do not count.
 * Errors: MR_E_IO, MR_E_MEMORY; MR_E_FORMAT no program of this kind. Threads: any. */
mr_status mr_build_id(mr_hash128 *out);

#endif
