/* test_npy.c - samples of .npy and .npz files: which bytes they are made of, and what becomes of
 * them
 * SPDX-License-Identifier: Apache-2.0
 */
#include "arrays.h"
#include "format/format.h"
#include "zips.h"

#include <fcntl.h>

#define HEAD(type, order, shape)                                                                   \
    "{'descr': " type ", 'fortran_order': " order ", 'shape': " shape ", }"

static char file_bytes[8192];

static void write_npy(const char *root, const char *name, const char *dict, const void *data,
                      size_t size)
{
    write_bytes(root, name, file_bytes, npy_file(file_bytes, sizeof file_bytes, dict, data, size));
}

/* Opens root/name for each of the names, which spaces separate. */
static mh_status try_open(mh_dataset **out, const char *root, const char *names, const char *wanted,
                          mh_error *err)
{
    char list[256], paths[8][256];
    const char *given[8];
    size_t count = 0;
    mh_dataset_options options;
    mh_dataset_options_init(&options);
    if (wanted) {
        options.fields = &wanted;
        options.field_count = 1;
    }
    (void)snprintf(list, sizeof list, "%s", names);
    for (char *at = list, *name; (name = strtok_r(at, " ", &at)); count++) {
        assert_true(count < 8);
        (void)snprintf(paths[count], sizeof paths[count], "%s/%s", root, name);
        given[count] = paths[count];
    }
    return mh_dataset_open(out, given, count, &options, err);
}

static mh_dataset *open_names(const char *root, const char *names, const char *wanted)
{
    mh_dataset *dataset = NULL;
    mh_error err = {0};
    if (try_open(&dataset, root, names, wanted, &err) != MH_OK)
        fail_msg("%s", err.message);
    return dataset;
}

static void read_at(const mh_dataset *dataset, uint32_t object, uint64_t offset, uint8_t *into,
                    uint64_t size)
{
    int fd = open(dataset->objects.list[object].name, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, into, size, (off_t)offset), size);
    close(fd);
}

/* Blocks of exactly their size, so that a sanitizer sees one byte too far. */
static void place_units(const mh_dataset *dataset, uint64_t sample, uint8_t *const *into)
{
    uint64_t ids[8];
    uint8_t *blocks[8];
    mh_bytes units[8];
    mh_error err = {0};
    assert_true(dataset->units_most <= 8);
    uint32_t count = dataset->format->units_of(dataset, sample, ids);
    assert_true(count > 0 && count <= dataset->units_most);
    for (uint32_t i = 0; i < count; i++) {
        mh_unit unit = dataset->format->unit(dataset, ids[i]);
        assert_true(ids[i] < dataset->unit_count);
        assert_int_equal(unit.decoded_bytes, 0);
        assert_true(unit.size > 0 && unit.size <= dataset->unit_bytes_most);
        blocks[i] = malloc(unit.size);
        assert_non_null(blocks[i]);
        read_at(dataset, unit.object, unit.offset, blocks[i], unit.size);
        units[i] = (mh_bytes){.data = blocks[i], .size = unit.size};
    }
    const mh_placing placing = {.sample = sample, .units = units, .into = into};
    assert_int_equal(dataset->format->place(dataset, &placing, &err), MH_OK);
    for (uint32_t i = 0; i < count; i++)
        free(blocks[i]);
}

/* The bytes of a field of all samples are `expected`. */
static void check_field(const mh_dataset *dataset, const char *name, const void *expected,
                        size_t size)
{
    uint8_t *into[8];
    size_t count = dataset->field_count, wanted = count;
    for (size_t i = 0; i < count; i++) {
        wanted = strcmp(dataset->fields[i].name, name) == 0 ? i : wanted;
        into[i] = malloc(dataset->fields[i].bytes ? dataset->fields[i].bytes : 1);
        assert_non_null(into[i]);
    }
    assert_true(wanted < count);
    uint64_t bytes = dataset->fields[wanted].bytes;
    assert_int_equal(bytes * dataset->count, size);
    for (uint64_t sample = 0; sample < dataset->count; sample++) {
        if (dataset->by_units) {
            place_units(dataset, sample, into);
        } else {
            mh_piece piece = mh_dataset_piece(dataset, wanted, sample);
            read_at(dataset, piece.object, piece.offset, into[wanted], bytes);
        }
        assert_memory_equal(into[wanted], (const uint8_t *)expected + sample * bytes, bytes);
    }
    for (size_t i = 0; i < count; i++)
        free(into[i]);
}

static void the_other_byte_order_is_turned(void **state)
{
    static const uint8_t data[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    static const struct {
        const char *dict;
        uint8_t expected[16];
    } cases[] = {
        {HEAD("'>i2'", "False", "(2, 4)"), {2, 1, 4, 3, 6, 5, 8, 7, 10, 9, 12, 11, 14, 13, 16, 15}},
        {HEAD("'>f4'", "False", "(2, 2)"), {4, 3, 2, 1, 8, 7, 6, 5, 12, 11, 10, 9, 16, 15, 14, 13}},
        {HEAD("'>c8'", "False", "(2,)"), {4, 3, 2, 1, 8, 7, 6, 5, 12, 11, 10, 9, 16, 15, 14, 13}},
        {HEAD("'>U2'", "False", "(2,)"), {4, 3, 2, 1, 8, 7, 6, 5, 12, 11, 10, 9, 16, 15, 14, 13}},
        {HEAD("'>M8[s]'", "False", "(1, 2)"),
         {8, 7, 6, 5, 4, 3, 2, 1, 16, 15, 14, 13, 12, 11, 10, 9}},
        {HEAD("'>c16'", "False", "(1,)"), {8, 7, 6, 5, 4, 3, 2, 1, 16, 15, 14, 13, 12, 11, 10, 9}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_npy(*state, "a.npy", cases[i].dict, data, sizeof data);
        mh_dataset *dataset = open_names(*state, "a.npy", NULL);
        assert_true(dataset->by_units);
        assert_false(dataset->units_shared);
        check_field(dataset, "a", cases[i].expected, sizeof data);
        mh_dataset_unref(dataset);
    }
}

static void what_needs_no_change_goes_by_pieces(void **state)
{
    static const char *const dicts[] = {
        HEAD("'<i2'", "False", "(2, 4)"), HEAD("'>u1'", "False", "(2, 8)"),
        HEAD("'|S8'", "False", "(2,)"),   HEAD("'<i2'", "True", "(8,)"),
        HEAD("'>i2'", "False", "(2, 0)"), HEAD("[('x', '<f8')]", "False", "(2,)"),
        HEAD("'<f4'", "True", "(0, 4)"),
    };
    static const uint8_t data[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    for (size_t i = 0; i < sizeof dicts / sizeof *dicts; i++) {
        write_npy(*state, "a.npy", dicts[i], data, sizeof data);
        mh_dataset *dataset = open_names(*state, "a.npy", NULL);
        assert_false(dataset->by_units);
        check_field(dataset, dataset->fields[0].name, data,
                    dataset->count * dataset->fields[0].bytes);
        mh_dataset_unref(dataset);
    }
}

static void fortran_order_is_one_unit_for_all(void **state)
{
    uint16_t data[24], expected[24];
    for (unsigned order = 0; order < 2; order++) {
        for (unsigned s = 0; s < 2; s++)
            for (unsigned i = 0; i < 3; i++)
                for (unsigned k = 0; k < 4; k++) {
                    uint16_t value = (uint16_t)(s * 1000 + i * 100 + k);
                    expected[(s * 3 + i) * 4 + k] = value;
                    data[(k * 3 + i) * 2 + s] = order ? __builtin_bswap16(value) : value;
                }
        write_npy(*state, "f.npy",
                  order ? HEAD("'>u2'", "True", "(2, 3, 4)") : HEAD("'<u2'", "True", "(2, 3, 4)"),
                  data, sizeof data);
        mh_dataset *dataset = open_names(*state, "f.npy", NULL);
        assert_true(dataset->by_units && dataset->units_shared);
        assert_int_equal(dataset->unit_count, 1);
        assert_int_equal(dataset->unit_bytes_most, sizeof data);
        check_field(dataset, "f", expected, sizeof expected);
        mh_dataset_unref(dataset);
    }
}

/* x: float32, gap of 2, y: two big-endian uint16, in.z: uint8 */
static const char members[] = HEAD(
    "[('x', '<f4'), ('', '|V2'), ('y', '>u2', (2,)), ('in', [('z', '|u1')])]", "False", "(2,)");
static const uint8_t rows[] = {1,  2,  3,  4,  0, 0, 5,  6,  7,  8,  9,
                               11, 12, 13, 14, 0, 0, 15, 16, 17, 18, 19};

static void members_are_fields_of_one_unit(void **state)
{
    write_npy(*state, "p.npy", members, rows, sizeof rows);
    mh_dataset *dataset = open_names(*state, "p.npy", NULL);
    assert_int_equal(dataset->field_count, 3);
    assert_true(dataset->by_units);
    assert_int_equal(dataset->units_most, 1);
    assert_int_equal(dataset->unit_count, 2);
    assert_int_equal(dataset->unit_bytes_most, 11);
    check_field(dataset, "p.x", "\1\2\3\4\13\14\15\16", 8);
    check_field(dataset, "p.y", "\6\5\10\7\20\17\22\21", 8);
    check_field(dataset, "p.in.z", "\11\23", 2);
    mh_dataset_unref(dataset);
    dataset = open_names(*state, "p.npy", "p.x"); /* alone it needs no change */
    assert_false(dataset->by_units);
    check_field(dataset, "p.x", "\1\2\3\4\13\14\15\16", 8);
    mh_dataset_unref(dataset);
    dataset = open_names(*state, "p.npy", "p.y");
    assert_true(dataset->by_units);
    check_field(dataset, "p.y", "\6\5\10\7\20\17\22\21", 8);
    mh_dataset_unref(dataset);
}

/* Members that need no change are read together all the same: one read instead of two. */
static void little_endian_members_share_a_unit(void **state)
{
    static const uint8_t data[] = {1, 2, 3, 4, 5, 6, 7, 8};
    write_npy(*state, "q.npy", HEAD("[('a', '<u2'), ('b', '<u2')]", "False", "(2,)"), data, 8);
    mh_dataset *dataset = open_names(*state, "q.npy", NULL);
    assert_true(dataset->by_units);
    assert_int_equal(dataset->unit_count, 2);
    check_field(dataset, "q.a", "\1\2\5\6", 4);
    check_field(dataset, "q.b", "\3\4\7\10", 4);
    mh_dataset_unref(dataset);
}

/* Two samples of two structs, in Fortran order, with a member that is a list of structs. */
static void members_may_be_scattered(void **state)
{
    static const uint8_t data[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                   11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
    write_npy(*state, "s.npy",
              HEAD("[('n', [('p', '|u1'), ('q', '|u1')], (2,)), ('r', '|u1')]", "True", "(2, 2)"),
              data, sizeof data);
    mh_dataset *dataset = open_names(*state, "s.npy", NULL);
    check_field(dataset, "s.n.p", "\1\3\13\15\6\10\20\22", 8);
    check_field(dataset, "s.n.q", "\2\4\14\16\7\11\21\23", 8);
    check_field(dataset, "s.r", "\5\17\12\24", 4);
    mh_dataset_unref(dataset);
}

static void units_are_those_of_the_wanted_fields(void **state)
{
    static const uint8_t data[] = {1, 2, 3, 4, 5, 6, 7, 8};
    write_npy(*state, "a.npy", HEAD("'<u2'", "False", "(2, 2)"), data, 8);
    write_npy(*state, "b.npy", HEAD("'>u2'", "False", "(2, 2)"), data, 8);
    write_npy(*state, "c.npy", HEAD("'<u2'", "True", "(2, 2)"), data, 8);
    write_npy(*state, "e.npy", HEAD("'<u2'", "True", "(2, 0)"), data, 0);
    mh_dataset *dataset = open_names(*state, "a.npy b.npy c.npy e.npy", NULL);
    assert_int_equal(dataset->units_most, 3);
    assert_int_equal(dataset->unit_count, 5);
    check_field(dataset, "a", data, 8);
    check_field(dataset, "b", "\2\1\4\3\6\5\10\7", 8);
    check_field(dataset, "c", "\1\2\5\6\3\4\7\10", 8);
    check_field(dataset, "e", "", 0);
    mh_dataset_unref(dataset);
    dataset = open_names(*state, "a.npy b.npy c.npy e.npy", "a");
    assert_false(dataset->by_units);
    check_field(dataset, "a", data, 8);
    mh_dataset_unref(dataset);
    dataset = open_names(*state, "a.npy b.npy c.npy e.npy", "b");
    assert_int_equal(dataset->unit_count, 2);
    assert_false(dataset->units_shared);
    check_field(dataset, "b", "\2\1\4\3\6\5\10\7", 8);
    mh_dataset_unref(dataset);
}

static void make_npz(const char *root, const char *name, int wide, uint16_t method)
{
    static zip z;
    char x[256], y[256], p[256], single[256];
    const uint8_t data[] = {1, 2, 3, 4, 5, 6, 7, 8};
    const zip_file files[] = {
        {"x.npy", x, npy_file(x, sizeof x, HEAD("'<u2'", "False", "(2, 2)"), data, 8), 0},
        {"d/y.npy", y, npy_file(y, sizeof y, HEAD("'<u4'", "False", "(2,)"), data, 8), method},
        {"p.npy", p, npy_file(p, sizeof p, members, rows, sizeof rows), 0},
        {"one.npy", single, npy_file(single, sizeof single, HEAD("'<u4'", "False", "()"), data, 4),
         0},
    };
    zip_make(&z, files, wide ? 4 : 2, wide);
    write_bytes(root, name, z.bytes, z.size);
}

static void archives_hold_arrays(void **state)
{
    static const uint8_t data[] = {1, 2, 3, 4, 5, 6, 7, 8};
    make_npz(*state, "a.npz", 0, 0);
    write_npy(*state, "b.npy", HEAD("'<u2'", "False", "(2, 2)"), data, 8);
    mh_dataset *dataset = open_names(*state, "b.npy a.npz", NULL);
    assert_int_equal(dataset->field_count, 3);
    assert_int_equal(dataset->objects.count, 2);
    assert_false(dataset->by_units);
    check_field(dataset, "b", data, 8);
    check_field(dataset, "x", data, 8);
    check_field(dataset, "d/y", data, 8);
    mh_dataset_unref(dataset);
    make_npz(*state, "wide.npz", 1, 0);
    dataset = open_names(*state, "wide.npz", "p.y");
    check_field(dataset, "p.y", "\6\5\10\7\20\17\22\21", 8);
    mh_dataset_unref(dataset);
}

static void what_is_not_read_is_refused_with_its_file(void **state)
{
    static const struct {
        const char *names, *said;
    } cases[] = {
        {"deflated.npz",
         "/deflated.npz: d/y.npy in it is compressed: write the file with np.savez"},
        {"wide.npz", "one in "}, /* a single value, wanted with the others */
        {"cut.npz", "/cut.npz: zip archive without its end"},
        {"x.npy a.npz", "/a.npz: x: two fields are called x"},
        {"short.npy", "/short.npy: the header says 8 bytes of data, there are 7"},
        {"object.npy", "/object.npy: member o: npy array of Python objects (|O)"},
        {"x.npy three.npy", "/x.npy has 2 samples and "},
    };
    static const uint8_t data[] = {1, 2, 3, 4, 5, 6, 7, 8};
    make_npz(*state, "a.npz", 0, 0);
    make_npz(*state, "wide.npz", 1, 0);
    make_npz(*state, "deflated.npz", 0, 8);
    make_npz(*state, "cut.npz", 0, 0);
    char path[256];
    (void)snprintf(path, sizeof path, "%s/cut.npz", (char *)*state);
    assert_int_equal(truncate(path, 500), 0);
    write_npy(*state, "x.npy", HEAD("'<u2'", "False", "(2, 2)"), data, 8);
    write_npy(*state, "three.npy", HEAD("'<u2'", "False", "(3,)"), data, 6);
    write_npy(*state, "short.npy", HEAD("'<u2'", "False", "(2, 2)"), data, 7);
    write_npy(*state, "object.npy", HEAD("[('o', '|O')]", "False", "(1,)"), data, 8);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mh_dataset *dataset = NULL;
        mh_error err = {0};
        assert_int_not_equal(try_open(&dataset, *state, cases[i].names, NULL, &err), MH_OK);
        assert_null(dataset);
        if (!strstr(err.message, cases[i].said))
            fail_msg("'%s' does not say '%s'", err.message, cases[i].said);
    }
}

static void open_and_close(void *root)
{
    mh_dataset *dataset = NULL;
    mh_error err = {0};
    if (try_open(&dataset, root, "a.npz p.npy", NULL, &err) == MH_OK)
        mh_dataset_unref(dataset);
    else
        assert_int_equal(err.code, MH_ERR_NOMEM);
}

static void memory_may_end_anywhere(void **state)
{
    int before = open_descriptors();
    make_npz(*state, "a.npz", 0, 0);
    write_npy(*state, "p.npy", members, rows, sizeof rows);
    each_allocation_fails(open_and_close, *state);
    assert_int_equal(open_descriptors(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_other_byte_order_is_turned, make_tree, remove_tree),
        cmocka_unit_test_setup_teardown(what_needs_no_change_goes_by_pieces, make_tree,
                                        remove_tree),
        cmocka_unit_test_setup_teardown(fortran_order_is_one_unit_for_all, make_tree, remove_tree),
        cmocka_unit_test_setup_teardown(members_are_fields_of_one_unit, make_tree, remove_tree),
        cmocka_unit_test_setup_teardown(little_endian_members_share_a_unit, make_tree, remove_tree),
        cmocka_unit_test_setup_teardown(members_may_be_scattered, make_tree, remove_tree),
        cmocka_unit_test_setup_teardown(units_are_those_of_the_wanted_fields, make_tree,
                                        remove_tree),
        cmocka_unit_test_setup_teardown(archives_hold_arrays, make_tree, remove_tree),
        cmocka_unit_test_setup_teardown(what_is_not_read_is_refused_with_its_file, make_tree,
                                        remove_tree),
        cmocka_unit_test_setup_teardown(memory_may_end_anywhere, make_tree, remove_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
