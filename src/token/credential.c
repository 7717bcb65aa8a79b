/* SPDX-License-Identifier: Apache-2.0 */
#include "token/credential.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/json-util.h"
#include "base/str.h"

#define GITHUB_API "https://api.github.com"

enum {
	LIST_MAX = 500, /* repositories: GitHub's limit */
};

/* ---- URLs ---- */

static int bad_url(const char *why, struct err *e)
{
	return err_set(e, -EINVAL, "%s; expected https://HOST[:PORT]/PATH", why);
}

static bool is_host(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!ascii_is_digit(s[i]) && s[i] != '.' && s[i] != '-' &&
		    (ascii_lower(s[i]) < 'a' || ascii_lower(s[i]) > 'z'))
			return false;
	return n > 0 && s[0] != '.' && s[0] != '-';
}

static bool is_target(const char *s)
{
	for (; *s; s++)
		if (*s <= ' ' || *s >= 0x7f || strchr("#\\\"<>^`{|}", *s))
			return false;
	return true;
}

/* HOST or [ADDRESS]; returns the rest, or NULL. */
static const char *take_host(const char *s, struct token_url *ret)
{
	const bool brackets = *s == '[';
	const char *begin = s + brackets;
	size_t n = strcspn(begin, brackets ? "]" : ":/?#");
	unsigned char address[16];

	if (n == 0 || n > CREDENTIAL_HOST_MAX || (brackets && begin[n] != ']'))
		return NULL;
	memcpy(ret->host, begin, n);
	ret->host[n] = '\0';
	ret->is_addr = inet_pton(brackets ? AF_INET6 : AF_INET, ret->host, address) == 1;
	if (brackets ? !ret->is_addr : !is_host(begin, n))
		return NULL;
	return begin + n + brackets;
}

static const char *take_port(const char *s, struct token_url *ret)
{
	uint64_t port = 443;
	size_t n = 0;

	if (*s == ':') {
		n = strcspn(++s, "/?#");
		if (str_to_u64(s, n, UINT16_MAX, &port) < 0 || port == 0)
			return NULL;
	}
	(void)snprintf(ret->port, sizeof(ret->port), "%u", (unsigned int)(uint16_t)port);
	return s + n;
}

int token_url_parse(const char *url, struct token_url *ret, struct err *e)
{
	const char *s = url;

	if (strlen(url) > CREDENTIAL_URL_MAX)
		return bad_url("the URL is too long", e);
	if (!str_has_prefix(s, "https://"))
		return bad_url("the URL does not begin with https://", e);
	s = take_host(s + STRLEN("https://"), ret);
	if (!s)
		return bad_url("the URL has no valid host", e);
	s = take_port(s, ret);
	if (!s)
		return bad_url("the URL has no valid port", e);
	if (*s && *s != '/')
		return bad_url("the URL has no path", e);
	if (!is_target(s))
		return bad_url("the URL has a character that must be encoded", e);
	(void)snprintf(ret->target, sizeof(ret->target), "%s", *s ? s : "/");
	return 0;
}

/* ---- members ---- */

static bool is_plain(const char *s, bool lines)
{
	for (; *s; s++)
		if ((*s < ' ' && !(lines && *s == '\n')) || *s >= 0x7f)
			return false;
	return true;
}

/* A missing member is "". */
static int take(const json_t *o, const char *key, bool needed, const char **ret, struct err *e)
{
	int r;

	*ret = "";
	if (!json_object_get(o, key))
		return needed ? err_set(e, -EINVAL, "'%s' is missing", key) : 0;
	r = json_get_string(o, key, CREDENTIAL_TEXT_MAX, ret, e);
	if (r < 0)
		return r;
	if (!(*ret)[0])
		return err_set(e, -EINVAL, "'%s' is empty", key);
	return is_plain(*ret, str_eq(key, "private_key"))
		       ? 0
		       : err_set(e, -EINVAL, "'%s' has characters that are not printable ASCII",
				 key);
}

static int parse_oauth(struct credential *c, struct err *e)
{
	static const char *const known[] = { "token_url",     "client_id", "client_secret",
					     "refresh_token", "scope",	   "audience",
					     "auth",	      NULL };
	const json_t *o = c->json;
	const char *url, *auth;

	if (json_only_keys(o, known, e) < 0 || take(o, "token_url", true, &url, e) < 0 ||
	    take(o, "client_id", true, &c->client_id, e) < 0 ||
	    take(o, "client_secret", false, &c->client_secret, e) < 0 ||
	    take(o, "refresh_token", false, &c->refresh_token, e) < 0 ||
	    take(o, "scope", false, &c->scope, e) < 0 ||
	    take(o, "audience", false, &c->audience, e) < 0 || take(o, "auth", false, &auth, e) < 0)
		return e->num;
	if (auth[0] && !str_eq(auth, "basic") && !str_eq(auth, "body"))
		return err_set(e, -EINVAL, "'auth' is neither basic nor body");
	/* A public client has no secret, so it names itself in the body. */
	c->in_body = str_eq(auth, "body") || !c->client_secret[0];
	if (!c->client_secret[0] && !c->refresh_token[0])
		return err_set(e, -EINVAL, "'client_secret' or 'refresh_token' is missing");
	return token_url_parse(url, &c->url, e) < 0 ? err_wrap(e, "token_url") : 0;
}

static int check_texts(const json_t *v, const char *key, struct err *e)
{
	const char *ignored;
	json_t *item;
	size_t i;

	json_array_foreach(
		v, i,
		item) if (!json_is_string(item) ||
			  !is_plain(json_string_value(item),
				    false)) return err_set(e, -EINVAL,
							   "'%s' has an item that is not a text",
							   key);
	json_object_foreach(
		(json_t *)v, ignored,
		item) if (!json_is_string(item) ||
			  !is_plain(json_string_value(item),
				    false)) return err_set(e, -EINVAL,
							   "'%s' has an item that is not a text",
							   key);
	return json_array_size(v) > LIST_MAX || json_object_size(v) > LIST_MAX
		       ? err_set(e, -EINVAL, "'%s' has more than %d items", key, LIST_MAX)
		       : 0;
}

static int take_limits(struct credential *c, struct err *e)
{
	c->repositories = json_object_get(c->json, "repositories");
	c->permissions = json_object_get(c->json, "permissions");
	if (c->repositories && !json_is_array(c->repositories))
		return err_set(e, -EINVAL, "'repositories' is not a list");
	if (c->permissions && !json_is_object(c->permissions))
		return err_set(e, -EINVAL, "'permissions' is not an object");
	if (c->repositories && check_texts(c->repositories, "repositories", e) < 0)
		return e->num;
	return c->permissions ? check_texts(c->permissions, "permissions", e) : 0;
}

static bool is_number(const char *s)
{
	return strspn(s, "0123456789") == strlen(s) && strlen(s) <= 20;
}

static int parse_github(struct credential *c, struct err *e)
{
	static const char *const known[] = { "app_id",	"installation_id", "private_key",
					     "api_url", "repositories",	   "permissions",
					     NULL };
	const char *installation, *api;
	const json_t *o = c->json;
	char url[CREDENTIAL_URL_MAX + 1];
	int n;

	if (json_only_keys(o, known, e) < 0 || take(o, "app_id", true, &c->app_id, e) < 0 ||
	    take(o, "installation_id", true, &installation, e) < 0 ||
	    take(o, "private_key", true, &c->private_key, e) < 0 ||
	    take(o, "api_url", false, &api, e) < 0 || take_limits(c, e) < 0)
		return e->num;
	if (!is_number(installation))
		return err_set(e, -EINVAL, "'installation_id' is not a number");
	if (!strstr(c->private_key, "PRIVATE KEY-----"))
		return err_set(e, -EINVAL, "'private_key' is not a private key in PEM");
	api = api[0] ? api : GITHUB_API;
	n = snprintf(url, sizeof(url), "%s%sapp/installations/%s/access_tokens", api,
		     str_has_suffix(api, "/") ? "" : "/", installation);
	if (n < 0 || (size_t)n >= sizeof(url))
		return err_set(e, -EINVAL, "'api_url' is too long");
	return token_url_parse(url, &c->url, e) < 0 ? err_wrap(e, "api_url") : 0;
}

void credential_done(struct credential *c)
{
	json_decref(c->json);
	*c = (struct credential){ 0 };
}

int credential_parse(const char *text, size_t n, enum secret_source type, struct credential *ret,
		     struct err *e)
{
	struct credential c = { .type = type };
	int r = json_read(text, n, &c.json, e);

	c.client_id = c.client_secret = c.refresh_token = c.scope = c.audience = "";
	c.app_id = c.private_key = "";
	if (r == 0)
		r = type == SECRET_OAUTH ? parse_oauth(&c, e) : parse_github(&c, e);
	if (r < 0) {
		credential_done(&c);
		return err_wrap(e, "the credential");
	}
	*ret = c;
	return 0;
}
