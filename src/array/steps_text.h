/* steps_text.h - what is to become of the values of each array, as people write it
 * SPDX-License-Identifier: Apache-2.0
 *
 *     "t2m: normalize mean=280 std=20 | nan 0 | cast f16; u10,v10: normalize mean=0 std=7"
 *
 * Names before a colon say which arrays; without any, all. The steps of an array apply after CF
 * decoding and in this order: normalize, nan, cast; each at most once.
 */
#ifndef MH_ARRAY_STEPS_TEXT_H
#define MH_ARRAY_STEPS_TEXT_H

#include "array/variable.h"

#include <stddef.h>

/* Sets what the text says in the variables' decoding. MH_ERR_INVALID names the part: an unknown
 * array or step (did you mean), a number that is none, a std of 0, a step that comes twice or after
 * a later one. Pure. */
MH_MUST_CHECK mh_status mh_array_steps_read(mh_variable *variables, size_t count, const char *text,
                                            mh_error *err);

#endif
