/* SPDX-License-Identifier: Apache-2.0 */
/* Floods of events: every one is counted. */
#include "test-audit.h"

#include "base/clock.h"

/* ---- floods ---- */

/* The number behind `key` in the payload. */
static uint64_t number(const char *text, const char *key)
{
	const char *p = strstr(text, key);

	assert_non_null(p);
	return strtoull(p + strlen(key), NULL, 10);
}

static uint64_t sum_counts(const char *text)
{
	uint64_t sum = number(text, "\"others\":");

	for (const char *p = text; (p = strstr(p, "\"count\":")); p++)
		sum += number(p, "\"count\":");
	return sum;
}

/* A million events in sixty seconds, to names that mostly do not repeat. */
TEST_WITH(test_million, setup, unit_dir_teardown)
{
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	static struct audit_chain c;
	static struct audit_tally t;
	uint64_t single = 0, summed = 0, now = 5 * NSEC_PER_SEC;
	struct err e = ERR_INIT;

	open_log(&l);
	must(audit_sandbox_begin(&l, "abc", &c, &e), &e);
	for (uint64_t i = 0; i < 1000000; i++, now += 60000) {
		char name[64];

		if (audit_tally_due(&t) && now >= audit_tally_due(&t)) {
			assert_int_equal(audit_tally_record(&t, &c, AUDIT_EGRESS_SUM, now, &p), 0);
			assert_int_equal(sum_counts(payload(&c)),
					 number(payload(&c), "\"events\":"));
			summed += number(payload(&c), "\"events\":");
		}
		(void)snprintf(name, sizeof(name), "%llu.example.com:443",
			       (unsigned long long)(i % 3 ? i : i % 5));
		if (audit_tally_add(&t, AUDIT_EGRESS, name, now)) {
			assert_int_equal(box(&c, name), 0);
			single++;
		}
	}
	assert_int_equal(audit_tally_record(&t, &c, AUDIT_EGRESS_SUM, now, &p), 0);
	summed += number(payload(&c), "\"events\":");
	assert_int_equal(single + summed, 1000000);
	assert_true(single >= AUDIT_TALLY_SINGLE && single < 1000);
	print_message("# %llu single, %llu summed, %llu bytes\n", (unsigned long long)single,
		      (unsigned long long)summed, (unsigned long long)c.bytes);
	assert_true(c.bytes < 1024 * 1024);
	assert_int_equal(audit_tally_due(&t), 0);
	audit_chain_close(&c);
	assert_false(look(&l, NULL).bad);
}

/* A full disk loses no count. */
TEST_WITH(test_tally_full_disk, setup, unit_dir_teardown)
{
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	static struct audit_chain c;
	static struct audit_tally t;
	struct err e = ERR_INIT;

	(void)signal(SIGXFSZ, SIG_IGN);
	open_log(&l);
	must(audit_sandbox_begin(&l, "abc", &c, &e), &e);
	for (int i = 0; i < 100; i++)
		(void)audit_tally_add(&t, AUDIT_EGRESS, "x", 1);
	limit_size(c.bytes + 3);
	assert_int_equal(box(&c, "/half"), -EFBIG);
	assert_int_equal(audit_tally_record(&t, &c, AUDIT_EGRESS_SUM, 2, &p), -EFBIG);
	assert_int_equal(t.counted, 92);
	limit_size(0);
	assert_int_equal(audit_tally_record(&t, &c, AUDIT_EGRESS_SUM, 2, &p), 0);
	assert_int_equal(number(payload(&c), "\"events\":"), 92);
	audit_chain_close(&c);
}
