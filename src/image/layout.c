/* SPDX-License-Identifier: Apache-2.0 */
#include "image/layout.h"

#include <fcntl.h>
#include <sodium.h>
#include <string.h>

#include "base/fd.h"
#include "base/json-util.h"
#include "base/str.h"
#include "image/archive.h"
#include "image/stream.h"

#if defined(__x86_64__)
#define OCI_ARCH "amd64"
#elif defined(__aarch64__)
#define OCI_ARCH "arm64"
#else
#define OCI_ARCH "unknown"
#endif

enum {
	TYPE_MAX = 255,
	READ_CHUNK = 128 * 1024
};

static const char digest_prefix[] = "sha256:";

/* A descriptor: type, size and digest of a blob. */
struct blob {
	const char *type; /* owned by the JSON that contains it */
	const char *hex;
	uint64_t size;
};

static bool is_hex(const char *s)
{
	return strspn(s, "0123456789abcdef") == IMAGE_DIGEST_HEX && strlen(s) == IMAGE_DIGEST_HEX;
}

static int read_blob(const json_t *j, struct blob *ret, struct err *e)
{
	const char *digest = NULL;
	int r = json_get_string(j, "mediaType", TYPE_MAX, &ret->type, e);

	if (r == 0)
		r = json_get_string(j, "digest", TYPE_MAX, &digest, e);
	if (r == 0)
		r = json_get_u64(j, "size", IMAGE_BYTES_MAX, &ret->size, e);
	if (r < 0 || !ret->type || !digest)
		return err_set(e, -EINVAL, "a descriptor in the layout is invalid");
	if (!str_has_prefix(digest, digest_prefix) || !is_hex(digest + STRLEN("sha256:")))
		return err_set(e, -EINVAL, "'%.80s' is not a SHA-256 digest", digest);
	ret->hex = digest + STRLEN("sha256:");
	return 0;
}

/* Reads all of `fd` and checks it against the descriptor. */
static int verify(struct worker *w, int fd, const struct blob *b, struct err *e)
{
	_cleanup_free_ char *chunk = malloc(READ_CHUNK);
	unsigned char sum[IMAGE_DIGEST];
	char hex[IMAGE_DIGEST_HEX + 1];
	crypto_hash_sha256_state state;
	struct image_counts counts = { 0 };
	ssize_t k;

	if (!chunk)
		return err_oom(e);
	(void)crypto_hash_sha256_init(&state);
	while ((k = RETRY_EINTR(read(fd, chunk, READ_CHUNK))) > 0) {
		counts.bytes += (uint64_t)k;
		if (counts.bytes > b->size)
			break;
		(void)crypto_hash_sha256_update(&state, (unsigned char *)chunk,
						(unsigned long long)k);
		worker_tell(w, PHASE_VERIFY, &counts);
	}
	if (k < 0 || lseek(fd, 0, SEEK_SET) < 0)
		return err_errno(e, "cannot read blob %.12s", b->hex);
	if (counts.bytes != b->size)
		return err_set(e, -EINVAL, "blob %.12s does not have the size in its descriptor",
			       b->hex);
	(void)crypto_hash_sha256_final(&state, sum);
	(void)sodium_bin2hex(hex, sizeof(hex), sum, sizeof(sum));
	if (!str_eq(hex, b->hex))
		return err_set(e, -EINVAL, "blob %.12s does not have the digest in its descriptor",
			       b->hex);
	return 0;
}

static int ask_archive(const struct worker *w, const char *name, int *ret_fd, struct err *e)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%s%s",
		       str_eq(name, "index.json") ? "" : "blobs/sha256/", name);
	return archive_open(w->archive, path, ret_fd, e);
}

/* A file of the layout, from the archive or the master: "index.json" or the hex digits of a blob.
 */
static int ask(struct worker *w, const char *name, int *ret_fd, struct err *e)
{
	struct channel_msg m = { .type = CHANNEL_OPEN };
	int fd = -EBADF, r;

	if (w->archive)
		return ask_archive(w, name, ret_fd, e);
	(void)snprintf(m.text, sizeof(m.text), "%s", name);
	r = channel_send(w->sock, &m, -EBADF, true);
	if (r == 0)
		r = channel_recv(w->sock, &m, &fd);
	if (r == 0 && (m.type != CHANNEL_OPENED || (m.num == 0) != (fd >= 0)))
		r = -EBADMSG;
	if (r < 0) {
		(void)fd_close(fd);
		return err_set(e, r, "cannot talk to the master: %s", strerror(-r));
	}
	if (m.num < 0)
		return err_set(e, -EINVAL, "the layout's '%.80s': %s", name, strerror(-m.num));
	*ret_fd = fd;
	return 0;
}

static int open_blob(struct worker *w, const struct blob *b, int *ret_fd, struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	int r = ask(w, b->hex, &fd, e);

	if (r == 0)
		r = verify(w, fd, b, e);
	if (r == 0)
		*ret_fd = TAKE_FD(fd);
	return r;
}

int oci_read_json(int fd, const char *what, json_t **ret, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(OCI_JSON_MAX);
	int r = fd_read_all(fd, &b);

	if (r < 0)
		return err_set(e, -EINVAL, "cannot read the %s: %s", what, strerror(-r));
	r = json_read(buf_text(&b), b.len, ret, e);
	return r < 0 ? err_wrap(e, "the %s", what) : 0;
}

static int blob_json(struct worker *w, const struct blob *b, const char *what, json_t **ret,
		     struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	int r = b->size > OCI_JSON_MAX ? err_set(e, -EINVAL, "the %s is too large", what)
				       : open_blob(w, b, &fd, e);

	return r < 0 ? r : oci_read_json(fd, what, ret, e);
}

static const char *ref_name(const json_t *descriptor)
{
	const json_t *a = json_object_get(descriptor, "annotations");
	const char *s = json_string_value(json_object_get(a, "org.opencontainers.image.ref.name"));

	return s ? s : "";
}

static bool is_index(const char *type)
{
	return str_eq(type, "application/vnd.oci.image.index.v1+json") ||
	       str_eq(type, "application/vnd.docker.distribution.manifest.list.v2+json");
}

static bool fits_here(const json_t *descriptor)
{
	const json_t *p = json_object_get(descriptor, "platform");
	const char *os = json_string_value(json_object_get(p, "os"));
	const char *arch = json_string_value(json_object_get(p, "architecture"));

	return !p || (os && arch && str_eq(os, "linux") && str_eq(arch, OCI_ARCH));
}

/* The only descriptor of an index that has the tag, or matches this host's platform. */
static int choose(const json_t *index, const char *tag, const json_t **ret, struct err *e)
{
	const json_t *list = json_object_get(index, "manifests"), *found = NULL, *one;
	size_t n = 0, i;

	if (!json_is_array(list) || json_array_size(list) > OCI_MANIFESTS_MAX)
		return err_set(e, -EINVAL, "the index has no list of manifests");
	json_array_foreach((json_t *)list, i, one)
	{
		if (tag ? !str_eq(ref_name(one), tag) : !fits_here(one))
			continue;
		found = one;
		n++;
	}
	if (n == 1) {
		*ret = found;
		return 0;
	}
	if (n == 0 && tag)
		return err_set(e, -ENOENT, "the layout has no image '%.80s'", tag);
	if (n == 0)
		return err_set(e, -ENOENT, "the layout has no image for linux/" OCI_ARCH);
	return err_set(e, -EINVAL, "the layout has %zu such images: name one, as PATH:TAG", n);
}

static int find_manifest(struct worker *w, const char *tag, json_t **ret, struct err *e)
{
	_cleanup_json_ json_t *index = NULL, *inner = NULL;
	_cleanup_close_ int fd = -EBADF;
	const json_t *one = NULL;
	struct blob b = { 0 };
	int r = ask(w, "index.json", &fd, e);

	if (r == 0)
		r = oci_read_json(fd, "index", &index, e);
	if (r == 0)
		r = choose(index, tag, &one, e);
	if (r == 0)
		r = read_blob(one, &b, e);
	if (r == 0 && is_index(b.type)) {
		r = blob_json(w, &b, "index of platforms", &inner, e);
		if (r == 0)
			r = choose(inner, NULL, &one, e);
		if (r == 0)
			r = read_blob(one, &b, e);
	}
	if (r < 0 || !b.type)
		return r;
	if (!str_eq(b.type, "application/vnd.oci.image.manifest.v1+json") &&
	    !str_eq(b.type, "application/vnd.docker.distribution.manifest.v2+json"))
		return err_set(e, -EINVAL, "'%.100s' is not the type of an image", b.type);
	return blob_json(w, &b, "manifest", ret, e);
}

static int send_env(struct worker *w, const json_t *env, struct err *e)
{
	const json_t *one;
	size_t i;
	int r = 0;

	if (json_array_size(env) > IMAGE_ENV_MAX)
		return err_set(e, -EINVAL, "more than %d environment variables", IMAGE_ENV_MAX);
	json_array_foreach((json_t *)env, i, one)
	{
		const char *s = json_string_value(one);

		if (r == 0 && s && strchr(s, '=') && s[0] != '=')
			r = worker_config(w, "env", s, e);
	}
	return r;
}

/* Entrypoint and Cmd: one text per word, in order. */
static int send_list(struct worker *w, const char *key, const json_t *list, struct err *e)
{
	const json_t *one;
	size_t i;
	int r = 0;

	if (json_array_size(list) > IMAGE_ARGS_MAX)
		return err_set(e, -EINVAL, "a command of more than %d words", IMAGE_ARGS_MAX);
	json_array_foreach((json_t *)list, i, one)
	{
		const char *s = json_string_value(one);

		if (r == 0 && s)
			r = worker_config(w, key, s, e);
	}
	return r;
}

static int check_machine(const json_t *config, struct err *e)
{
	const char *os = json_string_value(json_object_get(config, "os"));
	const char *arch = json_string_value(json_object_get(config, "architecture"));

	if ((os && os[0] && !str_eq(os, "linux")) || (arch && arch[0] && !str_eq(arch, OCI_ARCH)))
		return err_set(e, -EINVAL,
			       "the image is for %.40s/%.40s, but this host is linux/" OCI_ARCH
			       ": pull it for that platform",
			       os ? os : "linux", arch ? arch : "?");
	return 0;
}

int oci_send_config(struct worker *w, const json_t *config, struct err *e)
{
	const json_t *c = json_object_get(config, "config");
	const char *user = json_string_value(json_object_get(c, "User"));
	const char *dir = json_string_value(json_object_get(c, "WorkingDir"));
	int r = check_machine(config, e);

	if (r == 0)
		r = send_env(w, json_object_get(c, "Env"), e);
	if (r == 0)
		r = send_list(w, "entrypoint", json_object_get(c, "Entrypoint"), e);
	if (r == 0)
		r = send_list(w, "cmd", json_object_get(c, "Cmd"), e);

	if (r == 0 && user && user[0])
		r = worker_config(w, "user", user, e);
	if (r == 0 && dir && dir[0])
		r = worker_config(w, "workdir", dir, e);
	return r;
}

static bool is_layer(const char *type)
{
	static const char *const types[] = {
		"application/vnd.oci.image.layer.v1.tar",
		"application/vnd.oci.image.layer.v1.tar+gzip",
		"application/vnd.oci.image.layer.v1.tar+zstd",
		"application/vnd.docker.image.rootfs.diff.tar",
		"application/vnd.docker.image.rootfs.diff.tar.gzip",
	};

	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (str_eq(type, types[i]))
			return true;
	return false;
}

/* One pass over a layer. `diff_id`: expected SHA-256 of the unpacked layer; NULL: not checked. */
static int pass(struct unpack *u, enum unpack_pass what, int blob, const char *diff_id,
		struct err *e)
{
	_cleanup_stream_ struct stream s = STREAM_INIT;
	int fd = fcntl(blob, F_DUPFD_CLOEXEC, 3);
	unsigned char sum[IMAGE_DIGEST];
	char hex[IMAGE_DIGEST_HEX + 1];
	int r = fd < 0 ? err_errno(e, "cannot read the layer") : stream_open(&s, fd, e);

	if (r == 0)
		r = unpack_archive(u, what, stream_read, &s, e);
	if (r == 0)
		r = stream_finish(&s, sum, e);
	if (r < 0)
		return r;
	(void)sodium_bin2hex(hex, sizeof(hex), sum, sizeof(sum));
	if (diff_id &&
	    (!str_has_prefix(diff_id, digest_prefix) || !str_eq(diff_id + STRLEN("sha256:"), hex)))
		return err_set(e, -EINVAL, "the unpacked contents do not match their digest");
	return 0;
}

int oci_apply_layer(struct unpack *u, int fd, size_t i, const char *diff_id, struct err *e)
{
	int r = i > 0 ? pass(u, UNPACK_WHITEOUTS, fd, NULL, e) : 0;

	return r < 0 ? r : pass(u, UNPACK_LAYER, fd, diff_id, e);
}

static int layer(struct worker *w, struct unpack *u, const json_t *descriptor, size_t i,
		 const char *diff_id, struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	struct blob b = { 0 };
	int r = read_blob(descriptor, &b, e);

	if (r == 0 && !is_layer(b.type))
		r = err_set(e, -EINVAL, "unknown type '%.100s'", b.type);
	if (r == 0)
		r = open_blob(w, &b, &fd, e);
	if (r == 0)
		r = oci_apply_layer(u, fd, i, diff_id, e);
	return r < 0 ? err_wrap(e, "layer %zu", i + 1) : 0;
}

int oci_check_layers(const json_t *layers, const json_t *ids, struct err *e)
{
	if (json_array_size(layers) == 0 || json_array_size(layers) > IMAGE_LAYERS_MAX)
		return err_set(e, -EINVAL, "an image has 1 to %d layers, this one %zu",
			       IMAGE_LAYERS_MAX, json_array_size(layers));
	if (json_array_size(ids) != json_array_size(layers))
		return err_set(e, -EINVAL, "the configuration lists a different number of layers");
	return 0;
}

int oci_unpack(struct worker *w, struct unpack *u, const char *tag, struct err *e)
{
	_cleanup_json_ json_t *manifest = NULL, *config = NULL;
	const json_t *layers, *ids;
	struct blob b = { 0 };
	int r = find_manifest(w, tag, &manifest, e);

	if (r == 0)
		r = read_blob(json_object_get(manifest, "config"), &b, e);
	if (r == 0)
		r = blob_json(w, &b, "configuration", &config, e);
	if (r == 0)
		r = oci_send_config(w, config, e);
	if (r < 0)
		return r;
	layers = json_object_get(manifest, "layers");
	ids = json_object_get(json_object_get(config, "rootfs"), "diff_ids");
	r = oci_check_layers(layers, ids, e);
	for (size_t i = 0; r == 0 && i < json_array_size(layers); i++) {
		const char *id = json_string_value(json_array_get(ids, i));

		r = id ? layer(w, u, json_array_get(layers, i), i, id, e)
		       : err_set(e, -EINVAL, "a layer without a digest");
	}
	return r;
}
