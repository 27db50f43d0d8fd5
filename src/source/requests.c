/* requests.c - requests that are made until they succeed or patience ends
 * SPDX-License-Identifier: Apache-2.0
 */
#include "source/requests.h"

#include "base/alloc.h"
#include "base/error.h"
#include "source/pace.h"
#include "source/redact.h"
#include "source/url.h"
#include "sys/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define ATTEMPTS_MOST 8u
#define ATTEMPTS_NO_SERVER 4u /* a name is wrong more often than a host is away */
#define REDIRECTS_MOST 5u
#define HEDGE_BYTES_MOST (UINT64_C(16) << 20)
#define HEDGE_LOOK_NS UINT64_C(10000000)
#define CONNECT_MS 10000u
#define FIRST_BYTE_MS 30000u
#define STALL_MS 20000u

/* Requests in a row, each in at most one list. */
typedef struct request_list {
    mh_request *first, *last;
} request_list;

struct mh_requests {
    /* set at open, then read-only */
    mh_requests_options options;
    mh_transport *transport;
    /* The transport thread takes what there is as soon as an exchange is done: nobody need wake it.
     */
    _Atomic bool full;
    /* the transport thread's */
    request_list active;  /* at least one attempt is under way */
    request_list delayed; /* to be repeated when they are due */
    request_list ready;   /* added, not begun */
    uint32_t under_way;   /* attempts */
    uint32_t peak;        /* of them at a time */
    uint64_t hedge_ns;    /* when to look for late ones again */
    mh_pace pace;
    /* under the lock */
    struct {
        pthread_mutex_t lock;
        request_list added;
        mh_requests_stats stats;
    } sync;
};

/* --- lists --- */

static void append(request_list *list, mh_request *request)
{
    request->next = NULL;
    request->previous = list->last;
    if (list->last)
        list->last->next = request;
    else
        list->first = request;
    list->last = request;
}

static void take_out(request_list *list, mh_request *request)
{
    if (request->previous)
        request->previous->next = request->next;
    else
        list->first = request->next;
    if (request->next)
        request->next->previous = request->previous;
    else
        list->last = request->previous;
    request->next = request->previous = NULL;
}

void mh_request_reset(mh_request *request)
{
    request->name[0] = request->if_match[0] = request->redirected[0] = '\0';
    request->query = NULL;
    request->query_count = request->segment_count = 0;
    request->expected = (mh_expected){0};
    request->attempts = request->redirects = 0;
    request->refreshed = false;
    request->answer = NULL;
}

/* --- the end of a request --- */

static void free_buffer(mh_attempt *attempt)
{
    mh_free(attempt->buffer);
    attempt->buffer = NULL;
}

/* It is in no list, and none of its attempts is under way. */
static void tell_over(mh_requests *self, mh_request *request, mh_error *err)
{
    const mh_addressing *addressing = self->options.addressing;
    if (err && addressing->redact)
        addressing->redact(addressing->context, err->message);
    pthread_mutex_lock(&self->sync.lock);
    self->sync.stats = (mh_requests_stats){.begun = self->pace.begun,
                                           .retried = self->pace.retried,
                                           .hedged = self->pace.hedged,
                                           .bytes = self->sync.stats.bytes,
                                           .in_flight_peak = self->peak};
    if (!err)
        self->sync.stats.bytes += request->answer->came;
    pthread_mutex_unlock(&self->sync.lock);
    request->over(request, err);
}

static void drop_attempt(mh_requests *self, mh_attempt *attempt)
{
    if (attempt->active) {
        self->options.transport->cancel(self->transport, &attempt->exchange);
        attempt->active = false;
        self->under_way--;
    }
    free_buffer(attempt);
}

static void finish(mh_requests *self, mh_request *request, mh_error *err)
{
    drop_attempt(self, &request->first_try);
    drop_attempt(self, &request->second_try);
    take_out(&self->active, request);
    tell_over(self, request, err);
}

/* --- attempts --- */

static void attempt_done(mh_exchange *exchange);

static bool is_signed(const mh_attempt *attempt)
{
    for (const char *const *header = attempt->headers; *header; header++)
        if (strncmp(*header, "Authorization:", 14) == 0)
            return true;
    return false;
}

/* False: the request is over. */
static bool begin_attempt(mh_requests *self, mh_request *request, mh_attempt *attempt,
                          uint8_t *buffer)
{
    mh_error err;
    mh_exchange *exchange = &attempt->exchange;
    /* field by field: most of an exchange is room for the answer, which `begin` resets */
    exchange->method = request->method;
    exchange->url = attempt->url;
    exchange->headers = attempt->headers;
    exchange->body = NULL;
    exchange->ranged = request->ranged;
    exchange->link_local = self->options.link_local;
    exchange->first = request->first;
    exchange->room = request->room;
    exchange->segments = request->segments;
    exchange->segment_count = request->segment_count;
    exchange->done = attempt_done;
    exchange->context = self;
    attempt->request = request;
    attempt->buffer = buffer;
    if (buffer) {
        attempt->whole_buffer = (mh_segment){0, request->room, buffer};
        exchange->segments = &attempt->whole_buffer;
        exchange->segment_count = 1;
    }
    const mh_addressing *addressing = self->options.addressing;
    if (addressing->address(addressing->context, request, attempt, &err) != MH_OK) {
        finish(self, request, &err);
        return false;
    }
    request->expected.signed_request = is_signed(attempt);
    attempt->active = true;
    self->under_way++;
    self->pace.begun++;
    if (self->under_way > self->peak)
        self->peak = self->under_way;
    self->options.transport->begin(self->transport, exchange);
    return true;
}

static void begin(mh_requests *self, mh_request *request, uint64_t now)
{
    append(&self->active, request);
    if (request->attempts++ == 0) {
        request->began_ns = now;
        mh_redact_url(request->shown, sizeof request->shown, request->name);
        request->expected.shown = request->shown;
        request->expected.s3 = self->options.addressing->s3;
    }
    (void)begin_attempt(self, request, &request->first_try, NULL);
}

/* Where its bytes were kept aside, they go to their places. */
static void take_bytes(mh_request *request, const mh_attempt *attempt)
{
    for (size_t i = 0; attempt->buffer && i < request->segment_count; i++) {
        const mh_segment *segment = &request->segments[i];
        uint64_t came = attempt->exchange.came;
        if (segment->from >= came)
            break;
        uint64_t there = came - segment->from;
        memcpy(segment->into, attempt->buffer + segment->from,
               there < segment->size ? there : segment->size);
    }
}

/* --- what becomes of an answer --- */

static void repeat(mh_requests *self, mh_request *request, uint64_t due_ns)
{
    take_out(&self->active, request);
    request->due_ns = due_ns;
    append(&self->delayed, request);
}

static void repeat_or_fail(mh_requests *self, mh_request *request, const mh_exchange *exchange,
                           bool throttled, mh_error *err)
{
    uint64_t now = mh_clock_ns();
    if (throttled)
        mh_pace_throttled(&self->pace, exchange->began_ns, now);
    /* as long as the window can shrink, that relieves the server, and a long pause of one request
     * would only hold up the batch that needs it */
    uint32_t attempt = throttled && mh_pace_window(&self->pace) > 1 ? 0 : request->attempts;
    uint64_t due = now + mh_pace_delay_ns(&self->pace, attempt, exchange->retry_after_s);
    bool in_time = due - request->began_ns < (uint64_t)self->options.timeout_ms * 1000000u;
    uint32_t most = exchange->outcome == MH_OUTCOME_NO_SERVER ? ATTEMPTS_NO_SERVER : ATTEMPTS_MOST;
    bool allowed = throttled || (request->attempts < most && mh_pace_retry(&self->pace));
    if (in_time && allowed) {
        self->pace.retried += throttled; /* the others are counted by the budget */
        repeat(self, request, due);
        return;
    }
    if (request->attempts > 1)
        mh_error_prefix(err, "%u attempts", request->attempts);
    finish(self, request, err);
}

static void redirect(mh_requests *self, mh_request *request, const mh_exchange *exchange)
{
    mh_error err;
    char to[MH_URL_ROOM], shown[256];
    if (request->redirects++ < REDIRECTS_MOST &&
        mh_url_resolve(to, sizeof to, exchange->url, exchange->location)) {
        memcpy(request->redirected, to, strlen(to) + 1);
        repeat(self, request, 0);
        return;
    }
    mh_redact_url(shown, sizeof shown, exchange->location);
    (void)mh_fail(&err, MH_ERR_IO, "%.200s: %s", request->shown,
                  request->redirects > REDIRECTS_MOST
                      ? "the server redirects too often: give the address that it leads to"
                      : "the server redirects to what is no https address, or from https to http");
    finish(self, request, &err);
}

static void expired(mh_requests *self, mh_request *request, mh_error *err)
{
    const mh_addressing *addressing = self->options.addressing;
    bool failed = false;
    mh_error why;
    if (request->refreshed || !addressing->waits) {
        finish(self, request, err);
        return;
    }
    request->refreshed = true;
    (void)addressing->waits(addressing->context, true, &failed, &why);
    if (failed) {
        mh_error_prefix(&why, "%.200s", request->shown);
        finish(self, request, &why);
        return;
    }
    repeat(self, request, 0);
}

static void judge(mh_requests *self, mh_request *request, mh_attempt *attempt)
{
    mh_error err;
    const mh_exchange *exchange = &attempt->exchange;
    mh_answer_kind kind = mh_answer_judge(exchange, &request->expected, &err);
    if (kind == MH_ANSWER_GOOD) {
        take_bytes(request, attempt);
        mh_pace_success(&self->pace, exchange->ended_ns - exchange->began_ns);
        request->answer = exchange;
        finish(self, request, NULL);
        return;
    }
    free_buffer(attempt);
    if (request->first_try.active || request->second_try.active)
        return; /* the other one may still succeed */
    switch (kind) {
    case MH_ANSWER_REDIRECT:
        redirect(self, request, exchange);
        return;
    case MH_ANSWER_EXPIRED:
        expired(self, request, &err);
        return;
    case MH_ANSWER_FAULT:
    case MH_ANSWER_THROTTLE:
        repeat_or_fail(self, request, exchange, kind == MH_ANSWER_THROTTLE, &err);
        return;
    default:
        finish(self, request, &err);
    }
}

static void attempt_done(mh_exchange *exchange)
{
    mh_requests *self = exchange->context;
    mh_attempt *attempt = (mh_attempt *)((char *)exchange - offsetof(mh_attempt, exchange));
    attempt->active = false;
    self->under_way--;
    judge(self, attempt->request, attempt);
}

/* --- keeping requests under way --- */

static mh_request *take_next(mh_requests *self, uint64_t now)
{
    mh_request *request = self->delayed.first;
    while (request && request->due_ns > now)
        request = request->next;
    if (request) {
        take_out(&self->delayed, request);
    } else if ((request = self->ready.first)) {
        take_out(&self->ready, request);
    } else if (self->options.take) {
        request = self->options.take(self->options.context);
    }
    return request;
}

/* Requests cannot be made without credentials: all that there are fail. */
static void fail_all(mh_requests *self, const mh_error *why, uint64_t now)
{
    for (mh_request *request; (request = take_next(self, now));) {
        mh_error err = *why;
        mh_redact_url(request->shown, sizeof request->shown, request->name);
        mh_error_prefix(&err, "%.200s", request->shown);
        tell_over(self, request, &err);
    }
}

static void pump(mh_requests *self, uint64_t now)
{
    const mh_addressing *addressing = self->options.addressing;
    atomic_store(&self->full, false); /* before looking at what there is */
    while (self->under_way < mh_pace_window(&self->pace)) {
        bool failed = false;
        mh_error err;
        if (addressing->waits && addressing->waits(addressing->context, false, &failed, &err))
            break;
        if (failed) {
            fail_all(self, &err, now);
            break;
        }
        mh_request *request = take_next(self, now);
        if (!request)
            break;
        begin(self, request, now);
    }
    if (self->under_way >= mh_pace_window(&self->pace))
        atomic_store(&self->full, true);
}

static void hedge(mh_requests *self, uint64_t now)
{
    if (now < self->hedge_ns)
        return;
    self->hedge_ns = now + HEDGE_LOOK_NS;
    uint32_t window = mh_pace_window(&self->pace) + self->pace.most / 8;
    for (mh_request *request = self->active.first, *next; request; request = next) {
        next = request->next;
        const mh_exchange *exchange = &request->first_try.exchange;
        if (self->under_way > window || !request->first_try.active || request->second_try.active ||
            request->room > HEDGE_BYTES_MOST || exchange->came > request->room / 2 ||
            !mh_pace_hedge(&self->pace, now - exchange->began_ns))
            continue;
        uint8_t *buffer = mh_calloc(request->room ? request->room : 1, 1);
        if (buffer)
            (void)begin_attempt(self, request, &request->second_try, buffer);
    }
}

static uint64_t next_due(const mh_requests *self, uint64_t now)
{
    uint64_t due = UINT64_MAX;
    for (const mh_request *request = self->delayed.first; request; request = request->next)
        if (request->due_ns < due)
            due = request->due_ns;
    if (self->active.first && self->pace.slow_ns && self->hedge_ns < due)
        due = self->hedge_ns;
    return due <= now ? now + HEDGE_LOOK_NS : due; /* it is due, but the window is full */
}

static uint64_t run(void *context, uint64_t now)
{
    mh_requests *self = context;
    pthread_mutex_lock(&self->sync.lock);
    while (self->sync.added.first) {
        mh_request *request = self->sync.added.first;
        take_out(&self->sync.added, request);
        append(&self->ready, request);
    }
    pthread_mutex_unlock(&self->sync.lock);
    hedge(self, now);
    pump(self, now);
    return next_due(self, now);
}

/* --- opening and closing --- */

void mh_requests_wake(mh_requests *self)
{
    if (!atomic_load(&self->full))
        self->options.transport->wake(self->transport);
}

void mh_requests_add(mh_requests *self, mh_request *request)
{
    pthread_mutex_lock(&self->sync.lock);
    append(&self->sync.added, request);
    pthread_mutex_unlock(&self->sync.lock);
    mh_requests_wake(self);
}

void mh_requests_stats_read(mh_requests *self, mh_requests_stats *out)
{
    pthread_mutex_lock(&self->sync.lock);
    *out = self->sync.stats;
    pthread_mutex_unlock(&self->sync.lock);
}

static uint32_t at_most(uint32_t value, uint32_t most)
{
    return value < most ? value : most;
}

mh_status mh_requests_open(mh_requests **out, const mh_requests_options *options, mh_error *err)
{
    mh_requests *self = mh_calloc(1, sizeof *self);
    if (!self)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for requests");
    self->options = *options;
    pthread_mutex_init(&self->sync.lock, NULL);
    mh_pace_init(&self->pace, options->in_flight, mh_clock_ns());
    const mh_transport_options transport = {
        .connections = self->pace.most,
        .connect_ms = at_most(CONNECT_MS, options->timeout_ms / 2 + 1),
        .first_byte_ms = at_most(FIRST_BYTE_MS, options->timeout_ms / 2 + 1),
        .queue_ms = options->timeout_ms,
        .stall_ms = at_most(STALL_MS, options->timeout_ms / 2 + 1),
        .ca_file = options->ca_file,
        .run = run,
        .context = self,
    };
    mh_status status = options->transport->open(&self->transport, &transport, err);
    if (status != MH_OK) {
        pthread_mutex_destroy(&self->sync.lock);
        mh_free(self);
        return status;
    }
    *out = self;
    return MH_OK;
}

static void close_list(mh_requests *self, request_list *list)
{
    while (list->first) {
        mh_error err;
        mh_request *request = list->first;
        take_out(list, request);
        free_buffer(&request->first_try);
        free_buffer(&request->second_try);
        request->first_try.active = request->second_try.active = false;
        (void)mh_fail(&err, MH_ERR_CLOSED, "the source was closed");
        tell_over(self, request, &err);
    }
}

void mh_requests_close(mh_requests *self)
{
    if (!self)
        return;
    self->options.transport->close(self->transport);
    close_list(self, &self->active);
    close_list(self, &self->delayed);
    close_list(self, &self->ready);
    close_list(self, &self->sync.added);
    pthread_mutex_destroy(&self->sync.lock);
    mh_free(self);
}
