/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch llm spans: calls of language models as spans of OpenTelemetry, in the JSON of OTLP and by
 * its conventions for generative AI. The calls of a sandbox are one trace. The ids are hashes, so
 * that a call has the same span whenever it is printed.
 */
#include <sodium.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/egress-log.h"
#include "cli/view.h"

enum {
	TRACE_ID = 16,
	SPAN_ID = 8,
	BATCH_MAX = 1000, /* spans of a line */
	KIND_CLIENT = 3,  /* SPAN_KIND_CLIENT */
	STATUS_ERROR = 2, /* STATUS_CODE_ERROR */
	STATUS_HTTP_ERROR = 400,
};

struct spans {
	json_t *batch;
	uint64_t since;
};

/* `seq` and `time` are those of a record: a resumed sandbox numbers them anew. */
static json_t *hash_of(const char *id, uint64_t seq, uint64_t time, size_t n)
{
	unsigned char hash[crypto_hash_sha256_BYTES];
	char text[128], hex[2 * sizeof(hash) + 1];

	(void)snprintf(text, sizeof(text), "hutch %s %llu %llu", id, (unsigned long long)seq,
		       (unsigned long long)time);
	(void)crypto_hash_sha256(hash, (const unsigned char *)text, strlen(text));
	return json_string(sodium_bin2hex(hex, sizeof(hex), hash, n));
}

/* Whole numbers are texts in this JSON: 64 bits do not fit into JavaScript's. */
static json_t *number_text(uint64_t n)
{
	char text[24];

	(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)n);
	return json_string(text);
}

static int put_text(json_t *a, const char *key, const char *value)
{
	if (!value[0])
		return 0;
	return json_push(
		a, JSON_OBJECT({ "key", json_string(key) },
			       { "value", JSON_OBJECT({ "stringValue", cli_json_text(value) }) }));
}

static int put_number(json_t *a, const char *key, uint64_t n)
{
	return json_push(a, JSON_OBJECT({ "key", json_string(key) },
					{ "value", JSON_OBJECT({ "intValue", number_text(n) }) }));
}

/* The provider's name in the conventions. */
static const char *provider_of(const json_t *o)
{
	const char *name = egress_text(o, "provider");

	if (str_eq(name, "gemini"))
		return "gcp.gemini";
	return str_eq(name, "openai-compatible") ? "openai" : name;
}

static const char *operation_of(const json_t *o)
{
	const char *path = egress_text(o, "path");

	if (str_has_suffix(path, "/embeddings"))
		return "embeddings";
	if (str_has_suffix(path, "enerateContent"))
		return "generate_content";
	return str_has_suffix(path, "/completions") && !str_has_suffix(path, "/chat/completions")
		       ? "text_completion"
		       : "chat";
}

static json_t *attributes(const struct egress_event *ev, const char *error)
{
	static const char *const texts[][2] = { { "gen_ai.request.model", "model" },
						{ "server.address", "host" },
						{ "hutch.agent", "agent" },
						{ "hutch.key", "key" } };
	const uint64_t cached = egress_number(ev->o, "tokens_cached"),
		       written = egress_number(ev->o, "tokens_cache_write");
	json_t *a = json_array();
	int r = put_text(a, "gen_ai.operation.name", operation_of(ev->o));

	r |= put_text(a, "gen_ai.provider.name", provider_of(ev->o));
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		r |= put_text(a, texts[i][0], egress_text(ev->o, texts[i][1]));
	r |= put_text(a, "hutch.sandbox", ev->id);
	r |= put_text(a, "error.type", error);
	r |= put_number(a, "server.port", egress_number(ev->o, "port"));
	/* By the conventions, the input includes its cached parts. */
	r |= put_number(a, "gen_ai.usage.input_tokens",
			egress_number(ev->o, "tokens_in") + cached + written);
	r |= put_number(a, "gen_ai.usage.output_tokens", egress_number(ev->o, "tokens_out"));
	r |= put_number(a, "gen_ai.usage.cache_read.input_tokens", cached);
	r |= put_number(a, "gen_ai.usage.cache_creation.input_tokens", written);
	if (egress_number(ev->o, "status") > 0)
		r |= put_number(a, "http.response.status_code", egress_number(ev->o, "status"));
	if (json_object_get(ev->o, "microdollars"))
		r |= put_number(a, "hutch.microdollars", egress_number(ev->o, "microdollars"));
	if (r == 0)
		return a;
	json_decref(a);
	return NULL;
}

static json_t *span(const struct egress_event *ev)
{
	const uint64_t status = egress_number(ev->o, "status"),
		       ns = egress_number(ev->o, "ms") * NSEC_PER_MSEC,
		       start = ev->time - MIN(ns, ev->time);
	const char *error = egress_text(ev->o, "reason");
	char name[256], code[24];
	json_t *j;

	(void)snprintf(code, sizeof(code), "%llu", (unsigned long long)status);
	if (!error[0] && status >= STATUS_HTTP_ERROR)
		error = code;
	(void)snprintf(name, sizeof(name), "%s %s", operation_of(ev->o),
		       egress_text(ev->o, "model"));
	j = JSON_OBJECT({ "traceId", hash_of(ev->id, UINT64_MAX, 0, TRACE_ID) },
			{ "spanId", hash_of(ev->id, ev->seq, ev->time, SPAN_ID) },
			{ "name", cli_json_text(name) }, { "kind", json_integer(KIND_CLIENT) },
			{ "startTimeUnixNano", number_text(start) },
			{ "endTimeUnixNano", number_text(ev->time) },
			{ "attributes", attributes(ev, error) });
	if (j && error[0] &&
	    json_put(j, "status",
		     JSON_OBJECT({ "code", json_integer(STATUS_ERROR) },
				 { "message", cli_json_text(egress_text(ev->o, "detail")) })) < 0) {
		json_decref(j);
		return NULL;
	}
	return j;
}

static json_t *service(void)
{
	json_t *a = json_array();

	if (put_text(a, "service.name", "hutch") == 0 &&
	    put_text(a, "service.version", HUTCH_VERSION) == 0)
		return JSON_OBJECT({ "attributes", a });
	json_decref(a);
	return NULL;
}

/* Prints the batch as one line and begins another. */
static int flush(struct spans *s)
{
	_cleanup_json_ json_t *j = NULL;
	_cleanup_free_ char *line = NULL;
	json_t *scope, *spans, *one = json_array(), *all = json_array();

	if (json_array_size(s->batch) == 0) {
		json_decref(one);
		json_decref(all);
		return 0;
	}
	spans = TAKE_PTR(s->batch);
	scope = JSON_OBJECT({ "scope", JSON_OBJECT({ "name", json_string("hutch") }) },
			    { "spans", spans });
	if (json_push(one, scope) < 0) {
		json_decref(one);
		json_decref(all);
		return -ENOMEM;
	}
	if (json_push(all, JSON_OBJECT({ "resource", service() }, { "scopeSpans", one })) == 0)
		j = JSON_OBJECT({ "resourceSpans", TAKE_PTR(all) });
	json_decref(all);
	line = j ? json_write_line(j) : NULL;
	if (!line)
		return -ENOMEM;
	(void)puts(line);
	s->batch = json_array();
	return s->batch ? 0 : -ENOMEM;
}

static int on_event(const struct egress_event *ev, void *arg)
{
	struct spans *s = arg;
	int r;

	if (ev->kind != AUDIT_LLM || ev->time < s->since)
		return 0;
	r = json_push(s->batch, span(ev));
	return r == 0 && json_array_size(s->batch) >= BATCH_MAX ? flush(s) : r;
}

static int run_llm_spans(struct invocation *inv)
{
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	struct spans s = { .batch = json_array() };
	_cleanup_egress_reader_ struct egress_reader reader = {
		.sandbox = inv->n_args > 0 ? inv->args[0] : "", .event = on_event, .arg = &s
	};
	struct err e = ERR_INIT;
	int r = s.batch ? 0 : err_oom(&e);

	if (cli_since(inv, &s.since) != EXIT_OK) {
		json_decref(s.batch);
		return EXIT_USAGE;
	}
	if (r == 0)
		r = audit_open(&l, &e);
	if (r == 0)
		r = egress_read(&reader, &l, &e);
	if (r == 0 && flush(&s) < 0)
		r = err_oom(&e);
	json_decref(s.batch);
	return r < 0 ? cli_fail(inv, &e) : EXIT_OK;
}

/* clang-format off */
const struct command cmd_llm_spans = {
	.name = "spans", .args = "[ID]", .max_args = 1,
	.summary = "print calls of language models as OpenTelemetry spans",
	.help = "Prints the calls in the JSON of OTLP, at most 1000 in a line, by the conventions for generative AI. A\n"
		"collector takes a line as the body of POST /v1/traces, or a file of lines. A call has the same ids each time.",
	.options = OPTIONS(
		{ "since", 0, "TIME", "only later calls; an RFC 3339 time, or a time ago such as 5m" }),
	.run = run_llm_spans,
};
/* clang-format on */
