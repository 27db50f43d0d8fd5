/* curl_stub.c - stands for libcurl while the network library of a wheel is linked
 * SPDX-License-Identifier: Apache-2.0
 *
 * Debian's libcurl gives its functions a version, and whatever is linked to it asks for that one
 * everywhere. Other systems have no versions, or others. What is linked to this stub, which has the
 * same name, asks for the functions alone. It is never installed.
 */
#define STUB(name)                                                                                 \
    void name(void);                                                                               \
    void name(void)                                                                                \
    {                                                                                              \
    }

STUB(curl_easy_cleanup)
STUB(curl_easy_getinfo)
STUB(curl_easy_init)
STUB(curl_easy_perform)
STUB(curl_easy_setopt)
STUB(curl_easy_strerror)
STUB(curl_global_init)
STUB(curl_version_info)
