/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lexer for HTTP/1 heads (RFC 9112), shared by all parsers of requests, responses and form
 * parts. Pure functions: they allocate nothing, copy nothing and make no system call.
 *
 * Strict for all callers: a line ends in CR LF, and contains no other CR or LF and no control
 * character except tab; no blank may precede a field's colon; folded lines are rejected. Each
 * caller sets its own limits, through the number of bytes it passes, and interprets the head.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum {
	HTTP_METHOD_MAX_LEN = 24,
};

/* A slice of the caller's bytes. */
struct http_text {
	const char *s;
	size_t n;
};

/* Ignores the case of ASCII letters, as field names require. */
bool http_text_same(struct http_text a, struct http_text b);
bool http_text_is(struct http_text t, const char *word);

/* ---- classes of characters ---- */

static inline bool http_is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static inline bool http_is_control(char c)
{
	return (unsigned char)c < 0x20 || c == 0x7f;
}

/* Returns how many of the `n` bytes at `s` form a token: RFC 9110, 5.6.2. */
size_t http_token_len(const char *s, size_t n);

/* No control character except tab: RFC 9110, 5.5. */
bool http_value_valid(const char *s, size_t n);

/* Visible ASCII only. */
bool http_target_valid(struct http_text target);

/* ---- lines ---- */

/* How much of a head has been scanned; starts zeroed. */
struct http_scan {
	size_t pos;   /* bytes scanned */
	size_t line;  /* where the current line begins */
	size_t lines; /* complete lines before it */
	bool cr;      /* the last byte was CR */
};

enum http_scanned {
	HTTP_SCAN_MORE,	   /* needs more bytes */
	HTTP_SCAN_LINE,	   /* a line is complete */
	HTTP_SCAN_HEAD,	   /* the empty line is complete: the head ends here */
	HTTP_SCAN_BAD_END, /* CR without LF, or LF without CR */
	HTTP_SCAN_CONTROL, /* a control character */
};

/* Scans one byte, for a caller that does not keep the others. Does not advance past a bad byte. */
enum http_scanned http_scan_byte(struct http_scan *s, char c);

/*
 * Continues to the end of the line. `data` is the head so far, from its beginning, of which `n`
 * bytes may be scanned; no byte is scanned twice. *ret is the line without CR LF, if it is
 * complete.
 */
enum http_scanned http_scan_line(struct http_scan *s, const char *data, size_t n,
				 struct http_text *ret);

/* Same up to the end of the head: never returns HTTP_SCAN_LINE. */
enum http_scanned http_scan_head(struct http_scan *s, const char *data, size_t n);

/* ---- contents of a line ---- */

struct http_request_line {
	struct http_text method; /* a token of 1 to HTTP_METHOD_MAX_LEN bytes */
	struct http_text target; /* without space, may be empty; see http_target_valid() */
	char major, minor;	 /* digits */
};

/* METHOD SP TARGET SP HTTP/d.d, or -EBADMSG. */
int http_request_line_parse(struct http_text line, struct http_request_line *ret);

/*
 * Returns the status, 100 to 599, of a response that begins with the `n` bytes of `head`; 0 if more
 * bytes are needed; -EBADMSG if they cannot become HTTP/1.0 or HTTP/1.1, SP, STATUS, and SP or CR.
 */
int http_status_parse(const char *head, size_t n);

struct http_header {
	struct http_text name;	/* a token, not empty */
	struct http_text value; /* without blanks around it */
};

/* NAME: VALUE, or -EBADMSG, also for a folded line, which begins with a blank. */
int http_header_parse(struct http_text line, struct http_header *ret);
