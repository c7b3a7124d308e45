/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The checks that the test programs of the connection manager share, and two ids that meet. */
#ifndef CM_H
#define CM_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include "scenarios.h"

#define DEADLINE_MS 10000

#define CHECK(condition)                                                              \
	do {                                                                          \
		if (!(condition)) {                                                   \
			int saved = errno;                                            \
			fprintf(stderr, "%s:%d: %s (errno %d, %s)\n", __FILE__,       \
				__LINE__, #condition, saved, strerror(saved));        \
			exit(1);                                                      \
		}                                                                     \
	} while (0)

#define FAILS(call, number)                                                           \
	do {                                                                          \
		errno = 0;                                                            \
		CHECK((call) == -1);                                                  \
		CHECK(errno == (number));                                             \
	} while (0)

static inline struct sockaddr_in loopback(uint16_t port)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons(port) };

	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return addr;
}

static inline int readable(int fd, int ms)
{
	struct pollfd pollfd = { .fd = fd, .events = POLLIN };

	return poll(&pollfd, 1, ms) == 1;
}

/* The next event of a channel, which has to be of that type. */
static inline struct rdma_cm_event *expect(struct rdma_event_channel *channel,
					   enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	CHECK(readable(channel->fd, DEADLINE_MS));
	CHECK(rdma_get_cm_event(channel, &event) == 0);
	if (event->event != type) {
		fprintf(stderr, "expected %s, got %s (status %d)\n", rdma_event_str(type),
			rdma_event_str(event->event), event->status);
		exit(1);
	}
	return event;
}

static inline void pass(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	CHECK(rdma_ack_cm_event(expect(channel, type)) == 0);
}

static inline void nothing(struct rdma_event_channel *channel)
{
	CHECK(!readable(channel->fd, 0));
}

static inline void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};

	CHECK(rdma_create_qp(id, NULL, &attr) == 0);
	CHECK(id->qp && id->pd && id->send_cq && id->recv_cq);
	CHECK(id->send_cq_channel && id->recv_cq_channel);
}

static inline struct rdma_cm_id *make_listener(struct rdma_event_channel *channel, uint16_t port)
{
	struct sockaddr_in addr = loopback(port);
	struct rdma_cm_id *id;

	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&addr) == 0);
	CHECK(rdma_listen(id, 8) == 0);
	CHECK(rdma_get_src_port(id) != 0);
	return id;
}

/* An id whose route is resolved. */
static inline struct rdma_cm_id *make_client(struct rdma_event_channel *channel, uint16_t port)
{
	struct sockaddr_in addr = loopback(port);
	struct rdma_cm_id *id;

	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&addr, 2000) == 0);
	pass(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(rdma_resolve_route(id, 2000) == 0);
	pass(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	return id;
}

/* Refuses a request, and ends the id that it brought and the client that asks. */
static inline void refuse_request(struct rdma_cm_event *request, struct rdma_cm_id *client)
{
	struct rdma_cm_id *server = request->id;

	CHECK(rdma_reject(server, NULL, 0) == 0);
	CHECK(rdma_destroy_id(server) == 0);
	CHECK(rdma_ack_cm_event(request) == 0);
	pass(client->channel, RDMA_CM_EVENT_REJECTED);
	rdma_destroy_qp(client);
	CHECK(rdma_destroy_id(client) == 0);
}

struct pair {
	struct rdma_event_channel *server_channel, *client_channel;
	struct rdma_cm_id *listener, *server, *client;
};

static inline struct rdma_conn_param params(const char *private_data)
{
	struct rdma_conn_param param = {
		.private_data = private_data,
		.private_data_len = private_data ? strlen(private_data) : 0,
		.responder_resources = 3,
		.initiator_depth = 5,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};

	return param;
}

/* Two connected ids, each with a channel of its own. */
static inline struct pair connected_with(struct rdma_conn_param client,
					 struct rdma_conn_param server)
{
	struct pair pair = { 0 };
	struct rdma_cm_event *event;

	pair.server_channel = rdma_create_event_channel();
	pair.client_channel = rdma_create_event_channel();
	CHECK(pair.server_channel && pair.client_channel);
	pair.listener = make_listener(pair.server_channel, 0);
	pair.client = make_client(pair.client_channel, ntohs(rdma_get_src_port(pair.listener)));
	make_qp(pair.client);
	CHECK(rdma_connect(pair.client, &client) == 0);
	event = expect(pair.server_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	pair.server = event->id;
	CHECK(event->listen_id == pair.listener);
	CHECK(rdma_ack_cm_event(event) == 0);
	make_qp(pair.server);
	CHECK(rdma_accept(pair.server, &server) == 0);
	pass(pair.server_channel, RDMA_CM_EVENT_ESTABLISHED);
	pass(pair.client_channel, RDMA_CM_EVENT_ESTABLISHED);
	return pair;
}

static inline struct pair connected(void)
{
	return connected_with(params(NULL), params(NULL));
}

static inline void release(struct pair *pair)
{
	struct rdma_cm_id *ids[] = { pair->client, pair->server, pair->listener };
	int i;

	for (i = 0; i < 3; i++) {
		if (!ids[i])
			continue;
		if (ids[i]->qp)
			rdma_destroy_qp(ids[i]);
		CHECK(rdma_destroy_id(ids[i]) == 0);
	}
	rdma_destroy_event_channel(pair->server_channel);
	rdma_destroy_event_channel(pair->client_channel);
}

#endif
