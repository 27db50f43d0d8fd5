/* straggler.c - the rank all others wait for
 * SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that exchange gradients go at the pace of the slowest. Where waiting was measured, a
 * rank's own time is what it does without waiting, and the slowest rank has the most of it. Where
 * not, the waiting of the fast ranks hides in the phase that exchanges (mostly backward), so all
 * look alike in the sum: then the phases before it tell.
 */
#include "diagnose/judging.h"

#include "base/alloc.h"

#include <stdio.h>
#include <stdlib.h>

typedef enum rank_phase { OWN, DATA, FORWARD, BACKWARD, UPDATE, PHASES, TOTAL = PHASES } rank_phase;

static double per_step(const mh_rank_cost *rank, rank_phase phase)
{
    const uint64_t times[TOTAL + 1] = {rank->own,      rank->data,   rank->forward,
                                       rank->backward, rank->update, rank->total};
    return rank->steps ? mh_ns(times[phase]) / (double)rank->steps : 0;
}

static int by_size(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* The median of all ranks but `left_out`; `room` has place for all. */
static double median_of_others(const mh_facts *facts, size_t left_out, rank_phase phase,
                               double *room)
{
    size_t count = 0;
    for (size_t at = 0; at < facts->rank_count; at++) {
        if (at != left_out && facts->ranks[at].steps)
            room[count++] = per_step(&facts->ranks[at], phase);
    }
    if (!count)
        return 0;
    qsort(room, count, sizeof *room, by_size);
    return (room[(count - 1) / 2] + room[count / 2]) / 2;
}

typedef struct rank_excess {
    size_t rank;
    rank_phase phase;
    double ns; /* a step, above the median of the others */
} rank_excess;

/* The rank and phase furthest above the others. The sum counts first; a single phase only where
 * the sum hides it. */
static rank_excess largest_excess(const mh_facts *facts, int waiting_measured, double *room)
{
    rank_excess best = {0};
    for (size_t at = 0; at < facts->rank_count; at++) {
        for (rank_phase phase = OWN; phase <= (waiting_measured ? OWN : FORWARD); phase++) {
            double excess =
                per_step(&facts->ranks[at], phase) - median_of_others(facts, at, phase, room);
            if (excess > best.ns)
                best = (rank_excess){at, phase, excess};
        }
    }
    return best;
}

/* Of that, what others did wait for: ranks that meet take equally long for a step. By how much the
 * rank's whole step is longer than theirs, nobody has waited: they train independently, or meet
 * seldom. */
static double waited_for(const mh_facts *facts, const rank_excess *excess, double *room)
{
    double apart = per_step(&facts->ranks[excess->rank], TOTAL) -
                   median_of_others(facts, excess->rank, TOTAL, room);
    return apart > 0 ? excess->ns - apart : excess->ns;
}

/* Which phase makes up most of a rank's excess in the sum. */
static rank_phase phase_of(const mh_facts *facts, const rank_excess *excess, double *room)
{
    if (excess->phase != OWN)
        return excess->phase;
    rank_phase best = OWN;
    double most = excess->ns / 2;
    for (rank_phase phase = DATA; phase < PHASES; phase++) {
        double part = per_step(&facts->ranks[excess->rank], phase) -
                      median_of_others(facts, excess->rank, phase, room);
        if (part > most) {
            most = part;
            best = phase;
        }
    }
    return best;
}

static void describe(mh_straggler *out, const mh_facts *facts, const rank_excess *excess,
                     rank_phase phase, double step)
{
    static const char *const does[PHASES] = {"works slowest", "loads slowest",
                                             "is slowest in forward", "is slowest in backward",
                                             "is slowest in update"};
    const mh_rank_cost *rank = &facts->ranks[excess->rank];
    double lost_s = excess->ns * (double)rank->steps / 1e9;
    (void)snprintf(
        out->evidence, sizeof out->evidence,
        "rank %u on %.63s %s, costing all ranks %.0f %% of the step: %.4g ms a step more "
        "than the others, %.4g s lost by each of %zu ranks",
        rank->rank, rank->host, does[phase], 100 * excess->ns / step, excess->ns / 1e6, lost_s,
        facts->rank_count);
    (void)snprintf(out->fix, sizeof out->fix,
                   "look at rank %u on %.63s: %s; as fast as the others, all ranks are %.2f times "
                   "as fast",
                   rank->rank, rank->host,
                   phase == DATA ? "its disk, its CPUs, its share of the data"
                                 : "other load on its machine, clock and temperature of its device",
                   out->gain);
}

void mh_straggler_find(mh_straggler *out, const mh_facts *facts)
{
    *out = (mh_straggler){.gain = 1};
    if (!facts->ranks || facts->rank_count < 2)
        return;
    double *room = mh_calloc(facts->rank_count, sizeof *room);
    if (!room)
        return; /* the verdict goes on without */
    double step = 0;
    int waiting_measured = 0;
    for (size_t at = 0; at < facts->rank_count; at++) {
        const mh_rank_cost *rank = &facts->ranks[at];
        double whole = rank->steps ? mh_ns(rank->total) / (double)rank->steps : 0;
        double own = per_step(rank, OWN);
        step = whole > step ? whole : step;
        step = own > step ? own : step;
        waiting_measured |= rank->waiting > 0;
    }
    rank_excess excess = largest_excess(facts, waiting_measured, room);
    rank_phase phase = phase_of(facts, &excess, room);
    excess.ns = waited_for(facts, &excess, room);
    if (excess.ns > 0 && step > 0) {
        out->gain = mh_gain(step, step - excess.ns);
        describe(out, facts, &excess, phase, step);
    }
    mh_free(room);
}
