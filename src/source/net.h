/* net.h - what the core and libmillhead-net.so agree on
 * SPDX-License-Identifier: Apache-2.0
 *
 * Code that reads from a network lies in a library of its own, with the libraries that it needs, so
 * that the core needs libc, libm and threads only. The core opens it at the first address.
 */
#ifndef MH_SOURCE_NET_H
#define MH_SOURCE_NET_H

#include "source/http.h"
#include "source/transport.h"

/* One more whenever mh_net or the structs of http.h and transport.h change. */
#define MH_NET_VERSION 2

/* The functions behind those of http.h, which has the contract of each. Either library frees what
 * it has allocated itself. */
typedef struct mh_net {
    uint32_t version; /* MH_NET_VERSION; the first field of every version */
    mh_status (*open)(mh_http **out, const char *url, mh_error *err); /* of http or https */
    mh_status (*get)(mh_http *http, const mh_http_request *request, mh_http_answer *answer,
                     mh_error *err);
    const char *(*shown)(const mh_http *http);
    void (*close)(mh_http *http);
    const mh_transport_type *transport;
} mh_net;

/* All that libmillhead-net.so exports, by this name. */
MH_API extern const mh_net mh_net_curl;

/* The core's side: the library's functions, loaded at the first call. NULL: it cannot be loaded;
 * *err says why, as mh_http_open. Any thread. */
const mh_net *mh_net_load(mh_error *err);

#endif
