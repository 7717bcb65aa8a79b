/* SPDX-License-Identifier: Apache-2.0 */
/* All commands, in the order of the help. */
#include "cli/cli.h"

const struct command root_command = {
	.name = "hutch",
	.args = "",
	.summary = "run the code of AI agents in disposable sandboxes",
	.sub = COMMANDS(
		&cmd_run, &cmd_create, &cmd_exec, &cmd_shell, &cmd_attach, &cmd_logs, &cmd_wait,
		&cmd_signal, &cmd_cp, &cmd_commit, &cmd_watch, &cmd_ps, &cmd_inspect, &cmd_debug,
		&cmd_receipt, &cmd_pause, &cmd_suspend, &cmd_resume, &cmd_ttl, &cmd_kill, &cmd_rm,
		&cmd_gc, &cmd_config, &cmd_agents, &cmd_presets, &cmd_image, &cmd_snapshot,
		&cmd_template, &cmd_fork, &cmd_pool, &cmd_egress, &cmd_llm, &cmd_secret, &cmd_key,
		&cmd_audit, &cmd_mcp, &cmd_doctor, &cmd_completion, &cmd_help, &cmd_version),
};
