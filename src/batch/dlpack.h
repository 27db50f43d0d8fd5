/* dlpack.h - arrays of a batch for other libraries, by the DLPack ABI (major version 1)
 * SPDX-License-Identifier: Apache-2.0
 *
 * Declared here instead of taken from torch's headers: the layout is a stable, published ABI, and
 * millhead must build without torch. Nothing here knows Python.
 */
#ifndef MH_BATCH_DLPACK_H
#define MH_BATCH_DLPACK_H

#include <millhead/loader.h>
#include <stdbool.h>

#define MH_DLPACK_MAJOR 1u
#define MH_DLPACK_MINOR 1u
#define MH_DLPACK_CPU 1

typedef struct mh_dl_tensor {
    void *data;
    int32_t device_type;
    int32_t device_id;
    int32_t ndim;
    uint8_t type_code;
    uint8_t type_bits;
    uint16_t type_lanes;
    int64_t *shape;
    int64_t *strides; /* in elements */
    uint64_t byte_offset;
} mh_dl_tensor;

typedef struct mh_dl_managed {
    uint32_t version_major;
    uint32_t version_minor;
    void *context;
    void (*deleter)(struct mh_dl_managed *self); /* any thread, no GIL */
    uint64_t flags;
    mh_dl_tensor tensor;
} mh_dl_managed;

/* The layout before versions, as a capsule "dltensor" holds it. */
typedef struct mh_dl_managed_old {
    mh_dl_tensor tensor;
    void *context;
    void (*deleter)(struct mh_dl_managed_old *self); /* any thread, no GIL */
} mh_dl_managed_old;

/* The table behind torch.Tensor.__dlpack_c_exchange_api__, a capsule "dlpack_exchange_api". */
typedef struct mh_dl_exchange {
    uint32_t version_major;
    uint32_t version_minor;
    struct mh_dl_exchange *previous;
    int (*allocate)(mh_dl_tensor *prototype, mh_dl_managed **out, void *error_context,
                    void (*set_error)(void *, const char *, const char *));
    int (*managed_from_object)(void *object, mh_dl_managed **out);
    int (*managed_to_object)(mh_dl_managed *tensor, void **out_object);
    int (*tensor_from_object)(void *object, mh_dl_tensor *out); /* borrowed: no reference taken */
    int (*current_stream)(int32_t device_type, int32_t device_id, void **out_stream);
} mh_dl_exchange;

/* A view of an array, in either layout. Its deleter, which whoever takes the view calls once on any
 * thread, ends the reference of the batch that the view takes; batch NULL: the caller keeps the
 * memory alive. NULL: no memory for the view. */
mh_dl_managed *mh_dl_view(const mh_array *array, mh_batch *batch);
mh_dl_managed_old *mh_dl_view_old(const mh_array *array, mh_batch *batch);

/* Where its elements begin. */
static inline uint8_t *mh_dl_data(const mh_dl_tensor *tensor)
{
    return (uint8_t *)tensor->data + tensor->byte_offset;
}

/* Whether elements lie side by side, in order, in the dimensions from `first` on. */
bool mh_dl_packed(const int64_t *shape, const int64_t *strides, int first, int dims);

/* Whether the strides are those that a view of an array has, also where a dimension has but one
 * element: nothing else shows that images of one channel are channels_last. */
bool mh_dl_dense(const mh_dl_tensor *tensor);

/* How many elements of memory the tensor covers, gaps included; -1: more than can be. */
int64_t mh_dl_span(const mh_dl_tensor *tensor);

/* Strides in elements of an array that lies row by row. */
void mh_dl_strides(const int64_t *shape, uint32_t dims, int64_t *strides);

#endif
