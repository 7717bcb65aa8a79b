/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A docker-archive: manifest.json lists images, each with a configuration and layers, by member
 * name. A configuration's name is its digest, and the configuration contains the digest of every
 * layer; so everything but manifest.json is verified.
 */
#include <sodium.h>
#include <string.h>

#include "base/json-util.h"
#include "base/str.h"
#include "image/archive.h"
#include "image/layout.h"

enum {
	PATH_TEXT_MAX = 255, /* longest name in a manifest */
	READ_CHUNK = 64 * 1024,
};

/* `tag` is "name:tag" or the tag alone. */
static bool has_tag(const json_t *image, const char *tag)
{
	const json_t *list = json_object_get(image, "RepoTags"), *one;
	size_t i;

	json_array_foreach((json_t *)list, i, one)
	{
		const char *s = json_string_value(one), *colon = s ? strrchr(s, ':') : NULL;

		if (s && (str_eq(s, tag) || (colon && str_eq(colon + 1, tag))))
			return true;
	}
	return false;
}

static int choose(const json_t *manifest, const char *tag, const json_t **ret, struct err *e)
{
	const json_t *one, *found = NULL;
	size_t i, n = 0;

	if (!json_is_array(manifest) || json_array_size(manifest) > OCI_MANIFESTS_MAX)
		return err_set(e, -EINVAL, "manifest.json is not a list of images");
	json_array_foreach((json_t *)manifest, i, one)
	{
		if (tag && !has_tag(one, tag))
			continue;
		found = one;
		n++;
	}
	if (n == 1) {
		*ret = found;
		return 0;
	}
	if (n == 0)
		return tag ? err_set(e, -ENOENT, "the archive has no image '%.80s'", tag)
			   : err_set(e, -ENOENT, "the archive has no image");
	return err_set(e, -EINVAL,
		       "the archive has %zu such images: name one, as FILE:TAG or FILE:NAME:TAG",
		       n);
}

/* The digest in a name: "HEX.json", "sha256:HEX", "blobs/sha256/HEX"; or NULL. */
static const char *digest_of(const char *name)
{
	static const char *const before[] = { "blobs/sha256/", "sha256:", "" };
	const size_t hex = IMAGE_DIGEST_HEX;

	for (size_t i = 0; i < ARRAY_SIZE(before); i++) {
		const char *s = name + strlen(before[i]);

		if (str_has_prefix(name, before[i]) && strspn(s, "0123456789abcdef") == hex &&
		    (!s[hex] || str_eq(s + hex, ".json")))
			return s;
	}
	return NULL;
}

static int check_digest(int fd, const char *hex, struct err *e)
{
	unsigned char chunk[READ_CHUNK], sum[IMAGE_DIGEST];
	char is[IMAGE_DIGEST_HEX + 1];
	crypto_hash_sha256_state state;
	ssize_t k;

	(void)crypto_hash_sha256_init(&state);
	while ((k = RETRY_EINTR(read(fd, chunk, sizeof(chunk)))) > 0)
		(void)crypto_hash_sha256_update(&state, chunk, (unsigned long long)k);
	if (k < 0 || lseek(fd, 0, SEEK_SET) < 0)
		return err_errno(e, "cannot read the configuration");
	(void)crypto_hash_sha256_final(&state, sum);
	(void)sodium_bin2hex(is, sizeof(is), sum, sizeof(sum));
	if (memcmp(is, hex, IMAGE_DIGEST_HEX) != 0)
		return err_set(e, -EINVAL, "the configuration's digest does not match its name");
	return 0;
}

static int read_config(const struct worker *w, const json_t *image, json_t **ret, struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	const char *name = NULL, *hex;
	int r = json_get_string(image, "Config", PATH_TEXT_MAX, &name, e);

	if (r < 0 || !name)
		return err_set(e, -EINVAL, "manifest.json names no configuration");
	r = archive_open(w->archive, name, &fd, e);
	hex = digest_of(name);
	if (r == 0 && hex)
		r = check_digest(fd, hex, e);
	return r < 0 ? r : oci_read_json(fd, "configuration", ret, e);
}

static int layer(const struct worker *w, struct unpack *u, const json_t *name, size_t i,
		 const json_t *id, struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	const char *path = json_string_value(name), *digest = json_string_value(id);
	int r;

	if (!path || !digest)
		r = err_set(e, -EINVAL, "has no name or digest");
	else
		r = archive_open(w->archive, path, &fd, e);
	if (r == 0)
		r = oci_apply_layer(u, fd, i, digest, e);
	return r < 0 ? err_wrap(e, "layer %zu", i + 1) : 0;
}

int docker_unpack(struct worker *w, struct unpack *u, const char *tag, struct err *e)
{
	_cleanup_json_ json_t *manifest = NULL, *config = NULL;
	_cleanup_close_ int fd = -EBADF;
	const json_t *image = NULL, *layers, *ids;
	int r = archive_open(w->archive, "manifest.json", &fd, e);

	if (r == 0)
		r = oci_read_json(fd, "manifest", &manifest, e);
	if (r == 0)
		r = choose(manifest, tag, &image, e);
	if (r == 0)
		r = read_config(w, image, &config, e);
	if (r == 0)
		r = oci_send_config(w, config, e);
	if (r < 0)
		return r;
	layers = json_object_get(image, "Layers");
	ids = json_object_get(json_object_get(config, "rootfs"), "diff_ids");
	r = oci_check_layers(layers, ids, e);
	for (size_t i = 0; r == 0 && i < json_array_size(layers); i++)
		r = layer(w, u, json_array_get(layers, i), i, json_array_get(ids, i), e);
	return r;
}
