/* SPDX-License-Identifier: Apache-2.0 */
#include "test-egress.h"

#include "egress/resolve.h"
#include "fail.h"

struct result {
	bool done;
	struct answer a;
};

static void on_answer(void *arg, const struct answer *a)
{
	struct result *r = arg;

	assert_false(r->done);
	r->done = true;
	r->a = *a;
}

static struct resolver *make(struct world *w)
{
	struct resolver *r = NULL;
	struct err e = ERR_INIT;

	if (resolver_new(w->loop, WORLD_RESOLVER, &r, &e) < 0)
		fail_msg("%s", e.msg);
	return r;
}

static struct lookup *start(struct resolver *r, const char *text, struct result *res)
{
	struct lookup *l = NULL;
	struct name name;
	struct err e;

	assert_int_equal(name_parse(text, strlen(text), &name, &e), 0);
	assert_int_equal(resolve_start(r, &name, on_answer, res, &l), 0);
	assert_false(res->done);
	return l;
}

static struct answer ask(struct world *w, const char *text)
{
	struct resolver *r = make(w);
	struct result res = { 0 };

	(void)start(r, text, &res);
	WORLD_UNTIL(w, res.done);
	(void)resolver_free(r);
	return res.a;
}

TEST_WITH(both_families, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct answer a = ask(w, "both.example.com");

	assert_int_equal(a.n, 2);
	assert_null(a.why);
	assert_string_equal(w->asked, "both.example.com");
	assert_int_equal(w->queries, 2);
}

TEST_WITH(one_family, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct answer a = ask(w, "www.example.com");
	char text[ADDR_TEXT_MAX];

	assert_int_equal(a.n, 1);
	assert_string_equal(addr_format(&a.v[0], text), "93.184.0.1");
}

TEST_WITH(answers_are_bounded, world_setup, world_teardown)
{
	struct world *w = WORLD(state);

	assert_int_equal(ask(w, "many.example.com").n, RESOLVE_ADDRS_MAX);
}

TEST_WITH(no_address, world_setup, world_teardown)
{
	static const char *const rows[][2] = {
		{ "nx.example.com", "the name does not exist" },
		{ "servfail.example.com", "no resolver could be reached, or none would answer" },
		{ "loop.example.com", NULL },
		{ "stall.example.com", "the resolver did not answer in time" },
		{ "garbage.example.com", NULL },
		{ "short.example.com", NULL },
		{ "halved.example.com", NULL },
		{ "otherid.example.com", "the resolver did not answer in time" },
		{ "otherquestion.example.com", "the resolver did not answer in time" },
	};
	struct world *w = WORLD(state);
	struct resolver *r = make(w);
	struct result res[ARRAY_SIZE(rows)] = { 0 }, good = { 0 };
	size_t done = 0;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		(void)start(r, rows[i][0], &res[i]);
	/* None of them blocks another. */
	(void)start(r, "www.example.com", &good);
	WORLD_UNTIL(w, good.done);
	assert_int_equal(good.a.n, 1);
	WORLD_UNTIL(w, ({
			    done = 0;
			    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
				    done += res[i].done;
			    done == ARRAY_SIZE(rows);
		    }));
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(res[i].a.n, 0);
		assert_non_null(res[i].a.why);
		if (rows[i][1])
			assert_string_equal(res[i].a.why, rows[i][1]);
	}
	(void)resolver_free(r);
}

TEST_WITH(nobody_there, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	struct resolver *r = NULL;
	struct result res = { 0 };
	struct err e;

	assert_int_equal(resolver_new(w->loop, "127.0.0.1:1", &r, &e), 0);
	(void)start(r, "www.example.com", &res);
	WORLD_UNTIL(w, res.done);
	assert_int_equal(res.a.n, 0);
	(void)resolver_free(r);
	assert_int_equal(resolver_new(w->loop, "no address", &r, &e), -EINVAL);
}

TEST_WITH(cancelled_calls_nobody, world_setup, world_teardown)
{
	struct world *w = WORLD(state);
	size_t fds = fail_count_fds();
	struct resolver *r = make(w);
	struct result res = { 0 };

	resolve_cancel(start(r, "www.example.com", &res));
	world_rest(w, 100);
	resolve_cancel(start(r, "stall.example.com", &res));
	assert_false(res.done);
	(void)resolver_free(r); /* with a query pending */
	assert_int_equal(fail_count_fds(), fds);
}
