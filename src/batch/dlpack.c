/* dlpack.c - arrays of a batch for other libraries
 * SPDX-License-Identifier: Apache-2.0
 */
#include "batch/dlpack.h"

#include "base/alloc.h"

#include <string.h>

/* A managed tensor in either layout, with room for its shape and strides. */
typedef struct dl_view {
    union {
        mh_dl_managed versioned;
        mh_dl_managed_old old;
    } managed;
    mh_batch *batch;
    int64_t lengths[]; /* the shape, then the strides */
} dl_view;

static void view_free(dl_view *view)
{
    mh_batch_unref(view->batch);
    mh_free(view);
}

static void versioned_delete(mh_dl_managed *managed)
{
    view_free(managed->context);
}

static void old_delete(mh_dl_managed_old *managed)
{
    view_free(managed->context);
}

static dl_view *view_new(const mh_array *array, mh_batch *batch, mh_dl_tensor *out)
{
    dl_view *view = mh_calloc(1, sizeof *view + 2 * array->dims * sizeof(int64_t));
    if (!view)
        return NULL;
    view->batch = batch ? mh_batch_ref(batch) : NULL;
    int64_t *shape = view->lengths, *strides = view->lengths + array->dims;
    memcpy(shape, array->shape, array->dims * sizeof *shape);
    mh_dl_strides(array->shape, array->dims, strides);
    *out = (mh_dl_tensor){.data = array->data,
                          .device_type = MH_DLPACK_CPU,
                          .ndim = (int32_t)array->dims,
                          .type_code = array->dtype.code,
                          .type_bits = array->dtype.bits,
                          .type_lanes = 1,
                          .shape = shape,
                          .strides = strides};
    return view;
}

mh_dl_managed *mh_dl_view(const mh_array *array, mh_batch *batch)
{
    mh_dl_tensor tensor;
    dl_view *view = view_new(array, batch, &tensor);
    if (!view)
        return NULL;
    view->managed.versioned = (mh_dl_managed){.version_major = MH_DLPACK_MAJOR,
                                              .version_minor = MH_DLPACK_MINOR,
                                              .context = view,
                                              .deleter = versioned_delete,
                                              .tensor = tensor};
    return &view->managed.versioned;
}

mh_dl_managed_old *mh_dl_view_old(const mh_array *array, mh_batch *batch)
{
    mh_dl_tensor tensor;
    dl_view *view = view_new(array, batch, &tensor);
    if (!view)
        return NULL;
    view->managed.old =
        (mh_dl_managed_old){.tensor = tensor, .context = view, .deleter = old_delete};
    return &view->managed.old;
}

bool mh_dl_packed(const int64_t *shape, const int64_t *strides, int first, int dims)
{
    int64_t expected = 1;
    for (int i = dims - 1; i >= first; i--) {
        if (shape[i] != 1 && strides[i] != expected)
            return false;
        expected *= shape[i];
    }
    return true;
}

bool mh_dl_dense(const mh_dl_tensor *tensor)
{
    int64_t expected = 1;
    for (int i = tensor->ndim - 1; i >= 0; i--) {
        if (tensor->strides && tensor->strides[i] != expected)
            return false;
        expected *= tensor->shape[i];
    }
    return tensor->data || expected == 0; /* a storage can be freed under its tensor */
}

int64_t mh_dl_span(const mh_dl_tensor *tensor)
{
    int64_t span = 1;
    for (int i = 0; i < tensor->ndim; i++) {
        int64_t step;
        if (tensor->shape[i] == 0)
            return 0;
        if (__builtin_mul_overflow(tensor->shape[i] - 1, tensor->strides[i], &step) ||
            __builtin_add_overflow(span, step, &span))
            return -1;
    }
    return span;
}

void mh_dl_strides(const int64_t *shape, uint32_t dims, int64_t *strides)
{
    int64_t stride = 1;
    for (uint32_t i = dims; i-- > 0;) {
        strides[i] = stride;
        stride *= shape[i] > 1 ? shape[i] : 1;
    }
}
