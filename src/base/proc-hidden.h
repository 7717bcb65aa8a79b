/* SPDX-License-Identifier: Apache-2.0 */
/* Files of /proc that sandboxes cannot see, and that they cannot write, with any engine. End with
 * NULL. */
#pragma once

extern const char *const proc_masked[], *const proc_readonly[];
