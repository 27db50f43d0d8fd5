/* remote.h - objects on a network: what http and S3 share
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_SOURCE_REMOTE_H
#define MH_SOURCE_REMOTE_H

#include "source/requests.h"
#include "source/source.h"
#include "source/storage.h"

/* What differs between http and S3: a place that requests are addressed to. */
typedef struct mh_remote_type {
    const mh_source_type *source;
    mh_addressing addressing; /* `context` is the place */
    /* Makes the place. May ask the network for credentials. `storage` is copied. */
    mh_status (*open)(void **out_place, const mh_storage *storage, mh_error *err);
    /* Whom to wake when requests need not wait any more; NULL: nobody. (optional) */
    void (*watch)(void *place, mh_requests *requests);
    void (*close)(void *place);
} mh_remote_type;

extern const mh_remote_type mh_remote_http;
extern const mh_remote_type mh_remote_s3;

/* A place and the requests to it. */
typedef struct mh_remote {
    const mh_remote_type *type;
    void *place;
    mh_addressing addressing;
    mh_requests *requests;
} mh_remote;

/* `take` as in mh_requests_options, or NULL. Closed with mh_remote_close, also where it failed. */
MH_MUST_CHECK mh_status mh_remote_open(mh_remote *out, const mh_remote_type *type,
                                       const mh_source_options *options,
                                       mh_request *(*take)(void *context), void *context,
                                       mh_error *err);
void mh_remote_close(mh_remote *remote);

/* The functions of a source (source.h) for either type. */
MH_MUST_CHECK mh_status mh_remote_stat(const mh_remote_type *type, mh_object *object,
                                       const mh_source_options *options, mh_error *err);
MH_MUST_CHECK mh_status mh_remote_get(const mh_remote_type *type, const char *name,
                                      const mh_source_options *options, uint64_t most,
                                      uint8_t *into, uint64_t *got, mh_error *err);
MH_MUST_CHECK mh_status mh_remote_source_open(mh_source **out, const mh_remote_type *type,
                                              const mh_objects *objects,
                                              const mh_source_options *options, mh_error *err);
mh_status mh_remote_read(mh_source *source, const mh_read *read, uint64_t *got, mh_error *err);
mh_status mh_remote_submit(mh_source *source, const mh_read *reads, size_t count,
                           mh_read_done *done, void *context, mh_error *err);
void mh_remote_stats(mh_source *source, mh_source_stats *out);
void mh_remote_source_close(mh_source *source);

/* One request to the place of these options, by the requests that datasets share while they open;
 * waits. `request` has method, name, range and segments; its answer is in request->answer. */
MH_MUST_CHECK mh_status mh_remote_ask(const mh_remote_type *type, const mh_source_options *options,
                                      mh_request *request, mh_error *err);

/* One exchange outside of any place, for credentials: mh_credentials_call. The context is a file of
 * certificates; "": the usual ones. */
mh_status mh_remote_call(void *context, const char *url, const char *const *headers,
                         const char *body, char *out, size_t room, int *status, mh_error *err);

/* --- for `address` of either type --- */

/* Empties the attempt's headers; then one more: "Name: " and value. False: it does not fit. */
void mh_attempt_clear(mh_attempt *attempt);
bool mh_attempt_header(mh_attempt *attempt, const char *name, const char *value);

#endif
