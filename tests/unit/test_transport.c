/* test_transport.c - exchanges with a server of the test's own
 * SPDX-License-Identifier: Apache-2.0
 */
#include "unit.h"

#include "base/error.h"
#include "source/net_transport.h"
#include "sys/clock.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#define MS UINT64_C(1000000)

/* What the transport's owner does, one step at a time, on the transport's thread. */
typedef struct owner {
    mh_transport *_Atomic transport;
    mh_exchange exchange; /* of the request under way */
    char deaf_url[64], live_url[64], body[8];
    mh_segment segment;
    unsigned turn;
    uint64_t due_ns;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool over;
} owner;

static int listening(uint16_t *port, int backlog)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, backlog), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

/* Connections that nobody accepts: then later ones are not even made. */
static void fill(uint16_t port, int fds[8])
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 0; i < 8; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)connect(fds[i], (const struct sockaddr *)&address, sizeof address);
    }
}

/* Answers one request. */
static void *serve(void *argument)
{
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    char request[4096];
    int listener = *(const int *)argument, fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0 && recv(fd, request, sizeof request, 0) > 0)
        (void)send(fd, answer, sizeof answer - 1, MSG_NOSIGNAL);
    if (fd >= 0)
        close(fd);
    return NULL;
}

static void done(mh_exchange *exchange)
{
    owner *self = exchange->context;
    pthread_mutex_lock(&self->lock);
    self->over = true;
    pthread_cond_signal(&self->ended);
    pthread_mutex_unlock(&self->lock);
}

static void ask(owner *self, const char *url)
{
    self->segment = (mh_segment){0, sizeof self->body, (uint8_t *)self->body};
    self->exchange = (mh_exchange){.method = "GET",
                                   .url = url,
                                   .room = sizeof self->body,
                                   .segments = &self->segment,
                                   .segment_count = 1,
                                   .done = done,
                                   .context = self};
    mh_transport_curl.begin(self->transport, &self->exchange);
}

/* First a request whose connection is never made; it is given up for one to the other server. */
static uint64_t run(void *context, uint64_t now)
{
    owner *self = context;
    if (!self->transport || self->turn > 1 || now < self->due_ns)
        return self->turn > 1 ? UINT64_MAX : self->due_ns;
    if (self->turn++ == 0) {
        ask(self, self->deaf_url);
        self->due_ns = now + 300 * MS;
        return self->due_ns;
    }
    mh_transport_curl.cancel(self->transport, &self->exchange);
    ask(self, self->live_url);
    return UINT64_MAX;
}

static bool wait_over(owner *self, unsigned seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += seconds;
    pthread_mutex_lock(&self->lock);
    while (!self->over && pthread_cond_timedwait(&self->ended, &self->lock, &until) == 0)
        continue;
    bool over = self->over;
    pthread_mutex_unlock(&self->lock);
    return over;
}

/* Its descriptor has the number of the connection that was given up. */
static void a_connection_after_one_that_was_never_made_is_noticed(void **state)
{
    owner self = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};
    const mh_transport_options options = {.connections = 4,
                                          .connect_ms = 30000,
                                          .first_byte_ms = 30000,
                                          .queue_ms = 30000,
                                          .stall_ms = 30000,
                                          .run = run,
                                          .context = &self};
    uint16_t deaf_port, live_port;
    int fds[8], deaf = listening(&deaf_port, 0), live = listening(&live_port, 8);
    mh_transport *transport = NULL;
    pthread_t server;
    mh_error err;
    (void)state;
    fill(deaf_port, fds);
    (void)snprintf(self.deaf_url, sizeof self.deaf_url, "http://127.0.0.1:%u/", deaf_port);
    (void)snprintf(self.live_url, sizeof self.live_url, "http://127.0.0.1:%u/", live_port);
    assert_int_equal(pthread_create(&server, NULL, serve, &live), 0);
    assert_int_equal(mh_transport_curl.open(&transport, &options, &err), MH_OK);
    self.transport = transport;
    mh_transport_curl.wake(transport);
    bool over = wait_over(&self, 10);
    mh_transport_curl.close(transport);
    (void)shutdown(live, SHUT_RDWR);
    pthread_join(server, NULL);
    assert_true(over);
    assert_int_equal(self.exchange.outcome, MH_OUTCOME_ANSWERED);
    assert_int_equal(self.exchange.came, 2);
    assert_memory_equal(self.body, "ok", 2);
    for (int i = 0; i < 8; i++)
        close(fds[i]);
    close(deaf);
    close(live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_after_one_that_was_never_made_is_noticed),
    };
    (void)unsetenv("http_proxy");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
