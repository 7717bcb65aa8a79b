/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `hutch ... --json` prints, as an answer. So there is one place that knows what a receipt, an
 * audit record or a line of doctor looks like, and the API and the command line cannot differ.
 */
#pragma once

#include "api/request.h"

enum {
	TOOL_ARGS = 12,
	TOOL_FOLLOWERS = 16, /* at once */
};

/* Runs hutch with these words (NULL-terminated; texts are copied) and answers with what it printed:
 * 200, or a status that fits why it could not. What hutch says then is for administrators; others
 * read `refusal`, and the log has the rest. */
void tool_answer(struct request *r, const char *type, const char *refusal, const char *const *argv);

/* The same; what it printed, which is JSON, goes through `narrow` first unless an administrator
 * asks. */
void tool_answer_narrowed(struct request *r, void (*narrow)(const struct request *r, json_t *j),
			  const char *refusal, const char *const *argv);

/* Runs it for as long as the client listens: each line that it prints is an event. */
void tool_follow(struct request *r, const char *const *argv);
