/* cuda: every row has a CUDA kernel, held to the row's own cases; one that has none fails by name.
 * Use: contract [NAME...] for these rows only; contract --launches says blocks and shared memory
 * that kernels took on the way, for `make cuda`. Covers: cuda/kernels/NAME.cu, cuda/kernels/row.c
 */
#include "check.h"
#include "contract.h"
#include "cuda/emu/emu.h"
#include "cuda/kernels/row.h"
#include <cstring>

// what ranks tell each other: a planned step on the host, by MPI or shared memory
static bool between_ranks(const char *name)
{
    static const char *const rows[] = {"all_gather",     "all_to_all", "gather", "gather_shares",
                                       "reduce_scatter", "shift",      "total"};
    for (const char *one : rows)
        if (strcmp(name, one) == 0)
            return true;
    return false;
}

static void print_launches()
{
    for (const auto &kernel : emu::launches())
        printf("launched %s %u %zu\n", kernel.first.c_str(), kernel.second.threads,
               kernel.second.shared);
}

int main(int argc, char **argv)
{
    int rows = 0;
    bool launches = argc > 1 && strcmp(argv[1], "--launches") == 0;
    if (launches)
        argc = 1;
    for (int i = 1; i < argc; i++)
        contract_row(argv[i]);
    if (argc > 1)
        return contract_done();
    for (int i = 0; i < mr_op_count(); i++) {
        const char *name = mr_op_at(i)->name;
        if (mr_cuda_row_find(name)) {
            contract_row(name);
            rows++;
        } else if (!CHECK(between_ranks(name))) {
            printf("  the row %s has no CUDA kernel: cuda/kernels/README.md says how to add one\n",
                   name);
        }
    }
    // none that was there is lost
    CHECK(rows >= 56);
    CHECK(mr_cuda_row_find("no_such_row") == NULL);
    printf("%d rows have a CUDA kernel\n", rows);
    if (launches)
        print_launches();
    return contract_done() | check_done();
}
