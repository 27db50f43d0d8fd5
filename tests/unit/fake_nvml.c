/* fake_nvml.c - two devices, the second of which tells little: stands in for the driver's library
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stddef.h>

/* Declared here: the driver's header is nobody's dependency. */
int nvmlInit_v2(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetUtilizationRates(void *device, unsigned *percent);
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts);
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts);
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory);

static char devices[2];
static int started;

int nvmlInit_v2(void)
{
    started = 1;
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = 2;
    return started ? 0 : 1;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = &devices[index];
    return 0;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned *percent)
{
    percent[0] = 75;
    percent[1] = 25;
    return device == &devices[0] ? 0 : 3;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
    *milliwatts = 150500;
    return device == &devices[0] ? 0 : 3;
}

int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts)
{
    (void)device;
    *milliwatts = 300000;
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory)
{
    (void)device;
    memory[0] = 1000;
    memory[1] = 600;
    memory[2] = 400;
    return 0;
}
