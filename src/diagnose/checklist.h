/* checklist.h - the checklist as a pure function of what was read
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_DIAGNOSE_CHECKLIST_H
#define MH_DIAGNOSE_CHECKLIST_H

#include "observe/surroundings.h"

#include <millhead/diagnose.h>

/* Judges surroundings and the variables that `variable` (as getenv) knows, into out[]. Returns how
 * many there are: at most MH_CHECKS_MOST. */
size_t mh_checks_judge(mh_check out[MH_CHECKS_MOST], const mh_surroundings *around,
                       const char *(*variable)(const char *name));

#endif
