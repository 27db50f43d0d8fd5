/* windows.h - random arrays and windows over them, for tests
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_TESTS_WINDOWS_H
#define MH_TESTS_WINDOWS_H

#include "array/windows.h"
#include "unit.h"

#define CASE_VARIABLES 3
#define CASE_DIMS 4
#define CASE_PARTS 3 /* that a variable may be joined of */

/* Variables over some of the dimensions "a", "b", "c", "d", some of them joined of parts, and texts
 * for windows. */
typedef struct window_case {
    uint64_t random;
    uint64_t lengths[CASE_DIMS];
    mh_variable variables[CASE_VARIABLES * CASE_PARTS];
    size_t variable_count; /* parts too */
    char window[80], stride[80], select[80], target[80];
    mh_window_texts texts;
} window_case;

static const char *const case_names[CASE_DIMS] = {"a", "b", "c", "d"};

static inline uint64_t case_drawn(window_case *self, uint64_t least, uint64_t most)
{
    self->random = self->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return least + (self->random >> 33) % (most - least + 1);
}

static inline void case_text(char *text, uint32_t d, const char *value)
{
    size_t used = strlen(text);
    (void)snprintf(text + used, 80 - used, "%s%s=%s", used ? "," : "", case_names[d], value);
}

/* A window, a stride, a range and a target that fit into the dimension's length; some of them. */
static inline void case_dim_texts(window_case *self, uint32_t d)
{
    const uint64_t length = self->lengths[d];
    const uint64_t begin = case_drawn(self, 0, length / 3),
                   window = case_drawn(self, 1, length - begin);
    const uint64_t room = length - begin - window;
    char value[40];
    if (case_drawn(self, 0, 3)) {
        (void)snprintf(value, sizeof value, "%llu", (unsigned long long)window);
        case_text(self->window, d, value);
        if (case_drawn(self, 0, 1)) {
            (void)snprintf(value, sizeof value, "%llu", (unsigned long long)case_drawn(self, 1, 5));
            case_text(self->stride, d, value);
        }
        if (room && case_drawn(self, 0, 3) == 0) {
            (void)snprintf(value, sizeof value, "+%llu",
                           (unsigned long long)case_drawn(self, 0, room));
            case_text(self->target, d, value);
        }
    }
    if (begin && case_drawn(self, 0, 1)) {
        (void)snprintf(value, sizeof value, "%llu:", (unsigned long long)begin);
        case_text(self->select, d, value);
    }
}

/* How its chunks are stored, which parts may do in ways of their own. */
static inline void case_storage(window_case *self, mh_variable *variable)
{
    variable->swapped = case_drawn(self, 0, 1) != 0;
    if (case_drawn(self, 0, 1))
        mh_variable_steps_c(variable);
    else
        mh_variable_steps_f(variable);
    variable->fill[0] = 0xAB;
    variable->fill[1] = (uint8_t)case_drawn(self, 0, 255);
}

/* Cuts the last variable in two along one of its dimensions; a part may be empty. */
static inline void case_cut(window_case *self, uint32_t along)
{
    mh_variable *part = &self->variables[self->variable_count - 1], *next = part + 1;
    const uint64_t length = part->shape[along];
    *next = *part;
    part->along = next->along = along;
    part->shape[along] = case_drawn(self, 0, length);
    next->shape[along] = length - part->shape[along];
    next->chunk[along] = case_drawn(self, 1, length + 2);
    next->begin += part->shape[along];
    next->goes_on = true;
    case_storage(self, next);
    self->variable_count++;
}

static inline void case_variable(window_case *self, size_t number)
{
    static const char *const names[CASE_VARIABLES] = {"x", "y", "z"};
    mh_variable *variable = &self->variables[self->variable_count++];
    *variable = (mh_variable){.name = names[number], .dtype = {1, 16}};
    for (uint32_t d = 0; d < CASE_DIMS; d++) {
        if (number > 0 && case_drawn(self, 0, 2) == 0)
            continue;
        variable->dim_names[variable->dims] = case_names[d];
        variable->shape[variable->dims] = self->lengths[d];
        variable->chunk[variable->dims++] = case_drawn(self, 1, self->lengths[d] + 2);
    }
    case_storage(self, variable);
    if (variable->dims && case_drawn(self, 0, 1)) {
        const uint32_t along = (uint32_t)case_drawn(self, 0, variable->dims - 1);
        for (uint64_t cuts = case_drawn(self, 1, CASE_PARTS - 1); cuts > 0; cuts--)
            case_cut(self, along);
    }
}

static inline void case_make(window_case *self, uint64_t seed)
{
    *self = (window_case){.random = seed};
    const size_t variables = (size_t)case_drawn(self, 1, CASE_VARIABLES);
    for (uint32_t d = 0; d < CASE_DIMS; d++) {
        self->lengths[d] = case_drawn(self, 1, 9);
        case_dim_texts(self, d);
    }
    for (size_t i = 0; i < variables; i++)
        case_variable(self, i);
    self->texts = (mh_window_texts){self->window, self->stride, self->select, self->target};
}

#endif
