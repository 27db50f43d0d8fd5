/* fake_cuda.c - a device whose memory is the host's: stands in for the CUDA driver's library
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdlib.h>
#include <string.h>

/* Declared here: the driver's header is nobody's dependency. */
int cuInit(unsigned flags);
int cuDeviceGet(int *device, int number);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxSetCurrent(void *context);
int cuMemAlloc_v2(unsigned long long *address, size_t bytes);
int cuMemFree_v2(unsigned long long address);
int cuMemAllocHost_v2(void **memory, size_t bytes);
int cuMemFreeHost(void *memory);
int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t bytes);

static int retained;

int cuInit(unsigned flags)
{
    return (int)flags;
}

int cuDeviceGet(int *device, int number)
{
    *device = number + 7;
    return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    retained++;
    *context = &retained;
    return device == 7 ? 0 : 1;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    retained--;
    return device == 7 ? 0 : 1;
}

int cuCtxSetCurrent(void *context)
{
    return context == &retained ? 0 : 1;
}

int cuMemAlloc_v2(unsigned long long *address, size_t bytes)
{
    *address = (unsigned long long)(size_t)calloc(1, bytes);
    return *address ? 0 : 2;
}

int cuMemFree_v2(unsigned long long address)
{
    free((void *)(size_t)address);
    return 0;
}

int cuMemAllocHost_v2(void **memory, size_t bytes)
{
    *memory = calloc(1, bytes);
    return *memory ? 0 : 2;
}

int cuMemFreeHost(void *memory)
{
    free(memory);
    return 0;
}

int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t bytes)
{
    memcpy((void *)(size_t)to, from, bytes);
    return retained == 1 ? 0 : 1;
}
