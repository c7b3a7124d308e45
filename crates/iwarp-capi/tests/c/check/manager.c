/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Events of the connection manager, acknowledged or not. */
#include "cm.h"
#include "misuse.h"

static struct rdma_event_channel *events;
static struct rdma_cm_event *event;
static struct rdma_cm_id *id;

static void acknowledge(void)
{
	CHECK(rdma_ack_cm_event(event) == 0);
}

static void begin(void)
{
	struct sockaddr_in at = loopback(1);

	events = rdma_create_event_channel();
	CHECK(events && rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&at, 5000) == 0);
	event = expect(events, RDMA_CM_EVENT_ADDR_RESOLVED);
}

static void finish(void)
{
	CHECK(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(events);
}

static void id_wrong(void)
{
	pthread_t thread;

	begin(); /* id_wrong: there */
	thread = once_told("event-not-acknowledged", acknowledge);
	finish(); /* id_wrong: here */
	CHECK(pthread_join(thread, NULL) == 0);
}

static void id_right(void)
{
	begin();
	acknowledge();
	finish();
}

/* The event of a request counts for the id that listens: the new one may go before. */
static void request_right(void)
{
	struct rdma_event_channel *server = rdma_create_event_channel();
	struct rdma_event_channel *client = rdma_create_event_channel();
	struct rdma_conn_param param = params(NULL);
	struct rdma_cm_id *listener, *asks;

	CHECK(server && client);
	listener = make_listener(server, 0);
	asks = make_client(client, ntohs(rdma_get_src_port(listener)));
	make_qp(asks);
	CHECK(rdma_connect(asks, &param) == 0);
	refuse_request(expect(server, RDMA_CM_EVENT_CONNECT_REQUEST), asks);
	CHECK(rdma_destroy_id(listener) == 0);
	rdma_destroy_event_channel(server);
	rdma_destroy_event_channel(client);
}

/* A connection that the manager made, with all that belongs to it. */
static void pair_right(void)
{
	struct pair pair = connected();

	release(&pair);
}

MAIN({ "id_wrong", id_wrong }, { "id_right", id_right }, { "request_right", request_right },
     { "pair_right", pair_right })
