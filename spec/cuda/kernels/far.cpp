/* cuda/kernels with arguments whose elements are 2^31 elements apart: an offset computed in 32 bits
 * accesses a wrong address. On the emulator the memory between them does not exist.
 * Covers: cuda/kernels/NAME.cu, cuda/emu/memory.cpp */
#include "check.h"
#include "contract.h"
#include "device.h"
#include "moonreel/op.h"
#include <stdio.h>
#include <string.h>

int main(int, char **)
{
    if (!device_alloc_far((size_t)1 << 33)) {
        printf("left out: the system gives no addresses for memory that does not exist\n");
        return 0;
    }
    device_free_all();
    int rows = 0, all = 0;
    for (int i = 0; i < mr_op_count(); i++) {
        const int served = contract_far(mr_op_at(i)->name);
        rows += served > 0, all += served;
        if (served)
            printf("%s: %d\n", mr_op_at(i)->name, served);
    }
    printf("%d rows, %d times\n", rows, all);
    CHECK(rows >= 20);
    return contract_done() | check_done();
}
