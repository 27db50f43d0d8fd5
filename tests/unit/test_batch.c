/* test_batch.c - fields laid out, samples left out and put in, and who gets the slot
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/alloc.h"
#include "batch/batch.h"
#include "batch/dlpack.h"
#include "unit.h"

/* Sample n has n values in "words" and always two in "pair". */
static const mh_field fields[] = {
    {.name = "pair", .dtype = {.code = 1, .bits = 16}, .dims = 1, .shape = {2}, .bytes = 4},
    {.name = "words",
     .dtype = {.code = 1, .bits = 8},
     .dims = 1,
     .ragged = 1,
     .shape = {9},
     .bytes = 9},
};

static void measure(const void *measured, size_t field, uint64_t sample, int64_t *shape)
{
    (void)measured;
    assert_int_equal(field, 1);
    shape[0] = (int64_t)sample;
}

static const mh_layout layout = {.fields = fields, .field_count = 2, .measure = measure};

static void place_into(uint16_t *pair, uint8_t *words, uint64_t number)
{
    pair[0] = pair[1] = (uint16_t)(1000 + number);
    memset(words, (int)('a' + number), number);
}

static void place(mh_batch *batch, uint64_t i)
{
    place_into((uint16_t *)(void *)mh_batch_place(batch, 0, i), mh_batch_place(batch, 1, i),
               batch->numbers[i]);
}

/* A seated batch of samples 3, 0, 2, all placed. */
static mh_batch *make(void)
{
    mh_batch *batch;
    assert_int_equal(mh_batch_new(&batch, &layout, 3, NULL), MH_OK);
    batch->numbers[0] = 3, batch->numbers[1] = 0, batch->numbers[2] = 2;
    for (uint64_t i = 0; i < 3; i++)
        batch->positions[i] = 70 + i;
    assert_int_equal(mh_batch_seat_own(batch, NULL), MH_OK);
    for (uint64_t i = 0; i < 3; i++)
        place(batch, i);
    return batch;
}

static void check(const mh_batch *batch, uint64_t count, const uint64_t *numbers, const char *text)
{
    assert_int_equal(mh_batch_samples(batch), count);
    const mh_array *pair = mh_batch_array(batch, 0), *words = mh_batch_array(batch, 1);
    assert_int_equal(pair->shape[0], count);
    assert_int_equal(pair->bytes, 4 * count);
    assert_int_equal(words->shape[0], strlen(text));
    assert_memory_equal(words->data, text, strlen(text));
    for (uint64_t i = 0; i < count; i++) {
        assert_int_equal(batch->numbers[i], numbers[i]);
        assert_int_equal(((const uint16_t *)pair->data)[2 * i + 1], 1000 + numbers[i]);
        assert_int_equal(words->offsets[i + 1] - words->offsets[i], numbers[i]);
        assert_int_equal(words->shapes[i], numbers[i]);
    }
    assert_null(mh_batch_array(batch, 2));
}

static void fields_lie_dense_at_multiples_of_the_alignment(void **state)
{
    (void)state;
    uint64_t bytes = 0;
    mh_batch *batch = make();
    check(batch, 3, (uint64_t[]){3, 0, 2}, "dddcc");
    assert_int_equal(mh_layout_bytes(&bytes, &layout, batch->numbers, 3, NULL), MH_OK);
    assert_int_equal(bytes, 3 * 64 + 3 * sizeof(int64_t));
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(((uint8_t *)batch->arrays[i].data - batch->own) % MH_LEAF_ALIGN, 0);
    assert_int_equal(mh_layout_bytes(&bytes, &layout, NULL, UINT64_MAX / 2, NULL), MH_ERR_INVALID);
    mh_batch_unref(batch);
}

static void a_skipped_sample_leaves_no_gap(void **state)
{
    (void)state;
    mh_error err;
    mh_batch *batch = make();
    mh_batch_skip(batch, 0);
    assert_int_equal(mh_batch_finish(batch, &err), MH_OK);
    check(batch, 2, (uint64_t[]){0, 2}, "cc");
    assert_int_equal(batch->positions[0], 71);
    mh_batch_unref(batch);
}

static void a_larger_sample_can_stand_in(void **state)
{
    (void)state;
    mh_error err;
    uint64_t live = mh_alloc_live();
    uint8_t *into[2] = {0};
    mh_batch *batch = make();
    for (uint64_t number = 5; number < 7; number++) { /* the first one fails, too */
        batch->numbers[1] = number;
        into[0] = mh_batch_place(batch, 0, 1);
        assert_int_equal(mh_batch_place_apart(batch, 1, into, &err), MH_OK);
        place_into((uint16_t *)(void *)into[0], into[1], number);
    }
    mh_batch_skip(batch, 2);
    assert_int_equal(mh_batch_finish(batch, &err), MH_OK);
    check(batch, 2, (uint64_t[]){3, 6}, "dddgggggg");
    mh_batch_unref(batch);
    assert_int_equal(mh_alloc_live(), live);
}

/* --- handing over --- */

static mh_pool *open_pool(uint32_t slots)
{
    mh_pool *pool;
    assert_int_equal(mh_pool_open_private(&pool, 0, NULL), MH_OK);
    assert_int_equal(mh_pool_reserve(pool, 4096, slots, NULL), MH_OK);
    return pool;
}

/* A seated batch of one array with 1000 bytes of 7. */
static mh_batch *fill(mh_pool *pool)
{
    static const mh_field field = {.name = "x", .dtype = {.code = 1, .bits = 8}, .bytes = 1};
    static const mh_layout one = {.fields = &field, .field_count = 1};
    mh_batch *batch = NULL;
    mh_slot *slot = mh_pool_grant(pool);
    assert_non_null(slot);
    assert_int_equal(mh_batch_new(&batch, &one, 1000, NULL), MH_OK);
    mh_batch_seat(batch, slot);
    memset(mh_batch_place(batch, 0, 0), 7, 1000);
    return batch;
}

static void the_slot_is_lent_while_others_are_left(void **state)
{
    (void)state;
    mh_pool *pool = open_pool(2);
    mh_batch *batches[2] = {fill(pool), fill(pool)};
    assert_int_equal(mh_batch_hand_over(batches[0], pool, 1, 1001), MH_HANDOVER_SMALL);
    assert_int_equal(mh_batch_hand_over(batches[0], pool, 1, 1000), MH_HANDOVER_LENT);
    assert_int_equal(mh_batch_hand_over(batches[1], pool, 1, 1000), MH_HANDOVER_CROWDED);
    assert_int_equal(mh_pool_unheld(pool), 1);
    assert_int_equal(mh_batch_copy_out(batches[1], NULL), MH_OK);
    mh_slot *slot = mh_pool_grant(pool);
    assert_non_null(slot);
    memset(mh_slot_data(slot), 0, 1000);
    assert_int_equal(((uint8_t *)mh_batch_array(batches[1], 0)->data)[999], 7);
    mh_slot_abandon(slot);
    mh_batch_unref(batches[0]);
    mh_batch_unref(batches[1]);
    assert_int_equal(mh_pool_unheld(pool), 2);
    mh_pool_unref(pool);
}

static void a_view_keeps_the_slot_that_a_worker_filled(void **state)
{
    (void)state;
    uint64_t live = mh_alloc_live(), end = 0;
    mh_batch *batch;
    mh_pool *pool = open_pool(1);
    mh_slot *slot = mh_pool_grant(pool);
    mh_leaf leaf = {.type_code = 1, .type_bits = 8, .dims = 2, .shape = {10, 100}};
    assert_int_equal(mh_leaf_place(&leaf, &end, mh_slot_bytes(slot), NULL), MH_OK);
    memset(mh_slot_data(slot), 7, 1000);
    assert_int_equal(mh_batch_lend(&batch, slot, &leaf, 1, NULL), MH_OK);
    mh_dl_managed *view = mh_dl_view(mh_batch_array(batch, 0), batch);
    mh_dl_managed_old *old = mh_dl_view_old(mh_batch_array(batch, 0), batch);
    mh_batch_unref(batch);
    assert_int_equal(mh_pool_unheld(pool), 0);
    assert_int_equal(mh_dl_data(&view->tensor)[999], 7);
    assert_int_equal(view->tensor.shape[1], 100);
    assert_int_equal(view->tensor.strides[0], 100);
    assert_int_equal(view->tensor.strides[1], 1);
    assert_ptr_equal(old->tensor.data, view->tensor.data);
    view->deleter(view);
    assert_int_equal(mh_pool_unheld(pool), 0);
    old->deleter(old);
    assert_int_equal(mh_pool_unheld(pool), 1);
    mh_pool_unref(pool);
    assert_int_equal(mh_alloc_live(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_lie_dense_at_multiples_of_the_alignment),
        cmocka_unit_test(a_skipped_sample_leaves_no_gap),
        cmocka_unit_test(a_larger_sample_can_stand_in),
        cmocka_unit_test(the_slot_is_lent_while_others_are_left),
        cmocka_unit_test(a_view_keeps_the_slot_that_a_worker_filled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
