/* SPDX-License-Identifier: Apache-2.0 */
/* A resolver's response, through c-ares and the address check: only public addresses may pass. */
#include <ares.h>
#include <limits.h>
#include <string.h>

#include "egress/check.h"
#include "egress/resolve.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ruleset *none = NULL;
	struct answer a = { 0 };

	if (size > 4096)
		return 0;
	assert(ruleset_new(NULL, 0, &none) == 0);
	for (int family = 4; family <= 6; family += 2) {
		size_t before = a.n;
		int r = resolve_parse(data, (int)size, family, &a);

		assert(r == ARES_SUCCESS || a.n == before);
		assert(a.n - before <= RESOLVE_ADDRS_MAX);
		for (size_t i = before; i < a.n; i++) {
			enum addr_class class = addr_classify(&a.v[i]);

			assert(a.v[i].family == family);
			if (!check_resolved(none, &a.v[i], 443, false))
				assert(class == ADDR_PUBLIC);
			if (!check_resolved(none, &a.v[i], 443, true))
				assert(class == ADDR_PUBLIC || class == ADDR_PRIVATE);
		}
	}
	(void)ruleset_free(none);
	return 0;
}
