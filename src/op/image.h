/* image.h - pipelines for pictures: from encoded bytes to a sample's place in the batch
 * SPDX-License-Identifier: Apache-2.0
 *
 *     image: decode | random_resized_crop 224 | flip | normalize imagenet f16
 *     image: decode; mask: decode mask; image,mask: random_crop 256 | flip
 *
 * A text is parsed once into a pipeline with a plan for each field. A plan says what a sample of
 * the field will be (dtype, shape) and runs with a room of the thread. A format uses it so:
 *
 *     open:   mh_image_pipeline_parse(&pipeline, text, profile, err)
 *             plan = mh_image_pipeline_plan(pipeline, "image");   mh_image_plan_field(plan, &field)
 *             each file: mh_picture_describe(…); ragged: mh_image_plan_shape(plan, &picture, shape)
 *     thread: mh_image_room_new(&room, err)                       (room_new)
 *     sample: mh_image_draws_begin(&draws, seed, epoch, position)
 *             for each field: mh_image_run(plan, room, &job, err)
 *
 * Ops that draw do so from (seed, epoch, position, name of the op and its occurrence in the text):
 * fields that share a statement ("image,mask: ...") share its draws.
 */
#ifndef MH_OP_IMAGE_H
#define MH_OP_IMAGE_H

#include "codec/picture.h"
#include <millhead/dataset.h>

#define MH_IMAGE_STEPS_MOST 32  /* in one text */
#define MH_IMAGE_FIELDS_MOST 16 /* in one text */

/* EXACT: Pillow's pixels. FAST: JPEG is decoded at 1/2, 1/4 or 1/8 where that is still no smaller
 * than what is wanted. */
typedef enum mh_image_profile {
    MH_IMAGE_EXACT,
    MH_IMAGE_FAST,
} mh_image_profile;

/* "exact" or "fast"; NULL or "" is exact. MH_ERR_INVALID otherwise. */
MH_MUST_CHECK mh_status mh_image_profile_read(mh_image_profile *out, const char *text,
                                              mh_error *err);

/* A parsed text. Immutable: any number of threads. */
typedef struct mh_image_pipeline mh_image_pipeline;
/* What happens to one field; owned by its pipeline. */
typedef struct mh_image_plan mh_image_plan;

/* Statements with ';' or new lines between them: "FIELD,FIELD: STEP | STEP"; without "FIELD:" it is
 * "image". NULL or "" is a pipeline without steps. The caller owns *out, which is untouched on
 * failure. Errors: MH_ERR_INVALID, quoting the word, where it stands and what may stand there;
 * MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_image_pipeline_parse(mh_image_pipeline **out, const char *text,
                                                mh_image_profile profile, mh_error *err);
void mh_image_pipeline_free(mh_image_pipeline *pipeline); /* NULL allowed */

/* Name of field number `at` that the text has steps for; NULL beyond the last. */
const char *mh_image_pipeline_field(const mh_image_pipeline *pipeline, size_t at);

/* MH_ERR_INVALID where the text names a field that is not among these `count` names, with its place
 * and the nearest name: for a format that knows which fields hold pictures. */
MH_MUST_CHECK mh_status mh_image_pipeline_check(const mh_image_pipeline *pipeline,
                                                const char *const *names, size_t count,
                                                mh_error *err);

/* The plan of a field; one that the text does not name is decoded as RGB. Never NULL. */
const mh_image_plan *mh_image_pipeline_plan(const mh_image_pipeline *pipeline, const char *field);

/* Sets dtype, dims, ragged and shape of *out; of a ragged field the lengths that pictures differ in
 * are -1, and the format puts the largest in their place. `name` and `bytes` are left alone. */
void mh_image_plan_field(const mh_image_plan *plan, mh_field *out);

/* The shape of a sample made from this picture; it has the dims of mh_image_plan_field and does not
 * depend on draws. Errors: MH_ERR_UNSUPPORTED (a result beyond MH_PICTURE_PIXELS_MOST). */
MH_MUST_CHECK mh_status mh_image_plan_shape(const mh_image_plan *plan, const mh_picture *picture,
                                            int64_t *shape, mh_error *err);

/* A number that changes whenever samples of this plan would: for the fingerprint of a dataset. */
uint64_t mh_image_plan_fingerprint(const mh_image_plan *plan);

/* One thread's codec states and scratch memory. Grows to what the largest sample needs; a steady
 * state allocates nothing. One thread at a time, any plans. */
typedef struct mh_image_room mh_image_room;
MH_MUST_CHECK mh_status mh_image_room_new(mh_image_room **out, mh_error *err);
void mh_image_room_free(mh_image_room *room); /* NULL allowed */

/* What the draws of one sample depend on; shared by its fields. */
typedef struct mh_image_draws {
    uint64_t seed, epoch, position;
    /* For each step of the text that fields share: the picture's size where the first field came
     * to it, so that one of another size is an error instead of another part of the scene. */
    struct {
        uint32_t width, height;
    } sizes[MH_IMAGE_STEPS_MOST];
} mh_image_draws;
void mh_image_draws_begin(mh_image_draws *draws, uint64_t seed, uint64_t epoch, uint64_t position);

typedef struct mh_image_job {
    const uint8_t *bytes; /* the encoded picture, whole */
    uint64_t size;
    mh_image_draws *draws;
    uint8_t *into;       /* the sample's place */
    uint64_t into_bytes; /* what its shape takes, exactly */
} mh_image_job;

/* Decodes, applies the steps and writes into_bytes bytes. Errors: MH_ERR_CORRUPT (broken or
 * truncated, or of another size than into_bytes or the other fields say), MH_ERR_UNSUPPORTED (no
 * such codec in this build, or a kind of file it does not decode), MH_ERR_NOMEM. What is in `into`
 * after a failure is undefined. */
MH_MUST_CHECK mh_status mh_image_run(const mh_image_plan *plan, mh_image_room *room,
                                     const mh_image_job *job, mh_error *err);

#endif
