/* SPDX-License-Identifier: Apache-2.0 */
/* Resolves names and ids across owners: an own template, an image, or a shared template. */
#include <string.h>

#include "template/template-inner.h"

struct owner_search {
	const char *id;
	char owner[TEMPLATE_NAME_MAX + 1];
};

static int has_template(const struct template_store *s, void *arg, struct err *e)
{
	struct owner_search *search = arg;
	_cleanup_json_ json_t *record = NULL;
	struct err own = ERR_INIT;
	int r = template_record_of_id(s, search->id, &record, &own);

	if (r == -ENOENT)
		return 0;
	memcpy(search->owner, s->owner, sizeof(search->owner));
	return r < 0 ? (*e = own).num : 1;
}

int template_store_with(struct template_store *s, const char *ref, struct err *e)
{
	struct owner_search search = { 0 };
	struct template_ref parts;
	int r = template_ref_parse(ref, &parts, e);

	if (r < 0)
		return r;
	search.id = parts.name;
	r = template_id_valid(parts.name) ? template_each_store(has_template, &search, e) : 0;
	if (r == 0)
		r = err_set(e, -ENOENT, "no template '%s'", parts.name);
	return r < 0 ? r : template_store_open(s, search.owner, false, e);
}

bool template_is_image(const char *name)
{
	struct template_ref ref;
	struct err e = ERR_INIT;

	return template_ref_parse(name, &ref, &e) == 0 && template_id_valid(ref.name) &&
	       template_build_valid(ref.tag);
}

static int image_of(const char *owner, const char *ref, char ret[static IMAGE_NAME_MAX + 1],
		    struct err *e)
{
	_cleanup_template_store_ struct template_store s = TEMPLATE_STORE_INIT;
	struct template_build b;
	int r = template_store_open(&s, owner, false, e);

	if (r == 0)
		r = template_resolve(&s, ref, &b, e);
	if (r == 0)
		template_image(&b, ret);
	return r;
}

static int shared_image(const char *ref, char ret[static IMAGE_NAME_MAX + 1], struct err *e)
{
	char owner[TEMPLATE_NAME_MAX + 1], id[TEMPLATE_ID + 1], whole[IMAGE_NAME_MAX + 1];
	struct template_ref parts;
	int r = template_ref_parse(ref, &parts, e);

	if (r == 0)
		r = template_shared(parts.name, owner, id, e);
	if (r < 0)
		return r;
	(void)snprintf(whole, sizeof(whole), "%s:%s", id, parts.tag);
	return image_of(owner, whole, ret, e);
}

int template_find_image(const char *owner, const char *ref, char ret[static IMAGE_NAME_MAX + 1],
			struct err *e)
{
	struct err own = ERR_INIT;
	int r;

	if (!image_name_valid(ref))
		return err_set(e, -EINVAL, "'%.80s' is not the name of a template", ref);
	if (template_is_image(ref))
		return err_set(e, -ENOENT, "no template '%s'", ref);
	r = image_of(owner, ref, ret, &own);
	/* An unreadable match is an error; the next kind is tried only if there is no match. */
	if (r == -ENOENT) {
		r = image_find(ref, &own);
		if (r == 0 || r == -ENOENT)
			(void)snprintf(ret, IMAGE_NAME_MAX + 1, "%s", ref);
	}
	if (r == -ENOENT)
		r = shared_image(ref, ret, &own);
	return r == 0 || r == -ENOENT ? 0 : (*e = own).num;
}
