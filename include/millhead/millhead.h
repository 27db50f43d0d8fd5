/* millhead.h - the whole public C API
 * SPDX-License-Identifier: Apache-2.0
 *
 * A struct whose first field is struct_size may get new fields at its end. Fill it with its _init
 * function before anything else: that writes the size the program was compiled with, by the
 * _init_sized function that other languages call. So a program and a library of different versions
 * understand each other. Fields that the program does not know have their defaults. Fields that it
 * sets and the library does not know are refused with MH_ERR_UNSUPPORTED. A size below that of the
 * first version, 0 for example, is MH_ERR_INVALID, and the message names the _init function.
 * All other structs, those inside the former too, stay as they are while the library's name ends in
 * .so.0; arrays say below how they are read.
 */
#ifndef MILLHEAD_MILLHEAD_H
#define MILLHEAD_MILLHEAD_H

#include <millhead/dataset.h>
#include <millhead/diagnose.h>
#include <millhead/error.h>
#include <millhead/leg.h>
#include <millhead/loader.h>
#include <millhead/page.h>
#include <millhead/plan.h>
#include <millhead/probe.h>
#include <millhead/report.h>
#include <millhead/storage.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version this library was built as ("0.1.0"). Static memory, never NULL. Any thread. */
MH_API const char *mh_version(void);

#ifdef __cplusplus
}
#endif
#endif
