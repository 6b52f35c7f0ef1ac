/* cuda: every row with a CUDA kernel over its own cases, and by name the rows that have none yet.
 * Covers: cuda/kernels/NAME.cu, cuda/kernels/row.c */
#include "check.h"
#include "contract.h"
#include "cuda/kernels/row.h"
#include <set>
#include <string>

// rows that wait for a CUDA kernel; one that gets it leaves this list
static const std::set<std::string> MISSING = {"conv3d", "conv3d_dw", "conv3d_dx", "group_norm",
                                              "group_norm_grad"};

// cases that a kernel refuses: MR_E_UNSUPPORTED, the row's other kernels serve
static int refused(const std::string &name)
{
    // f32, heads that are no pieces of 16 bytes, the gradient of a bias
    return name == "attention" ? 17 : name == "attention_grad" ? 15 : 0;
}

int main(void)
{
    int rows = 0;
    for (int i = 0; i < mr_op_count(); i++) {
        const char *name = mr_op_at(i)->name;
        if (mr_cuda_row_find(name)) {
            contract_row(name, refused(name));
            rows++;
            if (!CHECK(MISSING.count(name) == 0))
                printf("  %s has a kernel: take it off the list\n", name);
        } else {
            printf("%s: no CUDA kernel%s\n", name, MISSING.count(name) ? "" : ", a new row");
        }
    }
    // none that was there is lost
    CHECK(rows >= 49);
    CHECK(mr_cuda_row_find("no_such_row") == NULL);
    printf("%d rows have a CUDA kernel\n", rows);
    return contract_done() | check_done();
}
