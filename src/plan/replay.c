/* replay.c - a measured run played again under other settings
 * SPDX-License-Identifier: Apache-2.0
 *
 * Two kinds of time pass. Blocked phases end at a moment of the clock. Phases on a CPU end when
 * they have had their share: with more of them than CPUs all get the same part of one, so they are
 * kept by the work a phase would have had since the beginning (`work`), which grows for all alike.
 * Two heaps give the next phase to end.
 */
#include <millhead/diagnose.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "plan/batch_costs.h"
#include "plan/facts.h"

#define MOST_WORKERS 65536
#define MOST_FACTOR 1e6
/* Starting one worker where a run without workers is played with some: a fork of an interpreter
 * that has torch loaded, and its first order. */
#define START_NS 20e6

typedef struct replay_phase {
    double end; /* moment of the clock, or of the shared work */
    int actor;
} replay_phase;

typedef struct replay_heap {
    replay_phase *phases;
    size_t count;
} replay_heap;

typedef struct replay_worker {
    size_t head, queued; /* in its part of sim.orders */
    size_t under_way;    /* ordered and not yet delivered */
    int busy;
    double passed; /* when the last batch it has made was on its way: one after the other */
    size_t place;  /* on the board, of the piece it makes */
} replay_worker;

/* Where workers share batches, each in a place of `orders`: pieces are taken in order by whoever is
 * free. */
typedef struct replay_board {
    size_t *left;   /* by place: pieces that are not made */
    size_t *free;   /* places without a batch */
    size_t *places; /* of batches that have pieces to give out, by number in the window */
    size_t *idle;   /* workers without work */
    size_t next;    /* the batch whose pieces are given out */
    size_t piece;   /* of it the next one */
    size_t free_count, idle_count;
} replay_board;

typedef enum replay_doing { ASKING, TAKING, STEPPING } replay_doing;

typedef struct replay_sim {
    const mh_facts *facts;
    const mh_replay_options *options;
    mh_costing costing;
    double cpus;
    int workers, prefetch;
    size_t window; /* batches under way at most */

    double now, work;
    replay_heap blocked, running;
    double *cpu_left; /* of each actor's phase to come; the consumer is actor number `workers`,
                         those after it are places in `orders` whose batch is on its way */
    replay_worker *worker;
    size_t *orders; /* workers x prefetch */
    int shared;     /* batches are: dispatch="sample" */
    replay_board board;

    size_t first, end, sent, delivered; /* of the epoch; batch numbers of the run */
    int turn;                           /* whose turn it is to get an order */
    size_t *ready; /* places in `orders`, + 1: in order by batch, 0 until it is there; else a queue
                    */
    size_t *ready_batch;
    size_t ready_head, ready_count;
    replay_doing doing;
    size_t taken; /* the batch being taken or worked on */
    double asked;
    double wait, gap, startup, step, delay;
} replay_sim;

void mh_replay_options_init_sized(mh_replay_options *options, size_t struct_size,
                                  const mh_facts *given)
{
    mh_facts taken, *facts = &taken;
    if (MH_SIZED_TAKE(facts, given, mh_facts, rank_stride, NULL) != MH_OK)
        mh_facts_init(facts); /* mh_replay refuses them, and says why */
    const mh_replay_options defaults = {
        .workers = facts->workers > 0 ? facts->workers : 0,
        .prefetch = facts->prefetch > 0 ? facts->prefetch : 2, /* torch's default */
        .cpus = facts->cpus > 0 ? facts->cpus : 0,
        .in_order = facts->in_order != 0,
        .fetch_cpu = 1,
        .fetch_blocked = 1,
        .collate = 1,
        .transfer = 1,
        .step_main = 1,
        .startup = 1,
    };
    mh_sized_write(options, struct_size, &defaults, sizeof defaults);
}

/* --- heap ------------------------------------------------------------------------------------ */

static int sooner(replay_phase a, replay_phase b)
{
    return a.end < b.end || (a.end == b.end && a.actor < b.actor);
}

static void heap_push(replay_heap *heap, double end, int actor)
{
    replay_phase added = {end, actor};
    size_t at = heap->count++;
    for (; at && sooner(added, heap->phases[(at - 1) / 2]); at = (at - 1) / 2)
        heap->phases[at] = heap->phases[(at - 1) / 2];
    heap->phases[at] = added;
}

static int heap_pop(replay_heap *heap)
{
    int actor = heap->phases[0].actor;
    replay_phase last = heap->phases[--heap->count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < heap->count; at = child) {
        if (child + 1 < heap->count && sooner(heap->phases[child + 1], heap->phases[child]))
            child++;
        if (!sooner(heap->phases[child], last))
            break;
        heap->phases[at] = heap->phases[child];
    }
    heap->phases[at] = last;
    return actor;
}

/* --- costs under the options ----------------------------------------------------------------- */

static void costs_at(const replay_sim *sim, size_t batch, mh_costs *out)
{
    const mh_replay_options *options = sim->options;
    const mh_batch_cost *measured = &sim->facts->batches[batch];
    mh_costs_of(out, &sim->costing, measured);
    double fetch = out->fetch_cpu + out->read_cpu + out->fetch_blocked;
    double keep = 1;
    if (options->clip_excess && fetch > 0) {
        double excess = mh_excess(measured);
        keep = excess < fetch ? (fetch - excess) / fetch : 0;
    }
    out->fetch_cpu *= options->fetch_cpu * keep;
    out->read_cpu *= options->fetch_blocked * keep;
    out->fetch_blocked *= options->fetch_blocked * keep;
    out->collate_cpu *= options->collate;
    out->collate_blocked *= options->collate;
    out->transfer *= options->transfer;
    out->passing *= options->transfer;
    out->main_cpu *= options->step_main;
    out->main_blocked *= options->step_main;
    if (sim->workers > 0) { /* 0 where they were measured */
        out->collate_cpu += sim->costing.pickling;
        out->transfer += sim->costing.pickling;
    }
}

static double making_cpu(const mh_costs *costs)
{
    return costs->fetch_cpu + costs->read_cpu + costs->collate_cpu;
}

/* Begins a phase: blocked first, then on a CPU. */
static void begin(replay_sim *sim, int actor, double blocked, double cpu)
{
    sim->cpu_left[actor] = cpu;
    heap_push(&sim->blocked, sim->now + blocked, actor);
}

/* --- a loader whose workers share batches ---------------------------------------------------- */

/* Pieces of a batch: a run of samples takes about 2 ms; more pieces than this add nothing but time
 * to replay them. */
#define RUN_NS 2e6
#define MOST_PIECES 8

static size_t pieces_of(const replay_sim *sim, size_t batch, const mh_costs *costs)
{
    size_t pieces = sim->facts->batches[batch].samples;
    double making = making_cpu(costs) + costs->fetch_blocked + costs->collate_blocked;
    if (making < RUN_NS || pieces < 1)
        return 1;
    pieces = pieces < (size_t)sim->workers ? pieces : (size_t)sim->workers;
    return pieces < MOST_PIECES ? pieces : MOST_PIECES;
}

/* The part of a batch's fetching that is in this piece: slow samples are in the first ones, each in
 * one, the rest is evenly in all. */
static double part_of_piece(const replay_sim *sim, size_t batch, size_t piece, size_t pieces)
{
    const mh_batch_cost *measured = &sim->facts->batches[batch];
    mh_costs costs;
    mh_costs_of(&costs, &sim->costing, measured);
    double fetch = costs.fetch_cpu + costs.read_cpu + costs.fetch_blocked;
    double excess = sim->options->clip_excess ? 0 : mh_excess(measured);
    double share = fetch > 0 ? (excess < fetch ? excess / fetch : 1) : 0;
    double longest = mh_ns(sim->facts->sample_max_ns);
    size_t slow = 1;
    while (slow < pieces && longest > 0 && excess > (double)slow * longest)
        slow++;
    return (1 - share) / (double)pieces + (piece < slow ? share / (double)slow : 0);
}

static void board_give_out(replay_sim *sim)
{
    replay_board *board = &sim->board;
    while (board->idle_count && board->next < sim->sent) {
        size_t batch = board->next, piece = board->piece;
        int number = (int)board->idle[--board->idle_count];
        mh_costs costs;
        costs_at(sim, batch, &costs);
        size_t pieces = pieces_of(sim, batch, &costs);
        double part = part_of_piece(sim, batch, piece, pieces);
        sim->worker[number].place = board->places[(batch - sim->first) % sim->window];
        begin(sim, number, costs.fetch_blocked * part + costs.collate_blocked / (double)pieces,
              (costs.fetch_cpu + costs.read_cpu) * part + costs.collate_cpu / (double)pieces);
        board->piece = piece + 1 < pieces ? piece + 1 : 0;
        board->next += board->piece == 0;
    }
}

static void board_post(replay_sim *sim)
{
    replay_board *board = &sim->board;
    size_t batch = sim->sent++, place = board->free[--board->free_count];
    mh_costs costs;
    costs_at(sim, batch, &costs);
    sim->orders[place] = batch;
    board->left[place] = pieces_of(sim, batch, &costs);
    board->places[(batch - sim->first) % sim->window] = place;
    board_give_out(sim);
}

static void board_piece_done(replay_sim *sim, int number)
{
    replay_board *board = &sim->board;
    size_t place = sim->worker[number].place;
    mh_costs costs;
    board->idle[board->idle_count++] = (size_t)number;
    if (--board->left[place] == 0) {
        costs_at(sim, sim->orders[place], &costs);
        heap_push(&sim->blocked, sim->now + costs.passing, sim->workers + 1 + (int)place);
    }
    board_give_out(sim);
}

static void board_clear(replay_sim *sim)
{
    replay_board *board = &sim->board;
    board->next = sim->first;
    board->piece = 0;
    for (board->free_count = 0; board->free_count < sim->window; board->free_count++)
        board->free[board->free_count] = board->free_count;
    for (board->idle_count = 0; board->idle_count < (size_t)sim->workers; board->idle_count++)
        board->idle[board->idle_count] = board->idle_count;
}

static int board_make(replay_sim *sim)
{
    replay_board *board = &sim->board;
    board->left = mh_calloc(sim->window, sizeof(size_t));
    board->free = mh_calloc(sim->window, sizeof(size_t));
    board->places = mh_calloc(sim->window, sizeof(size_t));
    board->idle = mh_calloc((size_t)sim->workers, sizeof(size_t));
    return board->left && board->free && board->places && board->idle;
}

/* --- the loader ------------------------------------------------------------------------------ */

static void worker_go_on(replay_sim *sim, int number)
{
    replay_worker *worker = &sim->worker[number];
    if (worker->busy || !worker->queued)
        return;
    size_t prefetch = (size_t)sim->prefetch;
    mh_costs costs;
    costs_at(sim, sim->orders[(size_t)number * prefetch + worker->head], &costs);
    worker->busy = 1;
    begin(sim, number, costs.fetch_blocked + costs.collate_blocked, making_cpu(&costs));
}

/* Gives the next order out, as torch does: to the workers in turn; where batches are delivered as
 * they come, past those that have enough. */
static void send_order(replay_sim *sim)
{
    if (sim->sent == sim->end)
        return;
    if (sim->shared) {
        board_post(sim);
        return;
    }
    size_t prefetch = (size_t)sim->prefetch;
    for (int tried = 0; tried < sim->workers; tried++) {
        int number = sim->turn;
        replay_worker *worker = &sim->worker[number];
        sim->turn = number + 1 == sim->workers ? 0 : number + 1;
        if (worker->under_way == prefetch)
            continue;
        size_t tail = (worker->head + worker->queued) % prefetch;
        sim->orders[(size_t)number * prefetch + tail] = sim->sent++;
        worker->queued++;
        worker->under_way++;
        worker_go_on(sim, number);
        return;
    }
}

static void take_if_there(replay_sim *sim)
{
    if (sim->doing != ASKING || sim->delivered == sim->end)
        return;
    size_t place = (sim->delivered - sim->first) % sim->window, order;
    if (sim->options->in_order) {
        if (!sim->ready[place])
            return;
        order = sim->ready[place] - 1;
        sim->ready[place] = 0;
        sim->taken = sim->delivered;
    } else {
        if (!sim->ready_count)
            return;
        order = sim->ready[sim->ready_head] - 1;
        sim->taken = sim->ready_batch[sim->ready_head];
        sim->ready_head = (sim->ready_head + 1) % sim->window;
        sim->ready_count--;
    }
    if (sim->shared)
        sim->board.free[sim->board.free_count++] = order;
    else
        sim->worker[order / (size_t)sim->prefetch].under_way--;
    mh_costs costs;
    costs_at(sim, sim->taken, &costs);
    sim->doing = TAKING;
    begin(sim, sim->workers, costs.transfer + costs.unknown, 0);
}

/* A batch is made: it goes on its way, and its worker to the next. */
static void worker_done(replay_sim *sim, int number)
{
    replay_worker *worker = &sim->worker[number];
    size_t prefetch = (size_t)sim->prefetch;
    size_t order = (size_t)number * prefetch + worker->head;
    mh_costs costs;
    costs_at(sim, sim->orders[order], &costs);
    worker->passed = (worker->passed > sim->now ? worker->passed : sim->now) + costs.passing;
    heap_push(&sim->blocked, worker->passed, sim->workers + 1 + (int)order);
    worker->head = (worker->head + 1) % prefetch;
    worker->queued--;
    worker->busy = 0;
    worker_go_on(sim, number);
}

/* An order's batch has come: its place in `orders` is its worker's until it is delivered. */
static void batch_passed(replay_sim *sim, size_t order)
{
    size_t batch = sim->orders[order];
    size_t place = sim->options->in_order ? (batch - sim->first) % sim->window
                                          : (sim->ready_head + sim->ready_count) % sim->window;
    sim->ready[place] = order + 1;
    sim->ready_batch[place] = batch;
    sim->ready_count += !sim->options->in_order;
    take_if_there(sim);
}

static void consumer_done(replay_sim *sim)
{
    if (sim->doing == TAKING) {
        sim->wait += sim->now - sim->asked;
        if (sim->first > 0 && sim->delivered == sim->first)
            sim->gap += sim->now - sim->asked;
        sim->asked = sim->now;
        sim->delivered++;
        send_order(sim);
        mh_costs costs;
        costs_at(sim, sim->taken, &costs);
        sim->doing = STEPPING;
        begin(sim, sim->workers, costs.main_blocked + costs.train_blocked,
              costs.main_cpu + costs.train_cpu);
        return;
    }
    sim->step += sim->now - sim->asked;
    sim->asked = sim->now;
    sim->doing = ASKING;
    take_if_there(sim);
}

/* --- time ------------------------------------------------------------------------------------ */

/* How fast each of `running` phases goes, with what other processes take. */
static double speed_of(const replay_sim *sim, double running)
{
    int ranks = sim->options->ranks > 1 ? sim->options->ranks : 1; /* all do what this one does */
    double wanted = running * ranks + sim->options->others;
    return sim->cpus > 0 && wanted > sim->cpus ? sim->cpus / wanted : 1;
}

static void pass_to_next_end(replay_sim *sim)
{
    size_t running = sim->running.count;
    double speed = speed_of(sim, (double)running);
    double of_cpu = running ? sim->now + (sim->running.phases[0].end - sim->work) / speed : 0;
    double before = sim->now;
    int actor;
    if (sim->blocked.count && (!running || sim->blocked.phases[0].end <= of_cpu)) {
        double moment = sim->blocked.phases[0].end;
        sim->work += (moment - sim->now) * speed;
        sim->now = moment;
        sim->delay += (moment - before) * (1 - speed) * (double)running;
        actor = heap_pop(&sim->blocked);
        if (actor > sim->workers) {
            batch_passed(sim, (size_t)(actor - sim->workers - 1));
            return;
        }
        if (sim->cpu_left[actor] > 0) {
            heap_push(&sim->running, sim->work + sim->cpu_left[actor], actor);
            return;
        }
    } else {
        sim->work = sim->running.phases[0].end;
        sim->now = of_cpu > sim->now ? of_cpu : sim->now;
        sim->delay += (sim->now - before) * (1 - speed) * (double)running;
        actor = heap_pop(&sim->running);
    }
    if (actor == sim->workers)
        consumer_done(sim);
    else if (sim->shared)
        board_piece_done(sim, actor);
    else
        worker_done(sim, actor);
}

static void play_with_workers(replay_sim *sim)
{
    /* Nothing could be ordered; the caller does not come here then. */
    if (!sim->window)
        return;
    sim->work = 0; /* nobody works between epochs: small numbers stay exact */
    sim->turn = 0;
    sim->doing = ASKING;
    sim->asked = sim->now;
    if (sim->shared)
        board_clear(sim);
    for (size_t order = 0; order < sim->window; order++)
        send_order(sim);
    while (sim->blocked.count + sim->running.count)
        pass_to_next_end(sim);
}

static void play_without_workers(replay_sim *sim)
{
    double slower = 1 / speed_of(sim, 1);
    for (size_t at = sim->first; at < sim->end; at++) {
        mh_costs costs;
        costs_at(sim, at, &costs);
        double step_cpu = costs.main_cpu + costs.train_cpu;
        double wait = making_cpu(&costs) * slower + costs.fetch_blocked + costs.collate_blocked +
                      costs.transfer + costs.unknown;
        double step = step_cpu * slower + costs.main_blocked + costs.train_blocked;
        sim->delay += (making_cpu(&costs) + step_cpu) * (slower - 1);
        sim->wait += wait;
        sim->step += step;
        sim->now += wait + step;
    }
}

/* What an epoch's first orders took the sampler while its iterator was made. Workers that stay do
 * not save it. */
static double drawing_of_epoch(const replay_sim *sim, size_t epochs)
{
    double drawing = mh_ns(sim->facts->setup_order_ns), setup = mh_ns(sim->facts->setup_ns);
    return (drawing < setup ? drawing : setup) / (double)epochs;
}

/* What making an iterator takes else, under the options: workers are started one after the other.
 * The set-up of a log is the first epoch's; events tell only the sum, of which each has its part.
 */
static double setup_of_epoch(const replay_sim *sim, size_t number, size_t epochs)
{
    double setup = mh_ns(sim->facts->setup_ns) - drawing_of_epoch(sim, 1);
    if (sim->facts->vantage == MH_VANTAGE_LOG)
        setup = number == 0 ? setup : 0;
    else
        setup /= (double)epochs;
    if (sim->facts->workers > 0)
        return setup * sim->workers / sim->facts->workers;
    return setup + (sim->facts->workers == 0 ? START_NS * sim->workers : 0);
}

static size_t epoch_end(const mh_facts *facts, size_t first)
{
    size_t at = first + 1;
    while (at < facts->batch_count && !facts->batches[at].first &&
           facts->batches[at].epoch == facts->batches[first].epoch)
        at++;
    return at;
}

static void play(replay_sim *sim)
{
    size_t epochs = 0, number = 0;
    for (size_t at = 0; at < sim->facts->batch_count; at = epoch_end(sim->facts, at))
        epochs++;
    for (size_t at = 0; at < sim->facts->batch_count; at = sim->end, number++) {
        sim->first = sim->sent = sim->delivered = at;
        sim->end = epoch_end(sim->facts, at);
        mh_costs costs;
        costs_at(sim, at, &costs);
        double startup = drawing_of_epoch(sim, epochs);
        if (at == 0 || !sim->options->free_startup)
            startup += setup_of_epoch(sim, number, epochs) + costs.startup;
        sim->startup += startup * sim->options->startup;
        sim->now += startup * sim->options->startup;
        if (sim->window)
            play_with_workers(sim);
        else
            play_without_workers(sim);
    }
}

/* --- set-up and the way in ------------------------------------------------------------------- */

static int factor_is_bad(double factor)
{
    return !(factor >= 0 && factor <= MOST_FACTOR);
}

static mh_status check(const mh_facts *facts, const mh_replay_options *options, mh_error *err)
{
    if (!facts->batches || !facts->batch_count)
        return mh_fail(err, MH_ERR_INVALID, "no batch was measured: nothing to replay");
    if (options->workers < 0 || options->workers > MOST_WORKERS)
        return mh_fail(err, MH_ERR_INVALID, "%d workers, must be 0 to %d", options->workers,
                       MOST_WORKERS);
    if (options->prefetch < 1)
        return mh_fail(err, MH_ERR_INVALID, "prefetch is %d, must be at least 1",
                       options->prefetch);
    if (options->ranks < 0 || options->ranks > MOST_WORKERS)
        return mh_fail(err, MH_ERR_INVALID, "%d ranks, must be 0 to %d", options->ranks,
                       MOST_WORKERS);
    if (factor_is_bad(options->fetch_cpu) || factor_is_bad(options->fetch_blocked) ||
        factor_is_bad(options->collate) || factor_is_bad(options->transfer) ||
        factor_is_bad(options->step_main) || factor_is_bad(options->startup) ||
        factor_is_bad(options->others))
        return mh_fail(err, MH_ERR_INVALID, "a factor is not between 0 and %g", MOST_FACTOR);
    return MH_OK;
}

static void sim_free(replay_sim *sim)
{
    mh_free(sim->blocked.phases);
    mh_free(sim->running.phases);
    mh_free(sim->cpu_left);
    mh_free(sim->worker);
    mh_free(sim->orders);
    mh_free(sim->ready);
    mh_free(sim->ready_batch);
    mh_free(sim->board.left);
    mh_free(sim->board.free);
    mh_free(sim->board.places);
    mh_free(sim->board.idle);
}

static int sim_make(replay_sim *sim)
{
    size_t workers = (size_t)sim->workers, actors = workers + 1;
    sim->window = workers * (size_t)sim->prefetch;
    if (!sim->window)
        return 1; /* no workers */
    sim->blocked.phases = mh_calloc(actors + sim->window, sizeof(replay_phase));
    sim->running.phases = mh_calloc(actors, sizeof(replay_phase));
    sim->cpu_left = mh_calloc(actors, sizeof(double));
    sim->worker = mh_calloc(workers, sizeof(replay_worker));
    sim->orders = mh_calloc(sim->window, sizeof(size_t));
    sim->ready = mh_calloc(sim->window, sizeof(size_t));
    sim->ready_batch = mh_calloc(sim->window, sizeof(size_t));
    return sim->blocked.phases && sim->running.phases && sim->cpu_left && sim->worker &&
           sim->orders && sim->ready && sim->ready_batch && (!sim->shared || board_make(sim));
}

static uint64_t whole_ns(double ns)
{
    return ns < 1e19 ? (uint64_t)(ns + 0.5) : (uint64_t)1e19;
}

static mh_status replay(mh_replay_result *out, const mh_facts *facts,
                        const mh_replay_options *options, mh_error *err)
{
    MH_TRY(check(facts, options, err));
    replay_sim sim = {
        .facts = facts,
        .options = options,
        .cpus = options->cpus > 0 ? options->cpus : 0,
        .workers = options->workers,
        .prefetch = options->prefetch,
        .shared = facts->by_sample == 1,
    };
    /* more under way than there are batches changes nothing, and takes memory */
    size_t enough = facts->batch_count / (size_t)(sim.workers ? sim.workers : 1) + 1;
    if ((size_t)sim.prefetch > enough)
        sim.prefetch = (int)enough;
    mh_costing_init(&sim.costing, facts);
    int made = sim_make(&sim);
    if (made) {
        play(&sim);
        *out = (mh_replay_result){
            .total_ns = whole_ns(sim.now),
            .wait_ns = whole_ns(sim.wait),
            .startup_ns = whole_ns(sim.startup),
            .step_ns = whole_ns(sim.step),
            .gap_ns = whole_ns(sim.gap),
            .delay_ns = whole_ns(sim.delay),
        };
    }
    sim_free(&sim);
    return made ? MH_OK : mh_fail(err, MH_ERR_NOMEM, "no memory to replay %d workers", sim.workers);
}

mh_status mh_replay(mh_replay_result *out, const mh_facts *facts, const mh_replay_options *given,
                    mh_error *err)
{
    mh_replay_options options;
    mh_whole_facts whole;
    if (!out || !facts || !given)
        return mh_fail(err, MH_ERR_INVALID, "a replay needs facts, options and a place");
    mh_replay_options_init(&options, facts);
    MH_TRY(mh_sized_read(&options, sizeof options, given,
                         MH_FIRST_SIZE(mh_replay_options, free_startup), "mh_replay_options", err));
    mh_status status = mh_facts_take(&whole, facts, err);
    if (status == MH_OK)
        status = replay(out, &whole.facts, &options, err);
    mh_facts_drop(&whole);
    return status;
}
