/* transport.h - HTTP exchanges, hundreds at a time, on one I/O thread
 * SPDX-License-Identifier: Apache-2.0
 *
 * A transport does one thing: it sends requests and hands back answers. What to ask, when to ask
 * again and what to make of an answer is its owner's (remote.c), which the transport calls on its
 * own thread. So the owner needs no lock for what only these calls touch, and tests can put a
 * transport of their own below it.
 */
#ifndef MH_SOURCE_TRANSPORT_H
#define MH_SOURCE_TRANSPORT_H

#include <millhead/error.h>
#include <stdbool.h>

#define MH_URL_ROOM 8192 /* of a whole URL; a key of S3 may triple when it is encoded */
#define MH_ETAG_ROOM 128
#define MH_HEADERS_MOST 9     /* of one request, besides those that every request has */
#define MH_EXCHANGE_TEXT 1024 /* kept of an answer that is no success */

/* Where some of the bytes of an answer go; bytes between segments are thrown away. */
typedef struct mh_segment {
    uint64_t from; /* counted from the first byte that was asked for */
    uint64_t size;
    uint8_t *into;
} mh_segment;

typedef enum mh_outcome {
    MH_OUTCOME_ANSWERED,   /* to the end, whatever the status is */
    MH_OUTCOME_CUT,        /* the connection ended before the answer did */
    MH_OUTCOME_NO_SERVER,  /* no connection: unknown host, nobody listens */
    MH_OUTCOME_UNTRUSTED,  /* the server's certificate does not verify */
    MH_OUTCOME_SILENT,     /* no connection, no first byte or no progress in time */
    MH_OUTCOME_LINK_LOCAL, /* the address is of a kind that nobody asked for */
    MH_OUTCOME_UNRANGED,   /* the whole object comes, not the range that was asked for */
    MH_OUTCOME_TOO_LONG,   /* more bytes come than were asked for */
    MH_OUTCOME_FAILED,     /* anything else: no memory, a malformed URL */
} mh_outcome;

typedef struct mh_exchange mh_exchange;

/* One request and its answer. The owner's memory; what the request points to stays until it is
 * over. */
struct mh_exchange {
    /* --- the request --- */
    const char *method; /* "GET", "HEAD", "PUT", "POST" */
    const char *url;
    const char *const *headers; /* "Name: value", at most MH_HEADERS_MOST, then NULL; or NULL */
    const char *body;           /* of PUT and POST; NULL: empty */
    bool ranged;     /* bytes first .. first + room - 1, else the object from its start */
    bool link_local; /* addresses such as 169.254.169.254 may be asked */
    bool direct;     /* past any proxy, which would answer for another machine */
    uint64_t first;
    uint64_t room;              /* more bytes than that are not taken */
    const mh_segment *segments; /* by `from`, none overlaps another */
    size_t segment_count;
    void (*done)(mh_exchange *exchange); /* on the I/O thread, once; then it is the owner's again */
    void *context;

    /* --- the answer --- */
    mh_outcome outcome;
    int status;                      /* 0: none came */
    uint64_t came;                   /* bytes of the body of a success */
    uint64_t total;                  /* of the object; UINT64_MAX: not told */
    uint64_t range_first;            /* of Content-Range; UINT64_MAX: none */
    uint32_t retry_after_s;          /* 0: not told */
    bool encoded;                    /* Content-Encoding: not the object's own bytes */
    char etag[MH_ETAG_ROOM];         /* "": none */
    char modified[64];               /* Last-Modified; "": none */
    char location[2048];             /* of a redirect; "": none */
    char region[64];                 /* x-amz-bucket-region; "": none */
    char text[MH_EXCHANGE_TEXT + 1]; /* the beginning of what comes with an error */
    size_t text_size;
    char problem[256]; /* in the words of the library below, with secrets perhaps */
    uint64_t began_ns, first_byte_ns, ended_ns;

    /* --- the transport's --- */
    void *own;
    mh_exchange *next, *previous;
    size_t segment; /* the one that is filled */
    uint64_t marked_ns, marked_came;
};

typedef struct mh_transport mh_transport;

typedef struct mh_transport_options {
    uint32_t connections; /* that are kept open, at most */
    uint32_t connect_ms;
    uint32_t first_byte_ms; /* without an answer to anything: the server is silent */
    uint32_t queue_ms;      /* without a first byte while others are answered */
    uint32_t stall_ms;      /* an answer that brings less than 1 KiB/s for so long is over */
    const char *ca_file;    /* NULL or "": where this system has them */
    /* Called on the I/O thread after a wake, after exchanges that are done, and when the time it
     * gave last has come. Gives the next such time in ns of mh_clock_ns; UINT64_MAX: none. */
    uint64_t (*run)(void *context, uint64_t now_ns);
    void *context;
} mh_transport_options;

/* The functions of a transport, in libmillhead-net.so. */
typedef struct mh_transport_type {
    /* Starts the I/O thread. MH_ERR_NOMEM, MH_ERR_IO. */
    mh_status (*open)(mh_transport **out, const mh_transport_options *options, mh_error *err);
    void (*wake)(mh_transport *transport); /* any thread */
    /* These two on the I/O thread only. A cancelled exchange is the owner's at once: no `done`. */
    void (*begin)(mh_transport *transport, mh_exchange *exchange);
    void (*cancel)(mh_transport *transport, mh_exchange *exchange);
    /* Ends the thread; exchanges under way end without `done`. */
    void (*close)(mh_transport *transport);
} mh_transport_type;

#endif
