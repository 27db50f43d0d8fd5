/* facts.h - facts as a caller of another version may give them
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_PLAN_FACTS_H
#define MH_PLAN_FACTS_H

#include <millhead/diagnose.h>

/* Facts in the structs of this version. */
typedef struct mh_whole_facts {
    mh_facts facts;
    mh_batch_cost *batches; /* copies, where the caller's have another size; else NULL */
    mh_rank_cost *ranks;
} mh_whole_facts;

/* The caller frees *out with mh_facts_drop, after a failure too. The caller's own batches and ranks
 * have to stay meanwhile. Errors: MH_ERR_INVALID, MH_ERR_UNSUPPORTED, MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_facts_take(mh_whole_facts *out, const mh_facts *given, mh_error *err);
void mh_facts_drop(mh_whole_facts *whole);

#endif
