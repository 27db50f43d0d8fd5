/* dlpack.h - the part of the DLPack ABI (major version 1) that millhead speaks
 * SPDX-License-Identifier: Apache-2.0
 *
 * Declared here instead of taken from torch's headers: the layout is a stable, published ABI, and
 * the module must build without torch.
 */
#ifndef MH_PYTHON_DLPACK_H
#define MH_PYTHON_DLPACK_H

#include <stdint.h>

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

#endif
