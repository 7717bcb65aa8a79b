/* SPDX-License-Identifier: Apache-2.0 */
#include "api/turn.h"

#include "api/api-inner.h"

void turn_free(struct turn *t)
{
	struct turn **p = &t->api->turns;

	while (*p != t)
		p = &(*p)->next;
	*p = t->next;
	free(t);
}

void turns_free(struct api *a)
{
	while (a->turns)
		turn_free(a->turns);
}

struct turn *turn_find(const struct api *a, const char *id, const struct job_ops *ops)
{
	struct turn *t = a->turns;

	while (t && !(t->ops == ops && str_eq(t->id, id)))
		t = t->next;
	return t;
}

struct turn *turn_new(struct api *a, const char *id, const char *owner, uint64_t deadline,
		      const struct job_ops *ops, struct err *e)
{
	struct turn *t = calloc(1, sizeof(*t));

	if (!t)
		return (void)err_oom(e), NULL;
	*t = (struct turn){ .api = a, .ops = ops, .deadline = deadline, .next = a->turns };
	(void)snprintf(t->id, sizeof(t->id), "%s", id);
	a->turns = t;
	if (job_start(a->pools[POOL_LIFE], owner, ops, t, &t->job, e) == 0)
		return t;
	turn_free(t);
	return NULL;
}
