/* SPDX-License-Identifier: Apache-2.0 */
#include "api/signature.h"

#include <string.h>

#include "base/clock.h"
#include "unit.h"

/* Made with sha256sum and base64, by the rule of E2B's SDKs. */
TEST(test_vectors)
{
	char out[SIGNATURE_TEXT + 1];

	signature_make("/tmp/a", "read", "user", "token", NULL, out);
	assert_string_equal(out, "v1_QWD6k4p1iDIDKCW6EAOoUosxT0FpphZhN3AN8lEorkI");
	signature_make("/tmp/url \xc3\xbc.txt", "write", "", "0123456789abcdef", "1700000000", out);
	assert_string_equal(out, "v1_Iiqzpq+QPIpw80CYnVhySZyrpMiBz4TxAiTtchjg5Hk");
}

static bool matches(const char *query, const char *token, const char *op)
{
	const struct exchange x = { .query = query };

	return signature_matches(&x, token, op);
}

#define SIGNED \
	"path=%2Ftmp%2Fa&username=user&signature=v1_QWD6k4p1iDIDKCW6EAOoUosxT0FpphZhN3AN8lEorkI"

TEST(test_matches)
{
	assert_true(matches(SIGNED, "token", "read"));
	assert_false(matches(SIGNED, "token", "write"));
	assert_false(matches(SIGNED, "tokem", "read"));
	assert_false(matches(SIGNED, "", "read"));
	assert_false(matches("path=%2Ftmp%2Fb&username=user&signature=v1_"
			     "QWD6k4p1iDIDKCW6EAOoUosxT0FpphZhN3AN8lEorkI",
			     "token", "read"));
	assert_false(
		matches("path=%2Ftmp%2Fa&signature=v1_QWD6k4p1iDIDKCW6EAOoUosxT0FpphZhN3AN8lEorkI",
			"token", "read"));
	assert_false(matches("path=%2Ftmp%2Fa&username=user", "token", "read"));
	assert_false(matches("path=%2Ftmp%2Fa&username=user&signature=", "token", "read"));
	assert_false(matches(SIGNED "A", "token", "read"));
	/* An expiration that was not signed does not count. */
	assert_false(matches(SIGNED "&signature_expiration=4000000000", "token", "read"));
	assert_true(matches("path=%2Ftmp%2Furl%20%C3%BC.txt&signature_expiration=1700000000"
			    "&signature=v1_Iiqzpq%2BQPIpw80CYnVhySZyrpMiBz4TxAiTtchjg5Hk",
			    "0123456789abcdef", "write"));
	assert_false(matches("path=%2Ftmp%2Furl%20%C3%BC.txt&signature=v1_Iiqzpq%"
			     "2BQPIpw80CYnVhySZyrpMiBz4TxAiTtchjg5Hk",
			     "0123456789abcdef", "write"));
	assert_false(matches("path=%ff&signature=v1_Iiqzpq%2BQPIpw80CYnVhySZyrpMiBz4TxAiTtchjg5Hk",
			     "0123456789abcdef", "write"));
}

static int expired(const char *query)
{
	const struct exchange x = { .query = query };

	return signature_expired(&x);
}

TEST(test_expired)
{
	char query[64];
	unsigned long long now = clock_wall() / NSEC_PER_SEC;

	assert_int_equal(expired(""), 0);
	assert_int_equal(expired("signature_expiration=1"), 1);
	assert_int_equal(expired("signature_expiration=0"), 1);
	assert_int_equal(expired("signature_expiration="), -EINVAL);
	assert_int_equal(expired("signature_expiration=-5"), -EINVAL);
	assert_int_equal(expired("signature_expiration=99999999999999999999"), -EINVAL);
	(void)snprintf(query, sizeof(query), "signature_expiration=%llu", now + 60);
	assert_int_equal(expired(query), 0);
	(void)snprintf(query, sizeof(query), "signature_expiration=%llu", now - 5);
	assert_int_equal(expired(query), 1);
}
