/* SPDX-License-Identifier: Apache-2.0 */
/* hutch doctor */
#include "cli.h"
#include "host.h"

int cmd_doctor(struct invocation *inv)
{
	_cleanup_free_ struct host_report *report = calloc(1, sizeof(*report));
	struct host_options options;
	struct err e = ERR_INIT;
	json_t *j = NULL;
	int code;

	if (!report)
		return cli_fail(inv, (err_oom(&e), &e));
	host_options_default(&options);
	if (host_probe(&options, report, &e) < 0)
		return cli_fail(inv, &e);
	code = report->levels[HOST_LEVEL_CONTAINER].verdict == HOST_UNAVAILABLE ? EXIT_NO : EXIT_OK;
	if (cli_option(inv, "json"))
		return cli_print_json(host_report_json(report, &j) == 0 ? j : NULL, code);
	return host_report_print(report, stdout, inv->color) < 0 ? EXIT_HUTCH : code;
}
