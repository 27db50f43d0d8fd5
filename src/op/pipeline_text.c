/* pipeline_text.c - a pipeline text becomes steps, and a plan for each field it names
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/alloc.h"
#include "base/error.h"
#include "base/nearest.h"
#include "op/plan.h"
#include "op/words.h"

#include <stdio.h>
#include <string.h>

#define TEXT_MOST 4096
#define NAME_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"

/* What one statement is for. */
typedef struct statement {
    mh_image_plan *plans[MH_IMAGE_FIELDS_MOST];
    size_t count;
} statement;

mh_status mh_image_profile_read(mh_image_profile *out, const char *text, mh_error *err)
{
    if (!text || !*text || strcmp(text, "exact") == 0) {
        *out = MH_IMAGE_EXACT;
        return MH_OK;
    }
    if (strcmp(text, "fast") != 0)
        return mh_fail(err, MH_ERR_INVALID, "unknown profile '%.40s': use exact or fast", text);
    *out = MH_IMAGE_FAST;
    return MH_OK;
}

static void plan_init(mh_image_plan *plan, mh_image_profile profile)
{
    plan->profile = profile;
    mh_finish_init(&plan->finish, 3, false);
}

/* --- fields --- */

static mh_status find_plan(mh_image_pipeline *pipeline, const mh_words *words, mh_word name,
                           mh_image_plan **out, mh_error *err)
{
    for (size_t i = 0; i < pipeline->plan_count; i++)
        if (mh_word_is(name, pipeline->plans[i].name)) {
            *out = &pipeline->plans[i];
            return MH_OK;
        }
    if (pipeline->plan_count == MH_IMAGE_FIELDS_MOST)
        return mh_words_fail(words, name, "too many fields:", "; 16 are allowed", err);
    *out = &pipeline->plans[pipeline->plan_count++];
    plan_init(*out, pipeline->other.profile);
    memcpy((*out)->name, name.at, name.length);
    (*out)->at = (size_t)(name.at - words->text);
    return MH_OK;
}

static mh_status add_target(mh_image_pipeline *pipeline, const mh_words *words, mh_word name,
                            statement *out, mh_error *err)
{
    mh_image_plan *plan = NULL;
    if (name.length == 0 || name.length > MH_FIELD_NAME_MOST)
        return mh_words_fail(words, (mh_word){name.at, name.length + 1}, "not a field's name:", "",
                             err);
    MH_TRY(find_plan(pipeline, words, name, &plan, err));
    for (size_t i = 0; i < out->count; i++)
        if (out->plans[i] == plan)
            return mh_words_fail(words, name, "named twice:", "", err);
    out->plans[out->count++] = plan;
    return MH_OK;
}

/* "image,mask:" before the steps; without it the field is "image". */
static mh_status read_targets(mh_image_pipeline *pipeline, mh_words *words, statement *out,
                              mh_error *err)
{
    (void)mh_words_peek(words);
    size_t length = strcspn(words->at, ":;|\n");
    out->count = 0;
    if (words->at[length] != ':') {
        mh_image_plan *plan = NULL;
        MH_TRY(find_plan(pipeline, words, (mh_word){"image", 5}, &plan, err));
        plan->at = plan->count ? plan->at : (size_t)(words->at - words->text);
        out->plans[out->count++] = plan;
        return MH_OK;
    }
    for (;;) {
        (void)mh_words_peek(words);
        mh_word name = {words->at, strspn(words->at, NAME_LETTERS)};
        words->at += name.length;
        char next = mh_words_peek(words);
        if (next != ',' && next != ':')
            return mh_words_fail(words, (mh_word){words->at, 1}, "unexpected",
                                 " among the names of fields", err);
        MH_TRY(add_target(pipeline, words, name, out, err));
        words->at++;
        if (next == ':')
            return MH_OK;
    }
}

/* --- steps --- */

static const mh_op *find_op(mh_word name)
{
    for (const mh_op *const *op = mh_ops; *op; op++)
        if (mh_word_is(name, (*op)->name))
            return *op;
    return NULL;
}

static mh_status unknown_op(const mh_words *words, mh_word name, mh_error *err)
{
    mh_nearest nearest = mh_nearest_to(name.at, name.length);
    char hint[200];
    for (const mh_op *const *op = mh_ops; *op; op++)
        mh_nearest_offer(&nearest, (*op)->name);
    if (nearest.best)
        (void)mh_nearest_hint(&nearest, hint, sizeof hint);
    else
        (void)snprintf(hint, sizeof hint, "; `millhead list` shows those there are");
    return mh_words_fail(words, name, "unknown op", hint, err);
}

/* What is decoded decides how many channels there are. */
static void take_decode(mh_image_plan *plan, const mh_step *step)
{
    plan->decode = step->words[0] ? step->words[0] : MH_DECODE_RGB;
    plan->exif = step->words[1] != 0;
    mh_finish_init(&plan->finish, plan->decode == MH_DECODE_RGB ? 3 : 1,
                   plan->decode == MH_DECODE_MASK);
}

static mh_status take_step(const mh_words *words, mh_word name, mh_image_plan *plan,
                           const mh_step *step, mh_error *err)
{
    const mh_op *before = plan->count ? plan->steps[plan->count - 1]->op : NULL;
    mh_error why = {0};
    char hint[300];
    if (step->op->place == MH_OP_FIRST && before)
        return mh_words_fail(words, name, "must be a field's first step:", "", err);
    if (before && before->place == MH_OP_VALUES && step->op->place != MH_OP_VALUES) {
        (void)snprintf(hint, sizeof hint, "; it must stand before '%s'", before->name);
        return mh_words_fail(words, name, "too late:", hint, err);
    }
    if (step->op == &mh_op_color_jitter && plan->finish.channels != 3)
        return mh_words_fail(words, name, "only pictures in colour have", "", err);
    if (step->op->place == MH_OP_FIRST)
        take_decode(plan, step);
    if (step->op->place == MH_OP_VALUES && step->op->finish(step, &plan->finish, &why) != MH_OK) {
        (void)snprintf(hint, sizeof hint, "; %.250s", why.message);
        return mh_words_fail(words, name, "cannot apply", hint, err);
    }
    plan->steps[plan->count++] = step;
    return MH_OK;
}

/* How many steps of this op the text has so far. */
static uint32_t occurrence(const mh_image_pipeline *pipeline, const mh_op *op)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < pipeline->step_count; i++)
        count += pipeline->steps[i].op == op;
    return count;
}

static mh_status read_step(mh_image_pipeline *pipeline, mh_words *words, const statement *of,
                           mh_error *err)
{
    mh_word name;
    if (!mh_words_next(words, &name))
        return mh_words_fail(words, (mh_word){words->at, *words->at != '\0'},
                             "a step is missing before", "", err);
    const mh_op *op = find_op(name);
    if (!op)
        return unknown_op(words, name, err);
    if (pipeline->step_count == MH_IMAGE_STEPS_MOST)
        return mh_words_fail(words, name, "too many steps:", "; 32 are allowed", err);
    mh_step *step = &pipeline->steps[pipeline->step_count];
    *step = (mh_step){.op = op,
                      .drawer = mh_drawer_name(op->name, occurrence(pipeline, op)),
                      .number = pipeline->step_count,
                      .shared = of->count > 1};
    MH_TRY(mh_words_arguments(words, name, step, err));
    pipeline->step_count++;
    for (size_t i = 0; i < of->count; i++)
        MH_TRY(take_step(words, name, of->plans[i], step, err));
    return MH_OK;
}

static mh_status read_statement(mh_image_pipeline *pipeline, mh_words *words, mh_error *err)
{
    statement of;
    MH_TRY(read_targets(pipeline, words, &of, err));
    for (;;) {
        MH_TRY(read_step(pipeline, words, &of, err));
        if (mh_words_peek(words) != '|')
            return MH_OK;
        words->at++;
    }
}

static mh_status read_text(mh_image_pipeline *pipeline, mh_error *err)
{
    mh_words words = {pipeline->text, pipeline->text};
    for (;;) {
        char next = mh_words_peek(&words);
        if (next == '\0')
            return MH_OK;
        if (next == ';' || next == '\n')
            words.at++;
        else
            MH_TRY(read_statement(pipeline, &words, err));
    }
}

/* --- what a plan comes to --- */

static uint64_t hash(uint64_t bits, const void *data, size_t size)
{
    for (const uint8_t *byte = data; size--; byte++)
        bits = (bits ^ *byte) * UINT64_C(0x100000001b3);
    return bits;
}

/* Of all that decides a sample's bytes, field by field: structs have padding. */
static uint64_t fingerprint(const mh_image_plan *plan)
{
    uint64_t bits = hash(UINT64_C(0xcbf29ce484222325), &plan->profile, sizeof plan->profile);
    for (uint32_t i = 0; i < plan->count; i++) {
        const mh_step *step = plan->steps[i];
        bits = hash(bits, &step->drawer, sizeof step->drawer);
        bits = hash(bits, &step->size, sizeof step->size);
        bits = hash(bits, &step->one_side, sizeof step->one_side);
        bits = hash(bits, step->words, sizeof step->words);
        bits = hash(bits, step->counts, sizeof step->counts);
        bits = hash(bits, step->numbers, sizeof step->numbers);
    }
    return bits;
}

static mh_status seal(mh_image_plan *plan, mh_error *err)
{
    if (plan->decode == 0)
        plan->decode = MH_DECODE_RGB;
    for (uint32_t i = 0; i < plan->count; i++)
        if (plan->steps[i]->op->place == MH_OP_PIXELS)
            plan->size = plan->steps[i]->op->size(plan->steps[i], plan->size);
    if ((uint64_t)plan->size.width * plan->size.height > MH_PICTURE_PIXELS_MOST)
        return mh_fail(err, MH_ERR_INVALID, "the pipeline makes %ux%u pixels of each picture",
                       plan->size.width, plan->size.height);
    plan->fingerprint = fingerprint(plan);
    mh_finish_seal(&plan->finish);
    return MH_OK;
}

mh_status mh_image_pipeline_parse(mh_image_pipeline **out, const char *text,
                                  mh_image_profile profile, mh_error *err)
{
    size_t length = text ? strlen(text) : 0;
    if (length > TEXT_MOST)
        return mh_fail(err, MH_ERR_INVALID, "the pipeline has %zu characters, over %d", length,
                       TEXT_MOST);
    mh_image_pipeline *made = mh_calloc(1, sizeof *made);
    char *copy = mh_calloc(length + 1, 1);
    mh_status status = MH_OK;
    if (!made || !copy) {
        mh_free(copy);
        mh_free(made);
        return mh_fail(err, MH_ERR_NOMEM, "no memory for the pipeline");
    }
    made->text = copy;
    memcpy(copy, length ? text : "", length);
    plan_init(&made->other, profile);
    status = read_text(made, err);
    for (size_t i = 0; i < made->plan_count && status == MH_OK; i++)
        status = seal(&made->plans[i], err);
    if (status == MH_OK)
        status = seal(&made->other, err);
    if (status == MH_OK)
        *out = made;
    else
        mh_image_pipeline_free(made);
    return status;
}

void mh_image_pipeline_free(mh_image_pipeline *pipeline)
{
    if (pipeline)
        mh_free(pipeline->text);
    mh_free(pipeline);
}
