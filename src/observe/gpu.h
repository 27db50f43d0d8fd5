/* gpu.h - what the GPUs do, through the driver's own library where there is one
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_OBSERVE_GPU_H
#define MH_OBSERVE_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MH_GPUS_MOST 64

typedef struct mh_gpu_usage {
    uint32_t device;
    double util, memory_util;  /* 0..1, over the driver's last interval; negative: not told */
    double watts, watts_limit; /* negative: not told */
    uint64_t memory_bytes, memory_total_bytes; /* in use, of all */
    int persistent; /* the driver stays loaded between programs; -1: not told */
} mh_gpu_usage;

/* Reads up to `most` devices and returns how many. 0 without a driver, which is no error. The
 * library (libnvidia-ml.so.1) is looked for once, opened at the first call and never closed: it has
 * threads of its own. No context is made on any device. Any thread. */
size_t mh_gpu_read(mh_gpu_usage *out, size_t most);

#endif
