/* base, for rooms: the identifier of the running build. Licence: Apache-2.0 */
#ifndef MR_BASE_BUILD_ID_H
#define MR_BASE_BUILD_ID_H

#include "moonreel/base.h"

/* Hashes the loaded segments of this program: instructions, constants, embedded files, initial
 * values. strip does not change the hash. Plug-ins are not included.
 * Errors: MR_E_IO, MR_E_MEMORY; MR_E_FORMAT not an ELF file of the expected form. Threads: any. */
mr_status mr_build_id(mr_hash128 *out);

#endif
