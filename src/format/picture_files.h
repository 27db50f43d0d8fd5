/* picture_files.h - fields whose values are pictures in files, whatever lists the files
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_FORMAT_PICTURE_FILES_H
#define MH_FORMAT_PICTURE_FILES_H

#include "format/format.h"
#include "op/image.h"

/* Reads the header of the picture that is the dataset's object of that name. What cannot be read or
 * understood is left to whoever decodes it: *out is zeros then. *buffer of *room bytes grows as it
 * has to; the caller frees it. Errors: MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_picture_file_look(const mh_dataset *dataset, const char *name,
                                             mh_picture *out, uint8_t **buffer, uint64_t *room,
                                             mh_error *err);

/* The shape of a sample made of the picture; zeros where there is none. */
void mh_picture_shape(const mh_image_plan *plan, const mh_picture *picture, uint32_t dims,
                      int64_t *shape);

/* Bytes that the field's value of that shape takes. */
uint64_t mh_picture_bytes(const mh_field *field, const int64_t *shape);

/* Lets the ragged field have room for a value of that shape too. */
void mh_picture_widen(mh_field *field, const int64_t *shape);

#endif
