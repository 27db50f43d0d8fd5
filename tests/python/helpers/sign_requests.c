/* sign_requests.c - signs the requests of standard input, for comparison with botocore
 * SPDX-License-Identifier: Apache-2.0
 *
 * A request is fields with NUL behind each: method, host, path, region, seconds, key, secret,
 * token, the number of parameters, and their names and values. The answer is three lines: target,
 * date, authorization.
 */
#include "source/sigv4.h"

#include <stdio.h>
#include <stdlib.h>

static char *field(void)
{
    char *text = NULL;
    size_t room = 0;
    if (getdelim(&text, &room, '\0', stdin) < 0)
        exit(0);
    return text;
}

int main(void)
{
    static mh_sigv4_day day; /* one for all, as a client has it */
    for (;;) {
        mh_query_pair query[MH_QUERY_PAIRS_MOST];
        mh_sigv4_headers headers;
        char target[16384];
        mh_sigv4_request request = {.method = field(), .host = field(), .service = "s3"};
        const char *path = field();
        request.region = field();
        request.when = atoll(field());
        const char *key = field(), *secret = field();
        const mh_sigv4_keys keys = {key, secret, field()};
        size_t count = (size_t)atoi(field());
        for (size_t i = 0; i < count; i++) {
            query[i].name = field();
            query[i].value = field();
        }
        request.target = target;
        if (!mh_sigv4_target(target, sizeof target, path, query, count) ||
            !mh_sigv4_sign(&headers, &day, &request, &keys))
            return 1;
        (void)printf("%s\n%s\n%s\n", target, headers.date, headers.authorization);
    }
}
