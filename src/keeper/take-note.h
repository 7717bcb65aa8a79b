/* SPDX-License-Identifier: Apache-2.0 */
/* What the warden tells the keeper. */
#pragma once

#include "base/loop.h"
#include "keeper/note.h"

/* A callback of k->warden: takes one note. A note that may not come ends the keeper. */
void keeper_take_note(struct loop_fd *src, uint32_t events);

extern note_handler *const keeper_notes[NOTE_KINDS];
