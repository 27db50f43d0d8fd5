/* tokens_text.c - token files as people name them
 * SPDX-License-Identifier: Apache-2.0
 */
#include "format/tokens_text.h"

#include "base/error.h"
#include "base/parts.h"

#include <stdlib.h>
#include <string.h>

static bool take_dtype(mh_dtype *out, const char *name)
{
    static const struct {
        const char *name;
        mh_dtype dtype;
    } known[] = {{"uint8", {1, 8}},  {"uint16", {1, 16}}, {"uint32", {1, 32}},
                 {"int16", {0, 16}}, {"int32", {0, 32}},  {"int64", {0, 64}}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0) {
            *out = known[i].dtype;
            return true;
        }
    return false;
}

/* A token: a whole number that a token may be. */
static bool take_token(int64_t *out, const char *text)
{
    char *end;
    *out = strtoll(text, &end, 10);
    return *text && !*end && *out >= INT32_MIN && *out <= UINT32_MAX;
}

static mh_status take_part(void *context, char *part, mh_error *err)
{
    mh_tokens_text *out = context;
    if (strncmp(part, "dtype=", 6) == 0 && take_dtype(&out->stored, part + 6))
        return MH_OK;
    if (strncmp(part, "as=", 3) == 0 && take_dtype(&out->delivered, part + 3))
        return MH_OK;
    if (strcmp(part, "pack=bestfit") == 0) {
        out->packed = true;
        return MH_OK;
    }
    if (strncmp(part, "eos=", 4) == 0 && take_token(&out->eos, part + 4)) {
        out->has_eos = true;
        return MH_OK;
    }
    if (strncmp(part, "pad=", 4) == 0 && take_token(&out->pad, part + 4))
        return MH_OK;
    return mh_fail(err, MH_ERR_INVALID,
                   "'%s' is not part of token data: write tokens:train.bin,dtype=uint16,as=int64 "
                   "(uint8, uint16, uint32, int16, int32, int64), pack=bestfit,eos=50256,pad=0",
                   part);
}

mh_status mh_tokens_text_read(mh_tokens_text *out, const char *text, mh_error *err)
{
    mh_tokens_text made = {.path = ""};
    const size_t prefix = strlen(MH_TOKENS_PREFIX);
    const bool has_prefix = strncmp(text, MH_TOKENS_PREFIX, prefix) == 0;
    if (has_prefix)
        text += prefix;
    const size_t length = has_prefix ? strcspn(text, ",") : strlen(text);
    if (length == 0 || length >= sizeof made.path)
        return mh_fail(err, MH_ERR_INVALID,
                       "token data needs the path of a file: tokens:train.bin");
    memcpy(made.path, text, length);
    if (text[length])
        MH_TRY(mh_parts_read(text + length + 1, "token data", take_part, &made, err));
    *out = made;
    return MH_OK;
}
