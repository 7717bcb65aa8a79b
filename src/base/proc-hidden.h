/* SPDX-License-Identifier: Apache-2.0 */
/* What of /proc no sandbox sees, and what none writes, whichever engine runs it. NULL at the end.
 */
#pragma once

extern const char *const proc_masked[], *const proc_readonly[];
