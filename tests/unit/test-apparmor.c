/* SPDX-License-Identifier: Apache-2.0 */
/* tests/slow/debian, on a host with AppArmor, tests that a loaded profile is found. */
#include "unit.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/apparmor.h"

TEST(nobody_has_it)
{
	bool here = access("/proc/self/attr/apparmor/current", R_OK) == 0;
	int r = apparmor_try("hutch-test-that-nobody-loads");

	(void)state;
	if (here)
		assert_true(r == -ENOENT || r == -EACCES || r == -EOPNOTSUPP);
	else
		assert_int_equal(r, -EOPNOTSUPP);
}

TEST(too_long)
{
	char name[200];

	(void)state;
	memset(name, 'a', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(apparmor_try(name), -ENAMETOOLONG);
}
