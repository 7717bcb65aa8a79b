/* SPDX-License-Identifier: Apache-2.0 */
/* Cleanup attributes: owning locals free themselves, and TAKE_*() transfers ownership. */
#pragma once

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ARRAY_SIZE(a)	     (sizeof(a) / sizeof((a)[0]))
#define STRLEN(s)	     (sizeof("" s "") - 1)
#define _cleanup_(f)	     __attribute__((cleanup(f)))
#define _printf_(fmt, first) __attribute__((format(printf, fmt, first)))
#define _noreturn_	     __attribute__((noreturn))

/* Built with AddressSanitizer, whose runtime needs more privileges than the program. */
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/*
 * Defines `const char *fn(type i)`, the name of each value of an enum: [VALUE] = "name", ... for
 * all below `n`. Any other value gives `other`.
 */
#define DEFINE_NAMES(fn, type, n, other, ...)                                      \
	const char *fn(type i)                                                     \
	{                                                                          \
		static const char *const names[] = { __VA_ARGS__ };                \
                                                                                   \
		static_assert(ARRAY_SIZE(names) == (n), "a name for every value"); \
		return (size_t)i < (n) && names[i] ? names[i] : (other);           \
	}                                                                          \
	struct hutch_semicolon

/* Evaluates each argument once; unique names allow nested uses. */
#define PASTE_(a, b) a##b
#define PASTE(a, b)  PASTE_(a, b)
#define COMPARE_(x, op, y, a, b)             \
	({                                   \
		const __typeof__(x) a = (x); \
		const __typeof__(y) b = (y); \
		a op b ? a : b;              \
	})
#define MIN(x, y) COMPARE_(x, <, y, PASTE(min_a_, __COUNTER__), PASTE(min_b_, __COUNTER__))
#define MAX(x, y) COMPARE_(x, >, y, PASTE(max_a_, __COUNTER__), PASTE(max_b_, __COUNTER__))

/* Transfers ownership to the caller's caller: the cleanup attribute then sees NULL. */
#define TAKE_PTR(p)                              \
	({                                       \
		__typeof__(p) *_take_p = &(p);   \
		__typeof__(p) _taken = *_take_p; \
		*_take_p = NULL;                 \
		_taken;                          \
	})

/* Same for a file descriptor; -EBADF means "none" everywhere in this tree. */
#define TAKE_FD(fd)                     \
	({                              \
		int *_take_fd = &(fd);  \
		int _taken = *_take_fd; \
		*_take_fd = -EBADF;     \
		_taken;                 \
	})

/* Repeats a call that a signal interrupted before it did anything. Not for close(2). */
#define RETRY_EINTR(expr)                               \
	({                                              \
		__typeof__(expr) _retried;              \
		do                                      \
			_retried = (expr);              \
		while (_retried < 0 && errno == EINTR); \
		_retried;                               \
	})

/* Declares cleanup function `name` for an owning local of type `type`, freed by `func`. */
#define DEFINE_CLEANUP(type, name, func) \
	static inline void name(type *p) \
	{                                \
		if (*p)                  \
			func(*p);        \
	}                                \
	struct hutch_semicolon

/* Closes a valid descriptor and keeps errno; returns -EBADF for `fd = fd_close(fd)`. */
static inline int fd_close(int fd)
{
	if (fd >= 0) {
		int saved = errno;

		(void)close(fd);
		errno = saved;
	}
	return -EBADF;
}

static inline void cleanup_free(void *p)
{
	free(*(void **)p);
}

static inline void cleanup_close(const int *fd)
{
	(void)fd_close(*fd);
}

DEFINE_CLEANUP(FILE *, cleanup_fclose, fclose);

#define _cleanup_free_	 _cleanup_(cleanup_free)
#define _cleanup_close_	 _cleanup_(cleanup_close)
#define _cleanup_fclose_ _cleanup_(cleanup_fclose)
