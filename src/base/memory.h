/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Releases memory that start-up needed and waiting does not: free heap pages, and this program's
 * mapped pages of code and constants. Code that runs again is mapped again from the page cache.
 * Call once, before a long-lived process begins to wait.
 */
void memory_settle(void);
