/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Gives back the memory that starting a process took and that waiting does not need: free heap
 * pages, and this program's mapped pages of code and constants. Code that runs again is mapped
 * again from the page cache. Called once, before a process that lives long begins to wait.
 */
void memory_settle(void);
