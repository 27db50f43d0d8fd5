/* delay.c - a link that is slow to answer: what a server sends reaches the client later
 * SPDX-License-Identifier: Apache-2.0
 *
 *     delay PORT SERVER_PORT MILLISECONDS COUNTS
 *
 * Listens on PORT of loopback and passes everything on to SERVER_PORT. Requests go at once, answers
 * after MILLISECONDS; nothing is slower otherwise. The file COUNTS holds two 64-bit numbers, of
 * this machine's byte order: requests so far, bytes sent to clients so far.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CHUNK_BYTES (256u << 10)
#define PAIRS_MOST 4096u
#define EVENTS_MOST 64

/* Bytes of an answer on their way. */
typedef struct chunk {
    struct chunk *next;
    uint64_t due_ns;
    size_t size, sent;
    char bytes[];
} chunk;

typedef struct pair {
    int client, server;
    chunk *first, *last;
    bool ended; /* the server sends nothing more */
} pair;

static struct {
    pair *pairs[PAIRS_MOST];
    size_t count;
    int epoll, listener, server_port;
    uint64_t delay_ns;
    uint64_t *counts; /* requests, bytes */
} path;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int fail(const char *what)
{
    perror(what);
    return 1;
}

static void watch(int fd, void *tag)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = tag};
    if (epoll_ctl(path.epoll, EPOLL_CTL_ADD, fd, &event) < 0)
        exit(fail("epoll_ctl"));
}

static void open_pair(void)
{
    int one = 1, client = accept4(path.listener, NULL, NULL, SOCK_CLOEXEC);
    int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)path.server_port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    pair *made = calloc(1, sizeof *made);
    if (client < 0 || server < 0 || !made || path.count == PAIRS_MOST ||
        connect(server, (struct sockaddr *)&to, sizeof to) < 0)
        exit(fail("a connection"));
    (void)setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    (void)setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    made->client = client;
    made->server = server;
    path.pairs[path.count++] = made;
    watch(client, made);
    watch(server, (void *)((uintptr_t)made | 1)); /* the lowest bit tells the two ends apart */
}

static void close_pair(size_t at)
{
    pair *gone = path.pairs[at];
    close(gone->client);
    close(gone->server);
    for (chunk *next; gone->first; gone->first = next) {
        next = gone->first->next;
        free(gone->first);
    }
    free(gone);
    path.pairs[at] = path.pairs[--path.count];
}

/* False: the client has gone. */
static bool pass_request(const pair *of)
{
    static char bytes[CHUNK_BYTES];
    ssize_t size = recv(of->client, bytes, sizeof bytes, MSG_DONTWAIT);
    if (size <= 0)
        return size < 0 && errno == EAGAIN;
    if (size > 4 && (memcmp(bytes, "GET ", 4) == 0 || memcmp(bytes, "HEAD", 4) == 0))
        path.counts[0]++;
    return send(of->server, bytes, (size_t)size, MSG_NOSIGNAL) == size;
}

static void take_answer(pair *of)
{
    chunk *came = malloc(sizeof *came + CHUNK_BYTES);
    ssize_t size = came ? recv(of->server, came->bytes, CHUNK_BYTES, MSG_DONTWAIT) : -1;
    if (size <= 0) {
        free(came);
        of->ended = size == 0 || errno != EAGAIN;
        if (of->ended)
            (void)epoll_ctl(path.epoll, EPOLL_CTL_DEL, of->server, NULL);
        return;
    }
    chunk *fits = realloc(came, sizeof *came + (size_t)size);
    came = fits ? fits : came;
    came->next = NULL;
    came->due_ns = now_ns() + path.delay_ns;
    came->size = (size_t)size;
    came->sent = 0;
    if (of->first)
        of->last->next = came;
    else
        of->first = came;
    of->last = came;
}

/* Sends what is due. False: the client has gone. *next_ns: when there is more to do. */
static bool send_due(pair *of, uint64_t now, uint64_t *next_ns)
{
    while (of->first && of->first->due_ns <= now) {
        chunk *at = of->first;
        ssize_t sent = send(of->client, at->bytes + at->sent, at->size - at->sent,
                            MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN)
            return false;
        if (sent > 0) {
            at->sent += (size_t)sent;
            path.counts[1] += (uint64_t)sent;
        }
        if (at->sent < at->size) { /* its buffer is full */
            *next_ns = now + 1000000u < *next_ns ? now + 1000000u : *next_ns;
            return true;
        }
        of->first = at->next;
        free(at);
    }
    if (of->first && of->first->due_ns < *next_ns)
        *next_ns = of->first->due_ns;
    return of->first || !of->ended;
}

/* Waits until then at most; UINT64_MAX: for ever. */
static void take_events(uint64_t until_ns)
{
    struct epoll_event events[EVENTS_MOST];
    uint64_t now = now_ns(), left = until_ns > now ? until_ns - now : 0;
    struct timespec timeout = {(time_t)(left / 1000000000u), (long)(left % 1000000000u)};
    int count = epoll_pwait2(path.epoll, events, EVENTS_MOST,
                             until_ns == UINT64_MAX ? NULL : &timeout, NULL);
    for (int i = 0; i < count; i++) {
        uintptr_t tag = (uintptr_t)events[i].data.ptr;
        pair *of = (pair *)(tag & ~(uintptr_t)1);
        if (!of)
            open_pair();
        else if (tag & 1)
            take_answer(of);
        else if (!pass_request(of)) { /* both ends go, in the loop that looks after pairs */
            (void)epoll_ctl(path.epoll, EPOLL_CTL_DEL, of->client, NULL);
            (void)shutdown(of->client, SHUT_RDWR);
            (void)shutdown(of->server, SHUT_RDWR);
        }
    }
}

static void run(void)
{
    for (;;) {
        uint64_t now = now_ns(), next_ns = UINT64_MAX;
        for (size_t at = 0; at < path.count;)
            if (send_due(path.pairs[at], now, &next_ns))
                at++;
            else
                close_pair(at);
        take_events(next_ns);
    }
}

int main(int count, char **words)
{
    if (count != 5) {
        (void)fprintf(stderr, "usage: delay PORT SERVER_PORT MILLISECONDS COUNTS\n");
        return 2;
    }
    int one = 1, file = open(words[4], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)atoi(words[1])),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (file < 0 || ftruncate(file, 16) < 0)
        return fail(words[4]);
    path.counts = mmap(NULL, 16, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    path.server_port = atoi(words[2]);
    path.delay_ns = (uint64_t)(atof(words[3]) * 1e6);
    path.epoll = epoll_create1(EPOLL_CLOEXEC);
    path.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)setsockopt(path.listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (path.counts == MAP_FAILED || path.epoll < 0 ||
        bind(path.listener, (struct sockaddr *)&at, sizeof at) < 0 ||
        listen(path.listener, 1024) < 0)
        return fail("delay");
    watch(path.listener, NULL);
    run();
    return 0;
}
