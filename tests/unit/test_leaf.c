/* test_leaf.c - sizes and places of arrays, and what is not believed
 * SPDX-License-Identifier: Apache-2.0
 */
#include "batch/leaf.h"
#include "batch/slots.h"
#include "unit.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define HUGE_BYTES (UINT64_MAX / 4)

static void the_size_of_an_array(void **state)
{
    (void)state;
    static const struct {
        uint8_t bits;
        uint32_t dims;
        int64_t shape[MH_LEAF_DIMS];
        uint64_t bytes;
    } rows[] = {
        {32, 0, {0}, 4},
        {8, 1, {7}, 7},
        {128, 1, {3}, 48},
        {64, 3, {2, 3, 5}, 240},
        {16, 8, {1, 2, 1, 2, 1, 2, 1, 2}, 32},
        {32, 1, {0}, 0},
        {32, 3, {4, 0, 9}, 0},
        {32, 3, {0, 1 << 30, 1 << 30}, 0},
        {8, 1, {INT64_MAX}, INT64_MAX},
        {8, 2, {INT64_C(1) << 31, INT64_C(1) << 31}, UINT64_C(1) << 62},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        uint64_t bytes = 1;
        assert_int_equal(mh_leaf_measure(&bytes, rows[i].bits, rows[i].shape, rows[i].dims, NULL),
                         MH_OK);
        assert_int_equal(bytes, rows[i].bytes);
    }
}

static void shapes_that_cannot_be(void **state)
{
    (void)state;
    static const struct {
        uint8_t bits;
        uint32_t dims;
        int64_t shape[MH_LEAF_DIMS];
        const char *says;
    } rows[] = {
        {32, 1, {-1}, "dimension 0 is negative"},
        {32, 3, {2, 3, INT64_MIN}, "dimension 2 is negative"},
        {32, 2, {0, -5}, "dimension 1 is negative"},
        {64, 1, {INT64_MAX}, "overflows at dimension 0"},
        {32, 3, {INT64_C(1) << 32, INT64_C(1) << 32, 2}, "overflows at dimension 1"},
        {8, 3, {INT64_MAX, INT64_MAX, 0}, "overflows at dimension 1"},
        {8, 2, {INT64_MAX, 2}, "more than 2^63"},
        {16, 1, {INT64_C(1) << 62}, "more than 2^63"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        uint64_t bytes = 123;
        mh_error err = {0};
        assert_int_equal(mh_leaf_measure(&bytes, rows[i].bits, rows[i].shape, rows[i].dims, &err),
                         MH_ERR_INVALID);
        assert_non_null(strstr(err.message, rows[i].says));
        assert_int_equal(bytes, 123);
    }
}

static mh_leaf floats(int64_t count)
{
    return (mh_leaf){.type_code = 2, .type_bits = 32, .dims = 1, .shape = {count}};
}

static void leaves_are_placed_one_after_another(void **state)
{
    (void)state;
    static const struct {
        int64_t count;
        uint64_t offset, end;
    } rows[] = {
        {1, 0, 4}, {16, 64, 128}, {16, 128, 192}, {17, 192, 260}, {0, 320, 320}, {1, 320, 324},
    };
    uint64_t end = 0;
    for (size_t i = 0; i < COUNT(rows); i++) {
        mh_leaf leaf = floats(rows[i].count);
        assert_int_equal(mh_leaf_place(&leaf, &end, 324, NULL), MH_OK);
        assert_int_equal(leaf.offset, rows[i].offset);
        assert_int_equal(leaf.offset % MH_LEAF_ALIGN, 0);
        assert_int_equal(leaf.bytes, 4 * (uint64_t)rows[i].count);
        assert_int_equal(end, rows[i].end);
        assert_int_equal(mh_leaf_check(&leaf, 324, NULL), MH_OK);
    }
}

static void what_does_not_fit_is_not_placed(void **state)
{
    (void)state;
    static const struct {
        int64_t count;
        uint64_t end, slot_bytes;
        mh_status status;
    } rows[] = {
        {16, 0, 64, MH_OK},
        {17, 0, 64, MH_ERR_NOMEM},
        {1, 1, 67, MH_ERR_NOMEM}, /* it would start at 64 */
        {1, 1, 68, MH_OK},
        {0, 1, 63, MH_ERR_NOMEM}, /* even nothing needs a place */
        {0, 1, 64, MH_OK},
        {1, 0, 0, MH_ERR_NOMEM},
        {INT64_MAX / 8, 0, HUGE_BYTES, MH_OK},
        {INT64_MAX / 8, 128, (uint64_t)INT64_MAX / 2, MH_ERR_NOMEM},
        {INT64_MAX / 2, 0, HUGE_BYTES, MH_ERR_INVALID},
        {-1, 0, 64, MH_ERR_INVALID},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        uint64_t end = rows[i].end;
        mh_leaf leaf = floats(rows[i].count);
        assert_int_equal(mh_leaf_place(&leaf, &end, rows[i].slot_bytes, NULL), rows[i].status);
        if (rows[i].status == MH_OK)
            continue;
        assert_int_equal(end, rows[i].end);
        assert_int_equal(leaf.bytes, 0);
        assert_int_equal(leaf.offset, 0);
    }
}

static void every_type_torch_knows_is_accepted(void **state)
{
    (void)state;
    static const uint8_t known[][2] = {
        {0, 8},  {0, 16}, {0, 32}, {0, 64}, {1, 8},  {1, 16},  {1, 32}, {1, 64},
        {2, 16}, {2, 32}, {2, 64}, {4, 16}, {5, 64}, {5, 128}, {6, 8},
    };
    unsigned accepted = 0;
    for (unsigned code = 0; code < 256; code++) {
        for (unsigned bits = 0; bits < 256; bits++) {
            int expected = 0;
            for (size_t i = 0; i < COUNT(known); i++)
                expected |= known[i][0] == code && known[i][1] == bits;
            mh_leaf leaf = {.type_code = (uint8_t)code, .type_bits = (uint8_t)bits, .dims = 0};
            leaf.bytes = bits / 8;
            mh_status status = mh_leaf_check(&leaf, 64, NULL);
            assert_int_equal(status, expected ? MH_OK : MH_ERR_CORRUPT);
            accepted += status == MH_OK;
        }
    }
    assert_int_equal(accepted, COUNT(known));
}

/* A sound leaf: 2 x 3 x 4 floats, the last 96 bytes of a slot of 4192. */
#define SLOT_BYTES 4192u

static mh_leaf sound(void)
{
    return (mh_leaf){.offset = 4096,
                     .bytes = 96,
                     .type_code = 2,
                     .type_bits = 32,
                     .dims = 3,
                     .shape = {2, 3, 4}};
}

static void a_damaged_leaf_is_refused(void **state)
{
    (void)state;
#define FIELD(name) offsetof(mh_leaf, name), sizeof(((mh_leaf *)0)->name)
#define SHAPE(n) offsetof(mh_leaf, shape) + (n) * sizeof(int64_t), sizeof(int64_t)
    static const struct {
        size_t at, size;
        uint64_t value;
    } rows[] = {
        {FIELD(offset), 4097},
        {FIELD(offset), 4128},
        {FIELD(offset), 4160},            /* aligned, its end beyond the slot */
        {FIELD(offset), 4224},            /* aligned, wholly beyond */
        {FIELD(offset), UINT64_MAX - 63}, /* offset + bytes wraps round */
        {FIELD(offset), UINT64_MAX},
        {FIELD(bytes), 0},
        {FIELD(bytes), 95},
        {FIELD(bytes), 97},
        {FIELD(bytes), UINT64_MAX},
        {FIELD(type_code), 3},
        {FIELD(type_code), 4}, /* there is no bfloat32 */
        {FIELD(type_code), 7},
        {FIELD(type_code), 255},
        {FIELD(type_bits), 0},
        {FIELD(type_bits), 1},
        {FIELD(type_bits), 31},
        {FIELD(type_bits), 64}, /* known, but the size is not that one */
        {FIELD(type_bits), 255},
        {FIELD(dims), 0},
        {FIELD(dims), 2},
        {FIELD(dims), 4}, /* the fourth is zero */
        {FIELD(dims), MH_LEAF_DIMS + 1},
        {FIELD(dims), UINT16_MAX},
        {SHAPE(0), 0},
        {SHAPE(0), 1},
        {SHAPE(1), 4},
        {SHAPE(2), 3},
        {SHAPE(2), (uint64_t)-4},
        {SHAPE(0), (uint64_t)INT64_MIN},
        {SHAPE(0), (uint64_t)INT64_MAX},
        {SHAPE(1), UINT64_C(1) << 61}, /* the product wraps round to something small */
    };
#undef FIELD
#undef SHAPE
    mh_leaf leaf = sound();
    assert_int_equal(mh_leaf_check(&leaf, SLOT_BYTES, NULL), MH_OK);
    for (size_t i = 0; i < COUNT(rows); i++) {
        mh_error err = {0};
        leaf = sound();
        memcpy((uint8_t *)&leaf + rows[i].at, &rows[i].value, rows[i].size); /* little-endian */
        mh_leaf before = leaf;
        mh_status status = mh_leaf_check(&leaf, SLOT_BYTES, &err);
        if (status == MH_OK)
            fail_msg("row %zu was believed", i);
        assert_true(status == MH_ERR_CORRUPT || status == MH_ERR_INVALID);
        assert_true(err.message[0] != '\0');
        assert_memory_equal(&leaf, &before, sizeof leaf);
    }
}

/* What lies behind the shape is not part of it, even where it would fit. */
static void nothing_is_read_behind_the_shape(void **state)
{
    (void)state;
    struct {
        mh_leaf leaf;
        int64_t behind[8];
    } both = {.leaf = sound(), .behind = {1, 1, 1, 1, 1, 1, 1, 1}};
    for (int i = 3; i < MH_LEAF_DIMS; i++)
        both.leaf.shape[i] = 1;
    both.leaf.dims = MH_LEAF_DIMS;
    assert_int_equal(mh_leaf_check(&both.leaf, SLOT_BYTES, NULL), MH_OK);
    both.leaf.dims = MH_LEAF_DIMS + 1;
    assert_int_equal(mh_leaf_check(&both.leaf, SLOT_BYTES, NULL), MH_ERR_CORRUPT);
}

static void a_slot_that_is_too_small_is_noticed(void **state)
{
    (void)state;
    mh_leaf leaf = sound();
    for (uint64_t bytes = 0; bytes < SLOT_BYTES; bytes += 31)
        assert_int_equal(mh_leaf_check(&leaf, bytes, NULL), MH_ERR_CORRUPT);
    assert_int_equal(mh_leaf_check(&leaf, SLOT_BYTES - 1, NULL), MH_ERR_CORRUPT);
    assert_int_equal(mh_leaf_check(&leaf, UINT64_MAX, NULL), MH_OK);
    leaf = (mh_leaf){.offset = 64, .type_code = 2, .type_bits = 32, .dims = 1}; /* empty */
    assert_int_equal(mh_leaf_check(&leaf, 64, NULL), MH_OK);
    assert_int_equal(mh_leaf_check(&leaf, 63, NULL), MH_ERR_CORRUPT);
}

/* Random bytes: whatever is believed lies inside the slot and is as large as its shape says. */
static void nothing_believed_lies_outside(void **state)
{
    (void)state;
    uint64_t seed = 88172645463325252u, believed = 0;
    for (int round = 0; round < 200000; round++) {
        mh_leaf leaf = sound();
        for (int changes = 0; changes < 1 + round % 3; changes++) {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            ((uint8_t *)&leaf)[seed % sizeof leaf] = (uint8_t)(seed >> 32);
        }
        if (mh_leaf_check(&leaf, SLOT_BYTES, NULL) != MH_OK)
            continue;
        uint64_t bytes = leaf.type_bits / 8u;
        for (unsigned i = 0; i < leaf.dims; i++)
            bytes *= (uint64_t)leaf.shape[i];
        assert_int_equal(bytes, leaf.bytes);
        assert_true(leaf.offset <= SLOT_BYTES && leaf.bytes <= SLOT_BYTES - leaf.offset);
        assert_int_equal(leaf.offset % MH_LEAF_ALIGN, 0);
        believed++;
    }
    assert_true(believed > 1000); /* changes where nothing is read are harmless */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_size_of_an_array),
        cmocka_unit_test(shapes_that_cannot_be),
        cmocka_unit_test(leaves_are_placed_one_after_another),
        cmocka_unit_test(what_does_not_fit_is_not_placed),
        cmocka_unit_test(every_type_torch_knows_is_accepted),
        cmocka_unit_test(a_damaged_leaf_is_refused),
        cmocka_unit_test(nothing_is_read_behind_the_shape),
        cmocka_unit_test(a_slot_that_is_too_small_is_noticed),
        cmocka_unit_test(nothing_believed_lies_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
