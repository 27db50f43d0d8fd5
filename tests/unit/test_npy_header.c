/* test_npy_header.c - heads of .npy files: those NumPy writes, and damaged ones
 * SPDX-License-Identifier: Apache-2.0
 */
#include "arrays.h"
#include "format/npy_header.h"

static mh_npy_header header; /* too large for a stack */

static mh_status read_dict(const char *dict, mh_npy_header *out, mh_error *err)
{
    char head[512];
    size_t length = npy_head(head, sizeof head, dict);
    return mh_npy_header_read(out, (const uint8_t *)head, length, err);
}

static void types_are_dlpacks(void **state)
{
    static const struct {
        const char *type;
        uint8_t code, bits, swap;
        int64_t last; /* strings have a dimension of their own; 0: none */
    } cases[] = {
        {"<f4", 2, 32, 1, 0}, {"<f2", 2, 16, 1, 0},     {"<i8", 0, 64, 1, 0},
        {"|u1", 1, 8, 1, 0},  {"|b1", 6, 8, 1, 0},      {"<c16", 5, 128, 1, 0},
        {"|S7", 1, 8, 1, 7},  {"<M8[ns]", 0, 64, 1, 0}, {"<m8[D]", 0, 64, 1, 0},
        {"<U3", 1, 8, 1, 12}, {">i1", 0, 8, 1, 0},      {">f8", 2, 64, 8, 0},
        {">u2", 1, 16, 2, 0}, {">c8", 5, 64, 4, 0},     {">c16", 5, 128, 8, 0},
        {">U3", 1, 8, 4, 12}, {">M8[us]", 0, 64, 8, 0}, {"|V5", 1, 8, 1, 5},
        {"|S1", 1, 8, 1, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char dict[128];
        mh_error err = {0};
        (void)snprintf(dict, sizeof dict,
                       "{'descr': '%s', 'fortran_order': False, 'shape': (3, 5), }", cases[i].type);
        assert_int_equal(read_dict(dict, &header, &err), MH_OK);
        const mh_npy_member *value = header.members;
        assert_int_equal(header.member_count, 1);
        assert_int_equal(value->name[0], '\0');
        assert_int_equal(value->dtype.code, cases[i].code);
        assert_int_equal(value->dtype.bits, cases[i].bits);
        assert_int_equal(value->swap, cases[i].swap);
        assert_int_equal(value->dims, cases[i].last > 0);
        if (cases[i].last)
            assert_int_equal(value->shape[0], cases[i].last);
        assert_int_equal(header.dims, 2);
        assert_int_equal(header.shape[1], 5);
        assert_false(header.fortran);
        assert_int_equal(header.data_offset % 64, 0);
    }
}

static void what_is_not_read_is_refused_by_name(void **state)
{
    static const struct {
        const char *dict;
        mh_status code;
        const char *said;
    } cases[] = {
        {"{'descr': '|O', 'fortran_order': False, 'shape': (3,), }", MH_ERR_UNSUPPORTED, "objects"},
        {"{'descr': '<f16', 'fortran_order': False, 'shape': (3,), }", MH_ERR_UNSUPPORTED, "<f16"},
        {"{'descr': '<c32', 'fortran_order': False, 'shape': (3,), }", MH_ERR_UNSUPPORTED, "<c32"},
        {"{'descr': [('a', '<f4'), ('b', '|O')], 'fortran_order': False, 'shape': (3,), }",
         MH_ERR_UNSUPPORTED, "member b: npy array of Python objects"},
        {"{'descr': [], 'fortran_order': False, 'shape': (3,), }", MH_ERR_UNSUPPORTED,
         "without members"},
        {"{'descr': [('a\\n', '<f4')], 'fortran_order': False, 'shape': (3,), }",
         MH_ERR_UNSUPPORTED, "escape"},
        {"{'descr': [('', '<f4')], 'fortran_order': False, 'shape': (3,), }", MH_ERR_CORRUPT,
         "no name"},
        {"{'descr': [('a', '<f4', (1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1))], 'fortran_order': False, "
         "'shape': (3,), }",
         MH_ERR_UNSUPPORTED, "member a of more than 16 dimensions"},
        {"{'descr': [('a', [('a', [('a', [('a', [('a', [('a', [('a', [('a', [('a', [('a', "
         "'<f4')])])"
         "])])])])])])], 'fortran_order': False, 'shape': (3,), }",
         MH_ERR_UNSUPPORTED, "nested more than 8 deep"},
        {"{'descr': [('a', '<f4', (9999999999, 9999999999))], 'fortran_order': False, 'shape': "
         "(3,), }",
         MH_ERR_CORRUPT, "too large"},
        {"{'descr': [('a', '<f4')", MH_ERR_CORRUPT, "does not end"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3, -4), }", MH_ERR_CORRUPT, "shape"},
        {"{'descr': '<f4', 'fortran_order': False, }", MH_ERR_CORRUPT, "missing"},
        {"{'descr': '<f4', 'fortran_order': Maybe, 'shape': (3,), }", MH_ERR_CORRUPT, "neither"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999, 9999999999), }",
         MH_ERR_CORRUPT, "too large"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }",
         MH_ERR_CORRUPT, "too large"},
        {"{'descr': '<f4', 'descr': '<f4', 'shape': (3,), }", MH_ERR_CORRUPT, "repeated"},
        {"not a dict", MH_ERR_CORRUPT, "not a dict"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mh_error err = {0};
        assert_int_equal(read_dict(cases[i].dict, &header, &err), cases[i].code);
        if (!strstr(err.message, cases[i].said))
            fail_msg("'%s' does not say '%s'", err.message, cases[i].said);
    }
}

static void check_member(uint32_t number, const char *name, uint64_t offset, uint32_t dims)
{
    assert_string_equal(header.members[number].name, name);
    assert_int_equal(header.members[number].offset, offset);
    assert_int_equal(header.members[number].dims, dims);
}

static void members_lie_one_after_the_other(void **state)
{
    mh_error err = {0};
    (void)state;
    assert_int_equal(
        read_dict("{'descr': [('', '|V4'), (('a title', 'a'), '<i4'), ('', '|V8'), "
                  "(\"b'\", '>f8', (2, 3)), ('\xe9', '|S5', (4,))], 'fortran_order': True, "
                  "'shape': (3, 2), }",
                  &header, &err),
        MH_OK);
    assert_int_equal(header.member_count, 3);
    assert_int_equal(header.item_bytes, 84);
    assert_int_equal(header.data_bytes, 6 * 84);
    assert_true(header.fortran);
    check_member(0, "a", 4, 0);
    check_member(1, "b'", 16, 2);
    assert_int_equal(header.members[1].swap, 8);
    assert_int_equal(header.members[1].strides[0], 24);
    assert_int_equal(header.members[1].strides[1], 8);
    check_member(2, "\xc3\xa9", 64, 2); /* Latin-1 became UTF-8 */
    assert_int_equal(header.members[2].shape[1], 5);
}

static void members_of_members_have_both_names(void **state)
{
    mh_error err = {0};
    (void)state;
    assert_int_equal(read_dict("{'descr': [('p', [('x', '<f4'), ('y', '<i2', (2,))], (3,)), "
                               "('z', [('w', '|u1')])], 'fortran_order': False, 'shape': (7,), }",
                               &header, &err),
                     MH_OK);
    assert_int_equal(header.member_count, 3);
    assert_int_equal(header.item_bytes, 25);
    check_member(0, "p.x", 0, 1);
    assert_int_equal(header.members[0].strides[0], 8);
    check_member(1, "p.y", 4, 2);
    assert_int_equal(header.members[1].strides[0], 8);
    assert_int_equal(header.members[1].strides[1], 2);
    check_member(2, "z.w", 24, 0);
}

static void every_cut_is_noticed(void **state)
{
    char head[256];
    mh_error err;
    (void)state;
    size_t length =
        npy_head(head, sizeof head, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }");
    for (size_t size = 0; size < length; size++) {
        uint8_t *exact = malloc(size ? size : 1); /* so that a sanitizer sees a read beyond it */
        assert_non_null(exact);
        memcpy(exact, head, size);
        assert_int_equal(mh_npy_header_read(&header, exact, size, &err), MH_ERR_CORRUPT);
        free(exact);
    }
    assert_int_equal(mh_npy_header_read(&header, (uint8_t *)head, length, &err), MH_OK);
    assert_int_equal(header.data_bytes, 48);
}

static void later_versions_have_longer_lengths(void **state)
{
    const char *dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (), }\n";
    uint8_t head[128] = "\x93NUMPY\x02\x00";
    mh_error err;
    (void)state;
    head[8] = (uint8_t)strlen(dict);
    memcpy(head + 12, dict, strlen(dict));
    assert_int_equal(mh_npy_header_read(&header, head, 12 + strlen(dict), &err), MH_OK);
    assert_int_equal(header.dims, 0);
    assert_int_equal(header.data_offset, 12 + strlen(dict));
    head[6] = 4;
    assert_int_equal(mh_npy_header_read(&header, head, sizeof head, &err), MH_ERR_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_are_dlpacks),
        cmocka_unit_test(what_is_not_read_is_refused_by_name),
        cmocka_unit_test(members_lie_one_after_the_other),
        cmocka_unit_test(members_of_members_have_both_names),
        cmocka_unit_test(every_cut_is_noticed),
        cmocka_unit_test(later_versions_have_longer_lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
