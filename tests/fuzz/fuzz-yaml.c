/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent file from an untrusted author. For any bytes, every message has a position in the file
 * or in a built-in file, and a file that compiles has a canonical form that stays the same when
 * compiled again.
 */
#include <string.h>

#include "builtin/builtin.h"
#include "fuzz.h"
#include "policy/policy.h"

static int compile(const uint8_t *data, size_t size, char digest[static POLICY_DIGEST_HEX + 1])
{
	struct policy_store store = POLICY_STORE_INIT(builtin_files, builtin_files_n, NULL);
	_cleanup_policy_ struct policy *p = NULL;
	static struct diags d; /* 20 KiB: too much for the stack of a fuzzer under ASan */
	_cleanup_free_ char *text = NULL;
	struct err e = ERR_INIT;
	int r = policy_compile_text(&store, "fuzz", (const char *)data, size, &d, &p, &e);

	assert((r == 0) == (d.errors == 0 && !d.oom));
	for (size_t i = 0; i < d.n; i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(64 * 1024);

		assert(d.list[i].pos.line > 0 && d.list[i].pos.column > 0 && d.list[i].text[0]);
		assert(diag_format(&d.list[i], &b) == 0 && !strchr(b.data, '\n'));
	}
	if (r == 0)
		assert(policy_canonical(p, &text, digest) == 0);
	diags_done(&d);
	policy_store_done(&store);
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char first[POLICY_DIGEST_HEX + 1], again[POLICY_DIGEST_HEX + 1];

	if (compile(data, size, first) == 0)
		assert(compile(data, size, again) == 0 && strcmp(first, again) == 0);
	return 0;
}
