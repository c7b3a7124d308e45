/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Exchanges data by every operation, and verifies all of it.
 *
 *     traffic serve ADDRESS PORT
 *     traffic ask ADDRESS PORT SEED ROUNDS THREADS [again]
 *     traffic burn SEED
 *
 * A line for each connection says how it ended and how much was verified. The one that asks exits
 * with the worst outcome of its threads; with `again` each goes on to its next connection, until
 * SIGTERM. ACK_TIMEOUT in the environment is how long RoCE v2 waits for an answer, 4.096 us shifted
 * by it, seven times. `burn` takes CPU time away from the others, now and then.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "exchange.h"

/* The private data of a request to connect. */
struct hello {
	uint64_t magic;
	struct agreed agreed;
	struct lent lent;
};

#define MAGIC 0x747261666669632eull

static struct sockaddr_in server;
static volatile sig_atomic_t enough;

static void on_term(int number)
{
	(void)number;
	enough = 1;
}

static void report(const char *who, const struct end *end)
{
	static const char *words[] = { "done", "ended", "refused", "hang", "WRONG" };

	/* One call, one line, whatever other threads say. */
	printf("%s %s messages %llu octets %llu seed %llu %s\n", who, words[end->outcome],
	       (unsigned long long)end->messages, (unsigned long long)end->octets,
	       (unsigned long long)end->agreed.seed, end->why);
	fflush(stdout);
}

static struct lent lends(const struct end *end)
{
	return (struct lent){ (uintptr_t)end->memory, end->mr->rkey };
}

static void must(struct end *end, int result, const char *what)
{
	if (result)
		give_up(end, REFUSED, "%s: %s", what, strerror(errno));
}

static struct rdma_conn_param parameters(void)
{
	struct rdma_conn_param param = { .responder_resources = 4, .initiator_depth = 4 };

	if (getenv("ACK_TIMEOUT"))
		param.retry_count = param.rnr_retry_count = 7;
	return param;
}

static void set_timeout(struct end *end)
{
	const char *text = getenv("ACK_TIMEOUT");
	uint8_t code = text ? atoi(text) : 0;

	if (text)
		must(end, rdma_set_option(end->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &code,
					  sizeof code), "RDMA_OPTION_ID_ACK_TIMEOUT");
}

static void connect_and_ask(struct end *end)
{
	struct rdma_conn_param param = parameters();
	struct hello hello = { MAGIC, end->agreed, { 0, 0 } };
	struct rdma_cm_event event;

	end->channel = rdma_create_event_channel();
	must(end, !end->channel, "rdma_create_event_channel");
	must(end, rdma_create_id(end->channel, &end->id, NULL, RDMA_PS_TCP), "rdma_create_id");
	set_timeout(end);
	must(end, rdma_resolve_addr(end->id, NULL, (struct sockaddr *)&server, 4000), "resolve");
	expect(end, RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
	must(end, rdma_resolve_route(end->id, 4000), "rdma_resolve_route");
	expect(end, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
	prepare(end);
	hello.lent = lends(end);
	param.private_data = &hello;
	param.private_data_len = sizeof hello;
	must(end, rdma_connect(end->id, &param), "rdma_connect");
	expect(end, RDMA_CM_EVENT_ESTABLISHED, &event);
	ask(end);
	must(end, rdma_disconnect(end->id), "rdma_disconnect");
	expect(end, RDMA_CM_EVENT_DISCONNECTED, NULL);
}

struct task {
	pthread_t thread;
	struct agreed agreed;
	int again;
	enum outcome worst;
};

static void *asking(void *argument)
{
	struct task *task = argument;

	do {
		/* A variable that is set between setjmp and longjmp is kept on the heap. */
		struct end *end = calloc(1, sizeof *end);

		end->agreed = task->agreed;
		end->sleeps = task->agreed.seed >> 3 & 1;
		if (setjmp(end->out) == 0)
			connect_and_ask(end);
		report("client", end);
		release(end);
		if (end->outcome > task->worst)
			task->worst = end->outcome;
		free(end);
		task->agreed.seed++;
	} while (task->again && !enough);
	return NULL;
}

static int ask_all(int argc, char **argv)
{
	int threads = atoi(argv[6]), again = argc > 7;
	struct task *tasks = calloc(threads, sizeof *tasks);
	enum outcome worst = DONE;

	signal(SIGTERM, on_term);
	for (int i = 0; i < threads; i++) {
		uint64_t seed = strtoull(argv[4], NULL, 0) + i * 0x10001ull;

		tasks[i] = (struct task){ .agreed = { seed, atoi(argv[5]) }, .again = again };
		if (pthread_create(&tasks[i].thread, NULL, asking, &tasks[i]))
			return HANG;
	}
	for (int i = 0; i < threads; i++) {
		pthread_join(tasks[i].thread, NULL);
		if (tasks[i].worst > worst)
			worst = tasks[i].worst;
	}
	free(tasks);
	return worst;
}

static void accept_and_answer(struct end *end)
{
	struct rdma_conn_param param = parameters();
	struct lent lent;

	end->channel = rdma_create_event_channel();
	must(end, !end->channel, "rdma_create_event_channel");
	must(end, rdma_migrate_id(end->id, end->channel), "rdma_migrate_id");
	prepare(end);
	lent = lends(end);
	param.private_data = &lent;
	param.private_data_len = sizeof lent;
	must(end, rdma_accept(end->id, &param), "rdma_accept");
	expect(end, RDMA_CM_EVENT_ESTABLISHED, NULL);
	answer(end);
	expect(end, RDMA_CM_EVENT_DISCONNECTED, NULL);
}

static void *answering(void *argument)
{
	struct end *end = argument;

	if (setjmp(end->out) == 0)
		accept_and_answer(end);
	else if (end->outcome == REFUSED)
		rdma_reject(end->id, NULL, 0);
	report("server", end);
	release(end);
	free(end);
	return NULL;
}

static void begin(struct rdma_cm_id *id, const struct hello *hello)
{
	struct end *end = calloc(1, sizeof *end);
	pthread_attr_t detached;
	pthread_t thread;

	end->id = id;
	end->agreed = hello->agreed;
	end->lent = hello->lent;
	end->sleeps = hello->agreed.seed >> 4 & 1;
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&thread, &detached, answering, end)) {
		rdma_reject(id, NULL, 0);
		rdma_destroy_id(id);
		free(end);
	}
	pthread_attr_destroy(&detached);
}

static int serve(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener;

	signal(SIGTERM, on_term);
	if (!channel || rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(listener, (struct sockaddr *)&server) || rdma_listen(listener, 64)) {
		perror("serve");
		return REFUSED;
	}
	puts("listening");
	fflush(stdout);
	while (!enough) {
		struct pollfd ready = { channel->fd, POLLIN, 0 };
		struct rdma_cm_event *event;
		struct rdma_cm_id *id = NULL;
		struct hello hello = { 0 };

		if (poll(&ready, 1, 100) != 1)
			continue;
		if (rdma_get_cm_event(channel, &event)) {
			perror("rdma_get_cm_event");
			return REFUSED;
		}
		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			id = event->id;
			if (event->param.conn.private_data_len >= sizeof hello)
				memcpy(&hello, event->param.conn.private_data, sizeof hello);
		}
		rdma_ack_cm_event(event);
		if (id && hello.magic == MAGIC) {
			begin(id, &hello);
		} else if (id) {
			rdma_reject(id, NULL, 0);
			rdma_destroy_id(id);
		}
	}
	return DONE;
}

_Noreturn static void burn(uint64_t state)
{
	for (;;) {
		struct timespec rest;
		uint64_t end;

		state = state * 6364136223846793005ull + 1442695040888963407ull;
		end = milliseconds() + (state >> 40) % 400;
		while (milliseconds() < end)
			;
		rest = (struct timespec){ 0, (state >> 33) % 300000000 };
		nanosleep(&rest, NULL);
	}
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "burn") == 0)
		burn(strtoull(argv[2], NULL, 0));
	if (argc < 4)
		return 64;
	server.sin_family = AF_INET;
	server.sin_port = htons(atoi(argv[3]));
	inet_pton(AF_INET, argv[2], &server.sin_addr);
	if (strcmp(argv[1], "serve") == 0)
		return serve();
	return argc >= 7 ? ask_all(argc, argv) : 64;
}
