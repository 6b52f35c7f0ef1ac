/* All programs of spec/cuda/kernels in one program, which contains the kernels once. It runs the
 * spec by whose name it is called, spec_kernels_NAME. MR_SPECS lists them: X(attention) X(contract)
 * ... Each of their main functions is compiled as spec_NAME. scripts/cuda builds it for a GPU. */
#include <cstdio>
#include <cstring>

#define X(name) int spec_##name(int, char **);
MR_SPECS
#undef X

int main(int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/'), *called = slash ? slash + 1 : argv[0];
#define X(name)                                                                                    \
    if (strcmp(called, "spec_kernels_" #name) == 0)                                                \
        return spec_##name(argc, argv);
    MR_SPECS
#undef X
    fprintf(stderr, "%s: expected a name spec_kernels_NAME of a file in spec/cuda/kernels\n",
            called);
    return 2;
}
