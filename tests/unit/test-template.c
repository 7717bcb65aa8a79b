/* SPDX-License-Identifier: Apache-2.0 */
/* Templates on disk: builds and their states, tags, logs, files, and recovery from crashes. */
#include "unit.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "fail.h"
#include "template/template.h"

#define HASH_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define HASH_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define TID    "abcdefghij0123456789"
#define BID    "01234567-89ab-4def-8123-456789abcdef"

static struct template_store s;

static int setup(void **state)
{
	struct err e = ERR_INIT;
	const struct unit_dir *d;

	if (unit_dir_setup(state) < 0)
		return -1;
	d = *state;
	if (setenv("HUTCH_STATE_DIR", d->path, 1) < 0)
		return -1;
	return template_store_open(&s, "", true, &e);
}

static int teardown(void **state)
{
	template_store_close(&s);
	return unit_dir_teardown(state);
}

static size_t entries(int dir)
{
	DIR *d = fd_list(dir);
	const struct dirent *entry;
	size_t n = 0;

	assert_non_null(d);
	while ((entry = readdir(d)))
		n += !str_eq(entry->d_name, ".") && !str_eq(entry->d_name, "..");
	(void)closedir(d);
	return n;
}

static struct template_build begin(const char *name)
{
	struct template_build b = { 0 };
	struct err e = ERR_INIT;

	assert_int_equal(template_begin(&s, &(struct template_request){ .name = name }, &b, &e), 0);
	return b;
}

static struct template_build ready(const char *name)
{
	struct template_build b = begin(name);
	struct err e = ERR_INIT;

	assert_int_equal(template_building(&s, b.template, b.build, &e), 0);
	assert_int_equal(template_end(&s, b.template, b.build, NULL, NULL, &e), 0);
	return b;
}

static void expect_means(const char *ref, const char *build)
{
	struct template_build b;
	struct err e = ERR_INIT;
	int r = template_resolve(&s, ref, &b, &e);

	if (!build) {
		assert_int_equal(r, -ENOENT);
		return;
	}
	assert_int_equal(r, 0);
	assert_string_equal(b.build, build);
}

/* ---- builds ---- */

TEST_WITH(builds_go_their_way, setup, teardown)
{
	static const char *const tags[] = { "v1", "V2.0", "v1", NULL };
	const struct template_request q = {
		.name = "mine:new", .tags = tags, .cpus = 2, .memory = 512
	};
	struct template_build b, again;
	char image[IMAGE_NAME_MAX + 1], id[TEMPLATE_ID + 1];
	struct err e = ERR_INIT;

	assert_int_equal(template_begin(&s, &q, &b, &e), 0);
	assert_int_equal(strlen(b.template), TEMPLATE_ID);
	assert_int_equal(strlen(b.build), TEMPLATE_BUILD_ID);
	assert_int_equal(b.n_tags, 3);
	assert_string_equal(b.tags[2], "V2.0");
	assert_int_equal(template_get(&s, b.template, b.build, &again, &e), 0);
	assert_memory_equal(&again, &b, sizeof(b));
	assert_int_equal(again.status, TEMPLATE_WAITING);
	assert_int_equal(template_find(&s, "mine", id, &e), 0);
	assert_string_equal(id, b.template);
	expect_means("mine:new", NULL);
	assert_int_equal(template_end(&s, b.template, b.build, NULL, NULL, &e), -EALREADY);
	assert_int_equal(template_building(&s, b.template, b.build, &e), 0);
	assert_int_equal(template_building(&s, b.template, b.build, &e), -EALREADY);
	assert_string_equal(e.msg, "the build is building, not waiting");
	expect_means("mine:new", NULL);
	assert_int_equal(template_end(&s, b.template, b.build, NULL, NULL, &e), 0);
	expect_means("mine:new", b.build);
	expect_means("mine:v1", b.build);
	expect_means("mine", NULL); /* it has no "default" */
	(void)snprintf(id, sizeof(id), "%s", b.template);
	expect_means(id, NULL);
	template_image(&b, image);
	assert_true(image_name_valid(image));
	assert_int_equal(template_get(&s, TID, b.build, &again, &e), -ENOENT);
	assert_int_equal(template_get(&s, b.template, BID, &again, &e), -ENOENT);
	assert_int_equal(template_get(&s, b.template, "../x", &again, &e), -EINVAL);
}

TEST_WITH(errors_have_reasons, setup, teardown)
{
	struct template_build old = ready("mine"), b = begin("mine");
	static char large[2 * TEMPLATE_TEXT_MAX];
	struct err e = ERR_INIT;

	memset(large, 'x', sizeof(large) - 1);
	large[TEMPLATE_TEXT_MAX - 1] = '\xc3'; /* a character that is cut in two */
	large[TEMPLATE_TEXT_MAX] = '\xa4';
	assert_string_equal(b.template, old.template);
	assert_int_equal(template_building(&s, b.template, b.build, &e), 0);
	assert_int_equal(template_end(&s, b.template, b.build, large, "3", &e), 0);
	assert_int_equal(template_get(&s, b.template, b.build, &b, &e), 0);
	assert_int_equal(b.status, TEMPLATE_ERROR);
	assert_int_equal(strlen(b.reason), TEMPLATE_TEXT_MAX);
	assert_int_equal(b.reason[TEMPLATE_TEXT_MAX - 1], '?');
	assert_string_equal(b.step, "3");
	assert_true(b.ended >= b.created);
	expect_means("mine", old.build);
}

TEST_WITH(wrong_requests, setup, teardown)
{
	static const char *const wrong[] = { "a/b", NULL }, *const empty[] = { "", NULL };
	static const char *many[TEMPLATE_ASKED_MAX + 1];
	static char names[TEMPLATE_ASKED_MAX][8];
	const struct template_request cases[] = {
		{ .name = "A" },
		{ .name = "" },
		{ .name = "../x" },
		{ .name = "a:b:c" },
		{ .name = "a", .tags = wrong },
		{ .name = "a", .tags = empty },
		{ .name = "a", .tags = many },
		{ .name = "a", .cpus = TEMPLATE_CPUS_MAX + 1 },
		{ .name = "a", .memory = TEMPLATE_MEMORY_MAX + 1 },
	};
	struct template_build b;

	for (size_t i = 0; i < TEMPLATE_ASKED_MAX; i++) {
		(void)snprintf(names[i], sizeof(names[i]), "t%zu", i);
		many[i] = names[i];
	}
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct err e = ERR_INIT;

		assert_int_equal(template_begin(&s, &cases[i], &b, &e), -EINVAL);
	}
	assert_int_equal(entries(s.names), 0);
	assert_int_equal(entries(s.builds), 0);
}

/* Files on disk are not trusted. */
TEST_WITH(damaged_records, setup, teardown)
{
	const struct unit_dir builds = { .fd = s.builds }, names = { .fd = s.names };
	static const char *const records[] = {
		"",
		"{}",
		"[]",
		"{\"template\":\"" TID "\"}",
		"{\"build\":\"" BID
		"\",\"cpus\":0,\"created\":0,\"ended\":0,\"memory\":0,\"name\":\"a\","
		"\"reason\":\"\",\"status\":\"odd\",\"step\":\"\",\"tagged\":false,\"tags\":[],"
		"\"template\":\"" TID "\"}",
		"{\"build\":\"" BID
		"\",\"cpus\":0,\"created\":0,\"ended\":0,\"memory\":0,\"name\":\"a\","
		"\"reason\":\"\",\"status\":\"ready\",\"step\":\"\",\"tagged\":false,\"tags\":[1],"
		"\"template\":\"" TID "\"}",
		"{\"build\":\"" BID
		"\",\"cpus\":0,\"created\":0,\"ended\":0,\"memory\":0,\"name\":\"a\","
		"\"reason\":\"\",\"status\":\"ready\",\"step\":\"\",\"tagged\":false,\"tags\":[],"
		"\"template\":\"../../x\"}",
	};
	static const char *const templates[] = {
		"",
		"{}",
		"{\"id\":\"" TID "\",\"name\":\"b\",\"tags\":{},\"when\":1}",
		"{\"id\":\"../x\",\"name\":\"a\",\"tags\":{},\"when\":1}",
		"{\"id\":\"" TID "\",\"name\":\"a\",\"tags\":[],\"when\":1}",
		"{\"id\":\"" TID
		"\",\"name\":\"a\",\"tags\":{\"x\":{\"build\":\"../x\"}},\"when\":1}",
	};
	struct template_build b;

	for (size_t i = 0; i < ARRAY_SIZE(records); i++) {
		struct err e = ERR_INIT;

		unit_dir_write(&builds, BID ".json", records[i], strlen(records[i]));
		assert_in_range(-template_get(&s, TID, BID, &b, &e), 1, 200);
		assert_int_not_equal(e.num, -ENOENT);
		assert_int_equal(template_recover(&s, "x", &e), 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(templates); i++) {
		_cleanup_json_ json_t *list = NULL;
		struct err e = ERR_INIT;

		unit_dir_write(&names, "a.json", templates[i], strlen(templates[i]));
		assert_in_range(-template_resolve(&s, "a", &b, &e), 1, 200);
		assert_int_not_equal(e.num, -ENOENT);
		assert_int_equal(template_list(&s, NULL, &list, &e), 0);
		assert_int_equal(json_array_size(list), 0);
	}
}

/* ---- tags ---- */

TEST_WITH(tags_move, setup, teardown)
{
	static const char *const more[] = { "stable", "prod", NULL },
				 *const one[] = { "prod", NULL },
				 *const wrong[] = { "stable", "none", NULL },
				 *const bad[] = { ".", NULL };
	struct template_build first = ready("mine"), second = ready("mine:beta"), b;
	_cleanup_json_ json_t *list = NULL, *own = NULL;
	struct err e = ERR_INIT;

	expect_means("mine", first.build);
	expect_means("mine:beta", second.build);
	assert_int_equal(template_tag(&s, "mine:beta", more, &b, &e), 0);
	assert_string_equal(b.build, second.build);
	expect_means("mine:prod", second.build);
	assert_int_equal(template_untag(&s, "mine", wrong, &e), -ENOENT);
	expect_means("mine:stable", second.build);
	assert_int_equal(template_untag(&s, "mine", one, &e), 0);
	expect_means("mine:prod", NULL);
	expect_means("mine:stable", second.build);
	assert_int_equal(template_tag(&s, "mine", bad, &b, &e), -EINVAL);
	assert_int_equal(template_tag(&s, "mine:none", more, &b, &e), -ENOENT);
	(void)ready("also");
	assert_int_equal(template_list(&s, NULL, &list, &e), 0);
	assert_int_equal(json_array_size(list), 2);
	assert_string_equal(json_string_value(json_object_get(json_array_get(list, 0), "name")),
			    "also");
	assert_int_equal(template_list(&s, first.template, &own, &e), 0);
	assert_int_equal(json_object_size(json_object_get(json_array_get(own, 0), "tags")), 3);
	assert_int_equal(template_remove(&s, first.template, &e), 0);
	expect_means("mine", NULL);
	assert_int_equal(template_remove(&s, "mine", &e), -ENOENT);
}

TEST_WITH(a_template_has_so_many_tags, setup, teardown)
{
	char names[TEMPLATE_TAGS_MAX][8];
	const char *tags[TEMPLATE_TAGS_MAX + 1] = { NULL };
	struct template_build b = ready("mine"), more;
	struct err e = ERR_INIT;

	for (size_t i = 0; i < TEMPLATE_TAGS_MAX; i++) {
		(void)snprintf(names[i], sizeof(names[i]), "t%zu", i);
		tags[i] = names[i];
	}
	assert_int_equal(template_tag(&s, "mine", tags, &b, &e), -EUSERS);
	tags[TEMPLATE_TAGS_MAX - 1] = NULL;
	assert_int_equal(template_tag(&s, "mine", tags, &b, &e), 0);
	/* A build without room for its tag fails. */
	more = begin("mine:other");
	assert_int_equal(template_building(&s, more.template, more.build, &e), 0);
	assert_int_equal(template_end(&s, more.template, more.build, NULL, NULL, &e), -EUSERS);
	assert_int_equal(template_get(&s, more.template, more.build, &more, &e), 0);
	assert_int_equal(more.status, TEMPLATE_ERROR);
	assert_string_equal(more.reason, "a template has at most 64 tags");
}

/* ---- crashes, and the end ---- */

static void set_status(const struct template_build *b, const char *from, const char *to)
{
	_cleanup_buf_ struct buf text = BUF_INIT(65536), out = BUF_INIT(65536);
	char file[64], *at;
	struct err e = ERR_INIT;

	(void)snprintf(file, sizeof(file), "%s.json", b->build);
	assert_int_equal(fd_read_file(s.builds, file, &text, &e), 0);
	at = strstr(text.data, from);
	assert_non_null(at);
	(void)buf_put(&out, text.data, (size_t)(at - text.data));
	(void)buf_puts(&out, to);
	(void)buf_puts(&out, at + strlen(from));
	unit_dir_write(&(struct unit_dir){ .fd = s.builds }, file, out.data, out.len);
}

TEST_WITH(what_was_cut_short_is_finished, setup, teardown)
{
	struct template_build waits = begin("a"), builds = begin("b"), done = begin("c"), b;
	struct err e = ERR_INIT;

	assert_int_equal(template_building(&s, builds.template, builds.build, &e), 0);
	/* The state after a crash between the two writes. */
	set_status(&done, "\"waiting\"", "\"ready\"");
	expect_means("c", NULL);
	assert_int_equal(template_recover(&s, "interrupted", &e), 0);
	assert_int_equal(template_get(&s, waits.template, waits.build, &b, &e), 0);
	assert_int_equal(b.status, TEMPLATE_WAITING);
	assert_int_equal(template_get(&s, builds.template, builds.build, &b, &e), 0);
	assert_int_equal(b.status, TEMPLATE_ERROR);
	assert_string_equal(b.reason, "interrupted");
	expect_means("c", done.build);
	assert_int_equal(template_get(&s, done.template, done.build, &b, &e), 0);
	assert_true(b.tagged);
}

struct taken {
	size_t n;
	char last[IMAGE_NAME_MAX + 1];
};

static void take(const char *image, void *arg)
{
	struct taken *t = arg;

	t->n++;
	(void)snprintf(t->last, sizeof(t->last), "%s", image);
}

TEST_WITH(old_builds_go, setup, teardown)
{
	uint64_t later = clock_wall() + (TEMPLATE_KEEP_SEC + 1) * NSEC_PER_SEC;
	struct template_build old = ready("mine"), new = ready("mine"), runs = begin("mine"), b;
	char image[IMAGE_NAME_MAX + 1];
	struct taken t = { 0 };
	struct err e = ERR_INIT;

	assert_int_equal(template_building(&s, runs.template, runs.build, &e), 0);
	assert_int_equal(template_log(&s, old.build, TEMPLATE_INFO, NULL, "x", &e), 0);
	unit_dir_write(&(struct unit_dir){ .fd = s.names }, "mine.json.0123.tmp", "x", 1);
	assert_int_equal(template_clean(&s, clock_wall(), take, &t, &e), 0);
	assert_int_equal(t.n, 0);
	assert_int_equal(entries(s.names), 1);
	assert_int_equal(template_clean(&s, later, take, &t, &e), 0);
	assert_int_equal(t.n, 1);
	template_image(&old, image);
	assert_string_equal(t.last, image);
	assert_int_equal(template_get(&s, old.template, old.build, &b, &e), -ENOENT);
	expect_means("mine", new.build);
	assert_int_equal(entries(s.builds), 2);
	assert_int_equal(template_remove(&s, "mine", &e), 0);
	assert_int_equal(template_clean(&s, later, take, &t, &e), 0);
	assert_int_equal(t.n, 2);
	/* Its template is gone: it ends nevertheless. */
	assert_int_equal(template_end(&s, runs.template, runs.build, NULL, NULL, &e), 0);
}

/* ---- logs ---- */

static size_t page(const char *build, uint64_t from, size_t max, json_t **ret)
{
	struct err e = ERR_INIT;

	json_decref(*ret);
	*ret = NULL;
	assert_int_equal(template_log_read(&s, build, from, max, ret, &e), 0);
	return json_array_size(*ret);
}

static const char *message(const json_t *list, size_t i)
{
	return json_string_value(json_object_get(json_array_get(list, i), "message"));
}

TEST_WITH(logs_are_read_by_pages, setup, teardown)
{
	_cleanup_json_ json_t *list = NULL;
	struct err e = ERR_INIT;
	char text[32];

	assert_int_equal(page(BID, 0, 10, &list), 0);
	for (int i = 0; i < 25; i++) {
		(void)snprintf(text, sizeof(text), "line\n\t\\%d \xff", i);
		assert_int_equal(template_log(&s, BID, TEMPLATE_INFO, i ? NULL : "1", text, &e), 0);
	}
	assert_int_equal(page(BID, 0, 10, &list), 10);
	assert_string_equal(message(list, 0), "line\n\t\\0 ?");
	assert_string_equal(json_string_value(json_object_get(json_array_get(list, 0), "step")),
			    "1");
	assert_int_equal(page(BID, 20, 10, &list), 5);
	assert_string_equal(message(list, 4), "line\n\t\\24 ?");
	assert_int_equal(page(BID, 25, 10, &list), 0);
	assert_int_equal(page(BID, UINT64_MAX, 10, &list), 0);
	assert_int_equal(page(BID, 0, SIZE_MAX, &list), 25);
	assert_int_equal(template_log(&s, "../x", TEMPLATE_INFO, NULL, "x", &e), -EINVAL);
	assert_int_equal(template_log_read(&s, "../x", 0, 1, &list, &e), -EINVAL);
}

TEST_WITH(half_a_line_is_none, setup, teardown)
{
	_cleanup_json_ json_t *list = NULL;
	const struct unit_dir builds = { .fd = s.builds };
	static const char torn[] = "1\tinfo\t\twhole\n2\twar";
	struct err e = ERR_INIT;

	unit_dir_write(&builds, BID ".log", torn, strlen(torn));
	assert_int_equal(page(BID, 0, 10, &list), 1);
	assert_int_equal(template_log(&s, BID, TEMPLATE_WARN, NULL, "next", &e), 0);
	assert_int_equal(page(BID, 0, 10, &list), 2);
	assert_string_equal(message(list, 1), "next");
	unit_dir_write(&builds, BID ".log", "odd\n", 4);
	assert_int_equal(page(BID, 0, 10, &list), 1);
	assert_string_equal(message(list, 0), "");
}

TEST_WITH(logs_are_bounded, setup, teardown)
{
	static char large[2 * TEMPLATE_TEXT_MAX];
	struct err e = ERR_INIT;
	struct stat st;

	memset(large, '\t', sizeof(large) - 1);
	for (int i = 0; i < TEMPLATE_LOG_MAX / TEMPLATE_TEXT_MAX; i++)
		assert_int_equal(template_log(&s, BID, TEMPLATE_DEBUG, NULL, large, &e), 0);
	assert_int_equal(fstatat(s.builds, BID ".log", &st, 0), 0);
	assert_in_range(st.st_size, TEMPLATE_LOG_MAX - 3 * TEMPLATE_TEXT_MAX, TEMPLATE_LOG_MAX);
}

/* ---- files ---- */

static int send_file(const char *hash, const char *text, struct err *e)
{
	_cleanup_template_upload_ struct template_upload u = TEMPLATE_UPLOAD_INIT;
	int r = template_upload_begin(&s, TID, hash, strlen(text), &u, e);

	if (r == 0)
		r = template_upload_write(&u, text, strlen(text), e);
	return r < 0 ? r : template_upload_end(&s, &u, e);
}

static void expect_file(const char *hash, const char *text)
{
	_cleanup_close_ int fd = -EBADF;
	struct err e = ERR_INIT;
	char got[64] = "";

	assert_int_equal(template_file_open(&s, TID, hash, &fd, &e), 0);
	assert_int_equal(read(fd, got, sizeof(got) - 1), strlen(text));
	assert_string_equal(got, text);
}

TEST_WITH(files_are_kept_whole, setup, teardown)
{
	struct template_upload u = TEMPLATE_UPLOAD_INIT;
	struct err e = ERR_INIT;
	int fd;

	assert_int_equal(template_file_open(&s, TID, HASH_A, &fd, &e), -ENOENT);
	assert_int_equal(send_file(HASH_A, "first", &e), 0);
	expect_file(HASH_A, "first");
	/* The old file stays until the upload is complete. */
	assert_int_equal(template_upload_begin(&s, TID, HASH_A, 0, &u, &e), 0);
	assert_int_equal(template_upload_write(&u, "half", 4, &e), 0);
	expect_file(HASH_A, "first");
	template_upload_drop(&u);
	assert_int_equal(entries(s.files), 1);
	assert_int_equal(send_file(HASH_A, "second", &e), 0);
	expect_file(HASH_A, "second");
	assert_int_equal(template_file_open(&s, "zzzzzzzzzzzzzzzzzzzz", HASH_A, &fd, &e), -ENOENT);
	assert_int_equal(template_file_open(&s, "../x", HASH_A, &fd, &e), -EINVAL);
	assert_int_equal(template_file_open(&s, TID, "../x", &fd, &e), -EINVAL);
	assert_int_equal(template_file_open(&s, TID, HASH_A "a", &fd, &e), -EINVAL);
}

TEST_WITH(files_have_limits, setup, teardown)
{
	struct template_upload u[TEMPLATE_UPLOADS_MAX + 1];
	struct err e = ERR_INIT;
	static char chunk[4096];
	size_t n = 0;

	u[0] = (struct template_upload)TEMPLATE_UPLOAD_INIT;
	assert_int_equal(template_upload_begin(&s, TID, HASH_A, TEMPLATE_FILE_BYTES + 1, &u[0], &e),
			 -EFBIG);
	assert_int_equal(template_upload_begin(&s, TID, HASH_A, 0, &u[0], &e), 0);
	u[0].size = TEMPLATE_FILE_BYTES - 1; /* as if this much had arrived */
	assert_int_equal(template_upload_write(&u[0], chunk, 2, &e), -EFBIG);
	assert_int_equal(template_upload_write(&u[0], chunk, 1, &e), 0);
	template_upload_drop(&u[0]);
	while (template_upload_begin(&s, TID, HASH_A, 0, &u[n], &e) == 0)
		n++;
	assert_int_equal(e.num, -EBUSY);
	assert_int_equal(n, TEMPLATE_UPLOADS_MAX);
	while (n > 0)
		template_upload_drop(&u[--n]);
	/* The next upload removes abandoned ones. */
	unit_dir_write(&(struct unit_dir){ .fd = s.files }, ".new-left", "x", 1);
	assert_int_equal(send_file(HASH_A, "x", &e), 0);
	assert_int_equal(entries(s.files), 1);
}

/* A held store lock delays only the end of an upload, which a child with its own store can wait
 * for; never the beginning. */
TEST_WITH(an_upload_begins_at_once, setup, teardown)
{
	_cleanup_template_upload_ struct template_upload u = TEMPLATE_UPLOAD_INIT;
	_cleanup_template_store_ struct template_store own = TEMPLATE_STORE_INIT;
	int lock = openat(s.dir, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	int files = openat(s.files, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct err e = ERR_INIT;

	assert_int_equal(flock(lock, LOCK_EX), 0);
	assert_int_equal(flock(files, LOCK_EX), 0);
	assert_int_equal(template_upload_begin(&s, TID, HASH_A, 0, &u, &e), -EAGAIN);
	assert_int_equal(entries(s.files), 0);
	(void)fd_close(files);
	assert_int_equal(template_upload_begin(&s, TID, HASH_A, 0, &u, &e), 0);
	assert_int_equal(template_upload_write(&u, "late", 4, &e), 0);
	(void)fd_close(lock);
	assert_int_equal(template_store_open(&own, s.owner, false, &e), 0);
	assert_int_equal(template_upload_end(&own, &u, &e), 0);
	template_upload_drop(&u);
	expect_file(HASH_A, "late");
	assert_int_equal(entries(s.files), 1);
	/* The upload was dropped meanwhile: nothing is kept. */
	assert_int_equal(template_upload_begin(&s, TID, HASH_B, 0, &u, &e), 0);
	template_upload_drop(&u);
	assert_int_equal(template_upload_end(&own, &u, &e), -ENOENT);
	assert_int_equal(entries(s.files), 1);
}

/* Sparse, so that it costs nothing. */
static void put_old(const char *name, uint64_t size, time_t when)
{
	const struct timespec t[2] = { { .tv_sec = when }, { .tv_sec = when } };
	_cleanup_close_ int fd = openat(s.files, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	assert_int_equal(futimens(fd, t), 0);
}

TEST_WITH(the_oldest_files_go, setup, teardown)
{
	struct err e = ERR_INIT;
	struct stat st;
	char name[128];

	for (unsigned int i = 0; i < 8; i++) {
		(void)snprintf(name, sizeof(name), TID "-%064x", i);
		put_old(name, TEMPLATE_FILE_BYTES, 1000 + (i * 5) % 8);
	}
	assert_int_equal(send_file(HASH_A, "new", &e), 0);
	expect_file(HASH_A, "new");
	assert_int_equal(entries(s.files), 8);
	(void)snprintf(name, sizeof(name), TID "-%064x", 0); /* the oldest */
	assert_int_equal(fstatat(s.files, name, &st, 0), -1);
	/* Replacing a file needs no space of others. */
	assert_int_equal(send_file(HASH_A, "newer", &e), 0);
	assert_int_equal(entries(s.files), 8);
}

/* ---- owners ---- */

static void ready_of(const char *owner, const char *name, struct template_build *ret)
{
	_cleanup_template_store_ struct template_store own = TEMPLATE_STORE_INIT;
	struct err e = ERR_INIT;

	assert_int_equal(template_store_open(&own, owner, true, &e), 0);
	assert_int_equal(template_begin(&own, &(struct template_request){ .name = name }, ret, &e),
			 0);
	assert_int_equal(template_building(&own, ret->template, ret->build, &e), 0);
	assert_int_equal(template_end(&own, ret->template, ret->build, NULL, NULL, &e), 0);
}

static void expect_image(const char *owner, const char *ref, const struct template_build *b)
{
	char image[IMAGE_NAME_MAX + 1], want[IMAGE_NAME_MAX + 1];
	struct err e = ERR_INIT;

	assert_int_equal(template_find_image(owner, ref, image, &e), 0);
	if (b)
		template_image(b, want);
	else
		(void)snprintf(want, sizeof(want), "%s", ref);
	assert_string_equal(image, want);
}

static int share_of(const char *owner, const char *ref, struct err *e)
{
	_cleanup_template_store_ struct template_store own = TEMPLATE_STORE_INIT;
	int r = template_store_open(&own, owner, false, e);

	return r < 0 ? r : template_share(&own, ref, e);
}

TEST_WITH(names_are_an_owners, setup, teardown)
{
	struct template_build a, b;
	char whole[IMAGE_NAME_MAX + 1], image[IMAGE_NAME_MAX + 1];
	struct err e = ERR_INIT;

	ready_of("key.A", "mine", &a);
	ready_of("b-", "mine", &b);
	expect_image("key.A", "mine", &a);
	expect_image("b-", "mine", &b);
	expect_image("key.A", a.template, &a);
	expect_image("key.A", b.template, NULL);
	expect_image("", "mine", NULL);
	expect_image("", a.template, NULL);
	template_image(&a, whole);
	assert_true(template_is_image(whole));
	assert_false(template_is_image("mine:default"));
	/* Even its owner finds a build only by a tag. */
	assert_int_equal(template_find_image("key.A", whole, image, &e), -ENOENT);
	assert_int_equal(template_find_image("key.A", "../x", image, &e), -EINVAL);
	assert_int_equal(template_find_image("../x", "mine", image, &e), -EINVAL);
	assert_int_equal(template_find_image(".", "mine", image, &e), -EINVAL);
}

/* A record written by a version before per-key stores. */
TEST_WITH(old_records_are_the_operators, setup, teardown)
{
	static const char old[] = "{\"id\":\"" TID "\",\"name\":\"old\",\"owner\":\"somebody\","
				  "\"tags\":{},\"when\":1}\n";
	char id[TEMPLATE_ID + 1];
	struct err e = ERR_INIT;

	assert_int_equal(fd_replace_file(s.names, "old.json", 0600, old, strlen(old), &e), 0);
	assert_int_equal(template_find(&s, "old", id, &e), 0);
	assert_string_equal(id, TID);
	assert_int_equal(template_remove(&s, TID, &e), 0);
	assert_int_equal(template_find(&s, "old", id, &e), -ENOENT);
}

TEST_WITH(stores_are_found_by_ids, setup, teardown)
{
	_cleanup_template_store_ struct template_store own = TEMPLATE_STORE_INIT;
	struct template_build a, b;
	struct err e = ERR_INIT;

	ready_of("a", "mine", &a);
	/* A name that looks like the id of another owner's template. */
	ready_of("b", a.template, &b);
	assert_int_equal(template_store_with(&own, a.template, &e), 0);
	assert_string_equal(own.owner, "a");
	template_store_close(&own);
	assert_int_equal(template_store_with(&own, TID, &e), -ENOENT);
	assert_int_equal(template_store_with(&own, "mine", &e), -ENOENT);
	assert_int_equal(template_store_with(&own, "a/b", &e), -EINVAL);
}

TEST_WITH(what_is_shared, setup, teardown)
{
	struct template_build a, b;
	char owner[TEMPLATE_NAME_MAX + 1], id[TEMPLATE_ID + 1];
	_cleanup_template_store_ struct template_store own = TEMPLATE_STORE_INIT;
	_cleanup_json_ json_t *list = NULL, *none = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(template_shared_list(&none, &e), 0);
	assert_int_equal(json_array_size(none), 0);
	ready_of("a", "mine", &a);
	ready_of("b", "mine", &b);
	assert_int_equal(template_unshare("mine", &e), -ENOENT);
	assert_int_equal(share_of("a", "no", &e), -ENOENT);
	assert_int_equal(share_of("a", a.template, &e), 0);
	assert_int_equal(share_of("a", "mine", &e), 0);
	assert_int_equal(share_of("b", "mine", &e), -EEXIST);
	assert_string_equal(e.msg, "another template 'mine' is shared, that of the key a: unshare "
				   "it first");
	expect_image("c", "mine", &a);
	expect_image("c", "mine:no", NULL);
	expect_image("b", "mine", &b);
	assert_int_equal(template_shared("mine", owner, id, &e), 0);
	assert_string_equal(owner, "a");
	assert_string_equal(id, a.template);
	assert_int_equal(template_shared("mine:x", owner, id, &e), -EINVAL);
	assert_int_equal(template_shared_list(&list, &e), 0);
	assert_string_equal(json_string_value(json_array_get(list, 0)), "mine");
	/* Deleting a template also removes its shares, and frees the name. */
	assert_int_equal(template_store_open(&own, "a", false, &e), 0);
	assert_int_equal(template_remove(&own, "mine", &e), 0);
	assert_int_equal(template_unshare("mine", &e), -ENOENT);
	expect_image("c", "mine", NULL);
	assert_int_equal(share_of("b", "mine", &e), 0);
	expect_image("c", "mine", &b);
	assert_int_equal(template_unshare("mine", &e), 0);
	expect_image("c", "mine", NULL);
}

TEST_WITH(a_damaged_share_is_an_error, setup, teardown)
{
	static const char *const wrong[] = { "{}\n", "[]\n", "{\"owner\":\"a\"}\n",
					     "{\"owner\":\"a\",\"template\":\"x\"}\n", "{" };
	char image[IMAGE_NAME_MAX + 1];
	struct template_build a;
	struct err e = ERR_INIT;

	ready_of("a", "mine", &a);
	assert_int_equal(share_of("a", "mine", &e), 0);
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		assert_int_equal(fd_replace_file(s.dir, "shared/mine.json", 0600, wrong[i],
						 strlen(wrong[i]), &e),
				 0);
		assert_in_range(-template_find_image("c", "mine", image, &e), 1, 200);
	}
}

/* ---- everything fails once ---- */

/* Few steps each: a sweep repeats all of them for every call. */
static int sweep_build(void)
{
	struct template_build b;
	struct err e = ERR_INIT;
	int r = template_begin(&s, &(struct template_request){ .name = "mine" }, &b, &e);

	if (r == 0)
		r = template_building(&s, b.template, b.build, &e);
	return r < 0 ? r : template_end(&s, b.template, b.build, NULL, NULL, &e);
}

static int sweep_tags(void)
{
	static const char *const tags[] = { "more", NULL };
	_cleanup_json_ json_t *list = NULL;
	struct template_build b;
	struct err e = ERR_INIT;
	int r = template_tag(&s, "mine", tags, &b, &e);

	if (r == 0)
		r = template_list(&s, NULL, &list, &e);
	return r < 0 ? r : template_untag(&s, b.template, tags, &e);
}

static int sweep_log(void)
{
	_cleanup_json_ json_t *list = NULL;
	struct err e = ERR_INIT;
	int r = template_log(&s, BID, TEMPLATE_INFO, "1", "text", &e);

	return r < 0 ? r : template_log_read(&s, BID, 0, 10, &list, &e);
}

static int sweep_file(void)
{
	struct err e = ERR_INIT;

	return send_file(HASH_B, "text", &e);
}

static int sweep_clean(void)
{
	struct template_build b;
	struct err e = ERR_INIT;
	int r = template_begin(&s, &(struct template_request){ .name = "other" }, &b, &e);

	if (r == 0)
		r = template_building(&s, b.template, b.build, &e);
	if (r == 0)
		r = template_recover(&s, "x", &e);
	return r < 0 ? r : template_clean(&s, UINT64_MAX / 2, NULL, NULL, &e);
}

static int sweep_open(void)
{
	_cleanup_template_store_ struct template_store own = TEMPLATE_STORE_INIT;
	struct err e = ERR_INIT;

	return template_store_open(&own, "", true, &e);
}

static int count_one(const struct template_store *one, void *arg, struct err *e)
{
	(*(size_t *)arg)++;
	return 0;
}

static int sweep_share(void)
{
	struct err e = ERR_INIT;
	char image[IMAGE_NAME_MAX + 1];
	size_t n = 0;
	int r = share_of("a", "mine", &e);

	if (r == 0)
		r = template_find_image("c", "mine", image, &e);
	if (r == 0)
		r = template_each_store(count_one, &n, &e);
	return r < 0 ? r : template_unshare("mine", &e);
}

TEST_WITH(faults_of_sharing, setup, teardown)
{
	struct template_build a;

	ready_of("a", "mine", &a);
	assert_int_equal(sweep_share(), 0);
	FAIL_SWEEP(sweep_share());
	assert_int_equal(sweep_share(), 0);
}

TEST_WITH(faults, setup, teardown)
{
	FAIL_SWEEP(sweep_open());
	FAIL_SWEEP(sweep_build());
	assert_int_equal(sweep_build(), 0);
	FAIL_SWEEP(sweep_clean());
	assert_int_equal(sweep_clean(), 0);
	FAIL_SWEEP(sweep_tags());
	FAIL_SWEEP(sweep_log());
	FAIL_SWEEP(sweep_file());
	/* After all failures the state is consistent. */
	assert_int_equal(entries(s.builds), 2); /* the target of "mine", and the log */
	assert_int_equal(entries(s.files), 1);
}

TEST_WITH(others_may_not_write_there, setup, teardown)
{
	_cleanup_template_store_ struct template_store own = TEMPLATE_STORE_INIT;
	struct err e = ERR_INIT;

	assert_int_equal(fchmod(s.names, 0777), 0);
	assert_int_equal(template_store_open(&own, "", true, &e), -EPERM);
	assert_int_equal(setenv("HUTCH_STATE_DIR", "/nonexistent/x", 1), 0);
	assert_int_equal(template_store_open(&own, "", false, &e), -ENOENT);
}
