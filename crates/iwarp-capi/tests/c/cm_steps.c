/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Ids that wait, queue pairs of the program's own, options and addresses. */
#include "cm.h"

#include <netdb.h>

static struct ibv_qp_init_attr qp_attr(void)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_all = 1,
	};

	return attr;
}

static void *serve(void *argument)
{
	struct rdma_cm_id *listener = argument, *id;

	CHECK(rdma_get_request(listener, &id) == 0);
	CHECK(id->event && id->event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(id->event->param.conn.private_data_len >= 5);
	CHECK(!memcmp(id->event->param.conn.private_data, "hello", 5));
	CHECK(id->qp && id->send_cq && id->recv_cq);
	CHECK(rdma_accept(id, NULL) == 0);
	CHECK(id->event->event == RDMA_CM_EVENT_ESTABLISHED);
	/* The peer ends it. */
	CHECK(rdma_disconnect(id) == 0);
	CHECK(id->event->event == RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_ep(id);
	return NULL;
}

static void synchronous(void)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *info;
	struct rdma_cm_id *listener, *id;
	struct ibv_qp_init_attr attr = qp_attr();
	struct rdma_conn_param param = params("hello");
	char port[8];
	pthread_t thread;

	CHECK(rdma_getaddrinfo(NULL, "0", &hints, &info) == 0);
	CHECK(info->ai_flags & RAI_PASSIVE && info->ai_src_len && !info->ai_dst_len);
	CHECK(rdma_create_ep(&listener, info, NULL, &attr) == 0);
	rdma_freeaddrinfo(info);
	CHECK(listener->channel && !listener->event);
	CHECK(rdma_listen(listener, 0) == 0);
	snprintf(port, sizeof(port), "%d", ntohs(rdma_get_src_port(listener)));
	CHECK(pthread_create(&thread, NULL, serve, listener) == 0);

	hints.ai_flags = 0;
	CHECK(rdma_getaddrinfo("127.0.0.1", port, &hints, &info) == 0);
	attr = qp_attr();
	CHECK(rdma_create_ep(&id, info, NULL, &attr) == 0);
	rdma_freeaddrinfo(info);
	CHECK(id->qp && id->verbs && id->event->event == RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(rdma_connect(id, &param) == 0);
	CHECK(id->event->event == RDMA_CM_EVENT_ESTABLISHED);
	CHECK(rdma_disconnect(id) == 0);
	CHECK(id->event->event == RDMA_CM_EVENT_DISCONNECTED);
	CHECK(pthread_join(thread, NULL) == 0);
	rdma_destroy_ep(id);

	/* Nobody is there any more. */
	rdma_destroy_ep(listener);
	CHECK(rdma_getaddrinfo("127.0.0.1", port, &hints, &info) == 0);
	attr = qp_attr();
	CHECK(rdma_create_ep(&id, info, NULL, &attr) == 0);
	rdma_freeaddrinfo(info);
	FAILS(rdma_connect(id, NULL), ECONNREFUSED);
	CHECK(id->event->event == RDMA_CM_EVENT_REJECTED);
	rdma_destroy_ep(id);
}

static struct ibv_qp *own_qp(struct rdma_cm_id *id, struct ibv_cq **cq)
{
	struct ibv_qp_init_attr attr = qp_attr();

	*cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0);
	CHECK(*cq);
	attr.send_cq = attr.recv_cq = *cq;
	attr.qp_type = IBV_QPT_RC;
	return ibv_create_qp(id->pd, &attr);
}

static void move(struct rdma_cm_id *id, struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask;

	CHECK(rdma_init_qp_attr(id, &attr, &mask) == 0);
	CHECK(attr.qp_state == state && (mask & IBV_QP_STATE));
	CHECK(ibv_modify_qp(qp, &attr, mask) == 0);
}

static void ready(struct rdma_cm_id *id, struct ibv_qp *qp)
{
	move(id, qp, IBV_QPS_INIT);
	move(id, qp, IBV_QPS_RTR);
	move(id, qp, IBV_QPS_RTS);
}

/* Queue pairs that the program makes, and changes, itself. */
static void external(void)
{
	struct rdma_event_channel *server_channel = rdma_create_event_channel();
	struct rdma_event_channel *client_channel = rdma_create_event_channel();
	struct rdma_cm_id *listener = make_listener(server_channel, 0);
	struct rdma_cm_id *client =
		make_client(client_channel, ntohs(rdma_get_src_port(listener)));
	struct ibv_cq *client_cq, *server_cq;
	struct ibv_qp *client_qp = own_qp(client, &client_cq), *server_qp;
	struct rdma_conn_param param = params("out of band");
	struct ibv_recv_wr recv = { .wr_id = 1 }, *bad_recv;
	struct ibv_send_wr send = { .wr_id = 2, .opcode = IBV_WR_SEND }, *bad_send;
	struct rdma_cm_event *event;
	struct rdma_cm_id *server;
	struct ibv_wc wc;
	time_t deadline;

	CHECK(client_qp);
	FAILS(rdma_connect(client, NULL), EINVAL);
	param.qp_num = client_qp->qp_num;
	CHECK(rdma_connect(client, &param) == 0);
	event = expect(server_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	server = event->id;
	CHECK(rdma_ack_cm_event(event) == 0);
	server_qp = own_qp(server, &server_cq);
	CHECK(server_qp);
	ready(server, server_qp);
	CHECK(ibv_post_recv(server_qp, &recv, &bad_recv) == 0);
	param = params("back");
	param.qp_num = server_qp->qp_num;
	CHECK(rdma_accept(server, &param) == 0);
	pass(server_channel, RDMA_CM_EVENT_ESTABLISHED);
	event = expect(client_channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
	CHECK(event->param.conn.private_data_len >= 4);
	CHECK(!memcmp(event->param.conn.private_data, "back", 4));
	CHECK(rdma_ack_cm_event(event) == 0);
	ready(client, client_qp);
	CHECK(rdma_establish(client) == 0);
	CHECK(client_qp->state == IBV_QPS_RTS && server_qp->state == IBV_QPS_RTS);
	CHECK(ibv_post_send(client_qp, &send, &bad_send) == 0);
	deadline = time(NULL) + DEADLINE_MS / 1000;
	while (ibv_poll_cq(server_cq, 1, &wc) == 0)
		CHECK(time(NULL) < deadline);
	CHECK(wc.wr_id == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(rdma_disconnect(client) == 0);
	pass(client_channel, RDMA_CM_EVENT_DISCONNECTED);
	pass(server_channel, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(ibv_destroy_qp(client_qp) == 0 && ibv_destroy_qp(server_qp) == 0);
	CHECK(ibv_destroy_cq(client_cq) == 0 && ibv_destroy_cq(server_cq) == 0);
	CHECK(rdma_destroy_id(client) == 0 && rdma_destroy_id(server) == 0);
	CHECK(rdma_destroy_id(listener) == 0);
	rdma_destroy_event_channel(server_channel);
	rdma_destroy_event_channel(client_channel);
}

/* No queue pair of this device: private data goes both ways, and the end is told. */
static void private_data_only(void)
{
	struct rdma_event_channel *server_channel = rdma_create_event_channel();
	struct rdma_event_channel *client_channel = rdma_create_event_channel();
	struct rdma_cm_id *listener = make_listener(server_channel, 0);
	struct rdma_cm_id *client =
		make_client(client_channel, ntohs(rdma_get_src_port(listener)));
	struct rdma_conn_param param = params("address of mine");
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	struct rdma_cm_event *event;
	struct rdma_cm_id *server;
	int mask;

	param.qp_num = 0xfffffe;
	CHECK(rdma_connect(client, &param) == 0);
	event = expect(server_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	server = event->id;
	CHECK(!memcmp(event->param.conn.private_data, "address of mine", 15));
	CHECK(rdma_ack_cm_event(event) == 0);
	CHECK(rdma_init_qp_attr(server, &attr, &mask) == 0);
	CHECK((mask & IBV_QP_AV) && attr.ah_attr.is_global && attr.ah_attr.port_num == 1);
	CHECK(attr.ah_attr.grh.dgid.raw[15] == 1 && attr.ah_attr.grh.dgid.raw[12] == 127);
	CHECK(rdma_accept(server, &param) == 0);
	pass(server_channel, RDMA_CM_EVENT_ESTABLISHED);
	pass(client_channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
	CHECK(rdma_establish(client) == 0);
	FAILS(rdma_establish(client), EINVAL);
	CHECK(rdma_disconnect(server) == 0);
	pass(server_channel, RDMA_CM_EVENT_DISCONNECTED);
	pass(client_channel, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(rdma_destroy_id(client) == 0 && rdma_destroy_id(server) == 0);
	CHECK(rdma_destroy_id(listener) == 0);
	rdma_destroy_event_channel(server_channel);
	rdma_destroy_event_channel(client_channel);
}

static void options(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in addr = loopback(0);
	struct sockaddr_in6 any6 = { .sin6_family = AF_INET6 };
	struct rdma_cm_id *first, *second;
	uint8_t octet = 0x20;
	int on = 1;

	CHECK(rdma_create_id(channel, &first, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_create_id(channel, &second, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_set_option(first, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &octet, 1) == 0);
	FAILS(rdma_set_option(first, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &on, 4), EINVAL);
	octet = 17;
	CHECK(rdma_set_option(first, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &octet, 1) == 0);
	octet = 32;
	FAILS(rdma_set_option(first, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &octet, 1),
	      EINVAL);
	FAILS(rdma_set_option(first, RDMA_OPTION_ID, 99, &on, 4), ENOSYS);
	FAILS(rdma_set_option(first, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &on, 4), ENOSYS);
	/* Two may share a port, and one of them listen. */
	CHECK(rdma_set_option(first, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, 4) == 0);
	CHECK(rdma_set_option(second, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, 4) == 0);
	CHECK(rdma_bind_addr(first, (struct sockaddr *)&addr) == 0);
	addr = loopback(ntohs(rdma_get_src_port(first)));
	CHECK(rdma_bind_addr(second, (struct sockaddr *)&addr) == 0);
	FAILS(rdma_set_option(first, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, 4), EINVAL);
	CHECK(rdma_listen(first, 1) == 0);
	FAILS(rdma_listen(second, 1), EADDRINUSE);
	CHECK(rdma_destroy_id(first) == 0 && rdma_destroy_id(second) == 0);
	/* IPv6 alone leaves the port to IPv4. */
	CHECK(rdma_create_id(channel, &first, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_create_id(channel, &second, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_set_option(first, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, 4) == 0);
	CHECK(rdma_bind_addr(first, (struct sockaddr *)&any6) == 0);
	/* Any address is no device's. */
	CHECK(!first->verbs && rdma_get_src_port(first));
	addr = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = rdma_get_src_port(first) };
	CHECK(rdma_bind_addr(second, (struct sockaddr *)&addr) == 0);
	CHECK(rdma_listen(first, 1) == 0 && rdma_listen(second, 1) == 0);
	CHECK(rdma_destroy_id(first) == 0 && rdma_destroy_id(second) == 0);
	rdma_destroy_event_channel(channel);
}

static void ack_timeout(void)
{
	struct pair pair = { 0 };
	struct rdma_conn_param param = params(NULL);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	uint8_t timeout = 17;

	pair.server_channel = rdma_create_event_channel();
	pair.client_channel = rdma_create_event_channel();
	pair.listener = make_listener(pair.server_channel, 0);
	pair.client = make_client(pair.client_channel, ntohs(rdma_get_src_port(pair.listener)));
	CHECK(rdma_set_option(pair.client, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
			      1) == 0);
	make_qp(pair.client);
	CHECK(rdma_connect(pair.client, &param) == 0);
	CHECK(ibv_query_qp(pair.client->qp, &attr, IBV_QP_TIMEOUT, &init) == 0);
	CHECK(attr.timeout == 17);
	release(&pair);
}

/* The terms set by the connection manager can be read back, as programs do that pass them on. */
static void terms(void)
{
	struct pair pair = connected();
	struct ibv_qp *qps[] = { pair.client->qp, pair.server->qp };
	const char *wire = getenv("IWARP_WIRE");
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attrs[2];

	for (int i = 0; i < 2; i++) {
		struct ibv_qp_attr *attr = &attrs[i];

		CHECK(ibv_query_qp(qps[i], attr, IBV_QP_STATE | IBV_QP_AV, &init) == 0);
		CHECK(attr->qp_state == IBV_QPS_RTS && attr->port_num == 1);
		CHECK(attr->path_mtu >= IBV_MTU_256 && attr->path_mtu <= IBV_MTU_4096);
		CHECK(attr->qp_access_flags & IBV_ACCESS_REMOTE_WRITE);
		CHECK(attr->ah_attr.is_global && attr->ah_attr.grh.hop_limit);
		CHECK(attr->timeout && attr->retry_cnt == 7 && attr->rnr_retry == 7);
	}
	/* Each serves what the other may have outstanding. */
	CHECK(attrs[0].max_rd_atomic && attrs[0].max_rd_atomic <= attrs[1].max_dest_rd_atomic);
	CHECK(attrs[1].max_rd_atomic && attrs[1].max_rd_atomic <= attrs[0].max_dest_rd_atomic);
	if (wire && !strcmp(wire, "roce")) {
		CHECK(attrs[0].dest_qp_num == qps[1]->qp_num);
		CHECK(attrs[1].dest_qp_num == qps[0]->qp_num);
		CHECK(attrs[0].rq_psn == attrs[1].sq_psn && attrs[0].sq_psn == attrs[1].rq_psn);
		CHECK(attrs[0].sq_psn || attrs[1].sq_psn);
	}
	release(&pair);
}

static double seconds(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static void send_nothing(struct ibv_qp *qp)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;

	CHECK(ibv_post_send(qp, &wr, &bad) == 0);
}

static enum ibv_wc_status completion(struct ibv_cq *cq)
{
	double begin = seconds();
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) == 0)
		CHECK(seconds() - begin < DEADLINE_MS / 1000);
	return wc.status;
}

/* Sends a message, which finds no receive before so many seconds have passed. */
static void send_early(struct rdma_cm_id *from, struct rdma_cm_id *to, double wait)
{
	struct ibv_recv_wr receive = { 0 }, *bad;
	double begin;

	send_nothing(from->qp);
	for (begin = seconds(); seconds() - begin < wait;)
		CHECK(ibv_poll_cq(from->send_cq, 1, &(struct ibv_wc){ 0 }) == 0);
	CHECK(ibv_post_recv(to->qp, &receive, &bad) == 0);
	CHECK(completion(to->recv_cq) == IBV_WC_SUCCESS);
	CHECK(completion(from->send_cq) == IBV_WC_SUCCESS);
}

/* Each end says how often the other sends a message again that finds no receive: at intervals of
 * 655 ms, as min_rnr_timer is 0. */
static void unready(void)
{
	static const double timer = 0.65536;
	const char *personality = getenv("IWARP_PERSONALITY");
	struct rdma_conn_param client = params(NULL), server = params(NULL);
	struct pair pair;
	double begin;

	if (!personality || strcmp(personality, "roce"))
		return;
	server.rnr_retry_count = 1;
	pair = connected_with(client, server);

	send_early(pair.server, pair.client, 3 * timer);

	begin = seconds();
	send_nothing(pair.client->qp);
	CHECK(completion(pair.client->send_cq) == IBV_WC_RNR_RETRY_EXC_ERR);
	CHECK(seconds() - begin >= timer);
	release(&pair);
}

/* A program that clears the structure and sets nothing has not meant that no message may wait. */
static void unsaid(void)
{
	const char *personality = getenv("IWARP_PERSONALITY");
	struct rdma_conn_param server = params(NULL);
	struct pair pair;

	if (!personality || strcmp(personality, "roce"))
		return;
	server.rnr_retry_count = 0;
	pair = connected_with(params(NULL), server);
	send_early(pair.client, pair.server, 0.2);
	release(&pair);
}

/* An acceptor that hands on what it was told asks of the peer what that asks of it. */
static void told(void)
{
	const char *personality = getenv("IWARP_PERSONALITY"), *wire = getenv("IWARP_WIRE");
	struct rdma_event_channel *server_channel = rdma_create_event_channel();
	struct rdma_event_channel *client_channel = rdma_create_event_channel();
	struct rdma_cm_id *listener = make_listener(server_channel, 0);
	struct rdma_cm_id *client =
		make_client(client_channel, ntohs(rdma_get_src_port(listener)));
	struct rdma_conn_param param = params(NULL);
	struct rdma_cm_event *event;
	int packets = wire && !strcmp(wire, "roce");
	int expected = 0, retries = 0;

	if (personality && !strcmp(personality, "roce")) {
		expected = packets ? 3 : 7;
		retries = packets ? 2 : 7;
	}
	param.rnr_retry_count = 3;
	param.retry_count = 2;
	make_qp(client);
	CHECK(rdma_connect(client, &param) == 0);
	event = expect(server_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(event->param.conn.rnr_retry_count == expected);
	CHECK(event->param.conn.retry_count == retries);
	refuse_request(event, client);
	CHECK(rdma_destroy_id(listener) == 0);
	rdma_destroy_event_channel(server_channel);
	rdma_destroy_event_channel(client_channel);
}

/* Either end sends again as often as the connecting program says. */
static void retried(void)
{
	const char *wire = getenv("IWARP_WIRE");
	struct rdma_conn_param client = params(NULL);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct pair pair;

	if (!wire || strcmp(wire, "roce"))
		return;
	client.retry_count = 2;
	pair = connected_with(client, params(NULL));
	CHECK(ibv_query_qp(pair.client->qp, &attr, IBV_QP_RETRY_CNT, &init) == 0);
	CHECK(attr.retry_cnt == 2);
	CHECK(ibv_query_qp(pair.server->qp, &attr, IBV_QP_RETRY_CNT, &init) == 0);
	CHECK(attr.retry_cnt == 2);
	release(&pair);
}

static void addresses(void)
{
	struct sockaddr_in addr = loopback(4711);
	struct rdma_addrinfo hints = { 0 }, *info;

	FAILS(rdma_getaddrinfo(NULL, NULL, NULL, &info), EINVAL);
	CHECK(rdma_getaddrinfo("127.0.0.1", "4711", NULL, &info) == 0);
	CHECK(info->ai_family == AF_INET && info->ai_qp_type == IBV_QPT_RC);
	CHECK(info->ai_port_space == RDMA_PS_TCP && !info->ai_next && !info->ai_route_len);
	CHECK(info->ai_dst_len == sizeof(addr) && !memcmp(info->ai_dst_addr, &addr, sizeof(addr)));
	rdma_freeaddrinfo(info);
	hints.ai_flags = RAI_NUMERICHOST;
	CHECK(rdma_getaddrinfo("localhost", "4711", &hints, &info) == EAI_NONAME);
	hints.ai_flags = 0;
	hints.ai_port_space = RDMA_PS_UDP;
	CHECK(rdma_getaddrinfo("::1", "4711", &hints, &info) == 0);
	CHECK(info->ai_family == AF_INET6 && info->ai_qp_type == IBV_QPT_UD);
	rdma_freeaddrinfo(info);
	/* Only addresses that the program has already. */
	hints = (struct rdma_addrinfo){
		.ai_port_space = RDMA_PS_TCP,
		.ai_dst_addr = (struct sockaddr *)&addr,
		.ai_dst_len = sizeof(addr),
		.ai_src_addr = (struct sockaddr *)&addr,
		.ai_src_len = sizeof(addr),
	};
	CHECK(rdma_getaddrinfo(NULL, NULL, &hints, &info) == 0);
	CHECK(info->ai_dst_addr != hints.ai_dst_addr && info->ai_src_addr != info->ai_dst_addr);
	CHECK(!memcmp(info->ai_dst_addr, &addr, sizeof(addr)));
	CHECK(!memcmp(info->ai_src_addr, &addr, sizeof(addr)));
	CHECK(info->ai_port_space == RDMA_PS_TCP);
	rdma_freeaddrinfo(info);
	rdma_freeaddrinfo(NULL);
}

static void unsupported(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in addr = loopback(0), group = loopback(0);
	struct rdma_cm_id *id;

	group.sin_addr.s_addr = htonl(0xef010203);
	FAILS(rdma_create_id(channel, &id, NULL, 0x7777), EPROTONOSUPPORT);
	addr.sin_family = AF_UNIX;
	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	FAILS(rdma_bind_addr(id, (struct sockaddr *)&addr), EINVAL);
	FAILS(rdma_resolve_addr(id, NULL, (struct sockaddr *)&addr, 1), EINVAL);
	FAILS(rdma_resolve_route(id, 1), EINVAL);
	FAILS(rdma_connect(id, NULL), EINVAL);
	FAILS(rdma_accept(id, &(struct rdma_conn_param){ 0 }), EINVAL);
	FAILS(rdma_reject(id, NULL, 0), EINVAL);
	FAILS(rdma_disconnect(id), EINVAL);
	FAILS(rdma_establish(id), EINVAL);
	FAILS(rdma_leave_multicast(id, (struct sockaddr *)&group), EADDRNOTAVAIL);
	FAILS(rdma_join_multicast(id, (struct sockaddr *)&group, NULL), EINVAL);
	CHECK(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(channel);
}

static void devices(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct ibv_context **list;
	struct rdma_cm_id *id;
	int count = -1;

	list = rdma_get_devices(&count);
	CHECK(list && count == 1 && list[0] && !list[1]);
	id = make_client(channel, 9);
	/* One device has one context. */
	CHECK(id->verbs == list[0]);
	rdma_free_devices(list);
	CHECK(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(channel);
}

static void bound_source(void)
{
	struct rdma_event_channel *server_channel = rdma_create_event_channel();
	struct rdma_event_channel *client_channel = rdma_create_event_channel();
	struct rdma_cm_id *listener = make_listener(server_channel, 0);
	struct sockaddr_in addr = loopback(ntohs(rdma_get_src_port(listener)));
	struct sockaddr_in from = { .sin_family = AF_INET };
	struct rdma_conn_param param = params(NULL);
	struct rdma_cm_event *event;
	struct rdma_cm_id *client;
	uint16_t port;

	/* From an address of this host that is not what the route would choose. */
	from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 6);
	CHECK(rdma_create_id(client_channel, &client, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(client, (struct sockaddr *)&from) == 0);
	port = rdma_get_src_port(client);
	CHECK(port);
	CHECK(rdma_resolve_addr(client, NULL, (struct sockaddr *)&addr, 2000) == 0);
	pass(client_channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(rdma_get_src_port(client) == port);
	CHECK(rdma_resolve_route(client, 2000) == 0);
	pass(client_channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_qp(client);
	CHECK(rdma_connect(client, &param) == 0);
	event = expect(server_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(rdma_get_dst_port(event->id) == port);
	CHECK(((struct sockaddr_in *)rdma_get_peer_addr(event->id))->sin_addr.s_addr ==
	      from.sin_addr.s_addr);
	refuse_request(event, client);
	CHECK(rdma_destroy_id(listener) == 0);
	rdma_destroy_event_channel(server_channel);
	rdma_destroy_event_channel(client_channel);
}

MAIN({ "synchronous", synchronous }, { "external", external },
     { "private-data-only", private_data_only }, { "options", options },
     { "ack-timeout", ack_timeout }, { "terms", terms },
     { "unready", unready }, { "unsaid", unsaid }, { "told", told }, { "retried", retried },
     { "addresses", addresses },
     { "unsupported", unsupported },
     { "devices", devices }, { "bound-source", bound_source })
