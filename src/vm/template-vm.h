/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Templates of machines: a machine that has booted up to its agent, which waits for HELLO, and was
 * saved. Nothing of a user has run in it, and nothing secret is in it: no randomness was used, its
 * disk is not mounted. Every sandbox with the same inputs is a clone of it.
 *
 * The key is of: QEMU, kernel, initrd and the image's disk (path, size, time of change: each is
 * put in its place by a rename and never written again), QEMU's arguments, the host's CPU, the size
 * of the disk, the version of hutch. Another key is another template; `hutch gc` removes those
 * whose inputs are gone.
 */
#pragma once

#include "snapshot.h"

/*
 * The path of the template of a planned sandbox, whose `machine` is filled in but for the snapshot.
 * Made if there is none, or if the one there is damaged; two who want the same make one. `say` is
 * told if that is to be done, for people.
 */
int template_find_or_make(const struct spec *spec, char ret_path[static SNAPSHOT_PATH_MAX],
			  void (*say)(const char *text, void *arg), void *arg, struct err *e);

/* ---- inside ---- */

/* *ret_info: what meta.json says of it, with `needs`. */
int template_key(const struct spec *spec, char ret[static SNAPSHOT_KEY + 1], json_t **ret_info,
		 struct err *e);

/* Boots the machine with its memory in `memory` (a memfd of its size) and writes the state of its
 * devices to `state`. Forks: namespaces and groups are entered by a child. */
int template_boot(const struct spec *spec, const struct state_root *run, int disk, int memory,
		  int state, struct err *e);
