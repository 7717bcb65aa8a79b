/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program is linear, one rule after another: a rule is skipped if the call or an argument
 * differs. Rules with arguments come first. The long list of the others costs nothing: the kernel
 * finds once which calls are allowed with any arguments, and does not run the program for these
 * (seccomp_cache_prepare(), since 5.11).
 */
#include "confine/calls-filter.h"

#include <string.h>

#include "confine/calls.h"
#include "confine/filter.h"

static const struct sock_filter head[] = { FILTER_HEAD };

enum {
	PROGRAM_MAX = BPF_MAXINSNS,
	JUMP_MAX = 255,
};

static struct sock_filter program[PROGRAM_MAX];
static size_t length;
static bool too_long;

static void put(uint16_t code, uint32_t k, size_t jt, size_t jf)
{
	if (length == PROGRAM_MAX || jt > JUMP_MAX || jf > JUMP_MAX) {
		too_long = true;
		return;
	}
	program[length++] =
		(struct sock_filter){ .code = code, .k = k, .jt = (uint8_t)jt, .jf = (uint8_t)jf };
}

static void put_load(size_t offset)
{
	put(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void put_return(uint32_t action)
{
	put(BPF_RET | BPF_K, action, 0, 0);
}

/* Offset of one half of an argument; 0 is the lower half. */
static size_t half(int argument, unsigned int which)
{
	return offsetof(struct seccomp_data, args) + 8 * (size_t)argument + 4 * (size_t)which;
}

/* Number of instructions of a comparison. */
static size_t size_of(const struct call_compare *c)
{
	if (c->mask == 0)
		return 4;
	return ((uint32_t)c->mask ? 3 : 0) + (c->mask >> 32 ? 3 : 0);
}

/* Continues after the comparison if it holds, else skips `rest` more instructions. */
static void put_compare(const struct call_compare *c, size_t rest)
{
	size_t end = length + size_of(c);

	if (c->mask == 0) {
		put_load(half(c->argument, 0));
		put(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 2);
		put_load(half(c->argument, 1));
		put(BPF_JMP | BPF_JEQ | BPF_K, 0, rest, 0);
		return;
	}
	for (unsigned int i = 0; i < 2; i++) {
		uint32_t mask = (uint32_t)(c->mask >> (32 * i));

		if (mask == 0)
			continue;
		put_load(half(c->argument, i));
		put(BPF_ALU | BPF_AND | BPF_K, mask, 0, 0);
		put(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(c->value >> (32 * i)), 0,
		    end - length - 1 + rest);
	}
}

static int put_rule(const struct call_rule *rule, void *arg)
{
	size_t rest = 1; /* the return instruction */

	for (size_t i = 0; i < rule->n; i++)
		rest += size_of(&rule->compare[i]);
	put_load(offsetof(struct seccomp_data, nr));
	put(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)rule->call.number, 0, rest);
	for (size_t i = 0; i < rule->n; i++) {
		rest -= size_of(&rule->compare[i]);
		put_compare(&rule->compare[i], rest);
	}
	put_return(rule->allow ? SECCOMP_RET_ALLOW : SECCOMP_RET_ERRNO);
	return 0;
}

static void put_list(const struct call *list, uint32_t action)
{
	for (; list->name; list++) {
		put(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)list->number, 0, 1);
		put_return(action);
	}
}

int calls_filter_make(struct err *e)
{
	/* A call through another ABI kills the process. */
	memcpy(program, head, sizeof(head));
	length = ARRAY_SIZE(head);
	(void)calls_conditional(put_rule, NULL);
	put_load(offsetof(struct seccomp_data, nr));
	put_list(calls_allowed, SECCOMP_RET_ALLOW);
	put_list(calls_absent, SECCOMP_RET_ERRNO | ENOSYS);
	put_list(calls_ignored, SECCOMP_RET_ERRNO);
	put_return(SECCOMP_RET_ERRNO | EPERM);
	return too_long ? err_set(e, -E2BIG, "the syscall filter is too long") : 0;
}

int calls_filter_apply(void)
{
	return length == 0 ? 0 : filter_apply(program, length);
}
