/* base, inside: opens plug-ins (shared objects) at their first use. Licence: Apache-2.0 */
#ifndef MR_BASE_PLUGIN_H
#define MR_BASE_PLUGIN_H

#include "moonreel/base.h"

/* Open libmoonreel_NAME.so: in the folder MOONREEL_PLUGINS, else in the folder of the program, else
 * in ../lib/moonreel from there. Its mr_NAME_entry() returns a table that begins with its version,
 * a uint32_t. *table is that table; it stays valid until the process ends.
 * Errors: MR_E_UNSUPPORTED no such file (says where it was looked for), one that does not load, or
 * one of another version. Threads: any. */
MR_API mr_status mr_plugin_open(const char *name, uint32_t version, const void **table);

/* The path that mr_plugin_open would open. Errors: MR_E_UNSUPPORTED as there. */
enum { MR_PLUGIN_PATH = 4300 };
MR_API mr_status mr_plugin_find(const char *name, char path[MR_PLUGIN_PATH]);

#endif
