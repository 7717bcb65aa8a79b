/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a sandbox's config.json: bundle ROOTFS GUEST HOST-ID */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/util.h"
#include "engine/oci.h"

int main(int argc, char **argv)
{
	struct oci_spec spec = { .hostname = "sandbox", .shm = 16 << 20, .core = INT64_MAX };
	_cleanup_free_ char *text = NULL;
	struct rlimit nofile;

	if (argc != 4 || getrlimit(RLIMIT_NOFILE, &nofile) < 0)
		return 2;
	spec.rootfs = argv[1];
	spec.guest = argv[2];
	spec.host_uid = spec.host_gid = (uint32_t)strtoul(argv[3], NULL, 10);
	spec.nofile = MIN(nofile.rlim_max, (rlim_t)4096);
	text = oci_config(&spec);
	return !text || puts(text) < 0;
}
