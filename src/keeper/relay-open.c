/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns a client's request into a relay, or refuses it. The guest is asked only after the journal
 * has recorded the request. A command needs a record file first; until one comes, the relay keeps
 * the request, and relays_recordable() then sends or refuses it. Attach uses the relay of a running
 * command and asks nothing of the guest.
 */
#include <string.h>

#include "base/log.h"
#include "keeper/command.h"
#include "keeper/merge.h"
#include "keeper/relay-inner.h"
#include "keeper/serve.h"

/* A client may only shorten the policy's time limit. */
static uint64_t limit_of(const struct keeper *k, const struct fields *f)
{
	uint64_t most = k->spec->limits.timeout;

	return MIN(most > 0 ? most : UINT64_MAX, fields_number(f, TAG_TIMEOUT, UINT64_MAX));
}

static void add(struct relay *r)
{
	struct keeper *k = r->keeper;

	r->in_place = true;
	k->relays.n_public += r->public;
	r->next = k->relays.list;
	if (k->relays.list)
		k->relays.list->prev = r;
	k->relays.list = r;
	k->relays.n++;
	k->relays.n_kind[relay_kind(r->op)]++;
}

/* Allocates a relay if the budget of its kind has room. */
static struct relay *relay_new(struct keeper *k, enum wire_op op, bool public)
{
	static const size_t most[RELAY_KINDS] = {
		[RELAY_EXEC] = RELAYS_EXEC,
		[RELAY_ATTACH] = RELAYS_ATTACH,
		[RELAY_FILES] = RELAYS_FILES,
	};
	enum relay_kind kind = relay_kind(op);
	bool room = kind == RELAY_PORT ? relay_port_room(k, public)
				       : k->relays.n_kind[kind] < most[kind];

	return room ? calloc(1, sizeof(struct relay)) : NULL;
}

/* Sends the request to the guest. On -errno the guest was not asked. */
static int ask(struct relay *r, const struct buf *b)
{
	struct keeper *k = r->keeper;
	int err;

	/* The policy's environment can make a short OPEN a long one. */
	if (port_waiting(&k->guest) + b->len > OUTPUT_STOPS_INPUT)
		keeper_check(k, port_flush(&k->guest));
	if (port_waiting(&k->guest) + b->len > OUTPUT_STOPS_INPUT)
		return -EAGAIN;
	if (journal_begin(r, b) < 0)
		return -ENODATA;
	err = r->op == WIRE_OP_PORT ? relay_port_begin(r) : relay_start_timer(r);
	if (err == 0)
		err = link_open(k->guest.link, r->adopted ? WIRE_OP_ADOPT : r->op, b, r,
				&r->guest_ch);
	if (err < 0) {
		loop_del_timer(&r->clock.timer);
		journal_end(r, WIRE_TOO_MANY, "the guest was not asked");
	} else if (r->command) {
		command_asked(r->command);
	}
	if (err == 0)
		TRACE_OF(r->request, TRACE_STATE, "%s asked of the guest, command %llu, channel %u",
			 wire_op_name(r->op),
			 (unsigned long long)(r->command ? r->command->record.number : 0),
			 r->guest_ch);
	if (err < 0 && err != -EAGAIN)
		keeper_check(k, err);
	return err;
}

/* Keeps the request until a record file comes. */
static int wait_for_record(struct relay *r, struct buf *b)
{
	struct keeper *k = r->keeper;

	if (k->relays.held[RELAY_EXEC] + b->len > HELD_MAX)
		return -EAGAIN;
	r->open = *b;
	*b = (struct buf)BUF_INIT(0);
	k->relays.held[RELAY_EXEC] += r->open.len;
	return 0;
}

static const char *too_many(const struct relay *r)
{
	static const char *const texts[RELAY_KINDS] = {
		[RELAY_EXEC] = "too many commands at once",
		[RELAY_ATTACH] = "too many have attached to commands",
		[RELAY_FILES] = "too many operations on files at once",
		[RELAY_PORT] = "too many connections to ports of the sandbox at once",
	};

	return texts[relay_kind(r->op)];
}

static int refuse(struct relay *r, int err)
{
	static const struct {
		int err;
		enum wire_code code;
		const char *text;
	} why[] = {
		{ -ENOBUFS, WIRE_INVALID, "arguments and environment are too long together" },
		{ -EINVAL, WIRE_INVALID,
		  "a name has letters, digits, '.', '_' and '-', and is not a number" },
		{ -EEXIST, WIRE_EXISTS, "a command of this name is running" },
		{ -ENOENT, WIRE_NOT_FOUND, "no such command is running" },
		{ -ENODEV, WIRE_UNSUPPORTED, "the command has no input, or it has ended" },
		{ -EBUSY, WIRE_EXISTS, "another client has its input" },
		{ -ENOSPC, WIRE_NO_SPACE, "there is no file for the record of the command" },
		{ -ENODATA, WIRE_IO, "the audit log cannot be written, so nothing is done" },
		{ 0, WIRE_TOO_MANY, NULL },
	};
	const char *text;
	size_t i = 0;

	while (why[i].err != 0 && why[i].err != err)
		i++;
	text = why[i].text ? why[i].text : too_many(r);
	TRACE_OF(r->request, TRACE_STATE, "refused: %s", text);
	return link_close(r->client->port.link, r->client_ch, why[i].code, text);
}

static struct relay *find_command(struct keeper *k, const struct fields *f)
{
	uint64_t number = fields_number(f, TAG_RECORD, 0);
	const char *name = "";
	size_t pos = 0, n = 0;

	(void)fields_next(f, TAG_NAME, &pos, &name, &n);
	for (struct relay *r = k->relays.list; r; r = r->next) {
		const char *own = r->command ? r->command->head.name : "";

		if (!r->command || r->command->over)
			continue;
		if (number > 0 ? r->command->record.number == number
			       : n > 0 && strlen(own) == n && memcmp(own, name, n) == 0)
			return r;
	}
	return NULL;
}

static int check_name(struct keeper *k, const struct fields *f)
{
	const char *name;
	size_t pos = 0, n = 0;

	if (!fields_next(f, TAG_NAME, &pos, &name, &n))
		return 0;
	if (!record_name_valid(name, n))
		return -EINVAL;
	return find_command(k, f) ? -EEXIST : 0;
}

static int open_exec(struct relay *r, const struct fields *f, struct buf *b)
{
	int err = check_name(r->keeper, f);

	if (err < 0)
		return err;
	r->clock.limit = limit_of(r->keeper, f);
	r->detached = fields_has(f, TAG_DETACH);
	r->has_input = fields_has(f, TAG_STDIN) || fields_has(f, TAG_COLUMNS);
	r->command = command_new(r->keeper, f);
	if (!r->command)
		return -ENOMEM;
	return records_take(r->keeper, r->command) ? ask(r, b) : wait_for_record(r, b);
}

/* Attaches to a running command, for input and signals. */
static int open_attach(struct relay *r, const struct fields *f)
{
	struct relay *t = find_command(r->keeper, f);

	if (!t || t->guest_ch == 0 || t->pid == 0)
		return -ENOENT;
	if (fields_has(f, TAG_STDIN)) {
		if (!t->has_input || t->flows[TO_GUEST][0].eof)
			return -ENODEV;
		if (t->input_ch != 0)
			return -EBUSY;
		flow_set_input(t, r->client, r->client_ch);
	}
	r->target = t;
	relay_accept_command(r, t);
	return 0;
}

static int open_relay(struct relay *r, const struct fields *f)
{
	_cleanup_buf_ struct buf b = BUF_INIT(WIRE_OPEN_MAX);

	if (r->op == WIRE_OP_ATTACH)
		return open_attach(r, f);
	r->input = r->client;
	r->input_ch = r->client_ch;
	merge_open(r->keeper, r->op, f, &b);
	if (b.err)
		return b.err;
	return r->op == WIRE_OP_EXEC ? open_exec(r, f, &b) : ask(r, &b);
}

static void take_request(struct relay *r, const struct fields *f)
{
	const char *value;
	size_t pos = 0, n;

	if (fields_next(f, TAG_REQUEST, &pos, &value, &n))
		memcpy(r->request, value, MIN(n, sizeof(r->request) - 1));
}

static bool is_public(enum wire_op op, const struct fields *f)
{
	return op == WIRE_OP_PORT && !fields_has(f, TAG_OWNERS);
}

void relay_open(struct client *c, uint32_t ch, enum wire_op op, const struct fields *f)
{
	struct keeper *k = c->keeper;
	struct relay none = { .client = c, .client_ch = ch, .op = op };
	struct relay *r;
	int err = -EAGAIN;

	r = relay_new(k, op, is_public(op, f));
	if (r) {
		*r = (struct relay){ .keeper = k,
				     .client = c,
				     .client_ch = ch,
				     .op = op,
				     .public = is_public(op, f) };
		take_request(r, f);
		err = open_relay(r, f);
	}
	if (err == 0) {
		link_set_cookie(c->port.link, ch, r);
		add(r);
		return;
	}
	if (r)
		command_free(r->command);
	free(r);
	client_check(c, refuse(&none, err));
}

int relay_adopt(struct keeper *k, const struct record_info *was)
{
	struct relay *r = relay_new(k, WIRE_OP_EXEC, false);
	const uint64_t most = k->spec->limits.timeout;

	if (!r)
		return -ENOMEM;
	*r = (struct relay){ .keeper = k,
			     .op = WIRE_OP_EXEC,
			     .adopted = true,
			     .detached = true,
			     .has_input = was->head.flags & (RECORD_INPUT | RECORD_TERMINAL),
			     .clock.limit = most > 0 ? most : UINT64_MAX,
			     .pid = was->slot.pid,
			     .open = BUF_INIT(64),
			     .command = command_adopted(k, &was->head) };
	fields_put_number(&r->open, TAG_PID, was->slot.pid);
	if (!r->command || r->open.err) {
		command_free(r->command);
		buf_done(&r->open);
		free(r);
		return -ENOMEM;
	}
	k->relays.held[RELAY_EXEC] += r->open.len;
	add(r);
	return 0;
}

/* Sends or refuses the request of a relay that waited for a record file. */
static void open_waiting(struct relay *r, int err)
{
	struct buf b = r->open;

	r->open = (struct buf)BUF_INIT(0);
	r->keeper->relays.held[RELAY_EXEC] -= b.len;
	if (err == 0)
		err = ask(r, &b);
	buf_done(&b);
	if (err == 0)
		return;
	if (r->adopted)
		log_error("cannot take over the running command %d: %s", (int)r->pid,
			  strerror(-err));
	else
		client_check(r->client, refuse(r, err));
	r->client_ch = 0;
	relay_put_aside(r);
}

/* Returns the relay that has waited longest for a record file. */
static struct relay *waiting(struct keeper *k)
{
	struct relay *found = NULL;

	for (struct relay *r = k->relays.list; r; r = r->next)
		if (r->open.len > 0)
			found = r;
	return found;
}

void relays_recordable(struct keeper *k, uint64_t error)
{
	struct relay *r;

	while ((r = waiting(k)) && (error > 0 || records_take(k, r->command)))
		open_waiting(r, error > 0 ? -ENOSPC : 0);
}
