/* objects.c - libcurl alone: whole objects from a server, thrown away or copied to their places
 * SPDX-License-Identifier: Apache-2.0
 *
 *     objects PREFIX COUNT BYTES IN_FLIGHT drop|copy [CA_FILE]
 *
 * The requests of bench/objects.c by libcurl's multi interface and epoll, in one thread: without
 * signing, without repeats and time-outs, always with the same headers. Prints one JSON object.
 */
#include "../clock.h"

#include <curl/curl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define KEYS 2000u
#define BUFFER_BYTES 65536L
#define EVENTS_MOST 128
#define DESCRIPTORS_MOST 65536

typedef struct slot {
    CURL *easy;
    uint8_t *into;
    uint64_t came;
} slot;

static struct {
    CURLM *multi;
    int epoll;
    double due_s; /* when libcurl wants to be called; below 0: not */
    uint32_t watched[DESCRIPTORS_MOST];
    const char *prefix, *ca_file;
    struct curl_slist *headers;
    bool copy;
    uint64_t count, size, begun, over, bytes, failed;
} all = {.due_s = -1};

static size_t on_data(const char *data, size_t one, size_t count, void *argument)
{
    slot *self = argument;
    size_t size = one * count;
    if (all.copy && self->came + size <= all.size)
        memcpy(self->into + self->came, data, size);
    self->came += size;
    all.bytes += size;
    return size;
}

/* A connection between two objects stays watched. */
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *argument, void *known)
{
    uint32_t mask = (what != CURL_POLL_OUT ? (uint32_t)EPOLLIN : 0) |
                    (what != CURL_POLL_IN ? (uint32_t)EPOLLOUT : 0);
    struct epoll_event event = {.events = mask, .data.fd = fd};
    (void)easy;
    (void)argument;
    (void)known;
    if (what == CURL_POLL_REMOVE || all.watched[fd] == mask)
        return 0;
    (void)epoll_ctl(all.epoll, all.watched[fd] ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event);
    all.watched[fd] = mask;
    return 0;
}

static int on_close(void *argument, curl_socket_t fd)
{
    (void)argument;
    all.watched[fd] = 0;
    return close(fd);
}

static int on_timer(CURLM *multi, long timeout_ms, void *argument)
{
    (void)multi;
    (void)argument;
    all.due_s = timeout_ms < 0 ? -1 : now_s() + (double)timeout_ms * 1e-3;
    return 0;
}

static void set_up(slot *self)
{
    CURL *easy = self->easy = curl_easy_init();
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, BUFFER_BYTES);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, all.headers);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, self);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, self);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, on_close);
    if (all.ca_file)
        curl_easy_setopt(easy, CURLOPT_CAINFO, all.ca_file);
}

static void begin(slot *self)
{
    char url[512];
    (void)snprintf(url, sizeof url, "%s%06u.jpg", all.prefix, (unsigned)(all.begun++ % KEYS));
    self->came = 0;
    curl_easy_setopt(self->easy, CURLOPT_URL, url);
    curl_multi_add_handle(all.multi, self->easy);
}

static void take_ended(void)
{
    int left;
    for (CURLMsg *message; (message = curl_multi_info_read(all.multi, &left));) {
        char *private = NULL;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &private);
        slot *self = (slot *)(void *)private;
        all.over++;
        all.failed += message->data.result != CURLE_OK || self->came != all.size;
        curl_multi_remove_handle(all.multi, self->easy);
        if (all.begun < all.count)
            begin(self);
    }
}

static void run(void)
{
    struct epoll_event events[EVENTS_MOST];
    int running;
    while (all.over < all.count) {
        double left_ms = (all.due_s - now_s()) * 1e3;
        int count = epoll_wait(all.epoll, events, EVENTS_MOST,
                               all.due_s < 0  ? -1
                               : left_ms <= 0 ? 0
                                              : (int)left_ms + 1);
        for (int i = 0; i < count; i++) {
            uint32_t seen = events[i].events;
            int mask = (seen & (EPOLLIN | EPOLLHUP) ? CURL_CSELECT_IN : 0) |
                       (seen & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                       (seen & EPOLLERR ? CURL_CSELECT_ERR : 0);
            curl_multi_socket_action(all.multi, events[i].data.fd, mask, &running);
        }
        if (all.due_s >= 0 && all.due_s <= now_s()) {
            all.due_s = -1;
            curl_multi_socket_action(all.multi, CURL_SOCKET_TIMEOUT, 0, &running);
        }
        take_ended();
    }
}

int main(int argc, char **argv)
{
    static const char *const headers[] = {
        "x-amz-date: 20261119T221500Z",
        "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "Authorization: AWS4-HMAC-SHA256 Credential=AKIAMILLHEADTEST0001/20261119/us-east-1/s3/"
        "aws4_request, SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature="
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    };
    if (argc < 6)
        return 2;
    all.prefix = argv[1];
    all.count = strtoull(argv[2], NULL, 10);
    all.size = strtoull(argv[3], NULL, 10);
    all.copy = strcmp(argv[5], "copy") == 0;
    all.ca_file = argc > 6 ? argv[6] : NULL;
    size_t slots = strtoull(argv[4], NULL, 10);
    uint8_t *memory = malloc(slots * all.size);
    slot *slot_list = calloc(slots, sizeof *slot_list);
    if (!memory || !slot_list || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return 1;
    memset(memory, 1, slots * all.size);
    all.multi = curl_multi_init();
    all.epoll = epoll_create1(EPOLL_CLOEXEC);
    curl_multi_setopt(all.multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(all.multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(all.multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    curl_multi_setopt(all.multi, CURLMOPT_MAXCONNECTS, (long)slots);
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        all.headers = curl_slist_append(all.headers, headers[i]);
    double began = now_s(), cpu = cpu_s();
    for (size_t i = 0; i < slots && all.begun < all.count; i++) {
        slot_list[i].into = memory + i * all.size;
        set_up(&slot_list[i]);
        begin(&slot_list[i]);
    }
    run();
    double took = now_s() - began, used = cpu_s() - cpu;
    (void)printf("{\"rate\": %.1f, \"cpu_us\": %.2f, \"bytes\": %llu, \"failed\": %llu, "
                 "\"seconds\": %.3f}\n",
                 (double)all.count / took, used / (double)all.count * 1e6,
                 (unsigned long long)all.bytes, (unsigned long long)all.failed, took);
    return all.failed != 0;
}
