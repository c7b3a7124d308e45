/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The events that the program is told, in their order. */
#include "cm.h"

static int gid_is_mapped_loopback(const union ibv_gid *gid)
{
	static const uint8_t mapped[16] = { [10] = 0xff, 0xff, 127, 0, 0, 1 };

	return !memcmp(gid->raw, mapped, 16);
}

static void order(void)
{
	struct rdma_event_channel *server_channel = rdma_create_event_channel();
	struct rdma_event_channel *client_channel = rdma_create_event_channel();
	struct rdma_cm_id *listener, *client, *server;
	struct rdma_conn_param param = params("from the client");
	struct rdma_cm_event *event;
	struct sockaddr_in addr;
	int mine = 1, theirs = 2;

	listener = make_listener(server_channel, 0);
	listener->context = &theirs;
	/* Loopback is of any device, so of none yet. */
	CHECK(!listener->verbs);
	addr = loopback(ntohs(rdma_get_src_port(listener)));

	CHECK(rdma_create_id(client_channel, &client, &mine, RDMA_PS_TCP) == 0);
	CHECK(client->context == &mine && client->channel == client_channel);
	CHECK(client->ps == RDMA_PS_TCP && client->qp_type == IBV_QPT_RC && !client->verbs);
	CHECK(rdma_resolve_addr(client, NULL, (struct sockaddr *)&addr, 2000) == 0);
	event = expect(client_channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(event->id == client && !event->listen_id && !event->status);
	CHECK(rdma_ack_cm_event(event) == 0);
	CHECK(client->verbs && client->port_num == 1 && client->pd);
	CHECK(gid_is_mapped_loopback(&client->route.addr.addr.ibaddr.sgid));
	CHECK(gid_is_mapped_loopback(&client->route.addr.addr.ibaddr.dgid));
	CHECK(!memcmp(rdma_get_peer_addr(client), &addr, sizeof(addr)));
	CHECK(rdma_get_dst_port(client) == addr.sin_port);
	CHECK(rdma_resolve_route(client, 2000) == 0);
	pass(client_channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(client->route.num_paths == 0 || client->route.path_rec);
	make_qp(client);
	CHECK(client->qp->state == IBV_QPS_INIT && client->qp->context == client->verbs);
	CHECK(rdma_connect(client, &param) == 0);

	event = expect(server_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	server = event->id;
	CHECK(event->listen_id == listener && server != listener && !event->status);
	CHECK(event->param.conn.private_data_len >= strlen("from the client"));
	CHECK(!memcmp(event->param.conn.private_data, "from the client", 15));
	/* The peer's outstanding requests are those to be served here, and the other way round. */
	CHECK(event->param.conn.responder_resources == 5);
	CHECK(event->param.conn.initiator_depth == 3);
	CHECK(server->context == &theirs && server->channel == server_channel);
	CHECK(server->verbs == client->verbs && server->ps == RDMA_PS_TCP && server->pd);
	CHECK(rdma_get_src_port(server) == addr.sin_port);
	CHECK(rdma_ack_cm_event(event) == 0);
	nothing(client_channel);
	make_qp(server);
	param = params("from the server");
	CHECK(rdma_accept(server, &param) == 0);
	event = expect(server_channel, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(event->id == server && !event->listen_id && !event->status);
	CHECK(!event->param.conn.private_data_len && !event->param.conn.private_data);
	CHECK(rdma_ack_cm_event(event) == 0);
	event = expect(client_channel, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(event->id == client && !event->status);
	CHECK(!memcmp(event->param.conn.private_data, "from the server", 15));
	CHECK(rdma_ack_cm_event(event) == 0);
	CHECK(client->qp->state == IBV_QPS_RTS && server->qp->state == IBV_QPS_RTS);
	CHECK(rdma_get_src_port(client) && rdma_get_src_port(client) == rdma_get_dst_port(server));

	CHECK(rdma_disconnect(client) == 0);
	pass(client_channel, RDMA_CM_EVENT_DISCONNECTED);
	event = expect(server_channel, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(event->id == server && !event->status);
	CHECK(rdma_ack_cm_event(event) == 0);
	/* Once more changes nothing. */
	CHECK(rdma_disconnect(client) == 0 && rdma_disconnect(server) == 0);
	CHECK(client->qp->state == IBV_QPS_ERR && server->qp->state == IBV_QPS_ERR);
	rdma_destroy_qp(client);
	rdma_destroy_qp(server);
	CHECK(!client->qp && !client->send_cq && !client->recv_cq && !client->recv_cq_channel);
	nothing(client_channel);
	nothing(server_channel);
	CHECK(rdma_destroy_id(client) == 0 && rdma_destroy_id(server) == 0);
	CHECK(rdma_destroy_id(listener) == 0);
	rdma_destroy_event_channel(server_channel);
	rdma_destroy_event_channel(client_channel);
}

/* Whoever destroys the queue pair first hears of the end all the same. */
static void qp_destroyed_first(void)
{
	struct pair pair = connected();

	rdma_destroy_qp(pair.client);
	pass(pair.client_channel, RDMA_CM_EVENT_DISCONNECTED);
	pass(pair.server_channel, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(rdma_disconnect(pair.client) == 0);
	rdma_destroy_qp(pair.server);
	CHECK(rdma_disconnect(pair.server) == 0);
	nothing(pair.client_channel);
	nothing(pair.server_channel);
	release(&pair);
}

/* A queue pair that the program destroys behind the id's back is not looked at any more. */
static void qp_destroyed_directly(void)
{
	struct pair pair = connected();

	CHECK(ibv_destroy_qp(pair.client->qp) == 0);
	pass(pair.client_channel, RDMA_CM_EVENT_DISCONNECTED);
	pass(pair.server_channel, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(rdma_disconnect(pair.client) == 0);
	pair.client->qp = NULL;
	rdma_destroy_qp(pair.client);
	release(&pair);
}

/* The other side ends it when this side has no queue pair any more. */
static void disconnect_follows_qp(void)
{
	struct pair pair = connected();

	CHECK(rdma_disconnect(pair.client) == 0);
	rdma_destroy_qp(pair.client);
	rdma_destroy_qp(pair.server);
	pass(pair.client_channel, RDMA_CM_EVENT_DISCONNECTED);
	pass(pair.server_channel, RDMA_CM_EVENT_DISCONNECTED);
	release(&pair);
}

static void reject(void)
{
	struct rdma_event_channel *server_channel = rdma_create_event_channel();
	struct rdma_event_channel *client_channel = rdma_create_event_channel();
	struct rdma_cm_id *listener = make_listener(server_channel, 0);
	struct rdma_cm_id *client =
		make_client(client_channel, ntohs(rdma_get_src_port(listener)));
	struct rdma_conn_param param = params("let me in");
	struct rdma_cm_event *event;
	struct rdma_cm_id *server;
	struct ibv_recv_wr wr = { .wr_id = 7 }, *bad;
	struct ibv_wc wc;
	int infiniband = client->verbs->device->transport_type == IBV_TRANSPORT_IB;

	make_qp(client);
	CHECK(ibv_post_recv(client->qp, &wr, &bad) == 0);
	CHECK(rdma_connect(client, &param) == 0);
	event = expect(server_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	server = event->id;
	CHECK(rdma_ack_cm_event(event) == 0);
	CHECK(rdma_reject(server, "not you", 7) == 0);
	FAILS(rdma_accept(server, &param), EINVAL);
	FAILS(rdma_reject(server, NULL, 0), EINVAL);
	CHECK(rdma_destroy_id(server) == 0);
	event = expect(client_channel, RDMA_CM_EVENT_REJECTED);
	CHECK(event->status == (infiniband ? 28 : -ECONNREFUSED));
	CHECK(event->param.conn.private_data_len >= 7);
	CHECK(!memcmp(event->param.conn.private_data, "not you", 7));
	CHECK(rdma_ack_cm_event(event) == 0);
	/* Posted requests are flushed. */
	CHECK(client->qp->state == IBV_QPS_ERR);
	CHECK(ibv_poll_cq(client->recv_cq, 1, &wc) == 1);
	CHECK(wc.wr_id == 7 && wc.status == IBV_WC_WR_FLUSH_ERR);
	FAILS(rdma_disconnect(client), EINVAL);
	rdma_destroy_qp(client);
	CHECK(rdma_destroy_id(client) == 0 && rdma_destroy_id(listener) == 0);
	rdma_destroy_event_channel(server_channel);
	rdma_destroy_event_channel(client_channel);
}

static void no_listener(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *reserved, *client;
	struct rdma_conn_param param = params(NULL);
	struct sockaddr_in addr = loopback(0);
	struct rdma_cm_event *event;
	int infiniband;

	/* A port that is bound, and on which nobody listens. */
	CHECK(rdma_create_id(channel, &reserved, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(reserved, (struct sockaddr *)&addr) == 0);
	client = make_client(channel, ntohs(rdma_get_src_port(reserved)));
	infiniband = client->verbs->device->transport_type == IBV_TRANSPORT_IB;
	make_qp(client);
	CHECK(rdma_connect(client, &param) == 0);
	event = expect(channel, RDMA_CM_EVENT_REJECTED);
	CHECK(event->id == client && event->status == (infiniband ? 8 : -ECONNREFUSED));
	CHECK(rdma_ack_cm_event(event) == 0);
	rdma_destroy_qp(client);
	CHECK(rdma_destroy_id(client) == 0 && rdma_destroy_id(reserved) == 0);
	rdma_destroy_event_channel(channel);
}

static void migrate(void)
{
	struct rdma_event_channel *first = rdma_create_event_channel();
	struct rdma_event_channel *second = rdma_create_event_channel();
	struct rdma_event_channel *third = rdma_create_event_channel();
	struct rdma_cm_id *listener = make_listener(first, 0);
	struct rdma_cm_id *client, *other, *server;
	struct rdma_conn_param param = params(NULL);
	struct sockaddr_in addr = loopback(ntohs(rdma_get_src_port(listener)));
	struct rdma_cm_event *event;

	CHECK(rdma_create_id(first, &client, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_create_id(first, &other, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(client, NULL, (struct sockaddr *)&addr, 2000) == 0);
	CHECK(rdma_resolve_addr(other, NULL, (struct sockaddr *)&addr, 2000) == 0);
	CHECK(rdma_resolve_route(client, 2000) == 0);
	/* Events that wait go along, in order; others' events stay. */
	CHECK(rdma_migrate_id(client, second) == 0);
	CHECK(client->channel == second);
	pass(second, RDMA_CM_EVENT_ADDR_RESOLVED);
	pass(second, RDMA_CM_EVENT_ROUTE_RESOLVED);
	nothing(second);
	event = expect(first, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(event->id == other);
	CHECK(rdma_ack_cm_event(event) == 0);
	nothing(first);
	/* So do requests that came in at a listener. */
	make_qp(client);
	CHECK(rdma_connect(client, &param) == 0);
	CHECK(readable(first->fd, DEADLINE_MS));
	CHECK(rdma_migrate_id(listener, third) == 0);
	nothing(first);
	event = expect(third, RDMA_CM_EVENT_CONNECT_REQUEST);
	server = event->id;
	CHECK(server->channel == third);
	CHECK(rdma_ack_cm_event(event) == 0);
	CHECK(rdma_migrate_id(server, second) == 0);
	make_qp(server);
	CHECK(rdma_accept(server, &param) == 0);
	pass(second, RDMA_CM_EVENT_ESTABLISHED);
	pass(second, RDMA_CM_EVENT_ESTABLISHED);
	nothing(third);
	/* To no channel: synchronous from then on. */
	CHECK(rdma_migrate_id(client, NULL) == 0);
	FAILS(rdma_migrate_id(client, NULL), EINVAL);
	CHECK(rdma_disconnect(client) == 0);
	CHECK(client->event && client->event->event == RDMA_CM_EVENT_DISCONNECTED);
	CHECK(rdma_migrate_id(client, second) == 0);
	CHECK(!client->event);
	pass(second, RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_qp(client);
	rdma_destroy_qp(server);
	CHECK(rdma_destroy_id(client) == 0 && rdma_destroy_id(server) == 0);
	CHECK(rdma_destroy_id(other) == 0 && rdma_destroy_id(listener) == 0);
	rdma_destroy_event_channel(first);
	rdma_destroy_event_channel(second);
	rdma_destroy_event_channel(third);
}

static void user_events(void)
{
	int (*write_event)(struct rdma_cm_id *, int, int, uint64_t);
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	uint64_t argument;

	/* Newer than the header. */
	extern int rdma_write_cm_event(struct rdma_cm_id *, int, int, uint64_t)
		__attribute__((weak));
	write_event = rdma_write_cm_event;
	CHECK(write_event);
	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	FAILS(write_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, 0), EINVAL);
	CHECK(write_event(id, 18, -5, 0x1122334455667788) == 0);
	CHECK(rdma_get_cm_event(channel, &event) == 0);
	CHECK(event->id == id && event->event == 18 && event->status == -5);
	memcpy(&argument, &event->param, sizeof(argument));
	CHECK(argument == 0x1122334455667788);
	CHECK(rdma_ack_cm_event(event) == 0);
	CHECK(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(channel);
}

static void channel_flags(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	int flags = fcntl(channel->fd, F_GETFL);

	CHECK(!(flags & O_NONBLOCK));
	CHECK(fcntl(channel->fd, F_GETFD) & FD_CLOEXEC);
	CHECK(fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) == 0);
	FAILS(rdma_get_cm_event(channel, &event), EAGAIN);
	FAILS(rdma_get_cm_event(channel, NULL), EINVAL);
	FAILS(rdma_ack_cm_event(NULL), EINVAL);
	/* Events of an id that goes are gone, and the descriptor says so. */
	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	struct sockaddr_in addr = loopback(1);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&addr, 2000) == 0);
	CHECK(rdma_resolve_route(id, 2000) == 0);
	CHECK(readable(channel->fd, 0));
	CHECK(rdma_destroy_id(id) == 0);
	nothing(channel);
	FAILS(rdma_get_cm_event(channel, &event), EAGAIN);
	rdma_destroy_event_channel(channel);
}

static void names(void)
{
	CHECK(!strcmp(rdma_event_str(RDMA_CM_EVENT_ADDR_RESOLVED), "RDMA_CM_EVENT_ADDR_RESOLVED"));
	CHECK(!strcmp(rdma_event_str(RDMA_CM_EVENT_TIMEWAIT_EXIT), "RDMA_CM_EVENT_TIMEWAIT_EXIT"));
	CHECK(!strcmp(rdma_event_str(99), "UNKNOWN EVENT"));
}

MAIN({ "order", order }, { "qp-destroyed-first", qp_destroyed_first },
     { "qp-destroyed-directly", qp_destroyed_directly },
     { "disconnect-follows-qp", disconnect_follows_qp }, { "reject", reject },
     { "no-listener", no_listener }, { "migrate", migrate },
     { "user-events", user_events }, { "channel-flags", channel_flags }, { "names", names })
