/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A template's recipe: steps that run one after the other in a sandbox of the base image, whose
 * result becomes an image. Blocks, so run it in a job. The sandbox ends with the building process,
 * however that ends.
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

/* Checks a recipe: {fromImage | fromTemplate, steps: [{type, args, filesHash?}], startCmd?,
 * readyCmd?}; other members are ignored. */
int recipe_check(const json_t *recipe, struct err *e);

struct recipe_terms {
	const char *agent;	   /* its policy applies to the build */
	const char *owner;	   /* the base template must belong to this owner */
	const char *level;	   /* minimum isolation level; "": the policy's */
	bool all;		   /* administrator: the log may show details of the host */
	const char *key;	   /* the build's sandbox counts for this key */
	const struct quota *quota; /* limits of that key; NULL: none */
};

/* Builds the recipe. Progress and result go to the build's log; an error fails the build, and is
 * returned only if it could not be recorded. */
int recipe_run(const struct template_store *store, const struct template_build *b,
	       const json_t *recipe, const struct recipe_terms *terms, struct err *e);
