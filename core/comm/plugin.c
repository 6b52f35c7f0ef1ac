/* comm: opens the MPI plug-in at its first use. Licence: Apache-2.0 */
#include "comm/room.h"
#include "base/plugin.h"

static mr_status table_of(const mr_mpi **out)
{
    const void *table;
    MR_TRY(mr_plugin_open("mpi", MR_TRANSPORT_VERSION, &table));
    *out = table;
    return MR_OK;
}

mr_status mr_mpi_transport(int rank, int size, double deadline_s, mr_transport **out)
{
    const mr_mpi *mpi;
    *out = NULL;
    MR_TRY(table_of(&mpi));
    return mpi->open(rank, size, deadline_s, out);
}

mr_status mr_mpi_raw(mr_comm_op op, void *x, size_t bytes)
{
    const mr_mpi *mpi;
    MR_TRY(table_of(&mpi));
    return mpi->raw(op, x, bytes);
}
