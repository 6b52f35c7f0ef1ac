/* tensor: names and sizes of dtypes. Licence: Apache-2.0 */
#include "moonreel/tensor.h"

#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} rows[MR_DTYPE_COUNT] = {
    [MR_F64] = {"f64", 8},   [MR_F32] = {"f32", 4},         [MR_BF16] = {"bf16", 2},
    [MR_I64] = {"i64", 8},   [MR_I32] = {"i32", 4},         [MR_U8] = {"u8", 1},
    [MR_BOOL] = {"bool", 1}, [MR_F8_E4M3] = {"f8_e4m3", 1}, [MR_F8_E5M2] = {"f8_e5m2", 1},
};

const char *mr_dtype_name(mr_dtype dtype)
{
    return dtype < MR_DTYPE_COUNT ? rows[dtype].name : "?";
}
size_t mr_dtype_bytes(mr_dtype dtype)
{
    return dtype < MR_DTYPE_COUNT ? rows[dtype].bytes : 0;
}

mr_dtype mr_dtype_from_name(const char *name)
{
    for (int i = 0; i < MR_DTYPE_COUNT; i++)
        if (strcmp(rows[i].name, name) == 0)
            return (mr_dtype)i;
    return MR_DTYPE_COUNT;
}
