/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's end of the link, which receives the keeper's bytes: after HELLO, with nothing
 * open. */
#include "wire-shadow.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_buf_ struct buf hello = BUF_INIT(256), theirs = BUF_INIT(256),
				 first = BUF_INIT(256);
	struct world w;

	fields_put_number(&hello, TAG_VERSION, WIRE_VERSION);
	fields_put_text(&hello, TAG_AGENT, "fuzz");
	fields_put_number(&theirs, TAG_VERSION, WIRE_VERSION);
	fields_put_text(&theirs, TAG_READ, "/usr");
	put_frame(&first, WIRE_HELLO, 0, 0, &theirs);
	world_start(&w, LINK_GUEST, &hello, &first);
	world_run(&w, data, size);
	world_end(&w);
	return 0;
}
