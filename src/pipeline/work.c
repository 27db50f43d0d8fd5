/* work.c - threads that do what is next
 * SPDX-License-Identifier: Apache-2.0
 */
#include "pipeline/loader.h"

#include "sys/clock.h"

void mh_work_failed(mh_under_way *batch, uint64_t sample, const mh_error *err)
{
    if (sample < batch->failed_sample) {
        batch->failed_sample = sample;
        batch->error = *err;
    }
}

/* The sum of what reads take is the number under way, summed over time. */
uint64_t mh_work_flying(mh_loader *self, int64_t more)
{
    uint64_t now = mh_clock_ns();
    if (self->sync.flying)
        mh_times_storage(self, self->sync.flying_since_ns, now, more < 0 ? (uint32_t)-more : 0);
    self->sync.stats.waited_ns += self->sync.flying * (now - self->sync.flying_since_ns);
    self->sync.flying += (uint64_t)more;
    self->sync.flying_since_ns = now;
    return now;
}

void mh_work_over(mh_loader *self, mh_under_way *batch, uint64_t count)
{
    batch->left -= count;
    const bool due = batch == &self->sync.ring[self->sync.due % self->horizon];
    if (batch->left == 0 && (due || self->sync.dropping))
        pthread_cond_broadcast(&self->sync.ready);
}

void mh_work_wake(mh_loader *self)
{
    if (self->sync.idle && (self->dataset->by_units ? mh_units_left(self) : mh_pieces_left(self)))
        pthread_cond_signal(&self->sync.work);
}

static bool take_locked(mh_work_room *room)
{
    return room->loader->dataset->by_units ? mh_units_take(room) : mh_pieces_take(room);
}

static void do_taken(mh_work_room *room)
{
    if (room->loader->dataset->by_units)
        mh_units_do(room);
    else
        mh_pieces_do(room);
}

bool mh_work_help(mh_loader *self)
{
    mh_work_room *room = &self->rooms[self->options.threads];
    const bool alone = self->options.threads == 0, units = self->dataset->by_units;
    pthread_mutex_lock(&self->sync.lock);
    bool taken = units && !alone ? mh_units_take_ready(room) : take_locked(room);
    pthread_mutex_unlock(&self->sync.lock);
    if (taken)
        do_taken(room);
    return taken;
}

void *mh_work_thread(void *argument)
{
    mh_work_room *room = argument;
    mh_loader *self = room->loader;
    pthread_mutex_lock(&self->sync.lock);
    while (!self->sync.stop) {
        if (!take_locked(room)) {
            self->sync.idle++;
            pthread_cond_wait(&self->sync.work, &self->sync.lock);
            self->sync.idle--;
            continue;
        }
        mh_work_wake(self); /* for what is left */
        pthread_mutex_unlock(&self->sync.lock);
        do_taken(room);
        pthread_mutex_lock(&self->sync.lock);
    }
    pthread_mutex_unlock(&self->sync.lock);
    return NULL;
}
