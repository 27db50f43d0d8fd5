/* op_list.c - the ops that there are
 * SPDX-License-Identifier: Apache-2.0
 */
#include "op/step.h"

/* In the order they are mostly written in. */
const mh_op *const mh_ops[] = {
    &mh_op_decode,      &mh_op_resize, &mh_op_center_crop, &mh_op_random_resized_crop,
    &mh_op_random_crop, &mh_op_flip,   &mh_op_pad,         &mh_op_color_jitter,
    &mh_op_normalize,   &mh_op_cast,   &mh_op_layout,      NULL,
};

int mh_op_list(size_t at, mh_kind *out)
{
    for (size_t number = 0; mh_ops[number]; number++)
        if (number == at) {
            *out = (mh_kind){mh_ops[at]->name, mh_ops[at]->usage, mh_ops[at]->what};
            return 1;
        }
    return 0;
}

mh_size mh_step_given_size(const mh_step *step, mh_size in)
{
    (void)in;
    return step->size;
}

mh_size mh_step_same_size(const mh_step *step, mh_size in)
{
    (void)step;
    return in;
}
