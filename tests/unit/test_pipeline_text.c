/* test_pipeline_text.c - pipeline texts: what fields become, and errors that name the word
 * SPDX-License-Identifier: Apache-2.0
 */
#include "op/image.h"
#include "unit.h"

static mh_image_pipeline *parse(const char *text)
{
    mh_image_pipeline *pipeline = NULL;
    mh_error err = {0};
    mh_status status = mh_image_pipeline_parse(&pipeline, text, MH_IMAGE_EXACT, &err);
    if (status != MH_OK)
        fail_msg("%s: %s", text, err.message);
    return pipeline;
}

static void a_plan_says_what_its_field_is(void **state)
{
    (void)state;
    static const struct {
        const char *text, *field;
        int code, bits, ragged;
        uint32_t dims;
        int64_t shape[3];
    } cases[] = {
        {"", "image", 1, 8, 1, 3, {-1, -1, 3}},
        {"decode | random_resized_crop 224 | flip", "image", 1, 8, 0, 3, {224, 224, 3}},
        {"image: random_resized_crop 20x30 | normalize imagenet f16",
         "image",
         2,
         16,
         0,
         3,
         {20, 30, 3}},
        {"resize 256 | center_crop 224 | cast bf16 | layout chw",
         "image",
         4,
         16,
         0,
         3,
         {3, 224, 224}},
        {"resize 256", "image", 1, 8, 1, 3, {-1, -1, 3}},
        {"decode grey | resize 8x9 | pad 1,2", "image", 1, 8, 0, 3, {12, 11, 1}},
        {"mask: decode mask | random_crop 7", "mask", 1, 8, 0, 2, {7, 7}},
        {"mask: decode mask | random_crop 7", "image", 1, 8, 1, 3, {-1, -1, 3}},
        {"image: decode; mask: decode mask\nimage,mask: random_crop 16",
         "mask",
         1,
         8,
         0,
         2,
         {16, 16}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mh_image_pipeline *pipeline = parse(cases[i].text);
        mh_field field = {0};
        mh_image_plan_field(mh_image_pipeline_plan(pipeline, cases[i].field), &field);
        assert_int_equal(field.dtype.code, cases[i].code);
        assert_int_equal(field.dtype.bits, cases[i].bits);
        assert_int_equal(field.ragged, cases[i].ragged);
        assert_int_equal(field.dims, cases[i].dims);
        for (uint32_t d = 0; d < field.dims; d++)
            assert_int_equal(field.shape[d], cases[i].shape[d]);
        mh_image_pipeline_free(pipeline);
    }
}

static void shapes_follow_from_the_picture(void **state)
{
    (void)state;
    mh_image_pipeline *pipeline = parse("decode exif | resize 100 | pad 5");
    const mh_image_plan *plan = mh_image_pipeline_plan(pipeline, "image");
    mh_picture picture = {.width = 640, .height = 320, .orientation = 1};
    int64_t shape[3];
    assert_int_equal(mh_image_plan_shape(plan, &picture, shape, NULL), MH_OK);
    assert_true(shape[0] == 110 && shape[1] == 210 && shape[2] == 3);
    picture.orientation = 6;
    assert_int_equal(mh_image_plan_shape(plan, &picture, shape, NULL), MH_OK);
    assert_true(shape[0] == 210 && shape[1] == 110);
    picture = (mh_picture){.width = 60000, .height = 1, .orientation = 1};
    assert_int_equal(mh_image_plan_shape(plan, &picture, shape, NULL), MH_ERR_UNSUPPORTED);
    mh_image_pipeline_free(pipeline);
}

static void errors_name_the_word_and_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"image: decode | ressize 224",
         "unknown op 'ressize' at character 17 of the pipeline; did you mean 'resize'?"},
        {"blur 3", "unknown op 'blur' at character 1"},
        {"resize", "something is missing behind 'resize' at character 1"},
        {"resize 0", "resize does not take '0' at character 8"},
        {"resize 20x", "does not take '20x' at character 8 of the pipeline; write: resize N | HxW"},
        {"resize 70000", "does not take '70000'"},
        {"resize 224 bilnear",
         "'bilnear' at character 12 of the pipeline; did you mean 'bilinear'?"},
        {"resize 224 224", "given twice: '224' at character 12"},
        {"random_resized_crop 8 scale=2,3", "not understood: 'scale=2,3' at character 23"},
        {"random_resized_crop 8 scale=0.5,0.2", "the smaller number first"},
        {"random_resized_crop 8 scal=0.5,1", "did you mean 'scale'?"},
        {"flip p=x", "not understood: 'p=x'"},
        {"flip | decode", "must be a field's first step: 'decode' at character 8"},
        {"normalize imagenet | flip", "too late: 'flip' at character 22"},
        {"normalize", "normalize needs imagenet"},
        {"decode mask | normalize unit", "cannot apply 'normalize' at character 15"},
        {"decode grey | normalize imagenet", "the picture has 1 channel"},
        {"decode mask | color_jitter hue=0.1", "only pictures in colour"},
        {"normalize unit | cast u8", "leave normalize out"},
        {"image: decode |", "a step is missing before"},
        {"image,: decode", "not a field's name"},
        {"image,image: decode", "named twice: 'image' at character 7"},
        {"image mask: decode", "unexpected 'm' at character 7"},
        {"image:", "a step is missing"},
        {"resize 60000x60000", "does not take '60000x60000'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mh_image_pipeline *pipeline = NULL;
        mh_error err = {0};
        mh_status status = mh_image_pipeline_parse(&pipeline, cases[i].text, MH_IMAGE_EXACT, &err);
        assert_null(pipeline);
        assert_int_equal(status, MH_ERR_INVALID);
        if (!strstr(err.message, cases[i].says))
            fail_msg("%s: says \"%s\"", cases[i].text, err.message);
    }
}

static void a_field_that_is_not_there_is_an_error(void **state)
{
    (void)state;
    const char *names[] = {"image", "mask"};
    mh_image_pipeline *pipeline = parse("image: decode; msk: decode mask");
    mh_error err = {0};
    assert_string_equal(mh_image_pipeline_field(pipeline, 1), "msk");
    assert_null(mh_image_pipeline_field(pipeline, 2));
    assert_int_equal(mh_image_pipeline_check(pipeline, names, 2, &err), MH_ERR_INVALID);
    assert_string_equal(err.message, "'msk' at character 16 of the pipeline is not a field of "
                                     "pictures here; did you mean 'mask'?");
    mh_image_pipeline_free(pipeline);
    pipeline = parse("image,mask: flip");
    assert_int_equal(mh_image_pipeline_check(pipeline, names, 2, &err), MH_OK);
    mh_image_pipeline_free(pipeline);
}

/* Another number for everything that changes samples, the same for other spaces. */
static void fingerprints_follow_the_meaning(void **state)
{
    (void)state;
    const char *texts[] = {"flip",       "flip p=0.4", "flip vertical", "resize 8",
                           "resize 8x8", "pad 1",      "flip | flip"};
    uint64_t seen[7];
    for (int i = 0; i < 7; i++) {
        mh_image_pipeline *pipeline = parse(texts[i]);
        seen[i] = mh_image_plan_fingerprint(mh_image_pipeline_plan(pipeline, "image"));
        mh_image_pipeline_free(pipeline);
        for (int before = 0; before < i; before++)
            assert_int_not_equal(seen[i], seen[before]);
    }
    mh_image_pipeline *pipeline = parse(" image :  flip  p=0.4 ;; ");
    assert_int_equal(mh_image_plan_fingerprint(mh_image_pipeline_plan(pipeline, "image")), seen[1]);
    mh_image_pipeline_free(pipeline);
}

static void out_of_memory_is_an_error(void **state)
{
    (void)state;
    uint64_t live = mh_alloc_live();
    for (uint64_t nth = 1; nth <= 2; nth++) {
        mh_image_pipeline *pipeline = NULL;
        (void)mh_alloc_fail_at(nth, 0);
        mh_status status = mh_image_pipeline_parse(&pipeline, "flip", MH_IMAGE_FAST, NULL);
        (void)mh_alloc_fail_at(0, 0);
        assert_int_equal(status, MH_ERR_NOMEM);
        assert_null(pipeline);
    }
    assert_int_equal(mh_alloc_live(), live);
}

static void profiles_have_names(void **state)
{
    (void)state;
    mh_image_profile profile;
    mh_error err = {0};
    assert_int_equal(mh_image_profile_read(&profile, NULL, &err), MH_OK);
    assert_int_equal(profile, MH_IMAGE_EXACT);
    assert_int_equal(mh_image_profile_read(&profile, "fast", &err), MH_OK);
    assert_int_equal(profile, MH_IMAGE_FAST);
    assert_int_equal(mh_image_profile_read(&profile, "quick", &err), MH_ERR_INVALID);
    assert_string_equal(err.message, "unknown profile 'quick': use exact or fast");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_says_what_its_field_is),
        cmocka_unit_test(shapes_follow_from_the_picture),
        cmocka_unit_test(errors_name_the_word_and_its_place),
        cmocka_unit_test(a_field_that_is_not_there_is_an_error),
        cmocka_unit_test(fingerprints_follow_the_meaning),
        cmocka_unit_test(out_of_memory_is_an_error),
        cmocka_unit_test(profiles_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
