/* judging.h - what the parts of a verdict share: the facts summed up, suspects, and lines of text
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_DIAGNOSE_JUDGING_H
#define MH_DIAGNOSE_JUDGING_H

#include "plan/load.h"

/* The few numbers that decide. A gain is run time now / run time without the cause. */
#define MH_GAIN_MATTERS 1.05      /* runs repeat within a few per cent: less may be luck */
#define MH_GAIN_STARTUP 1.1       /* start-up happens once: a longer run has less of it */
#define MH_STARTUP_LEAST_NS 500e6 /* in very short runs any start is much */
#define MH_GAIN_HANDOVER 1.2      /* torch takes about 1 ms to hand a batch over, healthy or not */
#define MH_GAIN_DRAWING 1.1       /* of it, a slow sampler is the program's own */
#define MH_SATURATED 0.85 /* of the CPUs busy: the rest is lost to switching and imbalance */

#define MH_PROBES_ENOUGH 20  /* before their answer counts */
#define MH_BATCHES_ENOUGH 20 /* before anything is said of a run's pace */

/* Ways a run loses time; several may belong to one cause. */
typedef enum mh_loss {
    MH_LOSS_FETCH_CPU,
    MH_LOSS_FETCH_BLOCKED,
    MH_LOSS_COLLATE,
    MH_LOSS_TRANSFER,
    MH_LOSS_MAIN,
    MH_LOSS_TAIL,
    MH_LOSS_CROWD,
    MH_LOSS_STARTUP,
    MH_LOSS_COUNT
} mh_loss;

typedef struct mh_sums { /* ns over the steady part: all batches that are first of no epoch */
    double first_step;   /* steps of first batches */
    double batches, wait, step, all_wait, all_step, startup; /* startup, all_: of the whole run */
    double helpers;  /* CPU time of other threads of the processes that made the batches */
    double fetch_ns; /* as measured, of steady batches */
    double excess;
    double excess_batches, excess_held; /* batches above the mean excess, and what they hold */
    double excess_first_epoch;
    double fetch_known, cpu_known, train_known; /* batches for which it was measured */
} mh_sums;

/* slow_worker.c: a worker whose batches nearly all take longer than the others'; means over the
 * steady part. */
typedef struct mh_slow_worker {
    int worker; /* -1: there is none */
    double fetch_ns, others_ns, mean_ns;
} mh_slow_worker;

typedef struct mh_inquiry {
    const mh_facts *facts; /* as given */
    mh_facts window;       /* what is replayed: the same, cut short where it is very long */
    double scale_epochs, scale_batches; /* from the window to the run */
    mh_costing costing;
    mh_sums sums;
    mh_load load;
    mh_replay_options base; /* as measured */
    double base_ns;         /* replayed as measured */
    double measured_ns;     /* waits, steps and set-up */
    double steady_ns;       /* waits and steps of the steady part */
    double own_cpus;        /* CPUs the run used, threads that were measured or sampled */
    double other_cpus;      /* CPUs others used, as far as sampled */
    double runnable;        /* threads of the run that had or wanted a CPU */
    double gain[MH_LOSS_COUNT];
    double fix_gain[MH_LOSS_COUNT]; /* of its fix at best, where the loss matters; else 0 */
    double fix_sure[MH_LOSS_COUNT]; /* of it what can be promised */
    double gap_ns;                  /* waits for first batches of later epochs, replayed */
    int crowd_workers;              /* the number that would be better; 0: not crowded */
    mh_slow_worker slow;
    mh_loss loss; /* the one that was chosen */
    mh_loss seen; /* in a run that is too short to choose: what it looks like so far */
    mh_verdict *out;
} mh_inquiry;

/* The run's time under these options, in ns. */
mh_status mh_inquiry_time(const mh_inquiry *inquiry, const mh_replay_options *options, double *ns,
                          mh_error *err);

/* The smallest number of workers that does as well as any, and the run's time with it. */
mh_status mh_inquiry_workers(const mh_inquiry *inquiry, int *workers, double *ns, mh_error *err);

/* The cause that a loss belongs to. */
mh_cause mh_cause_of(const mh_inquiry *inquiry, mh_loss loss);

/* Whether there are too few batches to tell anything. */
int mh_too_short(const mh_inquiry *inquiry);

/* Bytes from storage in a second of the steady part. */
double mh_read_per_s(const mh_inquiry *inquiry);

/* The time of all loops now over that with the judged loader's part taking `then` in place of what
 * was replayed: other loaders' time stays. */
double mh_inquiry_gain(const mh_inquiry *inquiry, double then);

/* The gain of making a loader once that the program makes anew for every epoch; 1 where it does
 * not. */
double mh_gain_of_one_loader(const mh_inquiry *inquiry);

/* What the run takes outside the judged loop: other loaders' loops, and what lies between epochs,
 * where other loops may lie too. */
double mh_outside_ns(const mh_inquiry *inquiry);

/* All of it: the judged loop, those of loaders made anew like it, and what is outside. */
double mh_run_ns(const mh_inquiry *inquiry);

/* A gain of the loops as one of the whole run: what lies between epochs stays. */
double mh_gain_of_run(const mh_inquiry *inquiry, double gain);

/* Whether pools of threads inside workers crowd the CPUs (BLAS, OpenMP): their CPU times are then
 * longer than the work is. */
int mh_pools_crowd(const mh_inquiry *inquiry);

/* From which gain on taking batches over is a cause. */
double mh_handover_matters(const mh_inquiry *inquiry);

/* Whether another thread of Python's keeps the loop from its interpreter's lock. */
int mh_rival_holds_up(const mh_inquiry *inquiry);

/* now / then, as a number between 1/1000 and 1000 whatever they are. */
double mh_gain(double now, double then);

/* evidence.c: a line of evidence, a warning, the fix: printf. Lines that find no place are
 * dropped. */
void mh_evidence(mh_verdict *out, const char *format, ...) MH_PRINTF(2, 3);
void mh_warning(mh_verdict *out, const char *format, ...) MH_PRINTF(2, 3);
void mh_say_fix(mh_verdict *out, const char *format, ...) MH_PRINTF(2, 3);

void mh_say_waiting(const mh_inquiry *inquiry);
void mh_say_loss(const mh_inquiry *inquiry); /* the numbers of the one that was chosen */
void mh_say_seen(const mh_inquiry *inquiry); /* those of a run that is too short to choose one */
void mh_say_trust(const mh_inquiry *inquiry);
void mh_say_crowd_first(const mh_inquiry *inquiry); /* though another fix promises more */

/* fixes.c: fills fix, fix_settings and predicted_gain for out->cause and inquiry->loss. */
mh_status mh_fix_make(mh_inquiry *inquiry, mh_error *err);

/* recipes.c: what to do about a function that is known to take long; NULL: nothing is known. */
const char *mh_recipe_for(const mh_hot *hot);

/* outside.c: a verdict from usage alone. */
void mh_outside_judge(const mh_facts *facts, mh_verdict *out);

/* verdict_native.c: whether a loop over the native loader waited, and what for. */
int mh_native_waits(const mh_inquiry *inquiry);
void mh_native_share(mh_inquiry *inquiry); /* what the waiting was for, in the verdict's shares */
void mh_native_judge(mh_inquiry *inquiry);

/* straggler.c: the slowest rank and what it costs; gain 1 where there is none. */
typedef struct mh_straggler {
    double gain;
    char evidence[MH_VERDICT_LINE];
    char fix[MH_VERDICT_LINE];
} mh_straggler;
void mh_straggler_find(mh_straggler *out, const mh_facts *facts);

void mh_slow_worker_find(mh_slow_worker *out, const mh_facts *facts);
/* The run's time with the slow worker's part of the data spread over all, in ns. */
mh_status mh_slow_worker_spread(const mh_inquiry *inquiry, double *ns, mh_error *err);

/* warnings.c: whether memory grows without end, said as evidence or as a warning. */
int mh_memory_grows(const mh_facts *facts);
void mh_memory_say(mh_verdict *out, const mh_facts *facts, int is_cause);
/* Everything worth a warning whatever the cause. */
void mh_signs(const mh_inquiry *inquiry);

#endif
