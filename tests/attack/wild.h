/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/*
 * Takes the VM's devices from its kernel, asks each disk directly to write a sector without
 * accepting the read-only feature, and returns the devices. Writes one line for each disk to
 * `text`.
 */
void virtio_disks(char *text, size_t size);
