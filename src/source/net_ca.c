/* net_ca.c - libmillhead-net.so: where the certificates are that servers are checked against
 * SPDX-License-Identifier: Apache-2.0
 *
 * The library may come from another machine than this one, whose certificates lie elsewhere.
 */
#include "source/net_transport.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool take(char *out, size_t room, const char *path)
{
    if (!path || !*path || access(path, R_OK) != 0 || strlen(path) >= room)
        return false;
    memcpy(out, path, strlen(path) + 1);
    return true;
}

/* In a wheel the library lies in site-packages/millhead. */
static bool take_certifi(char *out, size_t room)
{
    Dl_info info;
    char path[PATH_MAX];
    if (!dladdr(&mh_transport_curl, &info) || !info.dli_fname)
        return false;
    const char *slash = strrchr(info.dli_fname, '/');
    int length = snprintf(path, sizeof path, "%.*s/../certifi/cacert.pem",
                          slash ? (int)(slash - info.dli_fname) : 0, info.dli_fname);
    return slash && length < (int)sizeof path && take(out, room, path);
}

void mh_net_find_ca(char *out, size_t room, const char *given)
{
    static const char *const places[] = {
        "/etc/ssl/certs/ca-certificates.crt", /* Debian, Ubuntu, Arch, Gentoo */
        "/etc/pki/tls/certs/ca-bundle.crt",   /* Fedora, RHEL */
        "/etc/ssl/ca-bundle.pem",             /* SUSE */
        "/etc/ssl/cert.pem",                  /* Alpine */
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    };
    out[0] = '\0';
    if (given && *given) { /* as it is: a wrong one must not be passed over in silence */
        (void)snprintf(out, room, "%s", given);
        return;
    }
    const char *environment = getenv("SSL_CERT_FILE");
    if (environment && *environment) {
        (void)snprintf(out, room, "%s", environment);
        return;
    }
    for (size_t at = 0; at < sizeof places / sizeof *places; at++)
        if (take(out, room, places[at]))
            return;
    (void)take_certifi(out, room);
}
