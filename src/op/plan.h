/* plan.h - a parsed pipeline and its plans
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_OP_PLAN_H
#define MH_OP_PLAN_H

#include "op/finish.h"

#define MH_FIELD_NAME_MOST 63

struct mh_image_plan {
    char name[MH_FIELD_NAME_MOST + 1];
    size_t at; /* where the text first names the field */
    mh_image_profile profile;
    uint8_t decode; /* MH_DECODE_... */
    bool exif;
    uint32_t count; /* of steps */
    const mh_step *steps[MH_IMAGE_STEPS_MOST];
    mh_size size; /* 0: depends on the picture */
    mh_finish finish;
    uint64_t fingerprint;
};

struct mh_image_pipeline {
    char *text;
    uint32_t step_count;
    mh_step steps[MH_IMAGE_STEPS_MOST];
    size_t plan_count;
    mh_image_plan plans[MH_IMAGE_FIELDS_MOST];
    mh_image_plan other; /* of a field that the text does not name */
};

/* Describes what becomes of a picture of this size (upright where the plan asks for that). Errors
 * as mh_image_run's. */
MH_MUST_CHECK mh_status mh_plan_scene(const mh_image_plan *plan, mh_size size,
                                      mh_image_draws *draws, mh_scene *scene, mh_error *err);

#endif
