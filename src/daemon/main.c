/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutchd: serves the E2B API and /hutch/v1 for the sandboxes of one user of one host. It may be
 * killed and restarted at any time: sandboxes, their commands and their output continue without it.
 */
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "api/api.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/listen.h"
#include "daemon/notify.h"
#include "e2b/e2b.h"
#include "envd/envd.h"
#include "v1/v1.h"

enum {
	ASKED_MAX = 8,
	CONNECTIONS = 8192,
	FILES = 65536,
	HEAD_MS = 10 * 1000,
	IDLE_MS = 120 * 1000,
	BODY_MS = 60 * 1000,
};

struct daemon {
	struct api_config config;
	const char *tls_cert, *tls_key;
	const char *listen[ASKED_MAX];
	size_t n_listen;
	const char *unix_path;
	struct listeners sockets;
	char local[32]; /* "localhost:PORT" */
	struct notify notify;
	struct keys keys;
	struct http_tls *tls;
	struct http_server *server;
	struct api *api;
};

/* Routes are matched, and printed, in this order. */
static const struct api_part *const parts[] = { &e2b_part, &envd_part, &v1_part, NULL };

static const char usage[] =
	"hutchd [--unix PATH] [--listen ADDRESS:PORT]... [--tls-cert FILE --tls-key FILE]\n"
	"       [--domain NAME] [--default-agent AGENT] [--print-routes]\n";

static const struct option options[] = {
	{ "unix", required_argument, NULL, 'u' },
	{ "listen", required_argument, NULL, 'l' },
	{ "tls-cert", required_argument, NULL, 'c' },
	{ "tls-key", required_argument, NULL, 'k' },
	{ "domain", required_argument, NULL, 'd' },
	{ "default-agent", required_argument, NULL, 'a' },
	{ "print-routes", no_argument, NULL, 'r' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

/* Returns -1 to continue, else the exit status. */
static int take_options(struct daemon *d, int argc, char **argv)
{
	int c;

	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (c) {
		case 'u':
			d->unix_path = optarg;
			break;
		case 'l':
			if (d->n_listen == ASKED_MAX) {
				log_error("--listen: at most %d", ASKED_MAX);
				return 2;
			}
			d->listen[d->n_listen++] = optarg;
			break;
		case 'c':
			d->tls_cert = optarg;
			break;
		case 'k':
			d->tls_key = optarg;
			break;
		case 'd':
			d->config.domain = optarg;
			break;
		case 'a':
			d->config.agent = optarg;
			break;
		case 'r':
			return api_print_routes(parts, stdout) < 0 ? 1 : 0;
		case 'h':
			(void)fputs(usage, stdout);
			return 0;
		default:
			(void)fputs(usage, stderr);
			return 2;
		}
	}
	if (optind < argc || !d->tls_cert != !d->tls_key) {
		(void)fputs(usage, stderr);
		return 2;
	}
	return -1;
}

/* ---- listening ---- */

/* Default path of the socket, in the run directory. */
static const char *default_socket(char out[static PATH_MAX])
{
	const char *run = getenv("HUTCH_RUN_DIR"), *xdg = getenv("XDG_RUNTIME_DIR");

	if (run && run[0] == '/')
		(void)snprintf(out, PATH_MAX, "%s/hutchd.sock", run);
	else if (geteuid() == 0)
		(void)snprintf(out, PATH_MAX, "/run/hutch/hutchd.sock");
	else if (xdg && xdg[0] == '/')
		(void)snprintf(out, PATH_MAX, "%s/hutch/hutchd.sock", xdg);
	else
		(void)snprintf(out, PATH_MAX, "/tmp/hutch-%u/hutchd.sock", (unsigned int)geteuid());
	return out;
}

/* Listens on passed and configured sockets; without any, on the socket of the run directory. */
static int listen_all(struct daemon *d, struct err *e)
{
	char path[PATH_MAX];
	int r = listen_take(&d->sockets, e);

	if (r == 0 && (d->unix_path || (d->sockets.n == 0 && d->n_listen == 0)))
		r = listen_unix(&d->sockets, d->unix_path ? d->unix_path : default_socket(path),
				(gid_t)-1, e);
	for (size_t i = 0; r == 0 && i < d->n_listen; i++)
		r = listen_tcp(&d->sockets, d->listen[i], e);
	return r;
}

/* Without --domain, uses names below localhost, with the port of the first TCP socket. */
static void find_domain(struct daemon *d)
{
	d->config.told_domain = d->config.domain;
	for (size_t i = 0; !d->config.told_domain && i < d->sockets.n; i++) {
		const struct listener *l = &d->sockets.list[i];
		const char *port = l->kind == LISTEN_TCP ? strrchr(l->name, ':') : NULL;

		if (!port)
			continue;
		(void)snprintf(d->local, sizeof(d->local), "localhost%s", port);
		d->config.told_domain = d->local;
	}
}

static int serve_all(struct daemon *d, struct err *e)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < d->sockets.n; i++) {
		const struct listener *l = &d->sockets.list[i];
		bool tcp = l->kind == LISTEN_TCP;
		int fd = fcntl(l->fd, F_DUPFD_CLOEXEC, 3);

		if (fd < 0)
			return err_errno(e, "cannot listen on %s", l->name);
		if (tcp && !l->loopback && !d->tls)
			log_warning("%s can be reached from other hosts, and keys go there in "
				    "the clear: give --tls-cert and --tls-key",
				    l->name);
		log_info("listening on %s", l->name);
		r = http_server_add(d->server, fd, tcp ? d->tls : NULL, e);
	}
	return r;
}

/* ---- life ---- */

static void on_stop(struct loop_signal *src, int signo)
{
	loop_stop(src->arg, 0);
}

static void on_watchdog(struct loop_timer *src)
{
	struct daemon *d = src->arg;

	(void)notify_watchdog(&d->notify);
	(void)loop_set_timer(d->config.loop, src, clock_mono() + d->notify.watchdog);
}

static int open_all(struct daemon *d, struct err *e)
{
	struct http_config http = {
		.loop = d->config.loop,
		.handle = api_handle,
		.gone = api_gone,
		.connections = CONNECTIONS,
		.head_ms = HEAD_MS,
		.idle_ms = IDLE_MS,
		.body_ms = BODY_MS,
	};
	int r = keys_open(&d->keys, true, e);

	d->config.keys = &d->keys;
	if (r == 0 && d->tls_cert)
		r = http_tls_new(d->tls_cert, d->tls_key, &d->tls, e);
	if (r == 0)
		r = listen_all(d, e);
	find_domain(d);
	if (r == 0)
		r = api_new(&d->config, &d->api, e);
	http.arg = d->api;
	if (r == 0)
		r = http_server_new(&http, &d->server, e);
	return r < 0 ? r : serve_all(d, e);
}

static void close_all(struct daemon *d)
{
	d->server = http_server_free(d->server);
	d->api = api_free(d->api);
	d->tls = http_tls_free(d->tls);
	listeners_close(&d->sockets);
	keys_close(&d->keys);
	notify_close(&d->notify);
}

static int run(struct daemon *d, struct err *e)
{
	struct loop_signal stop[2] = { { .cb = on_stop }, { .cb = on_stop } };
	struct loop_timer watchdog = { .cb = on_watchdog, .arg = d };
	_cleanup_loop_ struct loop *loop = NULL;
	int r = loop_new(&loop);

	if (r < 0)
		return err_set(e, r, "cannot make an event loop: %s", strerror(-r));
	d->config.loop = stop[0].arg = stop[1].arg = loop;
	if (loop_add_signal(loop, &stop[0], SIGTERM) < 0 ||
	    loop_add_signal(loop, &stop[1], SIGINT) < 0)
		return err_oom(e);
	r = notify_open(&d->notify, e);
	if (r == 0)
		r = open_all(d, e);
	if (r == 0) {
		(void)notify_ready(&d->notify, "serving");
		if (d->notify.watchdog > 0)
			on_watchdog(&watchdog);
		r = loop_run(loop);
		(void)notify_stopping(&d->notify, NULL);
	}
	close_all(d);
	return r;
}

/* Each client stream needs a descriptor, and so does each record being read. */
static void raise_files(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) < 0)
		return;
	l.rlim_cur = MIN(l.rlim_max, (rlim_t)FILES);
	(void)setrlimit(RLIMIT_NOFILE, &l);
}

int main(int argc, char **argv)
{
	struct daemon d = { .config = { .agent = "e2b", .parts = parts },
			    .keys = KEYS_INIT,
			    .notify = NOTIFY_INIT };
	struct err e = ERR_INIT;
	int r;

	log_open("hutchd", LOG_LEVEL_INFO);
	r = take_options(&d, argc, argv);
	if (r >= 0)
		return r;
	(void)signal(SIGPIPE, SIG_IGN);
	raise_files();
	if (run(&d, &e) == 0)
		return 0;
	log_error("%s", e.msg);
	return 1;
}
