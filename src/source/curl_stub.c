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
STUB(curl_multi_add_handle)
STUB(curl_multi_assign)
STUB(curl_multi_cleanup)
STUB(curl_multi_info_read)
STUB(curl_multi_init)
STUB(curl_multi_remove_handle)
STUB(curl_multi_setopt)
STUB(curl_multi_socket_action)
STUB(curl_slist_append)
STUB(curl_slist_free_all)
STUB(curl_version_info)
