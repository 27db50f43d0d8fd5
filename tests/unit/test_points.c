/* test_points.c - a consumer or a worker meets its end wherever an entry changes its state
 * SPDX-License-Identifier: Apache-2.0
 */
#include "entries.h"
#include "sys/clock.h"
#include "unit.h"
#include "workers/control.h"
#include <signal.h>
#include <sys/socket.h>

#define DEPTH 4
#define TASKS 12

static const struct crash {
    const char *name;
    int by_worker; /* which side reaches it */
    uint64_t seen; /* whole entries the other side sees when it happens for the second time */
} crashes[] = {
    [MH_POINT_TASK_WRITTEN] = {"task-written", 0, 1},
    [MH_POINT_TASK_PUBLISHED] = {"task-published", 0, 2},
    [MH_POINT_TASK_TAKEN] = {"task-taken", 1, 1},
    [MH_POINT_SAMPLE] = {"sample", 1, 0},
    [MH_POINT_TASK_DONE] = {"task-done", 1, 1},
    [MH_POINT_RESULT_BEGUN] = {"result-begun", 1, 1},
    [MH_POINT_RESULT_WRITTEN] = {"result-written", 1, 1},
    [MH_POINT_RESULT_PUBLISHED] = {"result-published", 1, 2},
    [MH_POINT_RESULT_TAKEN] = {"result-taken", 0, DEPTH + 1},
    [MH_POINT_RESULT_DONE] = {"result-done", 0, DEPTH + 1},
};
_Static_assert(COUNT(crashes) == MH_POINT_COUNT, "a crash point without a test");

/* Arms a point for its second time. */
static int arm(mh_point point, int signal)
{
    char text[64];
    (void)snprintf(text, sizeof text, "%s:2:%d", crashes[point].name, signal);
    return mh_point_arm(text, NULL) == MH_OK;
}

/* One step of a consumer that keeps its worker's ring full; 0 when a result is not whole. */
static int consume(mh_control *control, uint64_t *asked, uint64_t *taken)
{
    while (*asked < TASKS && *asked - *taken < DEPTH && put_task(control, 0, *asked))
        (*asked)++;
    (void)mh_control_result_wait(control, 0, 5 * MS);
    const mh_result *result = mh_control_result_peek(control, 0);
    if (!result)
        return 1;
    if (!result_is(result, *taken))
        return 0;
    (*taken)++;
    mh_control_result_done(control, 0);
    return 1;
}

/* The state letter of /proc/PID/stat: 'T' stopped, 'Z' dead. */
static char process_state(pid_t pid)
{
    char path[64], letter = '?';
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return 'X';
    if (fscanf(file, "%*d (%*[^)]) %c", &letter) != 1)
        letter = '?';
    (void)fclose(file);
    return letter;
}

static int process_out(pid_t pid)
{
    char letter = process_state(pid);
    return letter == 'T' || letter == 'Z' || letter == 'X';
}

/* The worker meets its end; this process is the consumer that must not notice anything but that
 * no more results come. */
static void worker_dies_at(mh_point point, int signal)
{
    uint64_t asked = 0, taken = 0, began = mh_clock_ns();
    mh_control *consumer = open_control(1, DEPTH);
    pid_t child = fork();
    if (child == 0) {
        child_begin();
        _exit(arm(point, signal) ? worker_process(mh_control_fd(consumer), 0) : 9);
    }
    while (!process_out(child) && mh_clock_ns() - began < PATIENCE_NS)
        assert_true(consume(consumer, &asked, &taken));
    assert_true(process_out(child));
    for (int i = 0; i < 3; i++) /* what it sent before */
        assert_true(consume(consumer, &asked, &taken));
    assert_int_equal(taken, crashes[point].seen);
    assert_null(mh_control_result_peek(consumer, 0));
    mh_worker_view view;
    mh_control_view(consumer, 0, &view);
    assert_int_equal(view.pid, child);
    assert_int_equal(view.position, point == MH_POINT_SAMPLE ? 0 : 1);
    if (point == MH_POINT_SAMPLE)
        assert_int_equal(view.offset, 1);
    if (signal == SIGSTOP)
        assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(child_code(child), 128 + SIGKILL);
    mh_control_close(consumer);
}

/* Opens, says under which number its memfd is to be had, waits for the worker, works and dies. */
static int consumer_process(mh_point point, int signal, int line)
{
    char go;
    mh_control *control = NULL;
    uint64_t asked = 0, taken = 0, began = mh_clock_ns();
    if (mh_control_open(&control, &(mh_control_size){.workers = 1, .depth = DEPTH, .under_way = 1},
                        NULL) != MH_OK)
        return 1;
    int fd = mh_control_fd(control);
    if (write(line, &fd, sizeof fd) != sizeof fd || read(line, &go, 1) != 1)
        return 2;
    if (!arm(point, signal))
        return 3;
    while (mh_clock_ns() - began < PATIENCE_NS)
        if (!consume(control, &asked, &taken))
            return 4;
    return 5;
}

static mh_control *attach_to(pid_t pid, int fd_there)
{
    char path[64];
    mh_control *control = NULL;
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd_there);
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(mh_control_attach(&control, fileno(file), 0, NULL), MH_OK);
    assert_int_equal(fclose(file), 0);
    return control;
}

/* The consumer meets its end; this process is the worker, which finishes what it was given. */
static void consumer_dies_at(mh_point point, int signal)
{
    int line[2], fd_there;
    uint64_t seen = 0, began = mh_clock_ns();
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, line), 0);
    pid_t child = fork();
    if (child == 0) {
        child_begin();
        _exit(consumer_process(point, signal, line[1]));
    }
    assert_int_equal(read(line[0], &fd_there, sizeof fd_there), sizeof fd_there);
    mh_control *worker = attach_to(child, fd_there);
    assert_int_equal(write(line[0], "g", 1), 1);
    for (int idle = 0; idle < 3 && mh_clock_ns() - began < PATIENCE_NS;) {
        int out = process_out(child); /* looked at before the ring: its last entry is not missed */
        const mh_task *task = mh_control_task_wait(worker, 5 * MS);
        if (!task) {
            idle += out;
            continue;
        }
        assert_true(task_is_whole(task, seen));
        mh_control_task_done(worker);
        put_result(worker, seen++);
    }
    assert_true(process_out(child));
    assert_int_equal(seen, crashes[point].seen);
    if (signal == SIGSTOP)
        assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(child_code(child), 128 + SIGKILL);
    (void)close(line[0]);
    (void)close(line[1]);
    mh_control_close(worker);
}

static void a_crash_at_any_point_leaves_whole_entries(void **state)
{
    (void)state;
    static const int signals[] = {SIGKILL, SIGSTOP};
    for (size_t s = 0; s < COUNT(signals); s++) {
        for (int point = 0; point < MH_POINT_COUNT; point++) {
            print_message("%s, signal %d\n", crashes[point].name, signals[s]);
            if (crashes[point].by_worker)
                worker_dies_at((mh_point)point, signals[s]);
            else
                consumer_dies_at((mh_point)point, signals[s]);
        }
    }
}

static void only_known_points_can_be_armed(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",           "sample",     "sample:1",
        "sample:x:9", "nosuch:1:9", ":1:9",
        "sample 1 9", "SAMPLE:1:9", "a-name-much-longer-than-any-of-the-points:1:9"};
    for (size_t i = 0; i < COUNT(texts); i++) {
        mh_error err = {0};
        assert_int_equal(mh_point_arm(texts[i], &err), MH_ERR_INVALID);
        assert_non_null(strstr(err.message, "NAME:NTH:SIGNAL"));
    }
    for (int point = 0; point < MH_POINT_COUNT; point++) {
        pid_t child = fork(); /* arming cannot be undone */
        if (child == 0)
            _exit(arm((mh_point)point, SIGKILL) ? 0 : 1);
        assert_int_equal(child_code(child), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_known_points_can_be_armed),
        cmocka_unit_test(a_crash_at_any_point_leaves_whole_entries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
