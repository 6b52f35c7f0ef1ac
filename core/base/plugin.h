/* base, inside: opens plug-ins (shared objects) at their first use. Licence: Apache-2.0 */
#ifndef MR_BASE_PLUGIN_H
#define MR_BASE_PLUGIN_H

#include "moonreel/base.h"

/* Open libmoonreel_NAME.so: in the folder MOONREEL_PLUGINS, else next to the program, else in
 * ../lib/moonreel from there. Its mr_NAME_entry() returns a table that begins with a uint32_t, the
 * version of what follows; *table is that table, for the life of the process.
 * Errors: MR_E_UNSUPPORTED no such file (says where it was looked for), one that does not load, or
 * one of another version. Threads: any. */
MR_API mr_status mr_plugin_open(const char *name, uint32_t version, const void **table);

/* Where mr_plugin_open would find it. Errors: MR_E_UNSUPPORTED as there. */
enum { MR_PLUGIN_PATH = 4300 };
MR_API mr_status mr_plugin_find(const char *name, char path[MR_PLUGIN_PATH]);

#endif
