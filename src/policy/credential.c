/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/credential.h"

#include <string.h>

#include "base/str.h"

static const char token[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/* clang-format off */
static const struct {
	const char *prefix;
	size_t least;	     /* at least so many bytes of `of` follow the prefix */
	const char *of;
	const char *what;
} shapes[] = {
	{ "ghp_", 36, token, "a GitHub token" },
	{ "gho_", 36, token, "a GitHub token" },
	{ "ghu_", 36, token, "a GitHub token" },
	{ "ghs_", 36, token, "a GitHub token" },
	{ "ghr_", 36, token, "a GitHub token" },
	{ "github_pat_", 22, token, "a GitHub token" },
	{ "glpat-", 20, token, "a GitLab token" },
	{ "sk-ant-", 20, token, "an Anthropic key" },
	{ "sk-proj-", 20, token, "an OpenAI key" },
	{ "sk-", 48, token, "an OpenAI key" },
	{ "AKIA", 16, token, "an AWS access key" },
	{ "ASIA", 16, token, "an AWS access key" },
	{ "AIza", 35, token, "a Google API key" },
	{ "xoxb-", 20, token, "a Slack token" },
	{ "xoxp-", 20, token, "a Slack token" },
	{ "hf_", 30, token, "a Hugging Face token" },
	{ "npm_", 36, token, "an npm token" },
	{ "pypi-", 50, token, "a PyPI token" },
	{ "PRIVATE KEY-----", 0, token, "a private key" },
	{ "PRIVATE KEY BLOCK-----", 0, token, "a private key" },
};
/* clang-format on */

/* scheme://user:password@host */
static bool url_password(const char *text)
{
	for (const char *p = strstr(text, "://"); p; p = strstr(p, "://")) {
		size_t user, password;

		p += 3;
		user = strcspn(p, ":/@?# \n\"'");
		if (p[user] != ':')
			continue;
		password = strcspn(p + user + 1, "/@?# \n\"'");
		if (password > 0 && p[user + 1 + password] == '@' && p[user + 1] != '$')
			return true;
	}
	return false;
}

const char *credential_find(const char *text)
{
	for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
		const char *prefix = shapes[i].prefix;

		for (const char *p = strstr(text, prefix); p; p = strstr(p, prefix)) {
			p += strlen(prefix);
			if (strspn(p, shapes[i].of) >= shapes[i].least)
				return shapes[i].what;
		}
	}
	return url_password(text) ? "a password in a URL" : NULL;
}

bool credential_name(const char *name)
{
	static const char *const parts[] = { "PASSWORD", "PASSWD", "SECRET",	 "TOKEN",
					     "API_KEY",	 "APIKEY", "PRIVATE_KEY" };

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		if (strcasestr(name, parts[i]))
			return true;
	return false;
}
