/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations shared by the files of this directory. */
#pragma once

#include "template/template.h"

enum {
	TEMPLATE_FILE_NAME = 128,
};

/* Locks the store until *ret_fd is closed. */
int template_lock(const struct template_store *s, int *ret_fd, struct err *e);

bool template_id_valid(const char *id);

/* Write n random characters of [a-z0-9] and a NUL; a version 4 UUID. Return 0 or -errno. */
int template_random(char *out, size_t n);
int template_uuid(char out[static TEMPLATE_BUILD_ID + 1]);

/*
 * Read and write a JSON file below `dir`; the caller has validated the name. Keys are sorted, and
 * an id comes first: if memory runs out, jansson 2.14 aborts (assert) at a number that is longer
 * than every string before it.
 */
int template_read(int dir, const char *file, json_t **ret, struct err *e);
int template_write(int dir, const char *file, const json_t *j, struct err *e);

/* Counts the .json files of a directory. */
int template_count(int dir, size_t *ret, struct err *e);

/* The parts of a reference NAME[:TAG]; `tag` is "default" if missing. -EINVAL if invalid. */
struct template_ref {
	char name[TEMPLATE_NAME_MAX + 1], tag[TEMPLATE_NAME_MAX + 1];
};

int template_ref_parse(const char *text, struct template_ref *ret, struct err *e);

/* ---- template-record.c: under the lock ---- */

void template_record_file(const char *name, char out[static TEMPLATE_FILE_NAME]);

/* By its name alone. -ENOENT. */
int template_record_read(const struct template_store *s, const char *name, json_t **ret,
			 struct err *e);
int template_record_write(const struct template_store *s, const json_t *record, struct err *e);

/* Reads the record of the template NAME or ID. -ENOENT. */
int template_record(const struct template_store *s, const char *name, json_t **ret, struct err *e);

/* Reads the record of the template with this id. -ENOENT. */
int template_record_of_id(const struct template_store *s, const char *id, json_t **ret,
			  struct err *e);

/* Reads the record of this name, or creates it. */
int template_record_make(const struct template_store *s, const char *name, json_t **ret,
			 struct err *e);

/* Lets a tag of the record mean this build. */
int template_put_tag(json_t *record, const char *tag, const char *build, struct err *e);

/* Lets the tags of `b` mean it. */
int template_set_tags(const struct template_store *s, const struct template_build *b,
		      struct err *e);

/* ---- template-share.c ---- */

/* Stops sharing a removed template, if it was shared. */
int template_unshare_gone(const char *name, const char *id, struct err *e);

/* ---- template-build.c ---- */
int template_build_read(const struct template_store *s, const char *build,
			struct template_build *ret, struct err *e);
