/* net_transport.h - what the files of libmillhead-net.so share
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_SOURCE_NET_TRANSPORT_H
#define MH_SOURCE_NET_TRANSPORT_H

#include "source/transport.h"

extern const mh_transport_type mh_transport_curl;

/* Starts libcurl, once. False: it does not start. Any thread. */
bool mh_net_begin(void);

/* The file of certificates that servers are checked against: `given`, or SSL_CERT_FILE, or where
 * systems have it, or Python's certifi beside this library. "": libcurl's own. */
void mh_net_find_ca(char *out, size_t room, const char *given);

#endif
