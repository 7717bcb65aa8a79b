/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/*
 * Takes the machine's devices from its kernel, asks each disk itself to write a sector, having
 * declined to know that one is read-only, and gives the devices back. A line each in `text`.
 */
void virtio_disks(char *text, size_t size);
