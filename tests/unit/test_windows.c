/* test_windows.c - windows over chunked arrays, against reading value by value
 * SPDX-License-Identifier: Apache-2.0
 */
#include "windows.h"

#include "base/error.h"

#define UNITS_MOST 40000
#define WINDOW_MOST 8000

/* What a value of a variable should be, and whether its chunk is missing. */
static uint16_t value_at(size_t variable, const uint64_t *at, uint32_t dims)
{
    uint64_t value = variable + 1;
    for (uint32_t k = 0; k < dims; k++)
        value = value * 31 + at[k];
    return (uint16_t)value;
}

/* The place in the whole variable of a place in one of its parts. */
static void to_whole(const mh_variable *part, uint64_t *at)
{
    if (part->goes_on)
        at[part->along] += part->begin;
}

static uint32_t first_part(const window_case *self, uint32_t number)
{
    while (self->variables[number].goes_on)
        number--;
    return number;
}

static int is_missing(uint64_t id)
{
    return id % 7 == 3;
}

static uint16_t as_stored(const mh_variable *variable, uint16_t value)
{
    return variable->swapped ? __builtin_bswap16(value) : value;
}

/* The chunk as storage would give it: values beyond the array are none that any window may show. */
static uint8_t *chunk_made(const window_case *self, const mh_chunk *chunk)
{
    const mh_variable *variable = &self->variables[chunk->variable];
    uint64_t values = 1;
    for (uint32_t k = 0; k < variable->dims; k++)
        values *= variable->chunk[k];
    uint8_t *bytes = test_malloc(values * 2);
    for (uint64_t n = 0; n < values; n++) {
        uint64_t at[CASE_DIMS], rest = n, offset = 0;
        int inside = 1;
        for (uint32_t k = variable->dims; k-- > 0;) {
            const uint64_t local = rest % variable->chunk[k];
            rest /= variable->chunk[k];
            at[k] = chunk->at[k] * variable->chunk[k] + local;
            offset += local * variable->steps[k];
            inside &= at[k] < variable->shape[k];
        }
        to_whole(variable, at);
        uint16_t value =
            inside ? value_at(first_part(self, chunk->variable), at, variable->dims) : 0xDEAD;
        value = as_stored(variable, value);
        memcpy(bytes + offset, &value, 2);
    }
    return bytes;
}

/* The part that has a value of a variable, given by its first one; and the chunk of the value. */
static uint32_t part_of(const window_case *self, uint32_t number, const uint64_t *at)
{
    const uint32_t along = self->variables[number].along;
    while (number + 1 < self->variable_count && self->variables[number + 1].goes_on &&
           self->variables[number + 1].begin <= at[along])
        number++;
    return number;
}

static uint64_t id_of(const mh_windows *windows, const window_case *self, uint32_t number,
                      const uint64_t *at)
{
    const mh_variable *variable = &self->variables[number];
    uint64_t chunk = 0;
    for (uint32_t k = 0; k < variable->dims; k++) {
        const uint64_t begin = variable->goes_on && k == variable->along ? variable->begin : 0;
        assert_true(at[k] - begin < variable->shape[k]);
        chunk =
            chunk * mh_variable_chunks_along(variable, k) + (at[k] - begin) / variable->chunk[k];
    }
    return mh_windows_unit_id(windows, number, chunk);
}

/* One field of a sample, value by value; marks the chunks that it needs. */
static void check_field(const mh_windows *windows, const window_case *self, uint64_t seed,
                        const mh_window_field *field, const int64_t *origin,
                        const uint16_t *delivered, uint8_t *needed)
{
    const mh_variable *variable = &self->variables[field->variable];
    uint32_t dim_count;
    const mh_window_dim *dims = mh_windows_dims(windows, &dim_count);
    uint64_t values = 1;
    for (uint32_t k = 0; k < field->dims; k++)
        values *= (uint64_t)field->shape[k];
    for (uint64_t n = 0; n < values; n++) {
        uint64_t at[CASE_DIMS], rest = n;
        for (uint32_t k = field->dims; k-- > 0; rest /= (uint64_t)field->shape[k]) {
            uint32_t d = 0;
            while (strcmp(dims[d].name, variable->dim_names[k]) != 0)
                d++;
            at[k] = (uint64_t)(origin[d] + (field->target ? dims[d].target : 0)) +
                    rest % (uint64_t)field->shape[k];
        }
        const uint32_t number = part_of(self, field->variable, at);
        const mh_variable *part = &self->variables[number];
        const uint64_t id = id_of(windows, self, number, at);
        uint16_t fill;
        memcpy(&fill, part->fill, 2);
        const uint16_t wanted =
            is_missing(id) ? as_stored(part, fill) : value_at(field->variable, at, variable->dims);
        if (delivered[n] != wanted)
            fail_msg("seed %llu: field %s value %llu", (unsigned long long)seed, field->name,
                     (unsigned long long)n);
        needed[id] = 1;
    }
}

static void check_sample(const mh_windows *windows, const window_case *self, uint64_t seed,
                         uint64_t sample)
{
    static uint16_t delivered[CASE_VARIABLES * 2][WINDOW_MOST];
    static uint64_t ids[UNITS_MOST];
    static const uint8_t *chunks[UNITS_MOST];
    static uint8_t needed[UNITS_MOST];
    uint8_t *into[CASE_VARIABLES * 2];
    int64_t origin[CASE_DIMS];
    const uint32_t count = mh_windows_units_of(windows, sample, ids);
    assert_true(mh_windows_unit_count(windows) <= UNITS_MOST);
    assert_true(count <= mh_windows_units_most(windows));
    memset(needed, 0, sizeof needed);
    for (uint32_t i = 0; i < count; i++) {
        const mh_chunk chunk = mh_windows_chunk(windows, ids[i]);
        assert_int_equal(mh_windows_unit_id(windows, chunk.variable, chunk.number), ids[i]);
        chunks[i] = is_missing(ids[i]) ? NULL : chunk_made(self, &chunk);
    }
    for (size_t i = 0; i < CASE_VARIABLES * 2; i++)
        into[i] = (uint8_t *)delivered[i];
    mh_windows_place(windows, sample, &(mh_chunks){chunks, sizeof *chunks}, into);
    mh_windows_origin(windows, sample, origin);
    for (size_t i = 0; mh_windows_field(windows, i); i++)
        check_field(windows, self, seed, mh_windows_field(windows, i), origin, delivered[i],
                    needed);
    for (uint32_t i = 0; i < count; i++) { /* no more than those, none twice */
        assert_int_equal(needed[ids[i]], 1);
        needed[ids[i]] = 0;
        test_free((void *)chunks[i]);
    }
    for (uint64_t id = 0; id < UNITS_MOST; id++)
        assert_int_equal(needed[id], 0);
}

static void a_window_is_what_the_array_has_there(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        window_case self;
        mh_windows *windows;
        mh_error err;
        case_make(&self, seed);
        if (mh_windows_new(&windows, self.variables, self.variable_count, &self.texts, NULL, NULL,
                           &err) != MH_OK) {
            assert_non_null(strstr(err.message, "leaves no window")); /* a target and a stride */
            continue;
        }
        const uint64_t count = mh_windows_count(windows);
        for (uint64_t sample = 0; sample < count; sample += 1 + count / 20)
            check_sample(windows, &self, seed, sample);
        check_sample(windows, &self, seed, count - 1);
        mh_windows_free(windows);
    }
}

/* --- texts --- */

static const mh_variable cube = {.name = "t2m",
                                 .dims = 3,
                                 .dim_names = {"time", "latitude", "longitude"},
                                 .shape = {10, 20, 40},
                                 .chunk = {2, 20, 40},
                                 .dtype = {2, 32}};

static mh_status windows_of(mh_window_texts texts, mh_coordinate_lookup *lookup, mh_window_dim *dim,
                            uint64_t *count, mh_error *err)
{
    mh_windows *windows;
    uint32_t dims;
    MH_TRY(mh_windows_new(&windows, &cube, 1, &texts, lookup, NULL, err));
    *dim = mh_windows_dims(windows, &dims)[0];
    *count = mh_windows_count(windows);
    mh_windows_free(windows);
    return MH_OK;
}

static void check_refused(mh_window_texts texts, const char *message)
{
    mh_window_dim dim;
    uint64_t count;
    mh_error err;
    if (windows_of(texts, NULL, &dim, &count, &err) == MH_OK)
        fail_msg("taken, but should say: %s", message);
    assert_int_equal(err.code, MH_ERR_INVALID);
    assert_string_equal(err.message, message);
}

static void mistakes_are_named(void **state)
{
    (void)state;
    check_refused((mh_window_texts){.window = "tiem=4"},
                  "unknown dimension 'tiem': did you mean 'time'?");
    check_refused((mh_window_texts){.window = "Latitude=4,lev=2"},
                  "unknown dimension 'Latitude': did you mean 'latitude'?");
    check_refused((mh_window_texts){.stride = "z=4"},
                  "unknown dimension 'z': there are time, latitude, longitude");
    check_refused((mh_window_texts){.window = "time=11"},
                  "the window time=11 is larger than the 10 of the array");
    check_refused((mh_window_texts){.window = "time=6", .select = "time=2:7"},
                  "the window time=6 is larger than the 5 that are selected");
    check_refused((mh_window_texts){.window = "time=0"},
                  "the window time=0 is not a number from 1 on");
    check_refused((mh_window_texts){.window = "time=4,time=5"},
                  "the dimension time is named twice");
    check_refused((mh_window_texts){.window = "time"}, "'time' is not of the form time=4");
    check_refused((mh_window_texts){.select = "time=5"},
                  "select time=5 is not a range: write 0:100 (indices) or 10..20 (coordinates)");
    check_refused((mh_window_texts){.select = "time=5:11"},
                  "the index 11 is beyond the 10 of time");
    check_refused((mh_window_texts){.select = "time=5:5"}, "select time=5:5 is empty");
    check_refused((mh_window_texts){.select = "time=1..2"},
                  "time has no coordinate: select it by index (time=0:100)");
    check_refused((mh_window_texts){.window = "time=4", .target = "time=+7"},
                  "the target time=+7 leaves no window of 10");
}

static void check_time(mh_window_texts texts, mh_coordinate_lookup *lookup, uint64_t first,
                       uint64_t count)
{
    mh_window_dim dim;
    uint64_t samples;
    mh_error err = {0};
    if (windows_of(texts, lookup, &dim, &samples, &err) != MH_OK)
        fail_msg("%s", err.message);
    assert_int_equal(dim.first, first);
    assert_int_equal(dim.count, count);
}

static void windows_are_counted(void **state)
{
    (void)state;
    check_time((mh_window_texts){0}, NULL, 0, 1);
    check_time((mh_window_texts){.window = "time=3"}, NULL, 0, 3);
    check_time((mh_window_texts){.window = "time=3", .stride = "time=1"}, NULL, 0, 8);
    check_time((mh_window_texts){.window = "time=3", .stride = "time=1", .select = "time=2:-1"},
               NULL, 2, 5);
    check_time((mh_window_texts){.window = "time=3", .stride = "time=1", .target = "time=+2"}, NULL,
               0, 6);
    check_time((mh_window_texts){.window = "time=3", .stride = "time=2", .target = "time=-3"}, NULL,
               4, 2);
}

/* --- coordinates --- */

static mh_status monthly(void *context, const char *dim, mh_coordinate *out, mh_error *err)
{
    /* the middle of ten months from 2000-01 on, in hours */
    static const double hours[] = {372, 1092, 1812, 2544, 3276, 4008, 4740, 5484, 6216, 6948};
    static const double heights[] = {100, 90, 80, 70, 60, 50, 40, 30, 20, 10};
    (void)err;
    *out = (mh_coordinate){.values = context ? heights : hours, .count = 10};
    if (!context)
        out->units = "hours since 2000-01-01 00:00:00";
    return strcmp(dim, "time") == 0 ? MH_OK : MH_ERR_NOT_FOUND;
}

static mh_status falling(void *context, const char *dim, mh_coordinate *out, mh_error *err)
{
    int falls = 1;
    (void)context;
    return monthly(&falls, dim, out, err);
}

static void ranges_of_coordinates_include_both_ends(void **state)
{
    (void)state;
    check_time((mh_window_texts){.select = "time=2000-02..2000-04", .window = "time=1"}, monthly, 1,
               3);
    check_time((mh_window_texts){.select = "time=..2000", .window = "time=1"}, monthly, 0, 10);
    check_time(
        (mh_window_texts){.select = "time=2000-02-15T12:00..2000-03-16T11:59", .window = "time=1"},
        monthly, 1, 1);
    check_time((mh_window_texts){.select = "time=40..70", .window = "time=1"}, falling, 3, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_window_is_what_the_array_has_there),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(windows_are_counted),
        cmocka_unit_test(ranges_of_coordinates_include_both_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
