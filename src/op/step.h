/* step.h - ops: what one step of a pipeline may be, its arguments, and what it does to a picture
 * SPDX-License-Identifier: Apache-2.0
 *
 * An op is one file that ends in one const table, and a line in the list of op_list.c.
 *
 * Ops do not touch pixels one after the other. While a sample is planned each op changes a
 * description (mh_scene): which part of the picture is wanted, at which size, which way round. So
 * only what is needed is decoded, and crop, resize and flip are one pass.
 */
#ifndef MH_OP_STEP_H
#define MH_OP_STEP_H

#include "base/draws.h"
#include "op/image.h"

#include <stdbool.h>

#define MH_STEP_WORDS_MOST 3   /* choices that an op may have */
#define MH_STEP_NUMBERS_MOST 4 /* lists of numbers that an op may have, and numbers in one */

typedef struct mh_size {
    uint32_t width, height; /* 0: not known before there is a picture */
} mh_size;

typedef struct mh_box {
    uint32_t x, y, width, height;
} mh_box;

typedef enum mh_filter {
    MH_FILTER_BILINEAR, /* the default */
    MH_FILTER_BICUBIC,
    MH_FILTER_LANCZOS,
    MH_FILTER_BOX,
    MH_FILTER_HAMMING,
    MH_FILTER_NEAREST,
} mh_filter;
#define MH_FILTER_NAMES "bilinear bicubic lanczos box hamming nearest"

/* --- a scene: what becomes of a picture --- */

/* Brightness, contrast, saturation, hue: the order they come in, and how much of each. */
typedef struct mh_colours {
    bool any;
    bool used[4];
    uint8_t order[4];
    double factors[4];
} mh_colours;

/* In this order: cut out, resize, cut out of the result, flip, pad, change colours. */
typedef struct mh_stage {
    mh_box crop;
    mh_size resized; /* as large as crop: no resize */
    mh_filter filter;
    mh_box window;
    bool flip_x, flip_y;
    uint32_t left, top, right, bottom; /* padding */
    uint8_t fill;
    mh_colours colours;
} mh_stage;

typedef struct mh_scene {
    mh_size size; /* of the picture as it is so far */
    uint32_t count;
    bool is_mask; /* values are labels: resized by taking the nearest */
    mh_stage stages[2 * MH_IMAGE_STEPS_MOST + 1];
} mh_scene;

void mh_scene_begin(mh_scene *scene, mh_size size, bool is_mask);
/* The box lies inside the picture as it is so far. */
void mh_scene_crop(mh_scene *scene, mh_box box);
void mh_scene_resize(mh_scene *scene, mh_size size, mh_filter filter);
void mh_scene_flip(mh_scene *scene, bool x, bool y);
void mh_scene_pad(mh_scene *scene, uint32_t left, uint32_t top, uint32_t right, uint32_t bottom,
                  uint8_t fill);
void mh_scene_colour(mh_scene *scene, const mh_colours *colours);

/* --- steps and ops --- */

typedef struct mh_op mh_op;

/* One step, with what stands behind its name. */
typedef struct mh_step {
    const mh_op *op;
    uint64_t drawer; /* mh_drawer_name */
    uint32_t number; /* in the text */
    bool shared;     /* by several fields */
    mh_size size;
    bool one_side;                        /* the size was one number: both sides have it */
    uint8_t words[MH_STEP_WORDS_MOST];    /* 1: the first choice ...; 0: not given */
    uint8_t counts[MH_STEP_NUMBERS_MOST]; /* of numbers; 0: not given */
    double numbers[MH_STEP_NUMBERS_MOST][MH_STEP_NUMBERS_MOST];
} mh_step;

/* What may stand behind an op's name; a list of them ends with kind MH_ARGUMENT_END. */
typedef struct mh_argument {
    enum { MH_ARGUMENT_END, MH_ARGUMENT_SIZE, MH_ARGUMENT_WORD, MH_ARGUMENT_NUMBERS } kind;
    uint8_t slot;        /* of words or numbers */
    const char *key;     /* "scale" for scale=0.08,1; NULL: the word or number stands alone */
    const char *choices; /* of a word, with spaces between them */
    uint8_t least, most; /* how many numbers */
    double low, high;    /* what numbers may be */
    bool required;
} mh_argument;

/* What the values are once pixels are done; see mh_plan_finish in finish.h. */
typedef struct mh_finish mh_finish;

/* Where an op may stand. */
typedef enum mh_op_place {
    MH_OP_FIRST,  /* decode */
    MH_OP_PIXELS, /* changes the scene */
    MH_OP_VALUES, /* behind all of those: changes the finish */
} mh_op_place;

struct mh_op {
    const char *name;
    const char *usage; /* its arguments, for people */
    const char *what;  /* one line */
    mh_op_place place;
    const mh_argument *arguments;
    /* What the arguments must be together, beyond their kinds; (optional). NULL or what is wrong.
     */
    const char *(*check)(const mh_step *step);
    /* MH_OP_PIXELS: how large the result is; an unknown size stays so unless the op fixes it. */
    mh_size (*size)(const mh_step *step, mh_size in);
    /* MH_OP_PIXELS: MH_ERR_UNSUPPORTED for a picture that the op cannot be applied to. */
    mh_status (*plan)(const mh_step *step, mh_scene *scene, const mh_drawer *drawer, mh_error *err);
    /* MH_OP_VALUES: MH_OK, or MH_ERR_INVALID with what is wrong. */
    mh_status (*finish)(const mh_step *step, mh_finish *finish, mh_error *err);
};

/* Ended by NULL. */
extern const mh_op *const mh_ops[];
extern const mh_op mh_op_cast;
extern const mh_op mh_op_center_crop;
extern const mh_op mh_op_color_jitter;
extern const mh_op mh_op_decode;
extern const mh_op mh_op_flip;
extern const mh_op mh_op_layout;
extern const mh_op mh_op_normalize;
extern const mh_op mh_op_pad;
extern const mh_op mh_op_random_crop;
extern const mh_op mh_op_random_resized_crop;
extern const mh_op mh_op_resize;

/* decode's choices */
enum { MH_DECODE_RGB = 1, MH_DECODE_GREY, MH_DECODE_MASK };

/* The filter of a step whose choice of one is in words[slot]. */
static inline mh_filter mh_step_filter(const mh_step *step, unsigned slot)
{
    return step->words[slot] ? (mh_filter)(step->words[slot] - 1) : MH_FILTER_BILINEAR;
}

/* For ops whose result has the size that they were given. */
mh_size mh_step_given_size(const mh_step *step, mh_size in);
/* For ops that leave the size as it is. */
mh_size mh_step_same_size(const mh_step *step, mh_size in);

#endif
