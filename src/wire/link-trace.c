/* SPDX-License-Identifier: Apache-2.0 */
/* Frames as trace lines: type, operation, channel and length, never the contents. */
#include "base/trace.h"
#include "wire/link-inside.h"

static const char *const types[WIRE_TYPE_MAX] = {
	[WIRE_HELLO] = "HELLO", [WIRE_PING] = "PING",	  [WIRE_PONG] = "PONG",
	[WIRE_OPEN] = "OPEN",	[WIRE_ACCEPT] = "ACCEPT", [WIRE_DATA] = "DATA",
	[WIRE_EOF] = "EOF",	[WIRE_CREDIT] = "CREDIT", [WIRE_MSG] = "MSG",
	[WIRE_CLOSE] = "CLOSE", [WIRE_SLEEP] = "SLEEP",	  [WIRE_ASLEEP] = "ASLEEP",
	[WIRE_WAKE] = "WAKE",
};

static const char *const messages[WIRE_MSG_MAX] = {
	[WIRE_MSG_SIGNAL] = "signal", [WIRE_MSG_RESIZE] = "resize", [WIRE_MSG_EXIT] = "exit",
	[WIRE_MSG_ENTRY] = "entry",   [WIRE_MSG_EVENT] = "event",   [WIRE_MSG_LIMIT] = "limit",
};

const char *wire_op_name(unsigned int op)
{
	static const char *const names[WIRE_OP_MAX] = {
		[WIRE_OP_EXEC] = "exec",     [WIRE_OP_READ] = "read",
		[WIRE_OP_WRITE] = "write",   [WIRE_OP_STAT] = "stat",
		[WIRE_OP_LIST] = "list",     [WIRE_OP_MKDIR] = "mkdir",
		[WIRE_OP_MOVE] = "move",     [WIRE_OP_REMOVE] = "remove",
		[WIRE_OP_WATCH] = "watch",   [WIRE_OP_PACK] = "pack",
		[WIRE_OP_UNPACK] = "unpack", [WIRE_OP_ATTACH] = "attach",
		[WIRE_OP_EGRESS] = "egress", [WIRE_OP_LIFE] = "life",
		[WIRE_OP_PORT] = "port",     [WIRE_OP_CONNECT] = "connect",
		[WIRE_OP_ASK] = "ask",	     [WIRE_OP_ADOPT] = "adopt",
		[WIRE_OP_SAVE] = "save",     [WIRE_OP_TRACE] = "trace",
	};

	return op < WIRE_OP_MAX && names[op] ? names[op] : "unknown operation";
}

static const char *other_side(const struct link *l)
{
	if (l->role == LINK_KEEPER)
		return l->client ? "keeper" : "guest";
	return l->client ? "client" : "keeper";
}

/* The meaning of `sub`, with a leading space. */
static void describe_sub(uint8_t type, uint8_t sub, char *out, size_t n)
{
	out[0] = '\0';
	if (type == WIRE_OPEN)
		(void)snprintf(out, n, " %s", wire_op_name(sub));
	else if (type == WIRE_MSG)
		(void)snprintf(out, n, " %s",
			       sub < WIRE_MSG_MAX && messages[sub] ? messages[sub] : "unknown");
	else if (type == WIRE_DATA || type == WIRE_EOF || type == WIRE_CREDIT)
		(void)snprintf(out, n, " stream %u", sub);
}

/* Trace lines are frames too: skips the channels that carry them. */
void link_trace(struct link *l, bool out, uint8_t type, uint32_t ch, uint8_t sub, size_t n)
{
	const struct channel *c = link_find(l, ch);
	const char *request = NULL;
	char what[32], on[32] = "";

	if ((type == WIRE_OPEN ? sub : c ? c->op : 0) == WIRE_OP_TRACE)
		return;
	if (c && l->ops->request)
		request = l->ops->request(l, ch, l->arg);
	describe_sub(type, sub, what, sizeof(what));
	if (ch != 0)
		(void)snprintf(on, sizeof(on), " on channel %u", ch);
	TRACE_OF(request, TRACE_FRAME, "%s %s: %s%s%s, %zu bytes", out ? "to" : "from",
		 other_side(l), type < WIRE_TYPE_MAX && types[type] ? types[type] : "?", what, on,
		 n);
}
