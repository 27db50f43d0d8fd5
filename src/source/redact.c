/* redact.c - taking secrets out of whatever is shown
 * SPDX-License-Identifier: Apache-2.0
 */
#include "source/redact.h"

#include "base/text.h"

#include <ctype.h>
#include <strings.h>

#define STARS "***"

void mh_redact_url(char *out, size_t room, const char *url)
{
    mh_text shown = mh_text_in(out, room);
    const char *host = strstr(url, "://");
    if (!host || strcspn(url, "/?#@ ") < (size_t)(host - url)) {
        size_t length = strlen(url);
        mh_text_put_bytes(&shown, url, length < room ? length : room - 1);
        return;
    }
    host += strlen("://");
    size_t before = (size_t)(host - url), authority = strcspn(host, "/?#");
    const char *user_end = memrchr(host, '@', authority);
    size_t length = strcspn(host, "?#");
    if (user_end) {
        length -= (size_t)(user_end + 1 - host);
        host = user_end + 1;
    }
    mh_text_put_bytes(&shown, url, before);
    size_t left = room - shown.used - 1;
    mh_text_put_bytes(&shown, host, length < left ? length : left);
}

/* Replaces `size` bytes at `at` by `with`, which is not longer. Gives where the rest begins. */
static char *replace(char *at, size_t size, const char *with)
{
    size_t length = strlen(with);
    memcpy(at, with, length);
    memmove(at + length, at + size, strlen(at + size) + 1);
    return at + length;
}

/* Names whose value nobody may see, wherever they are written: in a header, a query, a form. */
static const char *const names[] = {
    "authorization", "signature", "credential", "token", "secret", "password",
    "accesskeyid",   "accesskey", "key_id",     "key",   "sig",
};

static int is_word(char c)
{
    return isalnum((unsigned char)c) || c == '-' || c == '_';
}

/* Bytes of a value that ends at a blank, a quote or what separates parameters. */
static size_t value_length(const char *value)
{
    size_t length = strcspn(value, "&,;\"'<>)] \t\r\n");
    /* "AWS4-HMAC-SHA256 Credential=..." and "Bearer ...": the scheme's name is part of it */
    if (value[length] == ' ' &&
        (strncasecmp(value, "AWS4", 4) == 0 || strncasecmp(value, "Bearer ", 7) == 0 ||
         strncasecmp(value, "Basic ", 6) == 0))
        length += 1 + strcspn(value + length + 1, "&,;\"'<>)] \t\r\n");
    return length;
}

static char *redact_value(char *value)
{
    value += strspn(value, " ");
    value += *value == '"'; /* of JSON */
    size_t length = value_length(value);
    return length >= strlen(STARS) ? replace(value, length, STARS) : value + length;
}

/* "x-amz-signature" and "SecretAccessKey" end in one of the names; a short one stands alone, or
 * every monkey would be a key. */
static int is_secret_name(const char *word, size_t length)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t own = strlen(names[i]);
        if (length >= own && strncasecmp(word + length - own, names[i], own) == 0 &&
            (length == own || own > 3 || strchr("-_", word[length - own - 1])))
            return 1;
    }
    return 0;
}

/* A URL in the text: without user and query. Gives where to go on. */
static char *redact_link(char *host)
{
    size_t authority = strcspn(host, "/?# \t\r\n\"'<>");
    char *user_end = memrchr(host, '@', authority);
    if (user_end)
        (void)replace(host, (size_t)(user_end + 1 - host), "");
    char *query = host + strcspn(host, "?# \t\r\n\"'<>");
    if (*query == '?' || *query == '#')
        (void)replace(query, strcspn(query, " \t\r\n\"'<>"), "");
    return query;
}

void mh_redact(char *text)
{
    while (*text) {
        if (strncmp(text, "://", 3) == 0) {
            text = redact_link(text + 3);
            continue;
        }
        if (!is_word(*text)) {
            text++;
            continue;
        }
        size_t length = 0;
        while (is_word(text[length]))
            length++;
        char *after = text + length + (text[length] == '"'); /* "key": of JSON */
        int secret = (*after == '=' || *after == ':') && strncmp(after, "://", 3) != 0 &&
                     is_secret_name(text, length);
        text = secret ? redact_value(after + 1) : text + length;
    }
}

void mh_redact_secret(char *text, const char *secret)
{
    size_t length = strlen(secret);
    if (length < 4)
        return;
    while ((text = strstr(text, secret)))
        text = replace(text, length, STARS);
}
