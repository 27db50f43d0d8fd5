/* codec_list.c - the codecs there are, of pictures and of chunks, for whoever wants to show them
 * SPDX-License-Identifier: Apache-2.0
 */
#include "codec/byte_codec.h"
#include "codec/picture_codec.h"

/* Those that this build lacks a library for are not listed. */
int mh_codec_list(size_t at, mh_kind *out)
{
    for (size_t i = 0; mh_picture_codecs[i]; i++)
        if (at-- == 0) {
            const mh_picture_codec *codec = mh_picture_codecs[i];
            *out = (mh_kind){codec->name, codec->suffixes, codec->what};
            return 1;
        }
    for (size_t i = 0; mh_byte_codecs[i]; i++)
        if (!mh_byte_codecs[i]->lacks && at-- == 0) {
            *out = (mh_kind){mh_byte_codecs[i]->name, "", mh_byte_codecs[i]->what};
            return 1;
        }
    return 0;
}
