/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the tree from libyaml's events with a stack of open collections. libyaml checks encoding
 * and syntax; this file rejects YAML's surprising features at the event where they appear.
 */
#include "policy/yaml-tree.h"

#include <string.h>
#include <yaml.h>

#include "base/str.h"

struct frame {
	struct yaml_node *node;
	struct yaml_node **tail; /* where the next child is linked */
	size_t count;
	const char *key; /* mapping: key whose value comes next */
	struct pos key_pos;
};

struct reader_state {
	struct arena *arena;
	const struct source *src;
	struct diags *d;
	struct yaml_node *root;
	struct frame stack[YAML_DEPTH_MAX];
	size_t depth;
	size_t nodes;
};

static struct pos at(const struct reader_state *s, const yaml_mark_t *m)
{
	return (struct pos){ s->src, (uint32_t)m->line + 1, (uint32_t)m->column + 1 };
}

/* Length of the byte order mark, which the parser does not see. */
static size_t bom(const struct source *src)
{
	return src->len >= 3 && memcmp(src->text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

#define refuse(s, mark, ...) \
	(diag_add((s)->d, DIAG_ERROR, at(s, mark), "", NULL, __VA_ARGS__), -EINVAL)

static int no_memory(struct reader_state *s)
{
	s->d->oom = true;
	return -ENOMEM;
}

/* Length of the prefix to which libyaml expands "!!"; messages show the tag as written. */
static size_t standard_tag(const yaml_char_t *tag)
{
	static const char prefix[] = "tag:yaml.org,2002:";

	return str_has_prefix((const char *)tag, prefix) ? STRLEN("tag:yaml.org,2002:") : 0;
}

/* Rejects anchors and tags. */
static int check_decoration(struct reader_state *s, const yaml_event_t *ev,
			    const yaml_char_t *anchor, const yaml_char_t *tag)
{
	if (anchor)
		return refuse(s, &ev->start_mark,
			      "anchors (&%s) are not used here: write the value out",
			      (const char *)anchor);
	if (tag)
		return refuse(s, &ev->start_mark, "tags (%s%s) are not used here",
			      standard_tag(tag) ? "!!" : "", (const char *)tag + standard_tag(tag));
	return 0;
}

/*
 * Characters that make text look different from what it is: control characters, line breaks that
 * YAML recognizes and editors do not show, and marks that reorder the text around them. Joiners are
 * allowed because some languages need them.
 */
static bool deceives(uint32_t cp)
{
	return (cp < 0x20 && cp != '\n' && cp != '\t') || (cp >= 0x7f && cp < 0xa0) ||
	       cp == 0x61c || cp == 0x200e || cp == 0x200f || (cp >= 0x2028 && cp <= 0x202e) ||
	       (cp >= 0x2066 && cp <= 0x2069) || cp == 0xfffe || cp == 0xffff;
}

static int refuse_character(struct reader_state *s, struct pos pos, uint32_t cp)
{
	diag_add(s->d, DIAG_ERROR, pos, "", NULL,
		 cp < 0x80 ? "control character 0x%02x in the text"
			   : "control character U+%04X in the text",
		 cp);
	return -EINVAL;
}

static int check_text(struct reader_state *s, const yaml_event_t *ev)
{
	const char *text = (const char *)ev->data.scalar.value;
	size_t n = ev->data.scalar.length;

	if (n > YAML_SCALAR_MAX)
		return refuse(s, &ev->start_mark, "text of %zu bytes, at most %d", n,
			      YAML_SCALAR_MAX);
	for (size_t i = 0; i < n;) {
		uint32_t cp = 0;
		size_t len = utf8_decode(text + i, n - i, &cp);

		if (len == 0 || deceives(cp))
			return refuse_character(s, at(s, &ev->start_mark), cp);
		i += len;
	}
	return 0;
}

/* Checks the whole file, with comments, before libyaml breaks lines at invisible characters. */
static int check_source(struct reader_state *s)
{
	const char *text = s->src->text;
	size_t n = s->src->len;
	struct pos pos = { s->src, 1, 1 };

	if (n >= 2 && (memcmp(text, "\xff\xfe", 2) == 0 || memcmp(text, "\xfe\xff", 2) == 0)) {
		diag_add(s->d, DIAG_ERROR, pos, "", NULL, "the file is UTF-16: save it as UTF-8");
		return -EINVAL;
	}
	for (size_t i = bom(s->src); i < n;) {
		uint32_t cp = 0;
		size_t len = utf8_decode(text + i, n - i, &cp);

		if (len == 0) {
			diag_add(s->d, DIAG_ERROR, pos, "", NULL, "byte 0x%02x is not UTF-8",
				 (unsigned char)text[i]);
			return -EINVAL;
		}
		if (deceives(cp) && !(cp == '\r' && i + 1 < n && text[i + 1] == '\n'))
			return refuse_character(s, pos, cp);
		pos.column++;
		if (cp == '\n')
			pos = (struct pos){ s->src, pos.line + 1, 1 };
		i += len;
	}
	return 0;
}

/* Makes a node and links it into the open collection. */
static struct yaml_node *attach(struct reader_state *s, enum yaml_kind kind, const yaml_event_t *ev)
{
	struct frame *f = s->depth > 0 ? &s->stack[s->depth - 1] : NULL;
	struct yaml_node *n;

	if (++s->nodes > YAML_NODES_MAX) {
		(void)refuse(s, &ev->start_mark, "more than %d values in one file", YAML_NODES_MAX);
		return NULL;
	}
	n = arena_alloc(s->arena, sizeof(*n));
	if (!n) {
		(void)no_memory(s);
		return NULL;
	}
	n->kind = kind;
	n->pos = at(s, &ev->start_mark);
	if (!f) {
		s->root = n;
		return n;
	}
	n->key = f->key;
	n->key_pos = f->key_pos;
	f->key = NULL;
	*f->tail = n;
	f->tail = &n->next;
	f->count++;
	return n;
}

/* Reports a duplicate key under its full path, which comes from the open collections. */
static void duplicate_key(struct reader_state *s, struct pos pos, const char *key, uint32_t first)
{
	_cleanup_buf_ struct buf path = BUF_INIT(1024);

	for (size_t i = 1; i < s->depth; i++) {
		const struct frame *above = &s->stack[i - 1];

		if (above->node->kind == YAML_MAP)
			(void)buf_printf(&path, "%s.", s->stack[i].node->key);
		else
			(void)buf_printf(&path, "[%zu].", above->count - 1);
	}
	(void)buf_puts(&path, key);
	diag_add(s->d, DIAG_ERROR, pos, path.err ? key : buf_text(&path), NULL,
		 "written twice; the first stands at line %u", first);
}

/* A scalar where a mapping expects a key. */
static int take_key(struct reader_state *s, struct frame *f, const yaml_event_t *ev)
{
	const char *text = (const char *)ev->data.scalar.value;
	struct pos pos = at(s, &ev->start_mark);

	if (str_eq(text, "<<"))
		return refuse(s, &ev->start_mark,
			      "merge keys (<<) are not used here: write the keys out");
	if (f->count >= YAML_KEYS_MAX)
		return refuse(s, &ev->start_mark, "more than %d keys in one mapping",
			      YAML_KEYS_MAX);
	/* Continue after the error: yaml_get() returns the first value of the key. */
	yaml_foreach (n, f->node)
		if (str_eq(n->key, text)) {
			duplicate_key(s, pos, text, n->key_pos.line);
			break;
		}
	f->key = arena_strdup(s->arena, text);
	f->key_pos = pos;
	return f->key ? 0 : no_memory(s);
}

static bool expects_key(const struct reader_state *s)
{
	const struct frame *f = s->depth > 0 ? &s->stack[s->depth - 1] : NULL;

	assert(!f || f->node);
	return f && f->node->kind == YAML_MAP && !f->key;
}

static int on_scalar(struct reader_state *s, const yaml_event_t *ev)
{
	int r = check_decoration(s, ev, ev->data.scalar.anchor, ev->data.scalar.tag);
	struct yaml_node *n;

	if (r == 0)
		r = check_text(s, ev);
	if (r < 0)
		return r;
	if (expects_key(s))
		return take_key(s, &s->stack[s->depth - 1], ev);
	n = attach(s, YAML_SCALAR, ev);
	if (!n)
		return -EINVAL;
	n->len = ev->data.scalar.length;
	n->text = arena_strndup(s->arena, (const char *)ev->data.scalar.value, n->len);
	n->quoted = ev->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
	return n->text ? 0 : no_memory(s);
}

static int on_open(struct reader_state *s, enum yaml_kind kind, const yaml_event_t *ev,
		   const yaml_char_t *anchor, const yaml_char_t *tag)
{
	int r = check_decoration(s, ev, anchor, tag);
	struct yaml_node *n;

	if (r < 0)
		return r;
	if (expects_key(s))
		return refuse(s, &ev->start_mark, "a key is plain text, not a list or mapping");
	if (s->depth == YAML_DEPTH_MAX)
		return refuse(s, &ev->start_mark, "nested deeper than %d", YAML_DEPTH_MAX);
	n = attach(s, kind, ev);
	if (!n)
		return -EINVAL;
	s->stack[s->depth++] = (struct frame){ .node = n, .tail = &n->child };
	return 0;
}

static int on_document(struct reader_state *s, const yaml_event_t *ev)
{
	if (s->root)
		return refuse(s, &ev->start_mark, "a second document: one file holds one");
	if (ev->data.document_start.version_directive ||
	    ev->data.document_start.tag_directives.start !=
		    ev->data.document_start.tag_directives.end)
		return refuse(s, &ev->start_mark, "directives (%%YAML, %%TAG) are not used here");
	return 0;
}

static int on_event(struct reader_state *s, const yaml_event_t *ev)
{
	switch (ev->type) {
	case YAML_SCALAR_EVENT:
		return on_scalar(s, ev);
	case YAML_SEQUENCE_START_EVENT:
		return on_open(s, YAML_LIST, ev, ev->data.sequence_start.anchor,
			       ev->data.sequence_start.tag);
	case YAML_MAPPING_START_EVENT:
		return on_open(s, YAML_MAP, ev, ev->data.mapping_start.anchor,
			       ev->data.mapping_start.tag);
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT:
		s->depth--;
		return 0;
	case YAML_ALIAS_EVENT:
		return refuse(s, &ev->start_mark,
			      "aliases (*%s) are not used here: write the value out",
			      (const char *)ev->data.alias.anchor);
	case YAML_DOCUMENT_START_EVENT:
		return on_document(s, ev);
	default:
		return 0;
	}
}

/* Hints for the two most common mistakes, for which libyaml's messages are unclear. */
static const char *syntax_hint(const struct reader_state *s, const yaml_parser_t *p)
{
	const char *context = p->context ? p->context : "";
	size_t i = bom(s->src) + p->problem_mark.index;

	if (i < s->src->len && s->src->text[i] == '\t')
		return "indent with spaces, not with tabs";
	if (strstr(context, "alias") || strstr(context, "anchor"))
		return "quote text that begins with '*' or '&'; for a name and all below it write "
		       "'.name'";
	return NULL;
}

static int syntax_error(struct reader_state *s, const yaml_parser_t *p)
{
	char begins[64] = "";

	if (p->error == YAML_MEMORY_ERROR)
		return no_memory(s);
	if (p->context && p->context_mark.line != p->problem_mark.line)
		(void)snprintf(begins, sizeof(begins), " that begins at line %zu",
			       p->context_mark.line + 1);
	diag_add(s->d, DIAG_ERROR, at(s, &p->problem_mark), "", syntax_hint(s, p),
		 "not YAML: %s%s%s%s", p->problem ? p->problem : "cannot be read",
		 p->context ? " " : "", p->context ? p->context : "", begins);
	return -EINVAL;
}

static int read_events(struct reader_state *s, yaml_parser_t *p)
{
	for (bool end = false; !end;) {
		yaml_event_t ev;
		int r;

		if (!yaml_parser_parse(p, &ev))
			return syntax_error(s, p);
		end = ev.type == YAML_STREAM_END_EVENT;
		r = on_event(s, &ev);
		yaml_event_delete(&ev);
		if (r < 0)
			return r;
	}
	return 0;
}

struct yaml_node *yaml_read(struct arena *arena, const struct source *src, struct diags *d)
{
	struct reader_state s = { .arena = arena, .src = src, .d = d };
	const struct pos top = { src, 1, 1 };
	yaml_parser_t p;
	int r;

	if (src->len > YAML_TEXT_MAX) {
		diag_add(d, DIAG_ERROR, top, "", NULL, "file of %zu bytes, at most %d are read",
			 src->len, YAML_TEXT_MAX);
		return NULL;
	}
	if (check_source(&s) < 0)
		return NULL;
	if (!yaml_parser_initialize(&p)) {
		d->oom = true;
		return NULL;
	}
	yaml_parser_set_encoding(&p, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&p, (const unsigned char *)src->text + bom(src),
				     src->len - bom(src));
	r = read_events(&s, &p);
	yaml_parser_delete(&p);
	if (r < 0)
		return NULL;
	if (!s.root)
		diag_add(d, DIAG_ERROR, top, "", NULL, "the file is empty");
	return s.root;
}

const struct yaml_node *yaml_get(const struct yaml_node *map, const char *key)
{
	yaml_foreach (n, map)
		if (n->key && str_eq(n->key, key))
			return n;
	return NULL;
}

const char *yaml_describe(const struct yaml_node *n)
{
	if (n->kind == YAML_MAP)
		return "a mapping";
	if (n->kind == YAML_LIST)
		return "a list";
	if (n->len == 0)
		return n->quoted ? "empty text" : "nothing";
	return "text";
}
