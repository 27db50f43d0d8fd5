/* net.c - finds libmillhead-net.so and opens it
 * SPDX-License-Identifier: Apache-2.0
 */
#include "source/net.h"

#include "base/error.h"
#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <mh_config.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NAME "libmillhead-net.so"

static struct {
    pthread_once_t once;
    const mh_net *table; /* NULL: `problem` says why */
    mh_error problem;
} net = {.once = PTHREAD_ONCE_INIT};

static void refuse(int number, const char *message, const char *detail)
{
    (void)mh_fail(&net.problem, MH_ERR_UNSUPPORTED, message, detail);
    net.problem.sys_errno = number;
}

#if MH_HAVE_CURL
/* The directory of the file that this code is in: a library, an extension module or a program. */
static bool own_directory(char out[PATH_MAX])
{
    Dl_info info;
    void *found = NULL;
    if (!dladdr1(&net, &info, &found, RTLD_DL_LINKMAP) || !found)
        return false;
    const struct link_map *map = found;
    (void)snprintf(out, PATH_MAX, "%s", map->l_name);
    if (!*out) { /* the program itself */
        ssize_t length = readlink("/proc/self/exe", out, PATH_MAX - 1);
        out[length > 0 ? length : 0] = '\0';
    }
    char *slash = strrchr(out, '/');
    if (slash)
        *slash = '\0';
    return slash != NULL;
}

/* A pattern that only the directory itself matches. */
static void escape(char out[2 * PATH_MAX], const char *directory)
{
    for (; *directory; directory++) {
        if (strchr("*?[\\", *directory))
            *out++ = '\\';
        *out++ = *directory;
    }
    *out = '\0';
}

/* Beside that file or, for the command of a wheel, in the package that was installed with it. */
static bool find(char out[PATH_MAX])
{
    static const char *const places[] = {
        "/",
        "/../lib/python3*/site-packages/millhead/",
        "/../lib/python3*/dist-packages/millhead/",
        "/../millhead/",
    };
    char own[PATH_MAX], escaped[2 * PATH_MAX], pattern[2 * PATH_MAX + 64];
    bool there = false;
    if (!own_directory(own))
        return false;
    escape(escaped, own);
    for (size_t at = 0; at < sizeof places / sizeof *places && !there; at++) {
        glob_t matches = {0};
        (void)snprintf(pattern, sizeof pattern, "%s%s" NAME, escaped, places[at]);
        there = glob(pattern, 0, NULL, &matches) == 0 && matches.gl_pathc > 0;
        if (there)
            (void)snprintf(out, PATH_MAX, "%s", matches.gl_pathv[0]);
        globfree(&matches);
    }
    return there;
}

static void load(void)
{
    char path[PATH_MAX];
    void *library = dlopen(find(path) ? path : NAME, RTLD_NOW | RTLD_LOCAL);
    const char *why = library ? NULL : dlerror();
    if (why && strstr(why, "libcurl")) {
        refuse(ENOPKG, "reading URLs needs libcurl, which cannot be loaded: %.300s", why);
    } else if (why) {
        refuse(ELIBACC, "reading URLs needs " NAME ", which cannot be loaded: %.300s", why);
    } else {
        const mh_net *table = dlsym(library, "mh_net_curl");
        if (table && table->version == MH_NET_VERSION)
            net.table = table;
        else
            refuse(ELIBACC, "%s is of another version", NAME);
    }
}
#else
static void load(void)
{
    refuse(ENOSYS, "this build cannot read URLs: it was built without %s", "libcurl");
}
#endif

const mh_net *mh_net_load(mh_error *err)
{
    (void)pthread_once(&net.once, load);
    if (!net.table && err)
        *err = net.problem;
    return net.table;
}
