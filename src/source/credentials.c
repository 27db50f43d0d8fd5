/* credentials.c - who is asking S3: keys from where AWS's own tools look for them
 * SPDX-License-Identifier: Apache-2.0
 */
#include "source/credentials.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/ini.h"
#include "base/json.h"
#include "source/sigv4.h"
#include "source/xml.h"
#include "sys/file.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define EARLY_S 300
#define STALE_S 600
#define CALLS_MOST 3
#define CALL_QUICK_S 2 /* a call that took longer is not made again: somebody waits */
#define ANSWER_ROOM 16384
#define TOKEN_FILE_MOST 16000

/* --- times --- */

int64_t mh_time_read(const char *text)
{
    struct tm utc = {0};
    int used = 0;
    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d%n", &utc.tm_year, &utc.tm_mon, &utc.tm_mday,
               &utc.tm_hour, &utc.tm_min, &utc.tm_sec, &used) != 6)
        return 0;
    if (utc.tm_year < 1970 || utc.tm_mon < 1 || utc.tm_mon > 12 || utc.tm_mday < 1 ||
        utc.tm_mday > 31 || utc.tm_hour < 0 || utc.tm_hour > 23 || utc.tm_min < 0 ||
        utc.tm_min > 59 || utc.tm_sec < 0 || utc.tm_sec > 60)
        return 0;
    const char *rest = text + used;
    if (*rest == '.')
        rest += 1 + strspn(rest + 1, "0123456789");
    if (strcmp(rest, "Z") != 0 && strcmp(rest, "+00:00") != 0)
        return 0;
    utc.tm_year -= 1900;
    utc.tm_mon -= 1;
    return (int64_t)timegm(&utc);
}

bool mh_credentials_due(const mh_credentials *credentials, int64_t now)
{
    if (credentials->anonymous || !credentials->expires)
        return false;
    int64_t life = credentials->expires - credentials->got;
    int64_t early = life / 4 < EARLY_S ? life / 4 : EARLY_S;
    return now >= credentials->expires - early;
}

/* --- environment and files --- */

static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static bool copy(char *out, size_t room, const char *text)
{
    size_t length = strlen(text);
    if (length >= room)
        return false;
    memcpy(out, text, length + 1);
    return true;
}

static const char *profile_name(const mh_storage *storage)
{
    const char *set = environment("AWS_PROFILE");
    return *storage->profile ? storage->profile : set ? set : "default";
}

/* ~/.aws/config or ~/.aws/credentials, or the file that the variable names. */
static char *read_aws_file(const char *variable, const char *name, size_t *length)
{
    char path[PATH_MAX];
    const char *given = environment(variable), *home = environment("HOME");
    if (given)
        return mh_file_read_text(given, length);
    if (!home || snprintf(path, sizeof path, "%s/.aws/%s", home, name) >= (int)sizeof path)
        return NULL;
    return mh_file_read_text(path, length);
}

typedef struct aws_files {
    char *config, *credentials;
    size_t config_length, credentials_length;
    char section[160]; /* of config: "profile NAME", "default" */
    const char *profile;
} aws_files;

static void open_files(aws_files *files, const mh_storage *storage)
{
    *files = (aws_files){.profile = profile_name(storage)};
    files->config = read_aws_file("AWS_CONFIG_FILE", "config", &files->config_length);
    files->credentials =
        read_aws_file("AWS_SHARED_CREDENTIALS_FILE", "credentials", &files->credentials_length);
    bool is_default = strcmp(files->profile, "default") == 0;
    (void)snprintf(files->section, sizeof files->section, "%s%.140s", is_default ? "" : "profile ",
                   files->profile);
}

static void close_one(char *text, size_t length)
{
    if (text)
        explicit_bzero(text, length);
    mh_free(text);
}

static void close_files(aws_files *files)
{
    close_one(files->config, files->config_length);
    close_one(files->credentials, files->credentials_length);
}

static bool setting(const aws_files *files, const char *name, char *out, size_t room)
{
    return (files->credentials && mh_ini_find(files->credentials, files->credentials_length,
                                              files->profile, name, out, room)) ||
           (files->config &&
            mh_ini_find(files->config, files->config_length, files->section, name, out, room));
}

static bool has_profile(const aws_files *files)
{
    return (files->credentials &&
            mh_ini_has(files->credentials, files->credentials_length, files->profile)) ||
           (files->config && mh_ini_has(files->config, files->config_length, files->section));
}

void mh_credentials_region(const mh_storage *storage, char out[MH_REGION_ROOM])
{
    const char *given = *storage->region ? storage->region : environment("AWS_REGION");
    if (!given)
        given = environment("AWS_DEFAULT_REGION");
    if ((!given || !copy(out, MH_REGION_ROOM, given)) &&
        !mh_credentials_setting(storage, "region", out, MH_REGION_ROOM))
        (void)copy(out, MH_REGION_ROOM, "us-east-1");
}

bool mh_credentials_setting(const mh_storage *storage, const char *name, char *out, size_t room)
{
    aws_files files;
    open_files(&files, storage);
    bool found = setting(&files, name, out, room);
    close_files(&files);
    return found;
}

/* --- calls --- */

/* How the network is asked. */
typedef struct asking {
    mh_credentials_call *call;
    void *context;
} asking;

/* Once more after a failure that may pass: a job of days shall not end with one lost answer. */
static mh_status ask(const asking *how, const char *url, const char *const *headers,
                     const char *body, char *out, size_t room, int *status, mh_error *err)
{
    for (int calls = 1;; calls++) {
        const struct timespec pause = {.tv_nsec = 200000000L * calls};
        time_t began = time(NULL);
        mh_status result = how->call(how->context, url, headers, body, out, room, status, err);
        bool passes = result == MH_OK ? *status == 429 || *status >= 500 : result == MH_ERR_IO;
        if (!passes || calls == CALLS_MOST || time(NULL) - began > CALL_QUICK_S)
            return result;
        (void)nanosleep(&pause, NULL);
    }
}

/* --- a web identity: a token in a file, exchanged for keys --- */

typedef struct web_identity {
    char token_file[PATH_MAX], role[2048], session[128];
} web_identity;

static mh_status read_token(const char *path, char *out, size_t room, mh_error *err)
{
    size_t length = 0;
    char *text = mh_file_read_text(path, &length);
    while (text && length && strchr("\r\n \t", text[length - 1]))
        text[--length] = '\0';
    bool good =
        text && length && length < TOKEN_FILE_MOST && mh_percent_encode(out, room, text, false);
    close_one(text, length);
    return good ? MH_OK
                : mh_fail(err, MH_ERR_IO,
                          "cannot read the web identity token in %.200s: check "
                          "AWS_WEB_IDENTITY_TOKEN_FILE",
                          path);
}

static mh_status read_sts(mh_credentials *out, const char *answer, mh_error *err)
{
    char expires[64] = "";
    size_t size = strlen(answer);
    if (!mh_xml_find(answer, size, "AccessKeyId", out->key, sizeof out->key) ||
        !mh_xml_find(answer, size, "SecretAccessKey", out->secret, sizeof out->secret) ||
        !mh_xml_find(answer, size, "SessionToken", out->token, sizeof out->token) ||
        !mh_xml_find(answer, size, "Expiration", expires, sizeof expires) ||
        !(out->expires = mh_time_read(expires)))
        return mh_fail(err, MH_ERR_IO, "the answer of AWS's token service is not understood");
    return MH_OK;
}

static bool sts_url(char *out, size_t room, const mh_storage *storage)
{
    char region[MH_REGION_ROOM];
    const char *given = environment("AWS_ENDPOINT_URL_STS");
    if (!given)
        given = environment("AWS_ENDPOINT_URL");
    size_t length = given ? strlen(given) : 0;
    while (length && given[length - 1] == '/')
        length--;
    mh_credentials_region(storage, region);
    int used = given ? snprintf(out, room, "%.*s/", (int)length, given)
                     : snprintf(out, room, "https://sts.%s.amazonaws.com/", region);
    return used < (int)room;
}

static mh_status fail_sts(int status, const char *answer, mh_error *err)
{
    char code[64] = "";
    if (!mh_xml_find(answer, strlen(answer), "Code", code, sizeof code))
        code[0] = '\0';
    const char *todo = status == 429 || status >= 500
                           ? "try again later"
                           : "check AWS_ROLE_ARN and the token in AWS_WEB_IDENTITY_TOKEN_FILE";
    return mh_fail(err, MH_ERR_IO, "AWS's token service refuses the web identity (%d%s%s): %s",
                   status, *code ? " " : "", code, todo);
}

static mh_status from_web_identity(mh_credentials *out, const mh_storage *storage,
                                   const web_identity *identity, const asking *how, mh_error *err)
{
    enum { BODY_ROOM = 3 * TOKEN_FILE_MOST + 8192 };
    char url[512], role[6200], session[400];
    int status = 0;
    if (!mh_percent_encode(role, sizeof role, identity->role, false) ||
        !mh_percent_encode(session, sizeof session, identity->session, false))
        return mh_fail(err, MH_ERR_INVALID, "AWS_ROLE_ARN is too long");
    if (!sts_url(url, sizeof url, storage))
        return mh_fail(err, MH_ERR_INVALID, "AWS_ENDPOINT_URL_STS is too long");
    char *body = mh_calloc(BODY_ROOM + ANSWER_ROOM, 1), *answer = body + BODY_ROOM;
    if (!body)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for credentials");
    int used = snprintf(body, BODY_ROOM,
                        "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=%s"
                        "&RoleSessionName=%s&WebIdentityToken=",
                        role, session);
    mh_status result = read_token(identity->token_file, body + used, BODY_ROOM - (size_t)used, err);
    if (result == MH_OK)
        result = ask(how, url, NULL, body, answer, ANSWER_ROOM, &status, err);
    if (result == MH_OK)
        result = status == 200 ? read_sts(out, answer, err) : fail_sts(status, answer, err);
    explicit_bzero(body, BODY_ROOM + ANSWER_ROOM);
    mh_free(body);
    return result;
}

/* --- EC2's metadata service, version 2 --- */

static mh_status read_imds(mh_credentials *out, const char *answer, mh_error *err)
{
    mh_json json;
    mh_json_token token;
    char expires[64] = "";
    const struct {
        const char *name;
        char *into;
        size_t room;
    } wanted[] = {{"AccessKeyId", out->key, sizeof out->key},
                  {"SecretAccessKey", out->secret, sizeof out->secret},
                  {"Token", out->token, sizeof out->token},
                  {"Expiration", expires, sizeof expires}};
    mh_json_init(&json, answer, strlen(answer));
    for (mh_json_kind kind; (kind = mh_json_next(&json, &token)) > MH_JSON_END;)
        for (size_t i = 0; kind == MH_JSON_KEY && i < 4; i++)
            if (mh_json_is(&token, wanted[i].name) &&
                mh_json_next(&json, &token) == MH_JSON_STRING && token.length < wanted[i].room) {
                (void)mh_json_text(&token, wanted[i].into, wanted[i].room);
                break;
            }
    out->expires = mh_time_read(expires);
    if (!*out->key || !*out->secret || !out->expires)
        return mh_fail(err, MH_ERR_IO, "the answer of EC2's metadata service is not understood");
    return MH_OK;
}

static mh_status from_metadata(mh_credentials *out, const asking *how, mh_error *err)
{
    static const char *const lives[] = {"X-aws-ec2-metadata-token-ttl-seconds: 21600", NULL};
    char url[512], header[320], role[160], answer[ANSWER_ROOM];
    const char *given = environment("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    const char *base = given ? given : "http://169.254.169.254";
    int status = 0;
    const char *disabled = environment("AWS_EC2_METADATA_DISABLED");
    if (disabled && strcasecmp(disabled, "true") == 0)
        return MH_ERR_NOT_FOUND;
    (void)snprintf(url, sizeof url, "%.200s/latest/api/token", base);
    mh_error ignored;
    if (how->call(how->context, url, lives, "", answer, 256, &status, &ignored) != MH_OK ||
        status != 200)
        return MH_ERR_NOT_FOUND; /* not on EC2 */
    (void)snprintf(header, sizeof header, "X-aws-ec2-metadata-token: %.256s", answer);
    const char *const headers[] = {header, NULL};
    (void)snprintf(url, sizeof url, "%.200s/latest/meta-data/iam/security-credentials/", base);
    mh_status result = ask(how, url, headers, NULL, role, sizeof role, &status, err);
    role[strcspn(role, "\r\n")] = '\0';
    if (result == MH_OK && (status != 200 || !*role))
        result = MH_ERR_NOT_FOUND; /* without a role */
    if (result == MH_OK) {
        size_t used = strlen(url);
        (void)snprintf(url + used, sizeof url - used, "%s", role);
        result = ask(how, url, headers, NULL, answer, sizeof answer, &status, err);
    }
    if (result == MH_OK)
        result = status == 200
                     ? read_imds(out, answer, err)
                     : mh_fail(err, MH_ERR_IO,
                               "EC2's metadata service answers %d for the role's keys", status);
    explicit_bzero(answer, sizeof answer);
    explicit_bzero(header, sizeof header);
    return result;
}

/* --- in order --- */

static bool from_environment(mh_credentials *out)
{
    const char *key = environment("AWS_ACCESS_KEY_ID");
    const char *secret = environment("AWS_SECRET_ACCESS_KEY");
    const char *token = environment("AWS_SESSION_TOKEN");
    return key && secret && copy(out->key, sizeof out->key, key) &&
           copy(out->secret, sizeof out->secret, secret) &&
           (!token || copy(out->token, sizeof out->token, token));
}

static void name_session(web_identity *identity)
{
    const char *given = environment("AWS_ROLE_SESSION_NAME");
    if (!given || !copy(identity->session, sizeof identity->session, given))
        (void)copy(identity->session, sizeof identity->session, "millhead");
}

static mh_status from_profile(mh_credentials *out, const mh_storage *storage,
                              const aws_files *files, const asking *how, mh_error *err)
{
    web_identity identity;
    name_session(&identity);
    if (setting(files, "aws_access_key_id", out->key, sizeof out->key) &&
        setting(files, "aws_secret_access_key", out->secret, sizeof out->secret)) {
        (void)setting(files, "aws_session_token", out->token, sizeof out->token);
        return MH_OK;
    }
    if (how->call && setting(files, "web_identity_token_file", identity.token_file, PATH_MAX) &&
        setting(files, "role_arn", identity.role, sizeof identity.role)) {
        (void)setting(files, "role_session_name", identity.session, sizeof identity.session);
        return from_web_identity(out, storage, &identity, how, err);
    }
    return MH_ERR_NOT_FOUND;
}

static mh_status fail_none(const mh_storage *storage, const aws_files *files, mh_error *err)
{
    if ((*storage->profile || environment("AWS_PROFILE")) && !has_profile(files))
        return mh_fail(err, MH_ERR_NOT_FOUND,
                       "there is no profile '%.100s' in ~/.aws: check profile= or AWS_PROFILE",
                       files->profile);
    if (*storage->profile)
        return mh_fail(err, MH_ERR_NOT_FOUND,
                       "profile '%.100s' has no keys that are read here: export them with `aws "
                       "configure export-credentials --profile %.100s --format env`",
                       files->profile, files->profile);
    return mh_fail(err, MH_ERR_NOT_FOUND,
                   "no credentials for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or a "
                   "profile in ~/.aws, or give anon=true for public data");
}

static mh_status find(mh_credentials *out, const mh_storage *storage, const aws_files *files,
                      const asking *how, mh_error *err)
{
    if (!*storage->profile && from_environment(out))
        return MH_OK;
    mh_status status = from_profile(out, storage, files, how, err);
    const char *token_file = environment("AWS_WEB_IDENTITY_TOKEN_FILE");
    const char *role = environment("AWS_ROLE_ARN");
    web_identity identity;
    name_session(&identity);
    if (status == MH_ERR_NOT_FOUND && !*storage->profile && how->call && token_file && role &&
        copy(identity.token_file, sizeof identity.token_file, token_file) &&
        copy(identity.role, sizeof identity.role, role))
        status = from_web_identity(out, storage, &identity, how, err);
    if (status == MH_ERR_NOT_FOUND && !*storage->profile && how->call)
        status = from_metadata(out, how, err);
    return status == MH_ERR_NOT_FOUND ? fail_none(storage, files, err) : status;
}

mh_status mh_credentials_find(mh_credentials *out, const mh_storage *storage,
                              mh_credentials_call *call, void *context, mh_error *err)
{
    aws_files files;
    const asking how = {call, context};
    *out = (mh_credentials){.anonymous = storage->anon, .got = (int64_t)time(NULL)};
    if (storage->anon)
        return MH_OK;
    if (*storage->key) {
        memcpy(out->key, storage->key, sizeof out->key);
        memcpy(out->secret, storage->secret, sizeof out->secret);
        memcpy(out->token, storage->token, sizeof out->token);
        return MH_OK;
    }
    open_files(&files, storage);
    mh_status status = find(out, storage, &files, &how, err);
    close_files(&files);
    /* The service is in trouble and gives old ones, or this machine's clock is wrong: S3 decides.
     */
    if (out->expires && out->expires <= out->got)
        out->expires = out->got + STALE_S;
    if (status != MH_OK)
        explicit_bzero(out, sizeof *out);
    return status;
}
