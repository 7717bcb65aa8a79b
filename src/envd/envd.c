/* SPDX-License-Identifier: Apache-2.0 */
#include "envd/envd.h"

#include "envd/files.h"
#include "envd/fs.h"
#include "envd/ports.h"
#include "envd/process.h"
#include "envd/watch.h"

static int begin(struct api *a, struct err *e)
{
	return records_watch_new(a->config->loop, &a->records, e);
}

static void end(struct api *a)
{
	a->records = records_watch_free(a->records);
}

static void box_gone(struct box *b)
{
	watchers_drop(b);
	commands_drop(b);
}

static const struct route *const tables[] = { envd_process_routes, envd_fs_routes,
					      envd_watch_routes, envd_files_routes, NULL };
const struct api_part envd_part = { .routes = { [PLANE_SANDBOX] = tables },
				    .port = ports_handle,
				    .begin = begin,
				    .end = end,
				    .box_gone = box_gone };
