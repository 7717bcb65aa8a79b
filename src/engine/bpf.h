/* SPDX-License-Identifier: Apache-2.0 */
/* The few calls of bpf(2) that the dial guard needs. All return -errno; descriptors are CLOEXEC. */
#pragma once

#include <linux/bpf.h>
#include <stddef.h>
#include <stdint.h>

enum {
	BPF_IDS_MAX = 16,
	BPF_WORDS_MAX = 128, /* of what the verifier says last */
};

/* A trie that finds the longest prefix. Memory is taken when an entry is put. The descriptor. */
int bpf_trie_new(const char *name, uint32_t key, uint32_t value, uint32_t max);

int bpf_map_put(int map, const void *key, const void *value);
int bpf_map_get(int map, const void *key, void *ret_value);

/* Loads a program for one place to attach it. The descriptor; on -EACCES and -EINVAL `words` has
 * the verifier's last line. */
struct bpf_program {
	const char *name;
	enum bpf_prog_type type;
	enum bpf_attach_type at;
	const struct bpf_insn *code;
	size_t n;
};
int bpf_load(const struct bpf_program *p, char words[static BPF_WORDS_MAX]);

/* Attaches it to a control group of v2 for as long as that group is there; programs of the groups
 * above it run as well. */
int bpf_attach(int group, int program, enum bpf_attach_type at);

/* The numbers of the programs attached to the group itself: how many. */
int bpf_attached(int group, enum bpf_attach_type at, uint32_t ret[static BPF_IDS_MAX]);

/* The number of a program. */
int bpf_id(int program, uint32_t *ret);

/* The first map that the program of that number uses. The descriptor; -ENOENT: there is none. */
int bpf_map_of(uint32_t program, const char *name);
