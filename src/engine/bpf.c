/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/bpf.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"

enum {
	LOG_MAX = 16 * 1024,
	LOAD_TRIES = 5,
};

static int call(enum bpf_cmd cmd, union bpf_attr *attr)
{
	unsigned int tries = LOAD_TRIES;
	long r;

	/* A signal makes the verifier stop with EAGAIN. */
	do
		r = syscall(SYS_bpf, cmd, attr, sizeof(*attr));
	while (r < 0 &&
	       (errno == EINTR || (cmd == BPF_PROG_LOAD && errno == EAGAIN && --tries > 0)));
	return r < 0 ? -errno : (int)r;
}

static uint64_t address(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

int bpf_trie_new(const char *name, uint32_t key, uint32_t value, uint32_t max)
{
	union bpf_attr attr = { .map_type = BPF_MAP_TYPE_LPM_TRIE,
				.key_size = key,
				.value_size = value,
				.max_entries = max,
				.map_flags = BPF_F_NO_PREALLOC };

	(void)snprintf(attr.map_name, sizeof(attr.map_name), "%s", name);
	return call(BPF_MAP_CREATE, &attr);
}

int bpf_map_put(int map, const void *key, const void *value)
{
	union bpf_attr attr = { .map_fd = (uint32_t)map,
				.key = address(key),
				.value = address(value) };

	return call(BPF_MAP_UPDATE_ELEM, &attr);
}

int bpf_map_get(int map, const void *key, void *ret_value)
{
	union bpf_attr attr = { .map_fd = (uint32_t)map,
				.key = address(key),
				.value = address(ret_value) };

	return call(BPF_MAP_LOOKUP_ELEM, &attr);
}

/* The last line of the verifier's log has statistics; the line before it names the problem. */
static void last_words(char *log, char words[static BPF_WORDS_MAX])
{
	char *at = strstr(log, "\nprocessed ");
	const char *line;

	if (at)
		*at = '\0';
	line = strrchr(log, '\n');
	(void)snprintf(words, BPF_WORDS_MAX, "%s", line ? line + 1 : log);
}

int bpf_load(const struct bpf_program *p, char words[static BPF_WORDS_MAX])
{
	static char log[LOG_MAX];
	union bpf_attr attr = { .prog_type = p->type,
				.expected_attach_type = p->at,
				.insns = address(p->code),
				.insn_cnt = (uint32_t)p->n,
				.license = address("Apache-2.0") };
	int r;

	words[0] = log[0] = '\0';
	(void)snprintf(attr.prog_name, sizeof(attr.prog_name), "%s", p->name);
	r = call(BPF_PROG_LOAD, &attr);
	if (r != -EACCES && r != -EINVAL)
		return r;
	/* Load again with a log. Asking for the log on every load costs time. */
	attr.log_buf = address(log);
	attr.log_size = sizeof(log);
	attr.log_level = 1;
	r = call(BPF_PROG_LOAD, &attr);
	if (r < 0)
		last_words(log, words);
	return r;
}

int bpf_attach(int group, int program, enum bpf_attach_type at)
{
	union bpf_attr attr = { .target_fd = (uint32_t)group,
				.attach_bpf_fd = (uint32_t)program,
				.attach_type = at,
				.attach_flags = BPF_F_ALLOW_MULTI };

	return call(BPF_PROG_ATTACH, &attr);
}

int bpf_attached(int group, enum bpf_attach_type at, uint32_t ret[static BPF_IDS_MAX])
{
	union bpf_attr attr = { .query.target_fd = (uint32_t)group,
				.query.attach_type = at,
				.query.prog_ids = address(ret),
				.query.prog_cnt = BPF_IDS_MAX };
	int r = call(BPF_PROG_QUERY, &attr);

	return r < 0 ? r : (int)attr.query.prog_cnt;
}

static int info(int program, struct bpf_prog_info *ret)
{
	union bpf_attr attr = { .info.bpf_fd = (uint32_t)program,
				.info.info_len = sizeof(*ret),
				.info.info = address(ret) };

	return call(BPF_OBJ_GET_INFO_BY_FD, &attr);
}

int bpf_id(int program, uint32_t *ret)
{
	struct bpf_prog_info i = { 0 };
	int r = info(program, &i);

	if (r == 0)
		*ret = i.id;
	return r;
}

int bpf_map_of(uint32_t program, const char *name)
{
	union bpf_attr attr = { .prog_id = program };
	_cleanup_close_ int fd = call(BPF_PROG_GET_FD_BY_ID, &attr);
	uint32_t map = 0;
	struct bpf_prog_info i = { .nr_map_ids = 1, .map_ids = address(&map) };
	int r = fd < 0 ? fd : info(fd, &i);

	if (r < 0)
		return r;
	if (!str_eq(i.name, name) || i.nr_map_ids == 0)
		return -ENOENT;
	attr = (union bpf_attr){ .map_id = map };
	return call(BPF_MAP_GET_FD_BY_ID, &attr);
}
