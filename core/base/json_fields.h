/* base, inside: reads JSON objects and lists of untrusted files, one member at a time. Memory use
 * stays close to the size of the file. Licence: Apache-2.0 */
#ifndef MR_BASE_MEMBERS_H
#define MR_BASE_MEMBERS_H

#include "moonreel/base.h"

#include <jansson.h>

/* After a json_load call that failed: MR_E_MEMORY if memory ran out, else MR_OK. */
mr_status mr_json_check_memory(const json_error_t *err);
/* Reports a failed json_load call: out of memory, or a fault in the text of `path`. */
mr_status mr_json_fail(mr_status code, const char *path, const json_error_t *err);

/* The text of one value, inside the text of a file. */
typedef struct mr_json_part {
    const char *path;  /* of the file, for messages */
    const char *whole; /* where the text of the file starts */
    const char *at, *end;
    int depth; /* how many levels its contents may be nested */
} mr_json_part;
enum { MR_JSON_DEPTH = 4 }; /* of headers and index files */

/* Called for each member of an object. The arguments are valid during the call only. */
typedef mr_status mr_json_member(void *user, const char *key, mr_json_part value);

/* Call `each` for all members of an object, in file order. A name may occur twice: the caller
 * decides. Errors: MR_E_FORMAT damaged, nested too deep; MR_E_MEMORY; those of `each` */
mr_status mr_json_fields(mr_json_part object, mr_json_member *each, void *user);
/* The same for the values of a list. */
typedef mr_status mr_json_item(void *user, mr_json_part value);
mr_status mr_json_items(mr_json_part array, mr_json_item *each, void *user);
/* Parse one value: a text of any length, or 64 KiB of anything else. Owns: caller drops *out.
 * Errors: MR_E_FORMAT, MR_E_MEMORY */
mr_status mr_json_parse(mr_json_part part, json_t **out);
/* Any bytes as a JSON string; a byte that is not UTF-8 becomes \xHH. NULL: no memory. Owns: the
 * caller. */
json_t *mr_json_text(const char *text);

#endif
