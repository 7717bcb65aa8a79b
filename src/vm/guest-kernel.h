/* SPDX-License-Identifier: Apache-2.0 */
/* tools/guest-kernel.config as of the build of this program. */
#pragma once

#include <stddef.h>

extern const char guest_kernel_text[];
extern const size_t guest_kernel_text_n;
