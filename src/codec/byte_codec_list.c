/* byte_codec_list.c - the codecs of bytes that there are, and what they share
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/error.h"
#include "codec/byte_codec.h"

#include <string.h>

const mh_byte_codec *const mh_byte_codecs[] = {&mh_codec_bitround,
                                               &mh_codec_blosc,
                                               &mh_codec_crc32c,
                                               &mh_codec_delta,
                                               &mh_codec_fixedscaleoffset,
                                               &mh_codec_gzip,
                                               &mh_codec_lz4,
                                               &mh_codec_shuffle,
                                               &mh_codec_zlib,
                                               &mh_codec_zstd,
                                               NULL};

int mh_byte_codec_find(const char *name)
{
    static const char prefix[] = "numcodecs.";
    if (strncmp(name, prefix, sizeof prefix - 1) == 0)
        name += sizeof prefix - 1;
    for (int i = 0; mh_byte_codecs[i]; i++)
        if (strcmp(mh_byte_codecs[i]->name, name) == 0)
            return i;
    return -1;
}

uint64_t mh_encoded_same(const mh_codec_settings *settings, uint64_t decoded, bool *exact)
{
    (void)settings;
    (void)exact;
    return decoded;
}

/* Compressors store what does not shrink: an eighth more and a header is more than any adds. */
uint64_t mh_encoded_packed(const mh_codec_settings *settings, uint64_t decoded, bool *exact)
{
    (void)settings;
    *exact = false;
    return decoded + decoded / 8 + 4096;
}

mh_status mh_number_read(mh_number *out, mh_json_view options, const char *member,
                         const char *codec, mh_error *err)
{
    char text[16];
    if (!mh_json_view_text(mh_json_member(options, member), text, sizeof text))
        return mh_fail(err, MH_ERR_CORRUPT, "the codec %s has no %s", codec, member);
    bool sized = strlen(text) == 3 && strchr("1248", text[2]);
    bool little = text[0] == '<' || text[0] == '|';
    if (!sized || !little || !strchr("iuf", text[1]) || (text[1] == 'f' && text[2] < '4'))
        return mh_fail(err, MH_ERR_UNSUPPORTED, "the codec %s of the type '%s'", codec, text);
    *out = (mh_number){.kind = text[1], .bytes = (uint8_t)(text[2] - '0')};
    return MH_OK;
}
