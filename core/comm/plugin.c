/* comm: open the plug-in of MPI on first use. Licence: Apache-2.0 */
#include "comm/room.h"
#include "base/plugin.h"

mr_status mr_mpi_wire(int rank, int size, double deadline_s, mr_wire **out)
{
    const void *table;
    *out = NULL;
    MR_TRY(mr_plugin_open("mpi", MR_WIRE_VERSION, &table));
    return ((const mr_mpi *)table)->open(rank, size, deadline_s, out);
}
