/* test_gpu.c - GPUs through a stand-in for the driver's library, and where there is no driver
 * SPDX-License-Identifier: Apache-2.0
 *
 * argv[1] is the directory of the stand-in. The library is looked for once in a process and
 * LD_LIBRARY_PATH is read when a program starts, so the test runs itself again for each case.
 */
#include "observe/gpu.h"
#include "unit.h"

#define NO_DRIVER 77 /* what the second run says when it found no device */

static const char *program, *stand_in;

static bool near(double a, double b)
{
    return a - b < 1e-9 && b - a < 1e-9;
}

/* The second run: 0 when the devices are the stand-in's. */
static int look(void)
{
    mh_gpu_usage gpus[MH_GPUS_MOST];
    size_t count = mh_gpu_read(gpus, MH_GPUS_MOST);
    if (count == 0)
        return NO_DRIVER;
    bool first = count == 2 && gpus[0].device == 0 && near(gpus[0].util, 0.75) &&
                 near(gpus[0].memory_util, 0.25) && near(gpus[0].watts, 150.5) &&
                 near(gpus[0].watts_limit, 300) && gpus[0].memory_bytes == 400 &&
                 gpus[0].memory_total_bytes == 1000 && gpus[0].persistent == -1;
    bool second = count == 2 && gpus[1].device == 1 && gpus[1].util < 0 &&
                  gpus[1].memory_util < 0 && gpus[1].watts < 0 && near(gpus[1].watts_limit, 300);
    bool bounded = mh_gpu_read(gpus, 1) == 1;
    return first && second && bounded ? 0 : 1;
}

static void devices_are_read_through_the_drivers_library(void **state)
{
    (void)state;
    assert_int_equal(look_again(program, stand_in), 0);
}

static void no_driver_is_no_error(void **state)
{
    (void)state;
    if (access("/dev/nvidiactl", F_OK) == 0)
        skip();
    assert_int_equal(look_again(program, "/nonexistent"), NO_DRIVER);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_read_through_the_drivers_library),
        cmocka_unit_test(no_driver_is_no_error),
    };
    if (argc != 2)
        return 2;
    if (strcmp(argv[1], "look") == 0)
        return look();
    program = argv[0];
    stand_in = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
