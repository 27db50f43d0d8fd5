/* sigv4.c - signing requests to S3: AWS Signature Version 4
 * SPDX-License-Identifier: Apache-2.0
 */
#include "source/sigv4.h"

#include "base/text.h"

#include <stdio.h>
#include <time.h>

#define ALGORITHM "AWS4-HMAC-SHA256"

/* --- targets --- */

static bool is_plain(unsigned char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           (c && strchr("-._~", c));
}

static void put_encoded(mh_text *out, const char *text, bool keep_slash)
{
    static const char digits[] = "0123456789ABCDEF";
    while (*text) {
        size_t plain = 0;
        while (is_plain((unsigned char)text[plain]) || (keep_slash && text[plain] == '/'))
            plain++;
        mh_text_put_bytes(out, text, plain);
        text += plain;
        if (!*text)
            return;
        unsigned char c = (unsigned char)*text++;
        const char hex[3] = {'%', digits[c >> 4], digits[c & 15]};
        mh_text_put_bytes(out, hex, sizeof hex);
    }
}

bool mh_percent_encode(char *out, size_t room, const char *text, bool keep_slash)
{
    mh_text encoded = mh_text_in(out, room);
    put_encoded(&encoded, text, keep_slash);
    return !encoded.cut;
}

/* An encoded "name=value" lies at `from`. */
typedef struct encoded_pair {
    size_t from, length;
} encoded_pair;

/* By name, then by value: '=' ends a name and is in neither. */
static bool is_before(const char *data, encoded_pair a, encoded_pair b)
{
    for (size_t i = 0; i < a.length && i < b.length; i++) {
        unsigned char left = (unsigned char)data[a.from + i];
        unsigned char right = (unsigned char)data[b.from + i];
        if (left != right)
            return (left == '=' ? 0 : left) < (right == '=' ? 0 : right);
    }
    return a.length < b.length;
}

bool mh_sigv4_target(char *out, size_t room, const char *path, const mh_query_pair *query,
                     size_t query_count)
{
    mh_text target = mh_text_in(out, room);
    char unsorted[8192];
    mh_text pairs = mh_text_in(unsorted, sizeof unsorted);
    encoded_pair order[MH_QUERY_PAIRS_MOST];
    if (query_count > MH_QUERY_PAIRS_MOST)
        return false;
    for (size_t i = 0; i < query_count; i++) {
        encoded_pair pair = {.from = pairs.used};
        put_encoded(&pairs, query[i].name, false);
        mh_text_put(&pairs, "=");
        put_encoded(&pairs, query[i].value, false);
        pair.length = pairs.used - pair.from;
        size_t at = i;
        for (; at > 0 && is_before(unsorted, pair, order[at - 1]); at--)
            order[at] = order[at - 1];
        order[at] = pair;
    }
    put_encoded(&target, *path ? path : "/", true);
    for (size_t i = 0; i < query_count && !pairs.cut; i++) {
        mh_text_put(&target, i ? "&" : "?");
        mh_text_put_bytes(&target, unsorted + order[i].from, order[i].length);
    }
    return !target.cut && !pairs.cut;
}

/* --- signing --- */

static void add_text(mh_sha256 *hash, const char *text)
{
    mh_sha256_add(hash, text, strlen(text));
}

/* Each header with its line's end; then the names. */
static void hash_request(const mh_sigv4_request *request, const char *date, const char *token,
                         const char *signed_names, char out[MH_SHA256_HEX])
{
    mh_sha256 hash;
    uint8_t bytes[MH_SHA256_BYTES];
    size_t path = strcspn(request->target, "?");
    const char *query = request->target + path;
    mh_sha256_init(&hash);
    add_text(&hash, request->method);
    add_text(&hash, "\n");
    mh_sha256_add(&hash, request->target, path);
    add_text(&hash, "\n");
    add_text(&hash, *query ? query + 1 : "");
    add_text(&hash, "\nhost:");
    add_text(&hash, request->host);
    add_text(&hash, "\nx-amz-content-sha256:" MH_SIGV4_NO_BODY "\nx-amz-date:");
    add_text(&hash, date);
    if (*token) {
        add_text(&hash, "\nx-amz-security-token:");
        add_text(&hash, token);
    }
    add_text(&hash, "\n\n");
    add_text(&hash, signed_names);
    add_text(&hash, "\n" MH_SIGV4_NO_BODY);
    mh_sha256_end(&hash, bytes);
    mh_sha256_hex(bytes, out);
}

/* HMAC's first key is "AWS4" and the secret; a long one is hashed, as HMAC would do itself. */
static size_t first_key(uint8_t out[64], const char *secret)
{
    mh_sha256 hash;
    size_t length = strlen(secret);
    memcpy(out, "AWS4", 4);
    if (length <= 60) {
        memcpy(out + 4, secret, length);
        return 4 + length;
    }
    mh_sha256_init(&hash);
    mh_sha256_add(&hash, "AWS4", 4);
    mh_sha256_add(&hash, secret, length);
    mh_sha256_end(&hash, out);
    return MH_SHA256_BYTES;
}

static void derive(mh_sigv4_day *day, const mh_sigv4_request *request, const char *secret,
                   const char *date)
{
    mh_sha256 hash;
    uint8_t of[MH_SHA256_BYTES], key[64];
    const char *const parts[] = {secret, date, request->region, request->service};
    mh_sha256_init(&hash);
    for (size_t i = 0; i < 4; i++)
        mh_sha256_add(&hash, parts[i], strlen(parts[i]) + 1); /* the NUL keeps them apart */
    mh_sha256_end(&hash, of);
    if (memcmp(of, day->of, sizeof of) == 0)
        return;
    mh_hmac_sha256(key, first_key(key, secret), date, strlen(date), day->key);
    for (size_t i = 2; i < 4; i++)
        mh_hmac_sha256(day->key, sizeof day->key, parts[i], strlen(parts[i]), day->key);
    mh_hmac_sha256(day->key, sizeof day->key, "aws4_request", strlen("aws4_request"), day->key);
    memcpy(day->of, of, sizeof of);
}

bool mh_sigv4_sign(mh_sigv4_headers *out, mh_sigv4_day *day, const mh_sigv4_request *request,
                   const mh_sigv4_keys *keys)
{
    const char *token = keys->token ? keys->token : "";
    const char *names = *token ? "host;x-amz-content-sha256;x-amz-date;x-amz-security-token"
                               : "host;x-amz-content-sha256;x-amz-date";
    char scope[256], date[9], hashed[MH_SHA256_HEX], to_sign[512], signature[MH_SHA256_HEX];
    uint8_t bytes[MH_SHA256_BYTES];
    struct tm utc;
    time_t when = (time_t)request->when;
    if (!gmtime_r(&when, &utc) ||
        strftime(out->date, sizeof out->date, "%Y%m%dT%H%M%SZ", &utc) != sizeof out->date - 1)
        return false;
    memcpy(date, out->date, 8);
    date[8] = '\0';
    if (snprintf(scope, sizeof scope, "%s/%s/%s/aws4_request", date, request->region,
                 request->service) >= (int)sizeof scope)
        return false;
    hash_request(request, out->date, token, names, hashed);
    (void)snprintf(to_sign, sizeof to_sign, ALGORITHM "\n%s\n%s\n%s", out->date, scope, hashed);
    derive(day, request, keys->secret, date);
    mh_hmac_sha256(day->key, sizeof day->key, to_sign, strlen(to_sign), bytes);
    mh_sha256_hex(bytes, signature);
    return snprintf(out->authorization, sizeof out->authorization,
                    ALGORITHM " Credential=%s/%s, SignedHeaders=%s, Signature=%s", keys->key, scope,
                    names, signature) < (int)sizeof out->authorization;
}
