/* base/plugin: a plug-in is found in the requested folder, and refused without an entry, with
 * another version, or when it is missing. */
#include "base/plugin.h"
#include "check.h"
#include "moonreel/exec.h"

#include <stdlib.h>

int main(void)
{
    const void *table = NULL, *again = NULL;
    setenv("MOONREEL_PLUGINS", SPEC_PLUGINS, 1);
    CHECK_OK(mr_plugin_open("cuda", MR_DEVICE_VERSION, &table));
    CHECK_INT(*(const uint32_t *)table, MR_DEVICE_VERSION);
    CHECK_OK(mr_plugin_open("cuda", MR_DEVICE_VERSION, &again));
    CHECK(again == table);
    char path[MR_PLUGIN_PATH];
    CHECK_OK(mr_plugin_find("cuda", path));
    CHECK_STR(path, SPEC_PLUGINS "/libmoonreel_cuda.so");
    CHECK_FAILS(mr_plugin_find("odd", path), MR_E_UNSUPPORTED, "libmoonreel_odd.so");
    CHECK_FAILS(mr_plugin_open("cuda", MR_DEVICE_VERSION + 1, &table), MR_E_UNSUPPORTED,
                "belongs to another version");
    CHECK_FAILS(mr_plugin_open("odd", 1, &table), MR_E_UNSUPPORTED,
                "libmoonreel_odd.so is not in " SPEC_PLUGINS);
    // a file that is no plug-in
    CHECK_FAILS(mr_plugin_open("empty", 1, &table), MR_E_UNSUPPORTED, "libmoonreel_empty.so");
    unsetenv("MOONREEL_PLUGINS");
    CHECK_FAILS(mr_plugin_open("odd", 1, &table), MR_E_UNSUPPORTED, "try: MOONREEL_PLUGINS=DIR");
    return check_done();
}
