/* workers.h - how many loader workers a run needs: the one answer that the doctor and a plan give
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_PLAN_WORKERS_H
#define MH_PLAN_WORKERS_H

#include "plan/load.h"

/* Two settings this close are the same; the smaller is taken. */
#define MH_SAME 1.02
/* Most workers ever advised: each takes memory for its interpreter and its batches. */
#define MH_WORKERS_MOST 64

/* Which numbers of workers are worth a try. */
typedef struct mh_workers_range {
    int least, most;
} mh_workers_range;

/* As many as keep the CPUs left busy: those that compute need one each, those that wait share them.
 * Storage and a lock give no more to more of them, and each worker of a stream may read all of it.
 * `ranks` share the CPUs, with so many workers each. */
mh_workers_range mh_workers_worth_trying(const mh_load *load, int ranks);

/* The run's time with so many workers, in ns. */
typedef mh_status mh_workers_time(const void *run, int workers, double *ns, mh_error *err);

/* The smallest number of the range that does as well as any, and its time. */
MH_MUST_CHECK mh_status mh_workers_fewest(int *workers, double *ns, mh_workers_range range,
                                          mh_workers_time *time, const void *run, mh_error *err);

#endif
