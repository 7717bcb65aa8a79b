/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/trust.h"

#include <fcntl.h>

#include "base/fd.h"
#include "base/log.h"
#include "ca-store/ca-store.h"

static_assert((int)WIRE_CA_MAX == (int)CA_STORE_CERT_MAX, "every CA of a HELLO can be installed");

int trust_hello(const struct fields *hello, struct err *e)
{
	static bool again;
	const bool first = !again;
	_cleanup_close_ int root = -EBADF;
	const char *ca;
	size_t pos = 0, n;

	again = true;
	if (!fields_next(hello, TAG_CA, &pos, &ca, &n))
		return 0;
	root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return err_errno(e, "cannot open the root directory");
	if (ca_store_install(root, ca, n, e) == 0)
		return 0;
	if (first)
		return e->num;
	log_warning("%s", e->msg);
	return 0;
}
