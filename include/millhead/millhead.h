/* millhead.h - the whole public C API
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MILLHEAD_MILLHEAD_H
#define MILLHEAD_MILLHEAD_H

#include <millhead/diagnose.h>
#include <millhead/error.h>
#include <millhead/page.h>
#include <millhead/plan.h>
#include <millhead/probe.h>
#include <millhead/report.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version this library was built as ("0.1.0"). Static memory, never NULL. Any thread. */
MH_API const char *mh_version(void);

#ifdef __cplusplus
}
#endif
#endif
