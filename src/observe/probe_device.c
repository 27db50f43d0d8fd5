/* probe_device.c - how fast memory gets to a device: the CUDA driver, loaded when it is there
 * SPDX-License-Identifier: Apache-2.0
 */
#include "observe/probe.h"

#include "sys/clock.h"
#include <dlfcn.h>
#include <stdio.h>

#define COPY_BYTES ((size_t)64 << 20)

/* The driver's own functions, as its documentation gives them. 0 is success everywhere. */
typedef struct cuda {
    int (*init)(unsigned);
    int (*device)(int *, int);
    int (*retain)(void **, int);
    int (*release)(int);
    int (*current)(void *);
    int (*alloc)(unsigned long long *, size_t);
    int (*free)(unsigned long long);
    int (*alloc_host)(void **, size_t);
    int (*free_host)(void *);
    int (*copy)(unsigned long long, const void *, size_t);
} cuda;

static bool cuda_load(cuda *out)
{
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!library)
        return false;
    const struct {
        const char *name;
        void *place;
    } symbols[] = {
        {"cuInit", &out->init},
        {"cuDeviceGet", &out->device},
        {"cuDevicePrimaryCtxRetain", &out->retain},
        {"cuDevicePrimaryCtxRelease_v2", &out->release},
        {"cuCtxSetCurrent", &out->current},
        {"cuMemAlloc_v2", &out->alloc},
        {"cuMemFree_v2", &out->free},
        {"cuMemAllocHost_v2", &out->alloc_host},
        {"cuMemFreeHost", &out->free_host},
        {"cuMemcpyHtoD_v2", &out->copy},
    };
    for (size_t at = 0; at < sizeof symbols / sizeof *symbols; at++) {
        *(void **)symbols[at].place = dlsym(library, symbols[at].name);
        if (!*(void **)symbols[at].place)
            return false;
    }
    return true;
}

/* Copies of `bytes` for `seconds`; how long one took, or negative when one failed. */
static double copy_for(const cuda *driver, unsigned long long to, const void *from, size_t bytes,
                       double seconds)
{
    uint64_t began = mh_clock_ns(), now, copies = 0;
    do {
        if (driver->copy(to, from, bytes) != 0)
            return -1;
        copies++;
        now = mh_clock_ns();
    } while ((double)(now - began) < seconds * 1e9);
    return (double)(now - began) * 1e-9 / (double)copies;
}

static void measure(mh_probe_tier *tier, const cuda *driver, double seconds)
{
    unsigned long long there = 0;
    void *here = NULL;
    bool room = driver->alloc(&there, COPY_BYTES) == 0;
    bool pinned = room && driver->alloc_host(&here, COPY_BYTES) == 0;
    if (pinned) {
        double large = copy_for(driver, there, here, COPY_BYTES, seconds * 0.8);
        double small = copy_for(driver, there, here, MH_PROBE_PAGE, seconds * 0.2);
        if (large > 0 && small > 0) {
            tier->mb_per_s = (double)COPY_BYTES / large / 1e6;
            tier->latency_us = small * 1e6;
        }
    }
    (void)snprintf(tier->how, sizeof tier->how, "%s",
                   tier->mb_per_s > 0 ? "pinned memory to the first device, 64 MiB and 4 KiB a copy"
                                      : "not measured: the device has no room for 64 MiB");
    if (pinned)
        (void)driver->free_host(here);
    if (room)
        (void)driver->free(there);
}

void mh_probe_device(mh_probe_tier *tier, double seconds)
{
    cuda driver = {0};
    void *context;
    int device;
    *tier = (mh_probe_tier){.name = "host to device", .mb_per_s = -1, .latency_us = -1};
    if (!cuda_load(&driver)) {
        (void)snprintf(tier->how, sizeof tier->how, "not measured: no CUDA driver here");
        return;
    }
    if (driver.init(0) != 0 || driver.device(&device, 0) != 0 ||
        driver.retain(&context, device) != 0) {
        (void)snprintf(tier->how, sizeof tier->how, "not measured: no device can be used");
        return;
    }
    if (driver.current(context) == 0)
        measure(tier, &driver, seconds);
    else
        (void)snprintf(tier->how, sizeof tier->how, "not measured: the device is not ready");
    (void)driver.release(device);
}
