/* op_cast.c - cast: the same values in another type
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/error.h"
#include "op/finish.h"

static const mh_argument arguments[] = {
    {.kind = MH_ARGUMENT_WORD, .slot = 0, .choices = MH_DTYPE_NAMES, .required = true},
    {.kind = MH_ARGUMENT_END},
};

static mh_status finish_values(const mh_step *step, mh_finish *finish, mh_error *err)
{
    mh_dtype dtype = mh_finish_dtypes[step->words[0] - 1];
    if (dtype.code == 1 && finish->dtype.code != 1)
        return mh_fail(
            err, MH_ERR_INVALID,
            "cast u8 needs values that are still bytes: leave normalize out, or cast to f32");
    mh_finish_cast(finish, dtype);
    return MH_OK;
}

const mh_op mh_op_cast = {
    .name = "cast",
    .usage = "u8 | f16 | bf16 | f32",
    .what = "the same values in another type",
    .place = MH_OP_VALUES,
    .arguments = arguments,
    .finish = finish_values,
};
