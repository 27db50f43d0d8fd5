/* test_picture.c - headers of pictures: sizes, kinds, orientation, and what is refused
 * SPDX-License-Identifier: Apache-2.0
 */
#include "codec/orientation.h"
#include "codec/picture.h"
#include "unit.h"

static const uint8_t jpeg[] = {
    0xff, 0xd8, 0xff, 0xe1, 0x00, 0x22, 'E', 'x',  'i',  'f',  0,    0,    'M',  'M',  0,
    42,   0,    0,    0,    8,    0,    1,   0x01, 0x12, 0,    3,    0,    0,    0,    1,
    0,    6,    0,    0,    0,    0,    0,   0,    0xff, 0xff, 0xc2, 0x00, 0x11, 8,    0x01,
    0x40, 0x02, 0x80, 3,    1,    0x22, 0,   2,    0x11, 1,    3,    0x11, 1,    0xff, 0xda,
};

static const uint8_t png[] = {
    0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n', 0,   0,   0,   13, 'I', 'H', 'D',
    'R',  0,   0,   1,   0x2c, 0,    0,    0,    200, 4,   3,   0,  0,   1,   1,
    2,    3,   4,   0,   0,    0,    0,    'I',  'D', 'A', 'T', 0,  0,   0,   0,
};

static void a_jpeg_is_described_by_its_frame(void **state)
{
    (void)state;
    mh_picture picture = {0};
    mh_error err = {0};
    assert_int_equal(mh_picture_describe(&picture, jpeg, sizeof jpeg, 1, &err), MH_OK);
    assert_int_equal(picture.kind, MH_PICTURE_JPEG);
    assert_int_equal(picture.width, 0x280);
    assert_int_equal(picture.height, 0x140);
    assert_int_equal(picture.channels, 3);
    assert_int_equal(picture.progressive, 1);
    assert_int_equal(picture.orientation, 6);
}

static void a_png_is_described_by_its_header(void **state)
{
    (void)state;
    mh_picture picture = {0};
    mh_error err = {0};
    assert_int_equal(mh_picture_describe(&picture, png, sizeof png, 1, &err), MH_OK);
    assert_int_equal(picture.kind, MH_PICTURE_PNG);
    assert_int_equal(picture.width, 300);
    assert_int_equal(picture.height, 200);
    assert_int_equal(picture.bits, 4);
    assert_true(picture.palette);
    assert_int_equal(picture.orientation, 1);
}

/* Whole files that are cut are errors; of a file's first bytes more are asked for. */
static void a_beginning_asks_for_more(void **state)
{
    (void)state;
    static const struct {
        const uint8_t *bytes;
        size_t size, enough;
    } files[] = {{jpeg, sizeof jpeg, 58}, {png, sizeof png, 41}};
    for (int file = 0; file < 2; file++)
        for (size_t size = 0; size <= files[file].size; size++) {
            mh_picture picture;
            mh_error err = {0};
            uint8_t *exact = malloc(size ? size : 1);
            memcpy(exact, files[file].bytes, size);
            mh_status part = mh_picture_describe(&picture, exact, size, 0, &err);
            mh_status whole = mh_picture_describe(&picture, exact, size, 1, &err);
            free(exact);
            if (size >= files[file].enough) {
                assert_int_equal(part, MH_OK);
                assert_int_equal(whole, MH_OK);
            } else {
                assert_int_equal(part, MH_AGAIN);
                assert_int_equal(whole, MH_ERR_CORRUPT);
                assert_true(strstr(err.message, size ? "truncated" : "empty") != NULL);
            }
        }
}

static void what_cannot_be_decoded_is_refused(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        uint8_t value;
        mh_status status;
        const char *says;
    } changes[] = {
        {43, 12, MH_ERR_UNSUPPORTED, "12 bits"},
        {48, 2, MH_ERR_UNSUPPORTED, "2 components"},
        {44, 0, MH_OK, ""},
        {46, 0xff, MH_OK, ""},
        {40, 0xd9, MH_ERR_CORRUPT, "no frame header"},
        {0, 'B', MH_ERR_UNSUPPORTED, "not a JPEG"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        uint8_t changed[sizeof jpeg];
        mh_picture picture;
        mh_error err = {0};
        memcpy(changed, jpeg, sizeof jpeg);
        changed[changes[i].at] = changes[i].value;
        assert_int_equal(mh_picture_describe(&picture, changed, sizeof changed, 1, &err),
                         changes[i].status);
        assert_true(strstr(err.message, changes[i].says) != NULL);
    }
}

static void huge_pictures_are_refused(void **state)
{
    (void)state;
    uint8_t changed[sizeof jpeg];
    mh_picture picture;
    mh_error err = {0};
    memcpy(changed, jpeg, sizeof jpeg);
    changed[44] = changed[46] = 0xff; /* 65 344 x 65 408 */
    assert_int_equal(mh_picture_describe(&picture, changed, sizeof changed, 1, &err),
                     MH_ERR_UNSUPPORTED);
    assert_true(strstr(err.message, "refused") != NULL);
    uint8_t wide[sizeof png];
    memcpy(wide, png, sizeof png);
    wide[16] = 1; /* over 16 million wide */
    assert_int_equal(mh_picture_describe(&picture, wide, sizeof wide, 1, &err), MH_ERR_UNSUPPORTED);
}

static void broken_exif_means_upright(void **state)
{
    (void)state;
    uint8_t tiff[] = {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, 8, 0, 0, 0};
    assert_int_equal(mh_orientation_read(tiff, sizeof tiff), 8);
    for (size_t size = 0; size < sizeof tiff; size++)
        assert_int_equal(mh_orientation_read(tiff, size), 1);
    tiff[18] = 9;
    assert_int_equal(mh_orientation_read(tiff, sizeof tiff), 1);
    tiff[18] = 8;
    tiff[4] = 0xff;
    tiff[7] = 0xff; /* the directory lies far beyond the end */
    assert_int_equal(mh_orientation_read(tiff, sizeof tiff), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_jpeg_is_described_by_its_frame),
        cmocka_unit_test(a_png_is_described_by_its_header),
        cmocka_unit_test(a_beginning_asks_for_more),
        cmocka_unit_test(what_cannot_be_decoded_is_refused),
        cmocka_unit_test(huge_pictures_are_refused),
        cmocka_unit_test(broken_exif_means_upright),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
