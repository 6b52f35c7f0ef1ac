/* op/product_onednn: the memory that the library wants for products of many shapes is the planned
 * one, and it has kernels for all of them, not its reference code.
 * Covers: core/cpu/product_onednn.c */
#define _GNU_SOURCE // RTLD_DEFAULT
#include "productcase.h"

#include <dlfcn.h>

/* The library wants no more than was planned for it: when it is the way, it serves. Not tested:
 * turned A without a sum, for which it may want a whole C per thread. */
int main(void)
{
    static const int64_t sizes[][3] = {
        {1, 1, 1},         {16, 16, 7},       {7, 4608, 1152},  {64, 1152, 1152},
        {257, 128, 512},   {768, 128, 512},   {1000, 30, 768},  {72, 72, 20000},
        {128, 512, 4096},  {6912, 128, 2048}, {512, 2304, 640}, {1152, 1152, 2560},
        {3456, 1152, 257}, {2560, 1000, 30},  {256, 1024, 640}, {256, 1000, 33},
        {48, 2, 13824},    {640, 6912, 33},   {700, 1, 640},    {700, 640, 1},
        {1, 640, 700},     {700, 1, 1}};
    mr_facts facts = mr_cpu_facts("cpu", mr_isa(), 1);
    bool built = mr_isa() > 0 && dlsym(RTLD_DEFAULT, "dnnl_primitive_create");
    facts.bf16_by_f32 = false;
    for (int kind = 0; kind < 32; kind++)
        for (size_t i = 0; i < MR_COUNT(sizes); i++) {
            bool ta = kind & 1, tb = kind & 2, half = kind & 4;
            int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2], several = half || ta ? 1 : 3;
            mr_product_spec s = {.batch = several,
                                 .m = m,
                                 .n = n,
                                 .k = k,
                                 .a_row = ta ? 1 : k,
                                 .a_col = ta ? m : 1,
                                 .b_row = tb ? 1 : n,
                                 .b_col = tb ? k : 1,
                                 .a_batch = m * k,
                                 .b_batch = k * n,
                                 .c_row = kind & 16 ? n + 3 : n,
                                 .c_batch = m * (n + 3),
                                 .in = half ? MR_BF16 : MR_F32,
                                 .out = ta || !half ? MR_F32 : MR_BF16,
                                 .accumulate = ta};
            facts.threads = kind & 8 ? 16 : 1;
            // a single product of f32 may be the own kernel's
            bool library =
                built && (half ? facts.bf16 && !(facts.amx && mr_gemm_amx_fits(&s)) : several > 1);
            mr_product *p = NULL;
            CHECK_OK(mr_product_new(&s, &facts, &p));
            const char *how = mr_product_how(p);
            bool serves = strncmp(how, "onednn", 6) == 0,
                 planned = !strstr(how, "allocated memory") && !strstr(how, "ref");
            if (!check_note(planned && (serves || !library)))
                printf("[%lld, %lld, %lld] kind %d: %s\n", (long long)m, (long long)n, (long long)k,
                       kind, how);
            mr_product_free(p);
        }
    return check_done();
}
