/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A template's recipe: steps that are run one after the other inside a sandbox of the image it
 * begins with, and an image made of what came out. For a job: it waits. The sandbox ends with the
 * process that builds, however that ends.
 */
#pragma once

#include "base/json-util.h"
#include "template/template.h"

enum {
	RECIPE_STEPS_MAX = 512,
	RECIPE_ARGS_MAX = 256,
	RECIPE_TEXT_MAX = 64 * 1024,
	RECIPE_ENV_MAX = 256,
};

/* Is this a recipe? {fromImage | fromTemplate, steps: [{type, args, filesHash?}], startCmd?,
 * readyCmd?}; other members are nobody's. */
int recipe_check(const json_t *recipe, struct err *e);

struct recipe_terms {
	const char *agent;	   /* whose policy the build is under */
	const char *owner;	   /* whose templates it may begin with */
	const char *level;	   /* the lowest isolation level; "": that of the policy */
	bool all;		   /* an administrator's: its log may have details of the host */
	const char *key;	   /* whose build it is: its sandbox counts for this key */
	const struct quota *quota; /* what that key may have in all; NULL: no limit */
};

/* Builds it; what happens is told in the build's log, and so is the end. An error is the build's
 * too, unless it could not be written down. */
int recipe_run(const struct template_store *store, const struct template_build *b,
	       const json_t *recipe, const struct recipe_terms *terms, struct err *e);
