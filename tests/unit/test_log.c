/* test_log.c - logs read line by line, whole and broken ones
 * SPDX-License-Identifier: Apache-2.0
 */
#include "metrics/log.h"
#include "unit.h"

#include <math.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* The events told, one letter each: the first of their names. */
typedef struct told {
    char letters[64];
    size_t count;
    mh_log_event last;
} told;

static mh_status tell(void *argument, const mh_log_event *event, mh_error *err)
{
    static const char *const names[] = {
#define X(kind, name) name,
        MH_LOG_KIND_LIST(X)
#undef X
    };
    told *all = argument;
    (void)err;
    if (all->count < sizeof all->letters - 1)
        all->letters[all->count++] = names[event->is][0];
    all->last = *event;
    return MH_OK;
}

static mh_log_counts feed(told *all, const char *text, size_t size, size_t piece)
{
    mh_log *log = NULL;
    *all = (told){0};
    assert_int_equal(mh_log_open(&log, tell, all, NULL), MH_OK);
    for (size_t at = 0; at < size; at += piece)
        assert_int_equal(mh_log_feed(log, text + at, size - at < piece ? size - at : piece, NULL),
                         MH_OK);
    assert_int_equal(mh_log_finish(log, NULL), MH_OK);
    mh_log_counts counts = *mh_log_counted(log);
    mh_log_close(log);
    return counts;
}

#define W "{\"event\": \"wait\", \"t\": 5, \"ns\": 7}"
#define S "{\"event\":\"step\",\"ns\":9}"

static void test_lines(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t size; /* 0: to the NUL */
        const char *told;
        uint64_t lines, bad, first_bad;
    } cases[] = {
        {"", 0, "", 0, 0, 0},
        {"\n", 0, "", 1, 1, 1},
        {W "\n" S "\n", 0, "ws", 2, 0, 0},
        {W "\n" S, 0, "ws", 2, 0, 0}, /* no newline at the end */
        {W "\r\n" S "\r\n", 0, "ws", 2, 0, 0},
        {"\xef\xbb\xbf" W "\n" S "\n", 0, "ws", 2, 0, 0},
        {"  " W "\t \n", 0, "w", 1, 0, 0},
        {W S "\n\n" W "\n", 0, "wsw", 3, 2, 1}, /* glued, and its newline on a line of its own */
        {W " " S W "\n", 0, "wsw", 1, 1, 1},
        {W "\n{\"event\": \"st", 0, "w", 2, 1, 2}, /* cut */
        {W "\n\0\0\0" S "\n", sizeof(W "\n\0\0\0" S "\n") - 1, "ws", 2, 1, 2},
        {"{\"event\": \"wai" W "\n", 0, "w", 1, 1, 1}, /* torn and glued */
        {"{{{" W "\n", 0, "w", 1, 1, 1},
        {"{\"a\": {\"b\": " S "\n", 0, "s", 1, 1, 1},
        {"words\n" W "\n[1]\n3\n", 0, "w", 4, 3, 1},
        {W "x\n", 0, "w", 1, 1, 1},
        {"{}\n{\"event\": \"nonsense\"}\n{\"event\": 3}\n{\"a\": 1}\n", 0, "", 4, 0, 0},
        {"{\"event\": \"wait\", \"name\": \"\xff\"}\n", 0, "", 1, 1, 1},
    };
    for (size_t at = 0; at < COUNT(cases); at++) {
        size_t size = cases[at].size ? cases[at].size : strlen(cases[at].text);
        for (size_t piece = 1; piece <= 64; piece += 21) {
            told all;
            mh_log_counts counts = feed(&all, cases[at].text, size, piece);
            if (strcmp(all.letters, cases[at].told) != 0)
                fail_msg("case %zu: told %s, expected %s", at, all.letters, cases[at].told);
            assert_int_equal(counts.lines, cases[at].lines);
            assert_int_equal(counts.bad_lines, cases[at].bad);
            assert_int_equal(counts.first_bad, cases[at].first_bad);
            assert_int_equal(counts.bytes, size);
            assert_int_equal(counts.events, strlen(cases[at].told));
        }
    }
}

/* Of a whole line, read where it lies: the event's texts stay valid. */
static mh_log_event only(const char *text)
{
    told all;
    mh_log_counts counts = feed(&all, text, strlen(text), 1000);
    assert_int_equal(counts.events, 1);
    return all.last;
}

static void test_fields(void **state)
{
    (void)state;
    mh_log_event event =
        only("{\"ns\": 17, \"extra\": [1, {}], \"worker\": -1, \"event\": \"wait\","
             " \"t\": 9007199254740993, \"cpu\": 2.6, \"delay\": null,"
             " \"epoch\": \"1\", \"samples\": 1e3}\n");
    assert_int_equal(event.is, MH_LOG_WAIT);
    assert_int_equal(event.t, INT64_C(9007199254740993));
    assert_int_equal(event.ns, 17);
    assert_int_equal(event.cpu, 3);
    assert_int_equal(event.samples, 1000);
    assert_int_equal(event.worker, -1);
    assert_int_equal(event.delay, MH_LOG_NONE);
    assert_int_equal(event.epoch, MH_LOG_NONE); /* of another type */
    assert_int_equal(event.batch, MH_LOG_NONE);
    assert_int_equal(mh_log_or(event.worker, 4), 4);

    event = only("{\"event\": \"loader\", \"kind\": \"torch\", \"workers\": 4, \"in_order\": true,"
                 " \"persistent\": false, \"start\": \"fork\", \"prefetch\": null}\n");
    assert_int_equal(event.workers, 4);
    assert_int_equal(event.in_order, 1);
    assert_int_equal(event.persistent, 0);
    assert_int_equal(event.prefetch, MH_LOG_NONE);
    assert_true(mh_json_is(&event.kind, "torch") && mh_json_is(&event.start, "fork"));

    event = only("{\"event\": \"gpu\", \"util\": 0.25, \"watts\": 70}\n");
    assert_true(event.util == 0.25 && event.watts == 70 && isnan(event.memory_util));
}

static void test_earthmover_events(void **state)
{
    (void)state;
    mh_log_event event =
        only("{\"event\": \"run start\", \"time\": 1710286538.5, \"locals\": "
             "{\"num_workers\": 32, \"deep\": {\"locals\": {}, \"cpu\": 1}, "
             "\"prefetch_factor\": 3, \"batch_size\": 4, "
             "\"persistent_workers\": true, \"pin_memory\": null}, \"rank\": 2}\n");
    assert_int_equal(event.is, MH_LOG_RUN_START);
    assert_int_equal(event.t, INT64_C(1710286538500000000));
    assert_int_equal(event.workers, 32);
    assert_int_equal(event.prefetch, 3);
    assert_int_equal(event.batch_size, 4);
    assert_int_equal(event.persistent, 1);
    assert_int_equal(event.pin_memory, MH_LOG_NONE);
    assert_int_equal(event.cpu, MH_LOG_NONE);
    assert_int_equal(event.rank, 2);
    event = only("{\"event\": \"get-batch end\", \"time\": 2.5, \"idx\": 8, \"pid\": 9,"
                 " \"duration\": 0.25}\n");
    assert_int_equal(event.is, MH_LOG_GET_END);
    assert_int_equal(event.ns, 250000000);
    assert_int_equal(event.idx, 8);
}

static void test_later_versions_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *header, *said; /* NULL: read */
    } cases[] = {
        {"{\"event\": \"header\", \"schema\": \"millhead-events\", \"version\": 1}\n", NULL},
        {"{\"event\": \"header\", \"schema\": \"millhead-events\", \"version\": 0}\n", NULL},
        {"\n{\"event\": \"header\", \"schema\": \"millhead-events\", \"version\": 2}\n",
         "line 2: events of version 2, this millhead reads up to version 1"},
        {"{\"event\": \"header\", \"schema\": \"others\", \"version\": 1}\n",
         "line 1: events of schema 'others', not millhead-events"},
    };
    for (size_t at = 0; at < COUNT(cases); at++) {
        told all = {0};
        mh_log *log = NULL;
        mh_error err;
        assert_int_equal(mh_log_open(&log, tell, &all, &err), MH_OK);
        mh_status status = mh_log_feed(log, cases[at].header, strlen(cases[at].header), &err);
        assert_int_equal(status, cases[at].said ? MH_ERR_UNSUPPORTED : MH_OK);
        if (cases[at].said)
            assert_string_equal(err.message, cases[at].said);
        mh_log_close(log);
    }
}

static void test_endless_lines_take_no_memory(void **state)
{
    (void)state;
    enum { PIECE = 1 << 20 };
    told all = {0};
    mh_log *log = NULL;
    char *piece = malloc(PIECE);
    assert_non_null(piece);
    memset(piece, '{', PIECE);
    assert_int_equal(mh_log_open(&log, tell, &all, NULL), MH_OK);
    assert_int_equal(mh_log_feed(log, W "\n", strlen(W "\n"), NULL), MH_OK);
    for (int at = 0; at < 40; at++)
        assert_int_equal(mh_log_feed(log, piece, PIECE, NULL), MH_OK);
    assert_int_equal(mh_log_feed(log, "\n" S, strlen("\n" S), NULL), MH_OK);
    assert_int_equal(mh_log_finish(log, NULL), MH_OK);
    assert_string_equal(all.letters, "ws");
    assert_int_equal(mh_log_counted(log)->lines, 3);
    assert_int_equal(mh_log_counted(log)->bad_lines, 1);
    mh_log_close(log);
    free(piece);
}

static void feed_without_memory(void *unused)
{
    (void)unused;
    told all = {0};
    mh_log *log = NULL;
    if (mh_log_open(&log, tell, &all, NULL) == MH_OK) {
        mh_status status = mh_log_feed(log, W, 10, NULL);
        if (status == MH_OK)
            status = mh_log_feed(log, &(W "\n")[10], strlen(W "\n") - 10, NULL);
        assert_true(status == MH_ERR_NOMEM || all.count == 1);
    }
    mh_log_close(log);
}

static void test_no_memory(void **state)
{
    (void)state;
    each_allocation_fails(feed_without_memory, NULL);
}

static mh_status refuse(void *argument, const mh_log_event *event, mh_error *err)
{
    (void)argument;
    (void)event;
    (void)snprintf(err->message, sizeof err->message, "enough");
    return err->code = MH_ERR_CLOSED;
}

static int stop(void *argument, uint64_t bytes, uint64_t all)
{
    assert_int_equal(bytes, all);
    return *(int *)argument;
}

static void test_files(void **state)
{
    char path[128];
    told all = {0};
    mh_log_counts counts;
    mh_error err;
    int descriptors = open_descriptors(), no = 0, yes = 1;
    tree_write(*state, "log", W "\n" S "\n");
    (void)snprintf(path, sizeof path, "%s/log", (const char *)*state);
    assert_int_equal(mh_log_read_file(path, tell, &all, stop, &no, &counts, &err), MH_OK);
    assert_string_equal(all.letters, "ws");
    assert_int_equal(mh_log_read_file(path, tell, &all, stop, &yes, &counts, &err), MH_ERR_CLOSED);
    assert_int_equal(mh_log_read_file(path, refuse, NULL, NULL, NULL, &counts, &err),
                     MH_ERR_CLOSED);
    assert_non_null(strstr(err.message, "log: line 1: enough"));
    assert_int_equal(mh_log_read_file(*state, tell, &all, NULL, NULL, &counts, &err), MH_ERR_IO);
    assert_int_equal(err.sys_errno, EISDIR);
    (void)unlink(path);
    assert_int_equal(mh_log_read_file(path, tell, &all, NULL, NULL, &counts, &err),
                     MH_ERR_NOT_FOUND);
    assert_int_equal(open_descriptors(), descriptors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_earthmover_events),
        cmocka_unit_test(test_later_versions_are_refused),
        cmocka_unit_test(test_endless_lines_take_no_memory),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test_setup_teardown(test_files, make_tree, remove_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
