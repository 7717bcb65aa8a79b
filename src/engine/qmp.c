/* SPDX-License-Identifier: Apache-2.0 */
/* QEMU formats its objects in one way: a space after every colon and comma and nowhere else; in a
 * reply "return" or "error" first; in an event "timestamp", "event", and "data" if there is any. */
#include "engine/qmp.h"

#include <string.h>

#include "base/str.h"

struct rest {
	const char *s;
	size_t n;
};

static bool take(struct rest *r, const char *text)
{
	size_t k = strlen(text);

	if (r->n < k || memcmp(r->s, text, k) != 0)
		return false;
	r->s += k;
	r->n -= k;
	return true;
}

static bool take_digits(struct rest *r)
{
	size_t k = 0;

	while (k < r->n && ascii_is_digit(r->s[k]))
		k++;
	r->s += k;
	r->n -= k;
	return k > 0;
}

static bool is(const struct rest *r, const char *text)
{
	return r->n == strlen(text) && memcmp(r->s, text, r->n) == 0;
}

static enum qmp_line read_migration(const struct rest *r)
{
	if (is(r, ", \"data\": {\"status\": \"completed\"}}"))
		return QMP_MIGRATED;
	if (is(r, ", \"data\": {\"status\": \"failed\"}}") ||
	    is(r, ", \"data\": {\"status\": \"cancelled\"}}"))
		return QMP_MIGRATION_FAILED;
	return QMP_OTHER;
}

/* There is only one port. */
static enum qmp_line read_port(struct rest r)
{
	return take(&r, ", \"data\": {\"open\": true") ? QMP_PORT_OPEN : QMP_OTHER;
}

/* The order of the members is not fixed. */
static enum qmp_line read_block_error(const struct rest *r)
{
	static const char full[] = "\"nospace\": true";

	return memmem(r->s, r->n, full, sizeof(full) - 1) ? QMP_NO_SPACE : QMP_OTHER;
}

static enum qmp_line read_event(struct rest r)
{
	static const struct {
		const char *name;
		enum qmp_line line;
	} plain[] = { { "RESUME\"", QMP_RESUME },
		      { "STOP\"", QMP_STOP },
		      { "SHUTDOWN\"", QMP_SHUTDOWN } };

	if (!take_digits(&r) || !take(&r, ", \"microseconds\": ") || !take_digits(&r) ||
	    !take(&r, "}, \"event\": \""))
		return QMP_WRONG;
	if (take(&r, "MIGRATION\""))
		return read_migration(&r);
	if (take(&r, "BLOCK_IO_ERROR\""))
		return read_block_error(&r);
	if (take(&r, "VSERPORT_CHANGE\""))
		return read_port(r);
	for (size_t i = 0; i < ARRAY_SIZE(plain); i++)
		if (take(&r, plain[i].name))
			return plain[i].line;
	return QMP_OTHER;
}

enum qmp_line qmp_read_line(const char *line, size_t n)
{
	struct rest r = { line, n };

	if (n > 0 && line[n - 1] == '\r')
		r.n--;
	if (r.n < 2 || r.s[r.n - 1] != '}')
		return QMP_WRONG;
	if (take(&r, "{\"QMP\": {"))
		return QMP_GREETING;
	if (take(&r, "{\"return\": "))
		return QMP_RETURN;
	if (take(&r, "{\"error\": {"))
		return QMP_ERROR;
	if (take(&r, "{\"timestamp\": {\"seconds\": "))
		return read_event(r);
	return QMP_WRONG;
}
