/* SPDX-License-Identifier: Apache-2.0 */
/*
 * VM templates: a VM that has booted up to hutch-guest, which waits for HELLO, and was saved. It
 * has run no user code and contains no secrets: no randomness was used, and no file was written to
 * its disk. Every sandbox with the same inputs is a clone of it.
 *
 * The key covers: QEMU, kernel, initrd and the image's disk (path, size, modification time: each is
 * renamed into place and never written again), QEMU's arguments, the host's CPU, the size of the
 * disk, the version of hutch. Another key means another template; `hutch gc` removes templates
 * whose inputs are gone.
 */
#pragma once

#include "snapshot/pages.h"
#include "snapshot/snapshot.h"

/*
 * The path of the template for a planned sandbox, whose `machine` is filled in except for the
 * snapshot. Creates the template if it is missing or damaged; concurrent callers create only one.
 * Calls `say` with a message for the user before it does.
 */
int template_find_or_make(const struct spec *spec, char ret_path[static SNAPSHOT_PATH_MAX],
			  void (*say)(const char *text, void *arg), void *arg, struct err *e);

/* ---- internal ---- */

/* *ret_info: contents of meta.json, with `needs`. */
int template_key(const struct spec *spec, char ret[static SNAPSHOT_KEY + 1], json_t **ret_info,
		 struct err *e);

/* Boots the VM and writes its memory and device state to these files. Forks: a child enters
 * namespaces and groups. *ret_hex: the digest of the memory. */
int template_boot(const struct spec *spec, const struct state_root *run, int disk, int memory,
		  int state, char ret_hex[static PAGES_HEX], struct err *e);
