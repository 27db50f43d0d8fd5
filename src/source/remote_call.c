/* remote_call.c - one exchange outside of any place: for credentials
 * SPDX-License-Identifier: Apache-2.0
 */
#include "source/remote.h"

#include "base/alloc.h"
#include "base/error.h"
#include "source/net.h"
#include "source/redact.h"

#include <pthread.h>
#include <string.h>

#define CONNECT_NEAR_MS 1000u /* the metadata service is near, or not there at all */
#define CONNECT_MS 5000u
#define ANSWER_MS 10000u

typedef struct call {
    mh_exchange exchange;
    mh_segment segment;
    const mh_transport_type *type;
    const char *ca_file;
    mh_transport *transport;
    bool begun, over;
    pthread_mutex_t lock;
    pthread_cond_t ended;
} call;

static uint64_t begin_once(void *context, uint64_t now)
{
    call *self = context;
    (void)now;
    pthread_mutex_lock(&self->lock); /* until `transport` is set */
    pthread_mutex_unlock(&self->lock);
    if (!self->begun) {
        self->begun = true;
        self->type->begin(self->transport, &self->exchange);
    }
    return UINT64_MAX;
}

static void call_over(mh_exchange *exchange)
{
    call *self = exchange->context;
    pthread_mutex_lock(&self->lock);
    self->over = true;
    pthread_cond_signal(&self->ended);
    pthread_mutex_unlock(&self->lock);
}

static mh_status run_call(call *self, mh_error *err)
{
    const mh_transport_options options = {.connections = 1,
                                          .connect_ms =
                                              self->exchange.direct ? CONNECT_NEAR_MS : CONNECT_MS,
                                          .ca_file = self->ca_file,
                                          .first_byte_ms = ANSWER_MS,
                                          .queue_ms = ANSWER_MS,
                                          .stall_ms = ANSWER_MS,
                                          .run = begin_once,
                                          .context = self};
    pthread_mutex_lock(&self->lock);
    mh_status status = self->type->open(&self->transport, &options, err);
    if (status == MH_OK) {
        self->type->wake(self->transport);
        while (!self->over)
            pthread_cond_wait(&self->ended, &self->lock);
    }
    pthread_mutex_unlock(&self->lock);
    if (status == MH_OK)
        self->type->close(self->transport);
    return status;
}

static mh_status fail_unanswered(mh_exchange *answer, mh_error *err)
{
    char shown[256];
    mh_redact_url(shown, sizeof shown, answer->url);
    mh_redact(answer->problem);
    return mh_fail(
        err, MH_ERR_IO, "no answer from %.200s, which is asked for credentials: %.120s: check %s",
        shown, *answer->problem ? answer->problem : "silence",
        answer->outcome == MH_OUTCOME_UNTRUSTED ? "SSL_CERT_FILE or ca_file" : "the network");
}

mh_status mh_remote_call(void *context, const char *url, const char *const *headers,
                         const char *body, char *out, size_t room, int *status, mh_error *err)
{
    const mh_net *net = mh_net_load(err);
    call *self = net ? mh_calloc(1, sizeof *self) : NULL;
    if (!self)
        return net ? mh_fail(err, MH_ERR_NOMEM, "no memory for a request") : MH_ERR_UNSUPPORTED;
    self->type = net->transport;
    self->ca_file = context;
    self->segment = (mh_segment){0, room - 1, (uint8_t *)out};
    self->exchange = (mh_exchange){.method = !body   ? "GET"
                                             : *body ? "POST"
                                                     : "PUT",
                                   .url = url,
                                   .headers = headers,
                                   .body = body,
                                   .link_local = true,
                                   .direct = !body || !*body,
                                   .room = room - 1,
                                   .segments = &self->segment,
                                   .segment_count = 1,
                                   .done = call_over,
                                   .context = self};
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->ended, NULL);
    mh_status result = run_call(self, err);
    mh_exchange *answer = &self->exchange;
    bool good = answer->status == 200;
    size_t came = good ? (size_t)answer->came : answer->text_size;
    if (result == MH_OK && answer->outcome != MH_OUTCOME_ANSWERED) {
        result = fail_unanswered(answer, err);
    } else if (result == MH_OK) {
        if (!good)
            memcpy(out, answer->text, came < room ? came : room - 1);
        out[came < room ? came : room - 1] = '\0';
        *status = answer->status;
    }
    pthread_cond_destroy(&self->ended);
    pthread_mutex_destroy(&self->lock);
    explicit_bzero(self, sizeof *self);
    mh_free(self);
    return result;
}
