/* picture_codec_list.c - the codecs of pictures of this build
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/error.h"
#include "codec/picture_codec.h"
#include "mh_config.h"

const mh_picture_codec *const mh_picture_codecs[] = {
#if MH_HAVE_JPEG
    &mh_codec_jpeg,
#endif
#if MH_HAVE_PNG
    &mh_codec_png,
#endif
    NULL,
};

mh_status mh_picture_codec_find(const mh_picture_codec **out, mh_picture_kind kind, mh_error *err)
{
    for (const mh_picture_codec *const *codec = mh_picture_codecs; *codec; codec++)
        if ((*codec)->kind == kind) {
            *out = *codec;
            return MH_OK;
        }
    return kind == MH_PICTURE_JPEG
               ? mh_fail(err, MH_ERR_UNSUPPORTED,
                         "this build of millhead is without JPEG: build it with libjpeg-turbo "
                         "(package libjpeg62-turbo-dev, -Djpeg=enabled)")
               : mh_fail(err, MH_ERR_UNSUPPORTED,
                         "this build of millhead is without PNG: build it with libpng (package "
                         "libpng-dev, -Dpng=enabled)");
}
