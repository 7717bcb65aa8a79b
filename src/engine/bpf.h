/* SPDX-License-Identifier: Apache-2.0 */
/* Wrappers for the bpf(2) calls of the dial guard. All return -errno; descriptors are CLOEXEC. */
#pragma once

#include <linux/bpf.h>
#include <stddef.h>
#include <stdint.h>

enum {
	BPF_IDS_MAX = 16,
	BPF_WORDS_MAX = 128, /* the verifier's last line */
};

/* Makes a longest-prefix trie, which allocates memory entry by entry. Returns the descriptor. */
int bpf_trie_new(const char *name, uint32_t key, uint32_t value, uint32_t max);

int bpf_map_put(int map, const void *key, const void *value);
int bpf_map_get(int map, const void *key, void *ret_value);

/* Loads a program for one attach type. Returns the descriptor; on -EACCES and -EINVAL, `words`
 * holds the verifier's last line. */
struct bpf_program {
	const char *name;
	enum bpf_prog_type type;
	enum bpf_attach_type at;
	const struct bpf_insn *code;
	size_t n;
};
int bpf_load(const struct bpf_program *p, char words[static BPF_WORDS_MAX]);

/* Attaches a program to a v2 control group for the lifetime of the group. Programs of the groups
 * above still run. */
int bpf_attach(int group, int program, enum bpf_attach_type at);

/* Stores the ids of the programs attached to the group itself. Returns their number. */
int bpf_attached(int group, enum bpf_attach_type at, uint32_t ret[static BPF_IDS_MAX]);

/* Stores the id of a program. */
int bpf_id(int program, uint32_t *ret);

/* Opens the first map of the program with that id. Returns the descriptor; -ENOENT: the program has
 * another name or no map. */
int bpf_map_of(uint32_t program, const char *name);
