/* net_transport.c - libmillhead-net.so: exchanges by libcurl's multi interface and epoll
 * SPDX-License-Identifier: Apache-2.0
 *
 * Measured with 110 KB objects, 64 under way: some 50 us of CPU for each, of which half is the
 * kernel's, 12 libcurl's own work for a request and 4 the copy from its buffer.
 */
#define CURL_DISABLE_DEPRECATION /* as in net_curl.c */
#include "source/net_transport.h"

#include "base/alloc.h"
#include "base/error.h"
#include "sys/clock.h"
#include "sys/thread.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define BUFFER_BYTES (64L << 10) /* libcurl reads so much at a time: more stays in no cache */
#define EVENTS_MOST 128
#define LOOK_NS UINT64_C(100000000) /* how often time-outs are looked for */
#define LEAST_BYTES_PER_S 1024u
/* of a descriptor, besides EPOLLIN and EPOLLOUT: */
#define IN_USE 0x80u     /* libcurl waits for it */
#define CONNECTION 0x40u /* on_open_socket made it */

/* One of libcurl's handles and what it points to while an exchange has it. */
typedef struct handle {
    CURL *easy;
    mh_transport *transport;
    mh_exchange *exchange;
    struct curl_slist headers[MH_HEADERS_MOST]; /* their texts are the exchange's */
    struct handle *next;                        /* of those that are idle */
} handle;

struct mh_transport {
    /* set at open, then read-only */
    mh_transport_options options;
    char ca_file[512];
    int epoll, wakeup;
    mh_thread thread;
    _Atomic bool stop;
    /* the I/O thread's */
    CURLM *multi;
    mh_exchange *active; /* a ring's first; NULL: none */
    handle *idle;        /* to use again */
    uint8_t *watched;    /* of each descriptor: what epoll watches it for */
    size_t watched_room;
    size_t idle_count;
    uint64_t curl_due_ns; /* when libcurl wants to be called; UINT64_MAX: not */
    uint64_t owner_due_ns;
    uint64_t look_ns;     /* for time-outs */
    uint64_t answered_ns; /* when an exchange was, last */
};

/* --- what comes --- */

/* The value of a header line if it has that name, without blanks around it; else NULL. */
static const char *value_of(const char *line, size_t size, const char *name, size_t *length)
{
    size_t own = strlen(name);
    if (size <= own || line[own] != ':' || strncasecmp(line, name, own) != 0)
        return NULL;
    const char *from = line + own + 1, *end = line + size;
    while (from < end && (*from == ' ' || *from == '\t'))
        from++;
    while (end > from && strchr(" \t\r\n", end[-1]))
        end--;
    *length = (size_t)(end - from);
    return from;
}

static void keep(char *out, size_t room, const char *value, size_t length)
{
    if (length < room) {
        memcpy(out, value, length);
        out[length] = '\0';
    }
}

/* "bytes 0-99/1234", "bytes 0-99/" and a star, or "bytes " and a star "/1234" of a 416. */
static void read_content_range(mh_exchange *exchange, const char *value, size_t length)
{
    char text[96] = "";
    keep(text, sizeof text, value, length);
    if (strncasecmp(text, "bytes ", 6) != 0)
        return;
    char *total = strchr(text, '/');
    if (total && total[1] >= '0' && total[1] <= '9')
        exchange->total = strtoull(total + 1, NULL, 10);
    if (text[6] >= '0' && text[6] <= '9')
        exchange->range_first = strtoull(text + 6, NULL, 10);
}

static void forget_answer(mh_exchange *exchange)
{
    exchange->total = exchange->range_first = UINT64_MAX;
    exchange->retry_after_s = 0;
    exchange->encoded = false;
    exchange->etag[0] = exchange->modified[0] = exchange->location[0] = exchange->region[0] = '\0';
    exchange->came = exchange->text_size = exchange->segment = 0;
    exchange->text[0] = '\0';
}

static size_t on_header(const char *line, size_t one, size_t count, void *argument)
{
    mh_exchange *exchange = ((handle *)argument)->exchange;
    size_t size = one * count, length = 0;
    const char *value;
    if (size > 9 && strncmp(line, "HTTP/", 5) == 0) { /* 1xx answers come before the real one */
        const char *code = memchr(line, ' ', size - 1);
        forget_answer(exchange);
        exchange->status = code ? atoi(code + 1) : 0;
        if (!exchange->first_byte_ns)
            exchange->first_byte_ns = mh_clock_ns();
    } else if ((value = value_of(line, size, "etag", &length))) {
        keep(exchange->etag, sizeof exchange->etag, value, length);
    } else if ((value = value_of(line, size, "content-range", &length))) {
        read_content_range(exchange, value, length);
    } else if ((value = value_of(line, size, "content-length", &length))) {
        char digits[24] = "";
        keep(digits, sizeof digits, value, length);
        if (exchange->total == UINT64_MAX && exchange->status == 200 && *digits)
            exchange->total = strtoull(digits, NULL, 10);
    } else if ((value = value_of(line, size, "last-modified", &length))) {
        keep(exchange->modified, sizeof exchange->modified, value, length);
    } else if ((value = value_of(line, size, "retry-after", &length))) {
        char digits[16] = "";
        keep(digits, sizeof digits, value, length);
        exchange->retry_after_s = (uint32_t)strtoul(digits, NULL, 10);
    } else if ((value = value_of(line, size, "location", &length))) {
        keep(exchange->location, sizeof exchange->location, value, length);
    } else if ((value = value_of(line, size, "x-amz-bucket-region", &length))) {
        keep(exchange->region, sizeof exchange->region, value, length);
    } else if ((value = value_of(line, size, "content-encoding", &length))) {
        exchange->encoded = !(length == 8 && strncasecmp(value, "identity", 8) == 0);
    }
    return size;
}

/* Bytes number exchange->came and on, to where they belong. */
static void scatter(mh_exchange *exchange, const char *data, uint64_t size)
{
    uint64_t at = exchange->came;
    while (size && exchange->segment < exchange->segment_count) {
        const mh_segment *segment = &exchange->segments[exchange->segment];
        if (at >= segment->from + segment->size) {
            exchange->segment++;
            continue;
        }
        uint64_t gap = at < segment->from ? segment->from - at : 0;
        if (gap >= size)
            return;
        data += gap;
        size -= gap;
        at += gap;
        uint64_t left = segment->from + segment->size - at, taken = size < left ? size : left;
        memcpy(segment->into + (at - segment->from), data, taken);
        data += taken;
        size -= taken;
        at += taken;
    }
}

static size_t on_data(const char *data, size_t one, size_t count, void *argument)
{
    mh_exchange *exchange = ((handle *)argument)->exchange;
    size_t size = one * count;
    if (exchange->status != 200 && exchange->status != 206) {
        size_t left = MH_EXCHANGE_TEXT - exchange->text_size, kept = size < left ? size : left;
        memcpy(exchange->text + exchange->text_size, data, kept);
        exchange->text_size += kept;
        exchange->text[exchange->text_size] = '\0';
        return size;
    }
    /* some servers give a range with 200 */
    bool from_start = exchange->status == 200 && exchange->range_first == UINT64_MAX;
    if (exchange->ranged && from_start && exchange->first > 0) {
        exchange->outcome = MH_OUTCOME_UNRANGED;
        return 0; /* ends the transfer */
    }
    uint64_t left = exchange->room - exchange->came, taken = size < left ? size : left;
    scatter(exchange, data, taken);
    exchange->came += taken;
    if (taken == size)
        return size;
    if (!(exchange->ranged && from_start)) /* else the range is there: enough */
        exchange->outcome = MH_OUTCOME_TOO_LONG;
    return 0;
}

/* --- watching connections --- */

/* False: no memory. */
static bool watched_grow(mh_transport *self, size_t fd)
{
    if (fd < self->watched_room)
        return true;
    size_t room = self->watched_room ? self->watched_room : 256;
    while (room <= fd)
        room *= 2;
    uint8_t *larger = mh_realloc(self->watched, room, 1);
    if (!larger)
        return false;
    memset(larger + self->watched_room, 0, room - self->watched_room);
    self->watched = larger;
    self->watched_room = room;
    return true;
}

/* Watches a descriptor for EPOLLIN and EPOLLOUT, or not at all any more. */
static void watch(mh_transport *self, int fd, uint32_t mask)
{
    struct epoll_event event = {.events = mask, .data.fd = fd};
    if (!watched_grow(self, (size_t)fd))
        return;
    uint32_t now = self->watched[fd] & (EPOLLIN | EPOLLOUT);
    if (mask != now)
        (void)epoll_ctl(self->epoll,
                        !mask ? EPOLL_CTL_DEL
                        : now ? EPOLL_CTL_MOD
                              : EPOLL_CTL_ADD,
                        fd, &event);
    self->watched[fd] = (uint8_t)((self->watched[fd] & CONNECTION) | mask | (mask ? IN_USE : 0));
}

/* --- addresses --- */

static bool is_link_local(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        uint32_t ip = ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr);
        return ip >> 16 == 0xa9fe;
    }
    if (address->sa_family != AF_INET6)
        return false;
    const struct in6_addr *ip = &((const struct sockaddr_in6 *)address)->sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(ip))
        return ip->s6_addr[12] == 0xa9 && ip->s6_addr[13] == 0xfe;
    static const uint8_t metadata[16] = {0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, [15] = 0x54};
    return IN6_IS_ADDR_LINKLOCAL(ip) || memcmp(ip, metadata, sizeof metadata) == 0;
}

/* Looks at the address itself, so that no name and no redirect leads there. */
static curl_socket_t on_open_socket(void *argument, curlsocktype purpose,
                                    struct curl_sockaddr *address)
{
    const handle *own = argument;
    (void)purpose;
    if (is_link_local(&address->addr) && !own->exchange->link_local) {
        own->exchange->outcome = MH_OUTCOME_LINK_LOCAL;
        return CURL_SOCKET_BAD;
    }
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (fd >= 0 && watched_grow(own->transport, (size_t)fd))
        own->transport->watched[fd] = CONNECTION; /* what had this number may still be in there */
    return fd;
}

/* Where a forked child has the descriptor, too, closing it alone would leave it watched. */
static int on_close_socket(void *argument, curl_socket_t fd)
{
    watch(argument, fd, 0);
    return close(fd);
}

/* --- exchanges --- */

static bool set_once(handle *own)
{
    CURL *easy = own->easy;
    mh_transport *self = own->transport;
    const struct {
        CURLoption option;
        long value;
    } numbers[] = {
        {CURLOPT_NOSIGNAL, 1},
        {CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS},
        {CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1},
        {CURLOPT_BUFFERSIZE, BUFFER_BYTES},
        {CURLOPT_CONNECTTIMEOUT_MS, (long)self->options.connect_ms},
        {CURLOPT_NOPROGRESS, 1},
        {CURLOPT_PATH_AS_IS, 1}, /* a key may have ".." in it, and is signed so */
    };
    for (size_t at = 0; at < sizeof numbers / sizeof *numbers; at++)
        if (curl_easy_setopt(easy, numbers[at].option, numbers[at].value) != CURLE_OK)
            return false;
    if (*self->ca_file && curl_easy_setopt(easy, CURLOPT_CAINFO, self->ca_file) != CURLE_OK)
        return false;
    return curl_easy_setopt(easy, CURLOPT_USERAGENT, "millhead/" MH_VERSION) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_HEADERDATA, own) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_data) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEDATA, own) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_PRIVATE, own) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_open_socket) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, own) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, on_close_socket) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, self) == CURLE_OK;
}

static void free_handle(handle *own)
{
    curl_easy_cleanup(own->easy);
    mh_free(own);
}

/* NULL: no memory. */
static handle *take_handle(mh_transport *self)
{
    handle *own = self->idle;
    if (own) {
        self->idle = own->next;
        self->idle_count--;
        return own;
    }
    own = mh_calloc(1, sizeof *own);
    if (!own)
        return NULL;
    own->transport = self;
    own->easy = curl_easy_init();
    if (own->easy && set_once(own))
        return own;
    free_handle(own);
    return NULL;
}

static void give_handle(mh_transport *self, handle *own)
{
    own->exchange = NULL;
    if (self->idle_count == self->options.connections) {
        free_handle(own);
        return;
    }
    own->next = self->idle;
    self->idle = own;
    self->idle_count++;
}

/* libcurl reads a list of headers where it is. False: there are too many. */
static bool set_headers(handle *own, const char *const *headers)
{
    size_t count = 0;
    for (; headers && headers[count]; count++) {
        if (count == MH_HEADERS_MOST)
            return false;
        own->headers[count].data = (char *)(uintptr_t)headers[count];
        own->headers[count].next = NULL;
        if (count)
            own->headers[count - 1].next = &own->headers[count];
    }
    return curl_easy_setopt(own->easy, CURLOPT_HTTPHEADER, count ? own->headers : NULL) == CURLE_OK;
}

static bool set_request(CURL *easy, const mh_exchange *exchange)
{
    char range[64] = "";
    bool post = strcmp(exchange->method, "POST") == 0 || strcmp(exchange->method, "PUT") == 0;
    bool head = strcmp(exchange->method, "HEAD") == 0;
    const char *method = post ? exchange->method : NULL;
    if (exchange->ranged)
        (void)snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)exchange->first,
                       (unsigned long long)(exchange->first + exchange->room - 1));
    return curl_easy_setopt(easy, CURLOPT_URL, exchange->url) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L) == CURLE_OK &&
           (!post || curl_easy_setopt(easy, CURLOPT_COPYPOSTFIELDS,
                                      exchange->body ? exchange->body : "") == CURLE_OK) &&
           curl_easy_setopt(easy, CURLOPT_NOBODY, head ? 1L : 0L) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_RANGE, exchange->ranged ? range : NULL) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_NOPROXY, exchange->direct ? "*" : NULL) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, exchange->problem) == CURLE_OK;
}

static void link_active(mh_transport *self, mh_exchange *exchange)
{
    exchange->previous = NULL;
    exchange->next = self->active;
    if (self->active)
        self->active->previous = exchange;
    self->active = exchange;
}

/* Takes the exchange out of everything; nobody has been told. */
static void release(mh_transport *self, mh_exchange *exchange)
{
    handle *own = exchange->own;
    exchange->own = NULL;
    (void)curl_multi_remove_handle(self->multi, own->easy);
    give_handle(self, own);
    if (exchange->previous)
        exchange->previous->next = exchange->next;
    else
        self->active = exchange->next;
    if (exchange->next)
        exchange->next->previous = exchange->previous;
}

static void finish(mh_transport *self, mh_exchange *exchange, mh_outcome outcome)
{
    if (exchange->outcome == MH_OUTCOME_ANSWERED)
        exchange->outcome = outcome;
    exchange->ended_ns = mh_clock_ns();
    if (exchange->outcome == MH_OUTCOME_ANSWERED)
        self->answered_ns = exchange->ended_ns;
    release(self, exchange);
    self->owner_due_ns = 0;
    exchange->done(exchange);
}

static void transport_begin(mh_transport *self, mh_exchange *exchange)
{
    handle *own = take_handle(self);
    forget_answer(exchange);
    exchange->outcome = MH_OUTCOME_ANSWERED;
    exchange->status = 0;
    exchange->problem[0] = '\0';
    exchange->began_ns = exchange->marked_ns = mh_clock_ns();
    exchange->first_byte_ns = exchange->ended_ns = exchange->marked_came = 0;
    if (!own) {
        exchange->outcome = MH_OUTCOME_FAILED;
        (void)snprintf(exchange->problem, sizeof exchange->problem, "no memory for a request");
        self->owner_due_ns = 0;
        exchange->done(exchange);
        return;
    }
    exchange->own = own;
    own->exchange = exchange;
    link_active(self, exchange);
    if (!set_headers(own, exchange->headers) || !set_request(own->easy, exchange) ||
        curl_multi_add_handle(self->multi, own->easy) != CURLM_OK) {
        (void)snprintf(exchange->problem, sizeof exchange->problem, "the request cannot be made");
        finish(self, exchange, MH_OUTCOME_FAILED);
    }
}

static void transport_cancel(mh_transport *self, mh_exchange *exchange)
{
    release(self, exchange);
}

/* --- how it ended --- */

static mh_outcome outcome_of(const mh_exchange *exchange, CURLcode code)
{
    switch (code) {
    case CURLE_OK:
        return MH_OUTCOME_ANSWERED;
    case CURLE_WRITE_ERROR: /* on_data ended it, and said why if that is not good */
        return exchange->came == exchange->room ? MH_OUTCOME_ANSWERED : MH_OUTCOME_FAILED;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
        return MH_OUTCOME_UNTRUSTED;
    case CURLE_OPERATION_TIMEDOUT:
        return MH_OUTCOME_SILENT;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
        return MH_OUTCOME_NO_SERVER;
    case CURLE_URL_MALFORMAT:
    case CURLE_OUT_OF_MEMORY:
        return MH_OUTCOME_FAILED;
    default: /* reset, cut, an answer that is no HTTP ("unsupported protocol") */
        return MH_OUTCOME_CUT;
    }
}

/* A proxy does not want to connect us, and says so. */
static bool is_tunnel_refused(CURL *easy, CURLcode code)
{
    long answered = 0;
    return code != CURLE_OK &&
           curl_easy_getinfo(easy, CURLINFO_HTTP_CONNECTCODE, &answered) == CURLE_OK &&
           answered >= 300;
}

static void take_ended(mh_transport *self)
{
    int left;
    for (CURLMsg *message; (message = curl_multi_info_read(self->multi, &left));) {
        char *private = NULL;
        CURLcode code = message->data.result;
        if (message->msg != CURLMSG_DONE ||
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &private) != CURLE_OK ||
            !private)
            continue;
        mh_exchange *exchange = ((handle *)(void *)private)->exchange;
        if (code != CURLE_OK && !*exchange->problem)
            (void)snprintf(exchange->problem, sizeof exchange->problem, "%s",
                           curl_easy_strerror(code));
        finish(self, exchange,
               is_tunnel_refused(message->easy_handle, code) ? MH_OUTCOME_NO_SERVER
                                                             : outcome_of(exchange, code));
    }
}

/* No first byte, or too little since the last mark. A server that answers others meanwhile is slow,
 * not silent: whoever comes back to it stands at the end of its queue again. */
static bool is_silent(const mh_transport *self, mh_exchange *exchange, uint64_t now)
{
    const mh_transport_options *o = &self->options;
    if (!exchange->first_byte_ns) {
        uint64_t began = exchange->began_ns;
        uint64_t since = self->answered_ns > began ? self->answered_ns : began;
        return now - since > (uint64_t)o->first_byte_ms * 1000000u ||
               now - began > (uint64_t)o->queue_ms * 1000000u;
    }
    uint64_t window = (uint64_t)o->stall_ms * 1000000u;
    if (now - exchange->marked_ns < window)
        return false;
    bool silent = exchange->came + exchange->text_size - exchange->marked_came <
                  (uint64_t)LEAST_BYTES_PER_S * o->stall_ms / 1000u;
    exchange->marked_ns = now;
    exchange->marked_came = exchange->came + exchange->text_size;
    return silent;
}

static void end_silent(mh_transport *self, uint64_t now)
{
    for (mh_exchange *exchange = self->active, *next; exchange; exchange = next) {
        next = exchange->next;
        if (is_silent(self, exchange, now)) {
            finish(self, exchange, MH_OUTCOME_SILENT);
            next = self->active; /* its `done` may have changed the list */
        }
    }
}

/* --- the loop --- */

/* A connection between two exchanges stays watched as it is: most go on the same way, and every
 * change is a system call. Any other descriptor, and a connection that is not made yet, may be
 * closed next without a call of on_close_socket. */
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *argument, void *known)
{
    mh_transport *self = argument;
    (void)easy;
    (void)known;
    if (what != CURL_POLL_REMOVE) {
        watch(self, fd,
              (what != CURL_POLL_OUT ? EPOLLIN : 0u) | (what != CURL_POLL_IN ? EPOLLOUT : 0u));
    } else if (watched_grow(self, (size_t)fd)) {
        if ((self->watched[fd] & (CONNECTION | EPOLLOUT)) == CONNECTION)
            self->watched[fd] &= (uint8_t)~IN_USE;
        else
            watch(self, fd, 0);
    }
    return 0;
}

static int on_timer(CURLM *multi, long timeout_ms, void *argument)
{
    mh_transport *self = argument;
    (void)multi;
    self->curl_due_ns = timeout_ms < 0    ? UINT64_MAX
                        : timeout_ms == 0 ? 0
                                          : mh_clock_ns() + (uint64_t)timeout_ms * 1000000u;
    return 0;
}

static int wait_ms(const mh_transport *self, uint64_t now)
{
    uint64_t due = self->curl_due_ns < self->owner_due_ns ? self->curl_due_ns : self->owner_due_ns;
    if (self->active && self->look_ns < due)
        due = self->look_ns;
    if (due == UINT64_MAX)
        return -1;
    return due <= now ? 0 : (int)((due - now) / 1000000u + 1);
}

static void on_events(mh_transport *self, const struct epoll_event *events, int count)
{
    int running;
    for (int i = 0; i < count; i++) {
        uint32_t seen = events[i].events;
        if (events[i].data.fd == self->wakeup) {
            uint64_t times;
            (void)!read(self->wakeup, &times, sizeof times);
            self->owner_due_ns = 0;
            continue;
        }
        if (!(self->watched[events[i].data.fd] & IN_USE)) { /* the server closes it, or it waits */
            watch(self, events[i].data.fd, 0);
            continue;
        }
        int mask = (seen & (EPOLLIN | EPOLLHUP) ? CURL_CSELECT_IN : 0) |
                   (seen & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                   (seen & EPOLLERR ? CURL_CSELECT_ERR : 0);
        (void)curl_multi_socket_action(self->multi, events[i].data.fd, mask, &running);
    }
}

/* All that is due now. */
static void work(mh_transport *self)
{
    int running;
    uint64_t now = mh_clock_ns();
    if (self->curl_due_ns <= now) {
        self->curl_due_ns = UINT64_MAX;
        (void)curl_multi_socket_action(self->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
    take_ended(self);
    if (self->active && self->look_ns <= now) {
        self->look_ns = now + LOOK_NS;
        end_silent(self, mh_clock_ns()); /* some began and ended since `now` */
    }
    if (self->owner_due_ns <= now)
        self->owner_due_ns = self->options.run(self->options.context, now);
}

static void *transport_thread(void *argument)
{
    mh_transport *self = argument;
    struct epoll_event events[EVENTS_MOST];
    while (!atomic_load(&self->stop)) {
        int count = epoll_wait(self->epoll, events, EVENTS_MOST, wait_ms(self, mh_clock_ns()));
        if (count > 0)
            on_events(self, events, count);
        work(self);
        if (self->curl_due_ns == 0) /* requests that just began are sent before the next wait */
            work(self);
    }
    while (self->active)
        release(self, self->active);
    return NULL;
}

/* --- opening and closing --- */

static void transport_wake(mh_transport *self)
{
    uint64_t one = 1;
    (void)!write(self->wakeup, &one, sizeof one);
}

static void transport_close(mh_transport *self)
{
    atomic_store(&self->stop, true);
    if (self->wakeup >= 0)
        transport_wake(self);
    mh_thread_join(&self->thread);
    for (handle *own = self->idle, *next; own; own = next) {
        next = own->next;
        free_handle(own);
    }
    if (self->multi)
        (void)curl_multi_cleanup(self->multi);
    if (self->epoll >= 0)
        close(self->epoll);
    if (self->wakeup >= 0)
        close(self->wakeup);
    mh_free(self->watched);
    mh_free(self);
}

static bool set_multi(mh_transport *self)
{
    CURLM *multi = self->multi;
    return multi && curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, on_socket) == CURLM_OK &&
           curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, self) == CURLM_OK &&
           curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, on_timer) == CURLM_OK &&
           curl_multi_setopt(multi, CURLMOPT_TIMERDATA, self) == CURLM_OK &&
           curl_multi_setopt(multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING) == CURLM_OK &&
           curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)self->options.connections) ==
               CURLM_OK;
}

static mh_status transport_open(mh_transport **out, const mh_transport_options *options,
                                mh_error *err)
{
    if (!mh_net_begin())
        return mh_fail(err, MH_ERR_NOMEM, "libcurl does not start");
    mh_transport *self = mh_calloc(1, sizeof *self);
    if (!self)
        return mh_fail(err, MH_ERR_NOMEM, "no memory to read addresses");
    self->options = *options;
    self->curl_due_ns = self->owner_due_ns = UINT64_MAX;
    self->multi = curl_multi_init();
    self->epoll = epoll_create1(EPOLL_CLOEXEC);
    self->wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    mh_net_find_ca(self->ca_file, sizeof self->ca_file, options->ca_file);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = self->wakeup};
    mh_status status = MH_OK;
    if (self->epoll < 0 || self->wakeup < 0 ||
        epoll_ctl(self->epoll, EPOLL_CTL_ADD, self->wakeup, &event) < 0)
        status = mh_fail_sys(err, MH_ERR_IO, errno, "cannot wait for a network: raise ulimit -n");
    else if (!set_multi(self))
        status = mh_fail(err, MH_ERR_NOMEM, "no memory to read addresses");
    else
        status = mh_thread_start(&self->thread, "millhead-net", transport_thread, self, err);
    if (status != MH_OK) {
        transport_close(self);
        return status;
    }
    *out = self;
    return MH_OK;
}

const mh_transport_type mh_transport_curl = {
    .open = transport_open,
    .wake = transport_wake,
    .begin = transport_begin,
    .cancel = transport_cancel,
    .close = transport_close,
};
