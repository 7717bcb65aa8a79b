/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fuzz target is this one function. libFuzzer calls it, or run-corpus.c does for every file of a
 * corpus.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A broken promise ends the process, as a crash does; asserts are compiled in. */
#include <assert.h>
