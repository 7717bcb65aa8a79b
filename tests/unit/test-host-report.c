/* SPDX-License-Identifier: Apache-2.0 */
/* Versions and vulnerabilities, the two forms of the report, and one probe of the real host. */
#include "unit.h"

#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/json-util.h"
#include "base/str.h"
#include "host/probe.h"

static struct host_report report;

TEST(versions)
{
	assert_true(cve_version_compare("1.8.1", "1.8.1") == 0);
	assert_true(cve_version_compare("1.8", "1.8.1") < 0);
	assert_true(cve_version_compare("1.10", "1.9.9") > 0);
	assert_true(cve_version_compare("1.1.5+ds1", "1.1.5") == 0);
	assert_true(cve_version_compare("1.4.0-rc.2", "1.4.0") < 0);
	assert_true(cve_version_compare("1.4.0", "1.4.0~rc2") > 0);
	assert_true(cve_version_compare("", "0.1") < 0);
	assert_true(cve_version_compare("99999999999999999999", "1") < 0);
}

TEST(fixed_branches)
{
	const struct engine_cve row = { "CVE-1", "1.2.8 1.3.3 1.4.0", "x", NULL };
	static const char *const open[] = { "1.1.15", "1.2.7", "1.3.0", "1.3.2", "1.4.0-rc.1" };
	static const char *const fixed[] = { "1.2.8", "1.2.9", "1.3.3", "1.3.10", "1.4.0", "2.0" };

	for (size_t i = 0; i < ARRAY_SIZE(open); i++)
		assert_true(cve_applies(&row, open[i]));
	for (size_t i = 0; i < ARRAY_SIZE(fixed); i++)
		assert_false(cve_applies(&row, fixed[i]));
}

TEST(changelogs)
{
	const struct engine_cve rows[] = { { "CVE-2024-2", "1", "", NULL },
					   { "CVE-2024-21", "1", "", NULL },
					   { NULL } };

	assert_true(cve_patched(rows, "") == 0);
	assert_true(cve_patched(rows, "Fixes CVE-2024-211, CVE-2024-21") == 2);
	assert_true(cve_patched(rows, "CVE-2024-2; CVE-2024-21626") == 1);
}

/* A row out of order or without a number would never match. */
TEST(tables)
{
	for (size_t i = 0; engines[i]; i++) {
		const struct engine_cve *rows = engines[i]->cves;
		size_t n = 0;

		for (; rows[n].id; n++) {
			assert_true(str_has_prefix(rows[n].id, "CVE-"));
			assert_true(ascii_is_digit(rows[n].fixed[0]));
			assert_true(cve_applies(&rows[n], "0.0.1"));
			assert_false(cve_applies(&rows[n], "99999999.0"));
		}
		assert_true(n < 64);
	}
}

TEST(banners)
{
	char v[64];

	assert_true(engine_version("crun version 1.8.1", v, sizeof(v)));
	assert_string_equal(v, "1.8.1");
	assert_true(engine_version("crun version 1.8.1+ds1", v, sizeof(v)));
	assert_string_equal(v, "1.8.1+ds1");
	assert_true(engine_version("QEMU emulator version 7.2.22 (Debian 1:7.2)", v, sizeof(v)));
	assert_string_equal(v, "7.2.22");
	assert_false(engine_version("crun version ", v, sizeof(v)));
	assert_false(engine_version("", v, sizeof(v)));
	assert_false(engine_version("crun version 1.8.1", v, 3));
}

TEST(texts)
{
	struct host_check c = { .id = "x", .title = "x" };
	char out[8];

	check_value(&c, HOST_WARN, "%s", "a\033[2Jb\n\xff");
	assert_string_equal(c.value, "a\\x1b[2Jb\\n\\xff");
	check_detail(&c, "one");
	check_detail(&c, "two");
	assert_string_equal(c.detail, "one; two");
	for (size_t i = 0; i < 1000; i++)
		check_detail(&c, "a sentence that fills it up");
	assert_true(strlen(c.detail) < sizeof(c.detail));
	assert_true(utf8_valid(c.detail, strlen(c.detail)));
	host_set_text(out, sizeof(out), "abc\u00e4\u00e4\u00e4\u00e4");
	assert_string_equal(out, "abc...");
	host_set_text(out, sizeof(out), "1234567");
	assert_string_equal(out, "1234567");
}

static void add(const char *id, enum host_area area, enum host_state s, const char *detail,
		const char *advice)
{
	struct host_check *c = &report.checks[report.n_checks++];

	*c = (struct host_check){ .id = id, .title = id, .area = area };
	check_value(c, s, "some value of it");
	if (detail[0])
		check_detail(c, "%s", detail);
	if (advice[0])
		check_advice(c, "%s", advice);
}

static int small_report(void **state)
{
	report = (struct host_report){ .kernel = "6.1", .arch = "x86_64", .os = "Debian" };
	add("works", HOST_AREA_KERNEL, HOST_OK, "unseen", "");
	add("fails", HOST_AREA_KERNEL, HOST_FAIL,
	    "a long explanation that goes on and on and on, "
	    "so that it has to be broken into lines",
	    "do this first");
	add("warns", HOST_AREA_ENGINES, HOST_WARN, "", "do that");
	add("warns-too", HOST_AREA_ENGINES, HOST_WARN, "", "do that");
	add("tells", HOST_AREA_HARDWARE, HOST_INFO, "", "or this");
	report.levels[LEVEL_GVISOR].verdict = HOST_UNAVAILABLE;
	(void)snprintf(report.levels[LEVEL_GVISOR].why, HOST_WHY_MAX, "nothing there");
	return 0;
}

static char *print(bool color, size_t width)
{
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);

	assert_non_null(f);
	assert_int_equal(host_report_print_width(&report, f, color, width), 0);
	(void)fclose(f);
	return text;
}

TEST_WITH(for_people, small_report, NULL)
{
	_cleanup_free_ char *text = print(false, 60);

	assert_null(strchr(text, '\033'));
	assert_null(strstr(text, "unseen"));
	assert_non_null(strstr(text, "FAIL  fails                   some value of it\n"));
	assert_non_null(strstr(text, "\n  gvisor     unavailable  nothing there\n"));
	assert_non_null(strstr(text, "\n  1. fails: do this first\n  2. warns: do that\n\nOpt"));
	assert_non_null(strstr(text, "\n  -  tells: or this\n"));
	assert_null(strstr(text, "warns-too: "));
}

TEST_WITH(fits, small_report, NULL)
{
	for (size_t width = 60; width <= 100; width++) {
		_cleanup_free_ char *text = print(false, width);

		for (const char *p = text; *p; p += strcspn(p, "\n") + 1)
			assert_true(strcspn(p, "\n") <= width);
	}
}

TEST_WITH(in_color, small_report, NULL)
{
	_cleanup_free_ char *text = print(true, 100);

	assert_non_null(strstr(text, "\033[31m\u2717\033[0m"));
	assert_non_null(strstr(text, "\033[32m\u2713\033[0m"));
	report.n_checks = 1;
	free(text);
	text = print(false, 1000);
	assert_non_null(strstr(text, "Nothing to do."));
	assert_null(strstr(text, "Optional"));
}

TEST_WITH(full_device, small_report, NULL)
{
	_cleanup_fclose_ FILE *f = fopen("/dev/full", "w");

	assert_non_null(f);
	assert_int_equal(host_report_print(&report, f, false), -EIO);
}

TEST_WITH(for_programs, small_report, NULL)
{
	_cleanup_json_ json_t *j = NULL;
	const json_t *c, *l;

	assert_int_equal(host_report_json(&report, &j), 0);
	assert_int_equal(json_object_size(j), 3);
	assert_string_equal(json_string_value(json_object_get(json_object_get(j, "host"), "os")),
			    "Debian");
	assert_int_equal(json_array_size(json_object_get(j, "checks")), report.n_checks);
	c = json_array_get(json_object_get(j, "checks"), 1);
	assert_int_equal(json_object_size(c), 6);
	assert_string_equal(json_string_value(json_object_get(c, "id")), "fails");
	assert_string_equal(json_string_value(json_object_get(c, "area")), "kernel");
	assert_string_equal(json_string_value(json_object_get(c, "state")), "fail");
	assert_string_equal(json_string_value(json_object_get(c, "advice")), "do this first");
	l = json_array_get(json_object_get(j, "levels"), LEVEL_GVISOR - LEVEL_FIRST);
	assert_string_equal(json_string_value(json_object_get(l, "level")), "gvisor");
	assert_string_equal(json_string_value(json_object_get(l, "state")), "unavailable");
}

static int sleeps(long seconds)
{
	(void)sleep((unsigned int)seconds);
	return 0;
}

static int dies(long status)
{
	_exit((int)status);
}

static int answers(long r)
{
	return (int)r;
}

TEST(children)
{
	uint64_t start = clock_mono();

	assert_int_equal(try_in_child(answers, -EPERM), -EPERM);
	assert_int_equal(try_in_child(answers, 0), 0);
	assert_int_equal(try_in_child(dies, 1), -EIO);
	assert_int_equal(try_in_child(sleeps, 60), -ETIME);
	assert_true(clock_mono() - start < 10 * NSEC_PER_SEC);
	/* No child is left, dead or alive. */
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
}

TEST(real_host)
{
	_cleanup_json_ json_t *j = NULL;
	struct host_options o;
	struct err e = ERR_INIT;

	host_options_default(&o);
	o.state_dir = o.run_dir = "/tmp";
	assert_int_equal(host_probe(&o, &report, &e), 0);
	assert_true(report.n_checks > 20);
	for (size_t i = 0; i < report.n_checks; i++) {
		const struct host_check *c = &report.checks[i];

		assert_true(host_report_find(&report, c->id) == c);
		assert_true(c->value[0]);
		if (c->state >= HOST_WARN)
			assert_true(c->advice[0] || c->detail[0]);
	}
	assert_int_equal(host_report_json(&report, &j), 0);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}
