/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fuzz target is this one function. libFuzzer calls it, or run-corpus.c for every file of a
 * corpus.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A violated property aborts the process, like a crash; asserts are always compiled in. */
#include <assert.h>
