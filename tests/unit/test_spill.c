/* test_spill.c - a worker's memory for batches without a slot: nothing unread is overwritten
 * SPDX-License-Identifier: Apache-2.0
 */
#include "unit.h"
#include "workers/spill.h"

#define PAGE ((size_t)4096)
#define MB ((size_t)1 << 20)

/* The memfd as the consumer has it, and the worker's side of it. */
typedef struct pair {
    mh_memory memory;
    mh_spill *spill;
} pair;

static pair open_pair(size_t map_bytes, uint32_t depth)
{
    pair both = {.spill = NULL};
    assert_int_equal(mh_memory_create(&both.memory, "unit", map_bytes, 1, NULL), MH_OK);
    assert_int_equal(mh_spill_open(&both.spill, both.memory.fd, map_bytes, depth, NULL), MH_OK);
    return both;
}

static void close_pair(pair *both)
{
    mh_spill_close(both->spill);
    mh_memory_close(&both->memory);
}

static uint64_t place(pair *both, uint64_t bytes, uint64_t read)
{
    uint64_t offset = UINT64_MAX;
    assert_int_equal(mh_spill_place(both->spill, bytes, read, &offset, NULL), MH_OK);
    assert_true(offset + bytes <= both->memory.map_bytes);
    return offset;
}

static struct stat about(const pair *both)
{
    struct stat file;
    assert_int_equal(fstat(both->memory.fd, &file), 0);
    return file;
}

static size_t backed_bytes(const pair *both)
{
    return (size_t)about(both).st_blocks * 512;
}

static void it_opens_and_closes(void **state)
{
    (void)state;
    uint64_t live = mh_alloc_live();
    int open = open_descriptors();
    pair both = open_pair(MB, 2);
    assert_int_equal(backed_bytes(&both), 0);
    close_pair(&both);
    mh_spill_close(NULL);
    mh_spill *none = NULL;
    assert_int_equal(mh_spill_open(&none, -1, MB, 2, NULL), MH_ERR_IO);
    assert_null(none);
    assert_int_equal(mh_alloc_live(), live);
    assert_int_equal(open_descriptors(), open);
}

static void it_grows_as_needed(void **state)
{
    (void)state;
    pair both = open_pair(4 * MB, 3);
    assert_int_equal(place(&both, 10, 0), 0);
    assert_int_equal(about(&both).st_size, PAGE);
    assert_int_equal(place(&both, MB, 0), PAGE);
    assert_int_equal(about(&both).st_size, PAGE + MB);
    memset(mh_spill_data(both.spill, PAGE), 7, MB);
    assert_int_equal(both.memory.base[PAGE], 7); /* the consumer sees it */
    assert_int_equal(both.memory.base[PAGE + MB - 1], 7);
    assert_int_equal(place(&both, PAGE, 1), 0); /* the first was read */
    assert_int_equal(place(&both, 1, 2), PAGE); /* the large one too */
    assert_int_equal(about(&both).st_size, PAGE + MB);
    close_pair(&both);
}

static void an_empty_piece_is_a_piece(void **state)
{
    (void)state;
    pair both = open_pair(MB, 2);
    (void)place(&both, 0, 0);
    (void)place(&both, 0, 0);
    uint64_t offset;
    assert_int_equal(mh_spill_place(both.spill, 0, 0, &offset, NULL), MH_ERR_INTERNAL);
    assert_int_equal(place(&both, 5, 1), 0);
    close_pair(&both);
}

static void too_many_unread_pieces_are_an_error(void **state)
{
    (void)state;
    mh_error err = {0};
    uint64_t offset = 99;
    pair both = open_pair(MB, 3);
    for (int i = 0; i < 3; i++)
        (void)place(&both, 100, 0);
    assert_int_equal(mh_spill_place(both.spill, 100, 0, &offset, &err), MH_ERR_INTERNAL);
    assert_non_null(strstr(err.message, "more than 3 unread"));
    assert_int_equal(offset, 99);
    /* a counter that cannot be frees nothing */
    assert_int_equal(mh_spill_place(both.spill, 100, 4, &offset, NULL), MH_ERR_INTERNAL);
    assert_int_equal(mh_spill_place(both.spill, 100, UINT64_MAX, &offset, NULL), MH_ERR_INTERNAL);
    assert_int_equal(place(&both, 100, 1), 0);
    assert_int_equal(mh_spill_place(both.spill, 100, 0, &offset, NULL), MH_ERR_INTERNAL);
    close_pair(&both);
}

static void too_large_a_piece_is_refused(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {2 * MB, UINT64_C(1) << 50, UINT64_MAX / 4, UINT64_MAX};
    pair both = open_pair(MB, 2);
    assert_int_equal(place(&both, PAGE, 0), 0);
    memset(mh_spill_data(both.spill, 0), 5, PAGE);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        mh_error err = {0};
        uint64_t offset = 99;
        assert_int_equal(mh_spill_place(both.spill, sizes[i], 0, &offset, &err), MH_ERR_NOMEM);
        assert_true(err.message[0] != '\0');
        assert_int_equal(offset, 99);
    }
    assert_int_equal(both.memory.base[PAGE - 1], 5); /* as it was, and room for one more */
    assert_int_equal(place(&both, PAGE, 0), PAGE);
    close_pair(&both);
}

static void trimming_gives_the_memory_back(void **state)
{
    (void)state;
    pair both = open_pair(4 * MB, 3);
    mh_spill_trim(both.spill, 0); /* nothing there yet */
    for (int round = 0; round < 3; round++) {
        uint64_t read = (uint64_t)round * 2;
        assert_int_equal(place(&both, MB, read), 0);
        assert_int_equal(place(&both, 3 * PAGE, read), MB);
        memset(mh_spill_data(both.spill, 0), 9, MB + 3 * PAGE);
        mh_spill_trim(both.spill, read + 1); /* one is unread */
        assert_int_equal(backed_bytes(&both), MB + 3 * PAGE);
        assert_int_equal(both.memory.base[MB], 9);
        mh_spill_trim(both.spill, read + 2);
        assert_int_equal(backed_bytes(&both), 0);
        mh_spill_trim(both.spill, read + 2);
    }
    /* what comes next asks for its memory again */
    assert_int_equal(place(&both, 2 * PAGE, 6), 0);
    assert_int_equal(backed_bytes(&both), 2 * PAGE);
    assert_int_equal(place(&both, MB, 6), 2 * PAGE);
    assert_int_equal(backed_bytes(&both), 2 * PAGE + MB);
    memset(mh_spill_data(both.spill, 0), 9, 2 * PAGE + MB);
    /* a refusal takes nothing from what is unread, although the file was larger before */
    uint64_t offset;
    assert_int_equal(mh_spill_place(both.spill, 8 * MB, 6, &offset, NULL), MH_ERR_NOMEM);
    assert_int_equal(both.memory.base[2 * PAGE + MB - 1], 9);
    close_pair(&both);
}

/* --- against a model: one byte of a table per byte of memory --- */

#define DEPTH 5
#define MODEL_BYTES (32 * MB)

typedef struct model {
    uint8_t *owner; /* number of the unread piece that has the byte, 1 .. 255; 0: free */
    uint64_t offset[DEPTH];
    uint64_t bytes[DEPTH];
    uint64_t placed, read;
} model;

static uint64_t random_next(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed >> 11;
}

static void model_place(model *m, pair *both, uint64_t bytes)
{
    uint64_t offset;
    mh_status status = mh_spill_place(both->spill, bytes, m->read, &offset, NULL);
    if (m->placed - m->read == DEPTH) {
        assert_int_equal(status, MH_ERR_INTERNAL);
        return;
    }
    assert_int_equal(status, MH_OK);
    assert_true(offset + bytes <= MODEL_BYTES);
    uint8_t mark = (uint8_t)(m->placed % 255 + 1);
    for (uint64_t at = offset; at < offset + bytes; at++) {
        if (m->owner[at])
            fail_msg("piece %llu at %llu overlaps an unread one", (unsigned long long)m->placed,
                     (unsigned long long)offset);
        m->owner[at] = mark;
    }
    memset(mh_spill_data(both->spill, offset), mark, bytes);
    m->offset[m->placed % DEPTH] = offset;
    m->bytes[m->placed % DEPTH] = bytes;
    m->placed++;
}

/* The consumer reads the oldest piece: every byte is still what the worker wrote. */
static void model_read(model *m, const pair *both)
{
    if (m->read == m->placed)
        return;
    uint64_t offset = m->offset[m->read % DEPTH], bytes = m->bytes[m->read % DEPTH];
    uint8_t mark = (uint8_t)(m->read % 255 + 1);
    for (uint64_t at = offset; at < offset + bytes; at++)
        if (both->memory.base[at] != mark)
            fail_msg("piece %llu was overwritten", (unsigned long long)m->read);
    memset(m->owner + offset, 0, bytes);
    m->read++;
}

static void unread_pieces_never_overlap(void **state)
{
    (void)state;
    static const uint64_t seeds[] = {1, 20240917, 0x9e3779b97f4a7c15};
    for (size_t s = 0; s < sizeof seeds / sizeof *seeds; s++) {
        uint64_t seed = seeds[s];
        pair both = open_pair(MODEL_BYTES, DEPTH);
        model m = {.owner = calloc(1, MODEL_BYTES)};
        assert_non_null(m.owner);
        print_message("seed %llu\n", (unsigned long long)seed);
        for (int step = 0; step < 3000; step++) {
            uint64_t choice = random_next(&seed) % 16;
            if (choice < 8)
                model_place(&m, &both, random_next(&seed) % (choice == 0 ? 300000 : 20000));
            else if (choice < 15)
                model_read(&m, &both);
            else
                mh_spill_trim(both.spill, m.read);
        }
        while (m.read < m.placed)
            model_read(&m, &both);
        /* The lowest place is taken: five pieces never need much more than five largest ones. */
        assert_true((size_t)about(&both).st_size < 2 * DEPTH * 304 * 1024);
        mh_spill_trim(both.spill, m.read);
        assert_int_equal(backed_bytes(&both), 0);
        free(m.owner);
        close_pair(&both);
    }
}

static void open_and_place(void *argument)
{
    const mh_memory *memory = argument;
    mh_spill *spill = NULL;
    uint64_t offset;
    int open = open_descriptors();
    mh_status status = mh_spill_open(&spill, memory->fd, MB, 4, NULL);
    assert_true(status == MH_OK ? spill != NULL : status == MH_ERR_NOMEM && !spill);
    if (status == MH_OK) {
        status = mh_spill_place(spill, 3 * PAGE, 0, &offset, NULL);
        assert_true(status == MH_OK || status == MH_ERR_NOMEM);
        mh_spill_trim(spill, 1);
    }
    mh_spill_close(spill);
    assert_int_equal(open_descriptors(), open);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    mh_memory memory;
    assert_int_equal(mh_memory_create(&memory, "unit", MB, 1, NULL), MH_OK);
    each_allocation_fails(open_and_place, &memory);
    mh_memory_close(&memory);
}

static void another_process_leaves_what_is_unread_alone(void **state)
{
    (void)state;
    pair both = open_pair(MB, 4);
    uint64_t first = place(&both, PAGE, 0), second = place(&both, 2 * PAGE - 1, 0);
    uint64_t third = place(&both, PAGE, 0);
    assert_int_equal(mh_spill_placed(both.spill), 3);
    mh_spill_close(both.spill);
    assert_int_equal(mh_spill_open(&both.spill, both.memory.fd, MB, 4, NULL), MH_OK);
    mh_spill_begin_at(both.spill, 1); /* the first was read */
    mh_spill_inherit(both.spill, second, 2 * PAGE - 1);
    mh_spill_inherit(both.spill, third, PAGE);
    assert_int_equal(mh_spill_placed(both.spill), 3);
    assert_int_equal(place(&both, PAGE, 1), first);
    uint64_t fourth = place(&both, PAGE, 1);
    assert_true(fourth >= third + PAGE);
    assert_int_equal(place(&both, 2 * PAGE, 2), second); /* read meanwhile */
    mh_spill_trim(both.spill, 6);
    assert_int_equal(backed_bytes(&both), 0);
    assert_int_equal(place(&both, PAGE, 6), 0);
    assert_true(backed_bytes(&both) >= PAGE);
    close_pair(&both);
}

/* Sends a result of which `bytes` are in the spill memory. */
static void send_result(mh_control *worker, pair *both, mh_result_kind kind, uint64_t bytes)
{
    mh_result *result = mh_control_result_begin(worker);
    result->kind = kind;
    result->state_bytes = 0;
    if (bytes) {
        result->spill_offset = place(both, bytes, mh_control_spill_read(worker));
        result->spill_bytes = bytes;
    }
    result->spill_placed = mh_spill_placed(both->spill);
    mh_control_result_publish(worker);
}

static void results_of_another_process_are_left_alone(void **state)
{
    (void)state;
    const mh_control_size size = {.workers = 1, .depth = 4, .under_way = 4};
    mh_control *consumer = NULL, *worker = NULL;
    assert_int_equal(mh_control_open(&consumer, &size, NULL), MH_OK);
    assert_int_equal(mh_control_attach(&worker, mh_control_fd(consumer), 0, NULL), MH_OK);
    pair both = open_pair(MB, 8);
    mh_spill_inherit_results(both.spill, worker, 0); /* nobody was there before */
    assert_int_equal(mh_spill_placed(both.spill), 0);
    send_result(worker, &both, MH_RESULT_GENERAL, PAGE);
    mh_control_result_done(consumer, 0);
    mh_control_spill_done(consumer, 0);
    send_result(worker, &both, MH_RESULT_SLOT, 0);
    send_result(worker, &both, MH_RESULT_ERROR, 3 * PAGE);
    mh_control_result_done(consumer, 0); /* the one in a slot */
    uint64_t unread = mh_control_result_sent(worker, 2)->spill_offset;
    mh_spill_close(both.spill); /* the process ends, and another takes its place */
    assert_int_equal(mh_spill_open(&both.spill, both.memory.fd, MB, 8, NULL), MH_OK);
    mh_spill_inherit_results(both.spill, worker, 0);
    assert_int_equal(mh_spill_placed(both.spill), 2);
    for (int i = 0; i < 3; i++) {
        uint64_t mine = place(&both, 2 * PAGE, mh_control_spill_read(worker));
        assert_true(mine + 2 * PAGE <= unread || mine >= unread + 3 * PAGE);
    }
    close_pair(&both);
    mh_control_close(worker);
    mh_control_close(consumer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_opens_and_closes),
        cmocka_unit_test(it_grows_as_needed),
        cmocka_unit_test(an_empty_piece_is_a_piece),
        cmocka_unit_test(too_many_unread_pieces_are_an_error),
        cmocka_unit_test(too_large_a_piece_is_refused),
        cmocka_unit_test(trimming_gives_the_memory_back),
        cmocka_unit_test(unread_pieces_never_overlap),
        cmocka_unit_test(another_process_leaves_what_is_unread_alone),
        cmocka_unit_test(results_of_another_process_are_left_alone),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
