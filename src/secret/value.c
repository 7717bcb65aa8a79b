/* SPDX-License-Identifier: Apache-2.0 */
/* Values, names and commands as text: which are valid. */
#include <string.h>

#include "base/str.h"
#include "secret/inner.h"

DEFINE_NAMES(secret_source_name, enum secret_source, SECRET_SOURCES,
	     "?", [SECRET_PROMPT] = "prompt", [SECRET_STDIN] = "stdin", [SECRET_FILE] = "file",
	     [SECRET_ENV] = "env", [SECRET_EXEC] = "exec", [SECRET_OAUTH] = "oauth",
	     [SECRET_GITHUB_APP] = "github-app");

void secret_wipe(struct buf *b)
{
	if (b->data)
		sodium_memzero(b->data, b->cap);
	buf_done(b);
}

void secret_info_done(struct secret_info *i)
{
	json_decref(i->command);
	json_decref(i->hosts);
	*i = (struct secret_info){ 0 };
}

static bool is_start(char c)
{
	return c == '_' || ascii_is_lower(ascii_lower(c));
}

int secret_name_check(const char *name, struct err *e)
{
	size_t n = strlen(name);
	bool valid = n > 0 && n <= SECRET_NAME_MAX && is_start(name[0]);

	for (size_t i = 1; valid && i < n; i++)
		valid = is_start(name[i]) || ascii_is_digit(name[i]);
	return valid ? 0
		     : err_set(e, -EINVAL,
			       "'%.64s' is not the name of a secret: expected 1 to %d letters, "
			       "digits and underscores, no digit first",
			       name, SECRET_NAME_MAX);
}

/* One newline, also as written on Windows: editors and `echo` add it. */
void secret_value_trim(struct buf *b)
{
	if (b->len > 0 && b->data[b->len - 1] == '\n')
		b->len--;
	else
		return;
	if (b->len > 0 && b->data[b->len - 1] == '\r')
		b->len--;
	b->data[b->len] = '\0';
}

static int check_characters(const char *value, size_t n, struct err *e)
{
	uint32_t c;

	for (size_t i = 0, k; i < n; i += k) {
		k = utf8_decode(value + i, n - i, &c);
		if (k == 0)
			return err_set(e, -EINVAL,
				       "the value is not UTF-8 text: encode it, for example with "
				       "base64");
		if (c == '\n' || c == '\r')
			return err_set(e, -EINVAL,
				       "the value has more than one line: HTTP requests hold only "
				       "values of one line");
		if (c < ' ' || (c >= 0x7f && c < 0xa0))
			return err_set(e, -EINVAL,
				       "the value has a control character (0x%02x): HTTP requests "
				       "cannot hold it",
				       (unsigned int)c);
	}
	return 0;
}

int secret_value_check(const char *value, size_t n, struct err *e)
{
	if (n == 0)
		return err_set(e, -EINVAL, "the value is empty");
	if (n > SECRET_VALUE_MAX)
		return err_set(e, -EINVAL, "the value is longer than %d bytes", SECRET_VALUE_MAX);
	if (check_characters(value, n, e) < 0)
		return e->num;
	if (value[0] == ' ' || value[n - 1] == ' ')
		return err_set(e, -EINVAL,
			       "the value begins or ends with a space: HTTP fields lose it");
	if (n < SECRET_VALUE_MIN)
		return err_set(e, -EINVAL,
			       "the value is shorter than %d bytes: responses contain so short a "
			       "text by chance, so it could not be masked there",
			       SECRET_VALUE_MIN);
	return 0;
}

int secret_command_check(const char *const *command, size_t n, struct err *e)
{
	size_t total = 0;

	if (n == 0 || !command[0][0])
		return err_set(e, -EINVAL, "the command is empty");
	if (n > SECRET_ARGS_MAX)
		return err_set(e, -EINVAL, "the command has more than %d words", SECRET_ARGS_MAX);
	if (command[0][0] != '/' && strchr(command[0], '/'))
		return err_set(e, -EINVAL,
			       "'%.80s' is a relative path: 'hutch secret rotate' runs the command "
			       "again from any directory, so give an absolute path",
			       command[0]);
	for (size_t i = 0; i < n; i++) {
		total += strlen(command[i]) + 1;
		if (!utf8_valid(command[i], strlen(command[i])))
			return err_set(e, -EINVAL, "word %zu of the command is not UTF-8", i + 1);
	}
	if (total > SECRET_COMMAND_MAX)
		return err_set(e, -EINVAL, "the command is longer than %d bytes",
			       SECRET_COMMAND_MAX);
	return 0;
}
