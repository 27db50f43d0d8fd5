/* gpu.c - what the GPUs do: NVML, declared by hand and loaded when it is there
 * SPDX-License-Identifier: Apache-2.0
 */
#include "observe/gpu.h"

#include <dlfcn.h>
#include <pthread.h>

/* NVML's own types, as its documentation gives them. 0 is success everywhere. */
typedef struct nvml_device *nvml_device;
typedef struct nvml_utilization {
    unsigned gpu, memory; /* percent */
} nvml_utilization;
typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;

static struct {
    pthread_once_t once;
    bool there;
    int (*init)(void);
    int (*count)(unsigned *);
    int (*device)(unsigned, nvml_device *);
    int (*utilization)(nvml_device, nvml_utilization *);
    int (*power)(nvml_device, unsigned *);       /* milliwatts */
    int (*power_limit)(nvml_device, unsigned *); /* milliwatts */
    int (*memory)(nvml_device, nvml_memory *);
    int (*persistence)(nvml_device, int *);
} nvml = {.once = PTHREAD_ONCE_INIT};

static void nvml_load(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!library)
        return;
    const struct {
        const char *name;
        void *place;
    } symbols[] = {
        {"nvmlInit_v2", &nvml.init},
        {"nvmlDeviceGetCount_v2", &nvml.count},
        {"nvmlDeviceGetHandleByIndex_v2", &nvml.device},
        {"nvmlDeviceGetUtilizationRates", &nvml.utilization},
        {"nvmlDeviceGetPowerUsage", &nvml.power},
        {"nvmlDeviceGetEnforcedPowerLimit", &nvml.power_limit},
        {"nvmlDeviceGetMemoryInfo", &nvml.memory},
        {"nvmlDeviceGetPersistenceMode", &nvml.persistence},
    };
    for (size_t at = 0; at < sizeof symbols / sizeof *symbols; at++)
        *(void **)symbols[at].place = dlsym(library, symbols[at].name);
    nvml.there = nvml.init && nvml.count && nvml.device && nvml.init() == 0;
}

static double watts_of(int (*ask)(nvml_device, unsigned *), nvml_device device)
{
    unsigned milliwatts;
    return ask && ask(device, &milliwatts) == 0 ? milliwatts / 1000.0 : -1;
}

static mh_gpu_usage read_one(uint32_t number, nvml_device device)
{
    mh_gpu_usage usage = {.device = number, .util = -1, .memory_util = -1, .persistent = -1};
    nvml_utilization share;
    nvml_memory memory;
    if (nvml.utilization && nvml.utilization(device, &share) == 0) {
        usage.util = share.gpu / 100.0;
        usage.memory_util = share.memory / 100.0;
    }
    if (nvml.memory && nvml.memory(device, &memory) == 0) {
        usage.memory_bytes = memory.used;
        usage.memory_total_bytes = memory.total;
    }
    if (nvml.persistence && nvml.persistence(device, &usage.persistent) != 0)
        usage.persistent = -1;
    usage.watts = watts_of(nvml.power, device);
    usage.watts_limit = watts_of(nvml.power_limit, device);
    return usage;
}

size_t mh_gpu_read(mh_gpu_usage *out, size_t most)
{
    unsigned there = 0;
    size_t count = 0;
    (void)pthread_once(&nvml.once, nvml_load);
    if (!nvml.there || nvml.count(&there) != 0)
        return 0;
    for (unsigned number = 0; number < there && count < most; number++) {
        nvml_device device;
        if (nvml.device(number, &device) == 0)
            out[count++] = read_one(number, device);
    }
    return count;
}
