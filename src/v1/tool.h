/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers with the output of `hutch ... --json`. So a receipt, an audit record or a line of doctor
 * is formatted in one place, and the API and the command line cannot differ.
 */
#pragma once

#include "api/request.h"

enum {
	TOOL_ARGS = 12,
	TOOL_FOLLOWERS = 16, /* at the same time */
};

/* Runs hutch with these arguments (NULL-terminated; copied) and answers with its output and 200, or
 * with a status for its failure. Only administrators see hutch's error message; others see
 * `refusal`, and the log has the rest. */
void tool_answer(struct request *r, const char *type, const char *refusal, const char *const *argv);

/* The same for JSON output, which `narrow` filters first unless the client is an administrator. */
void tool_answer_narrowed(struct request *r, void (*narrow)(const struct request *r, json_t *j),
			  const char *refusal, const char *const *argv);

/* Runs hutch while the client listens: each output line is an event. */
void tool_follow(struct request *r, const char *const *argv);
