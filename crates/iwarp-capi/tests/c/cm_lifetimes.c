/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#define _GNU_SOURCE
/* The order in which objects may go. */
#include "cm.h"

static struct rdma_cm_id *doomed;
static int destroyed;

static void *destroy(void *unused)
{
	CHECK(rdma_destroy_id(doomed) == 0);
	__atomic_store_n(&destroyed, 1, __ATOMIC_SEQ_CST);
	return unused;
}

static void destroy_waits_for_ack(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in addr = loopback(1);
	struct rdma_cm_event *first, *second;
	pthread_t thread;
	int i;

	CHECK(rdma_create_id(channel, &doomed, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(doomed, NULL, (struct sockaddr *)&addr, 2000) == 0);
	CHECK(rdma_resolve_route(doomed, 2000) == 0);
	first = expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	second = expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(pthread_create(&thread, NULL, destroy, NULL) == 0);
	for (i = 0; i < 2000; i++)
		sched_yield();
	CHECK(!__atomic_load_n(&destroyed, __ATOMIC_SEQ_CST));
	CHECK(rdma_ack_cm_event(second) == 0);
	for (i = 0; i < 2000; i++)
		sched_yield();
	CHECK(!__atomic_load_n(&destroyed, __ATOMIC_SEQ_CST));
	CHECK(first->id == doomed);
	CHECK(rdma_ack_cm_event(first) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	rdma_destroy_event_channel(channel);
}

/* A request's event belongs to the listener: that waits, the new id does not. */
static void requests_belong_to_the_listener(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_event_channel *client_channel = rdma_create_event_channel();
	struct rdma_cm_id *client;
	struct rdma_conn_param param = params(NULL);
	struct rdma_cm_event *event;
	pthread_t thread;
	int i;

	doomed = make_listener(channel, 0);
	client = make_client(client_channel, ntohs(rdma_get_src_port(doomed)));
	make_qp(client);
	CHECK(rdma_connect(client, &param) == 0);
	event = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(rdma_destroy_id(event->id) == 0);
	CHECK(pthread_create(&thread, NULL, destroy, NULL) == 0);
	for (i = 0; i < 2000; i++)
		sched_yield();
	CHECK(!__atomic_load_n(&destroyed, __ATOMIC_SEQ_CST));
	CHECK(rdma_ack_cm_event(event) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	/* Nobody has answered. */
	pass(client_channel, RDMA_CM_EVENT_REJECTED);
	rdma_destroy_qp(client);
	CHECK(rdma_destroy_id(client) == 0);
	rdma_destroy_event_channel(channel);
	rdma_destroy_event_channel(client_channel);
}

/* A request that waits goes with its listener. */
static void listener_goes_first(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_event_channel *client_channel = rdma_create_event_channel();
	struct rdma_cm_id *listener = make_listener(channel, 0);
	struct rdma_cm_id *client =
		make_client(client_channel, ntohs(rdma_get_src_port(listener)));
	struct rdma_conn_param param = params(NULL);

	make_qp(client);
	CHECK(rdma_connect(client, &param) == 0);
	CHECK(readable(channel->fd, DEADLINE_MS));
	CHECK(rdma_destroy_id(listener) == 0);
	nothing(channel);
	pass(client_channel, RDMA_CM_EVENT_REJECTED);
	rdma_destroy_qp(client);
	CHECK(rdma_destroy_id(client) == 0);
	rdma_destroy_event_channel(channel);
	rdma_destroy_event_channel(client_channel);
}

/* The port is free when rdma_destroy_id returns, whatever is left of connections. */
static void bind_again(void)
{
	uint16_t port = 0;
	int round;

	for (round = 0; round < 50; round++) {
		struct pair pair = { 0 };
		struct rdma_conn_param param = params(NULL);
		struct rdma_cm_id *second;
		struct rdma_cm_event *event;
		struct sockaddr_in addr;

		pair.server_channel = rdma_create_event_channel();
		pair.client_channel = rdma_create_event_channel();
		pair.listener = make_listener(pair.server_channel, port);
		port = ntohs(rdma_get_src_port(pair.listener));
		addr = loopback(port);
		CHECK(rdma_create_id(pair.server_channel, &second, NULL, RDMA_PS_TCP) == 0);
		FAILS(rdma_bind_addr(second, (struct sockaddr *)&addr), EADDRINUSE);
		CHECK(rdma_destroy_id(second) == 0);
		pair.client = make_client(pair.client_channel, port);
		make_qp(pair.client);
		CHECK(rdma_connect(pair.client, &param) == 0);
		event = expect(pair.server_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
		pair.server = event->id;
		CHECK(rdma_ack_cm_event(event) == 0);
		make_qp(pair.server);
		CHECK(rdma_accept(pair.server, &param) == 0);
		pass(pair.client_channel, RDMA_CM_EVENT_ESTABLISHED);
		/* Whoever ends a connection keeps its port in TIME_WAIT. */
		if (round % 2)
			CHECK(rdma_disconnect(pair.server) == 0);
		if (round % 3 == 0) {
			CHECK(rdma_destroy_id(pair.listener) == 0);
			pair.listener = make_listener(pair.server_channel, port);
		}
		release(&pair);
	}
}

static void *wait_for_event(void *channel)
{
	struct rdma_cm_event *event;

	rdma_get_cm_event(channel, &event);
	CHECK(!"there is no event");
	return NULL;
}

static void cancel(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	struct sockaddr_in addr = loopback(1);
	int round, i;

	for (round = 0; round < 500; round++) {
		pthread_t thread;
		void *result;

		CHECK(pthread_create(&thread, NULL, wait_for_event, channel) == 0);
		/* Before the wait, while it begins, in it. */
		for (i = 0; i < round % 50; i++)
			sched_yield();
		CHECK(pthread_cancel(thread) == 0);
		CHECK(pthread_join(thread, &result) == 0);
		CHECK(result == PTHREAD_CANCELED);
	}
	/* The channel is as it was. */
	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&addr, 2000) == 0);
	pass(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	nothing(channel);
	CHECK(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(channel);
}

static pid_t waiter;

/* Whether the thread sleeps in a system call. */
static int waits(void)
{
	pid_t tid = __atomic_load_n(&waiter, __ATOMIC_SEQ_CST);
	char path[64], state = 0;
	FILE *file;

	if (!tid)
		return 0;
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	file = fopen(path, "r");
	if (!file)
		return 0;
	CHECK(fscanf(file, "%*d (%*[^)]) %c", &state) == 1);
	fclose(file);
	return state == 'S';
}

static void *wait_for_ever(void *channel)
{
	struct rdma_cm_event *event;

	__atomic_store_n(&waiter, gettid(), __ATOMIC_SEQ_CST);
	rdma_get_cm_event(channel, &event);
	CHECK(!"a thread that waits on a channel that is gone does not come back");
	return NULL;
}

/* rping destroys the channel under the thread that waits on it, and ends. */
static void channel_goes_under_waiter(void)
{
	int round;

	for (round = 0; round < 100; round++) {
		struct rdma_event_channel *channel = rdma_create_event_channel();
		struct rdma_event_channel *next;
		struct sockaddr_in addr = loopback(1);
		struct rdma_cm_id *id;
		pthread_t thread;

		__atomic_store_n(&waiter, 0, __ATOMIC_SEQ_CST);
		CHECK(pthread_create(&thread, NULL, wait_for_ever, channel) == 0);
		while (!waits())
			sched_yield();
		rdma_destroy_event_channel(channel);
		/* Another channel in its place has nothing to do with that thread. */
		next = rdma_create_event_channel();
		CHECK(rdma_create_id(next, &id, NULL, RDMA_PS_TCP) == 0);
		CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&addr, 2000) == 0);
		pass(next, RDMA_CM_EVENT_ADDR_RESOLVED);
		CHECK(rdma_destroy_id(id) == 0);
		rdma_destroy_event_channel(next);
		CHECK(pthread_cancel(thread) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
	}
}

static void channel_goes_first(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener = make_listener(channel, 0);
	struct sockaddr_in addr = loopback(1);
	struct rdma_cm_id *id;

	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&addr, 2000) == 0);
	rdma_destroy_event_channel(channel);
	CHECK(rdma_resolve_route(id, 2000) == 0);
	CHECK(rdma_destroy_id(id) == 0);
	CHECK(rdma_destroy_id(listener) == 0);
}

/* A crash of one side is seen by the other within a second, with its work flushed. */
static void crash(void)
{
	struct rdma_event_channel *channel;
	struct rdma_cm_event *event;
	struct rdma_cm_id *listener, *server;
	struct rdma_conn_param param = params(NULL);
	struct timespec killed, seen;
	struct ibv_recv_wr wr = { .wr_id = 3 }, *bad;
	struct ibv_wc wc;
	int port_pipe[2], ready_pipe[2];
	uint16_t port;
	char octet;
	pid_t child;
	long ms;

	/* Before the library has done anything in this process. */
	CHECK(pipe(port_pipe) == 0 && pipe(ready_pipe) == 0);
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		CHECK(read(port_pipe[0], &port, sizeof(port)) == sizeof(port));
		channel = rdma_create_event_channel();
		server = make_client(channel, port);
		make_qp(server);
		CHECK(rdma_connect(server, &param) == 0);
		pass(channel, RDMA_CM_EVENT_ESTABLISHED);
		CHECK(write(ready_pipe[1], "x", 1) == 1);
		for (;;)
			pause();
	}
	channel = rdma_create_event_channel();
	listener = make_listener(channel, 0);
	port = ntohs(rdma_get_src_port(listener));
	CHECK(write(port_pipe[1], &port, sizeof(port)) == sizeof(port));
	event = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	server = event->id;
	CHECK(rdma_ack_cm_event(event) == 0);
	make_qp(server);
	CHECK(ibv_post_recv(server->qp, &wr, &bad) == 0);
	CHECK(rdma_accept(server, &param) == 0);
	pass(channel, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(read(ready_pipe[0], &octet, 1) == 1);
	CHECK(kill(child, SIGKILL) == 0);
	clock_gettime(CLOCK_MONOTONIC, &killed);
	pass(channel, RDMA_CM_EVENT_DISCONNECTED);
	clock_gettime(CLOCK_MONOTONIC, &seen);
	ms = (seen.tv_sec - killed.tv_sec) * 1000 + (seen.tv_nsec - killed.tv_nsec) / 1000000;
	CHECK(ms < 1000);
	CHECK(ibv_poll_cq(server->recv_cq, 1, &wc) == 1);
	CHECK(wc.wr_id == 3 && wc.status == IBV_WC_WR_FLUSH_ERR);
	CHECK(waitpid(child, NULL, 0) == child);
	rdma_destroy_qp(server);
	CHECK(rdma_destroy_id(server) == 0 && rdma_destroy_id(listener) == 0);
	rdma_destroy_event_channel(channel);
}

/* The calls that a forked child may try with its parent's objects. */
static void inherited(struct pair *pair, struct rdma_cm_event *event)
{
	struct sockaddr_in addr = loopback(0);
	struct sockaddr *any = (struct sockaddr *)&addr;
	struct rdma_conn_param param = params(NULL);
	struct rdma_cm_id *ids[] = { pair->client, event->id }, *made;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	uint8_t tos = 1;
	int mask;

	for (int i = 0; i < 2; i++) {
		struct rdma_cm_id *id = ids[i];

		FAILS(rdma_bind_addr(id, any), EBADF);
		FAILS(rdma_resolve_addr(id, NULL, any, 1), EBADF);
		FAILS(rdma_resolve_route(id, 1), EBADF);
		FAILS(rdma_listen(id, 1), EBADF);
		FAILS(rdma_connect(id, &param), EBADF);
		FAILS(rdma_establish(id), EBADF);
		FAILS(rdma_accept(id, &param), EBADF);
		FAILS(rdma_reject(id, NULL, 0), EBADF);
		FAILS(rdma_notify(id, IBV_EVENT_COMM_EST), EBADF);
		FAILS(rdma_disconnect(id), EBADF);
		FAILS(rdma_migrate_id(id, NULL), EBADF);
		FAILS(rdma_create_qp(id, NULL, &init), EBADF);
		FAILS(rdma_init_qp_attr(id, &attr, &mask), EBADF);
		FAILS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1), EBADF);
	}
	CHECK(rdma_get_dst_port(pair->client) != 0);
	CHECK(rdma_ack_cm_event(event) == 0);
	/* It goes on with the channel, which has none of the parent's events. */
	CHECK(rdma_create_id(pair->client_channel, &made, NULL, RDMA_PS_TCP) == 0);
	nothing(pair->client_channel);
	CHECK(rdma_destroy_id(made) == 0);
	CHECK(rdma_destroy_id(pair->client) == 0);
	rdma_destroy_event_channel(pair->client_channel);
}

/* A forked child has none of its parent's connections, and may make its own. */
static void forked(void)
{
	struct pair pair = connected();
	uint16_t port = ntohs(rdma_get_src_port(pair.listener));
	struct rdma_cm_id *waiting = make_client(pair.client_channel, port);
	struct rdma_conn_param param = params(NULL);
	struct rdma_cm_event *request;
	int status;
	pid_t child;

	make_qp(waiting);
	CHECK(rdma_connect(waiting, &param) == 0);
	request = expect(pair.server_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	child = fork();

	CHECK(child >= 0);
	if (!child) {
		struct pair own;

		inherited(&pair, request);
		own = connected();
		release(&own);
		exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	nothing(pair.client_channel);
	nothing(pair.server_channel);
	refuse_request(request, waiting);
	CHECK(rdma_disconnect(pair.client) == 0);
	pass(pair.client_channel, RDMA_CM_EVENT_DISCONNECTED);
	pass(pair.server_channel, RDMA_CM_EVENT_DISCONNECTED);
	release(&pair);
}

static void *come_too_late(void *channel)
{
	struct rdma_cm_event *event;

	return rdma_get_cm_event(channel, &event) ? channel : NULL;
}

/* A thread that goes back to wait as another one destroys the channel is not told an error: it
 * would make one of the program's end (rping). */
static void channel_went_before_waiter(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *event;
	pthread_t thread;
	void *result;

	CHECK(channel);
	rdma_destroy_event_channel(channel);
	FAILS(rdma_get_cm_event(channel, &event), EBADF);
	CHECK(pthread_create(&thread, NULL, come_too_late, channel) == 0);
	/* It waits, so this can end it. */
	CHECK(pthread_cancel(thread) == 0);
	CHECK(pthread_join(thread, &result) == 0);
	CHECK(result == PTHREAD_CANCELED);
}

/* Programs set the fields of an id themselves: one queue, or one channel, for both directions. */
static void one_queue(void)
{
	for (int round = 0; round < 40; round++) {
		struct sockaddr_in addr = loopback(1);
		struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };
		struct rdma_cm_id *id;
		int two_queues = round % 2;

		CHECK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
		CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&addr, 2000) == 0);
		CHECK(rdma_resolve_route(id, 2000) == 0);
		id->send_cq_channel = id->recv_cq_channel = ibv_create_comp_channel(id->verbs);
		CHECK(id->send_cq_channel);
		id->send_cq = id->recv_cq = ibv_create_cq(id->verbs, 16, id, id->recv_cq_channel, 0);
		CHECK(id->send_cq);
		if (two_queues) {
			id->send_cq = ibv_create_cq(id->verbs, 16, id, id->send_cq_channel, 0);
			CHECK(id->send_cq);
		}
		CHECK(rdma_create_qp(id, NULL, &init) == 0);
		CHECK(init.send_cq == id->send_cq && init.recv_cq == id->recv_cq);
		rdma_destroy_qp(id);
		CHECK(!id->send_cq && !id->recv_cq);
		CHECK(!id->send_cq_channel && !id->recv_cq_channel);
		CHECK(rdma_destroy_id(id) == 0);
	}
}

MAIN({ "one-queue", one_queue }, { "destroy-waits-for-ack", destroy_waits_for_ack },
     { "requests-belong-to-the-listener", requests_belong_to_the_listener },
     { "listener-goes-first", listener_goes_first }, { "bind-again", bind_again },
     { "cancel", cancel }, { "channel-goes-under-waiter", channel_goes_under_waiter },
     { "channel-goes-first", channel_goes_first }, { "crash", crash },
     { "forked", forked },
     { "channel-went-before-waiter", channel_went_before_waiter })
