/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers for the warden's notes. */
#pragma once

#include "base/loop.h"
#include "keeper/note.h"

/* Callback of k->warden: receives one note. An invalid note ends the keeper. */
void keeper_take_note(struct loop_fd *src, uint32_t events);

extern note_handler *const keeper_notes[NOTE_KINDS];
