/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Connects to itself by the connection manager and sends messages, rightly or with the bug that the
 * first argument names. A right run gives up with status 1 where there is no connection. */
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MESSAGES = 24, SIZE = 4096, TIMEOUT_MS = 2000 };
enum { ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };

static const char *bug = "none";
static struct rdma_event_channel *events;
static struct rdma_cm_id *listener, *client, *server;
static struct ibv_mr *mr;
static char *buf;

static bool has(const char *name)
{
	return strcmp(bug, name) == 0;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static void give_up(const char *what)
{
	fprintf(stderr, "gives up: %s\n", what);
	exit(1);
}

static void make_queue_pair(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .sq_sig_all = 1, .cap = { 8, 8, 1, 1, 0 },
	};

	if (rdma_create_qp(id, NULL, &init))
		give_up("rdma_create_qp");
}

/* Takes one event; a peer that asks is accepted. */
static enum rdma_cm_event_type take_event(void)
{
	struct rdma_conn_param param = { 0 };
	struct rdma_cm_event *event;
	enum rdma_cm_event_type type;

	if (rdma_get_cm_event(events, &event))
		give_up("rdma_get_cm_event");
	type = event->event;
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
		server = event->id;
		make_queue_pair(server);
		if (rdma_accept(server, &param))
			give_up("rdma_accept");
	}
	/* The planted bug: an event that tells of an error is forgotten, and its id not let go. */
	if (event->status && has("unacknowledged")) {
		rdma_destroy_id(client);
		give_up(rdma_event_str(type));
	}
	rdma_ack_cm_event(event);
	return type;
}

/* Waits for this event, and gives up at another. False where the bug takes that for this one. */
static bool await(enum rdma_cm_event_type wanted)
{
	enum rdma_cm_event_type type;

	do {
		type = take_event();
		if (type == wanted || type == RDMA_CM_EVENT_CONNECT_REQUEST)
			continue;
		if (type == RDMA_CM_EVENT_ADDR_ERROR && has("unseen_address_error"))
			return false;
		/* The planted bug: no other event is thought of. */
		if (!has("one_event") && !(type == RDMA_CM_EVENT_REJECTED && has("unseen_reject")))
			give_up(rdma_event_str(type));
		/* The planted bug: after any event there is a connection. */
		if (has("unseen_reject"))
			return false;
	} while (type != wanted);
	return true;
}

static void connect_to(uint16_t port)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };

	if (rdma_create_id(events, &client, NULL, RDMA_PS_TCP))
		give_up("rdma_create_id");
	if (rdma_resolve_addr(client, NULL, (struct sockaddr *)&address, TIMEOUT_MS))
		give_up("rdma_resolve_addr");
	await(RDMA_CM_EVENT_ADDR_RESOLVED);
	/* With unseen_address_error it is on no device. */
	if (client->verbs->num_comp_vectors < 1)
		give_up("no device");
	if (rdma_resolve_route(client, TIMEOUT_MS))
		give_up("rdma_resolve_route");
	await(RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_queue_pair(client);
	mr = ibv_reg_mr(client->pd, buf, 2 * SIZE, ACCESS);
	if (!mr)
		give_up("ibv_reg_mr");
	if (rdma_connect(client, &param))
		give_up("rdma_connect");
	/* Both ends are told. */
	if (await(RDMA_CM_EVENT_ESTABLISHED))
		await(RDMA_CM_EVENT_ESTABLISHED);
}

static void complete(struct ibv_cq *cq)
{
	double end = now() + 20;
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) != 1)
		/* The planted bug: what is sent comes. */
		if (now() > end && !has("unseen_reject"))
			give_up("no completion");
	if (wc.status != IBV_WC_SUCCESS && !has("unseen_disconnect"))
		give_up(ibv_wc_status_str(wc.status));
}

int main(int argc, char **argv)
{
	struct sockaddr_in any = { .sin_family = AF_INET };

	if (argc > 1)
		bug = argv[1];
	buf = calloc(2, SIZE);
	events = rdma_create_event_channel();
	if (!buf || !events || rdma_create_id(events, &listener, NULL, RDMA_PS_TCP))
		give_up("rdma_create_id");
	if (rdma_bind_addr(listener, (struct sockaddr *)&any) || rdma_listen(listener, 1))
		give_up("rdma_listen");
	connect_to(rdma_get_src_port(listener));
	for (int i = 0; i < MESSAGES; i++) {
		struct ibv_sge from = { (uintptr_t)buf, SIZE, mr->lkey };
		struct ibv_send_wr wr = {
			.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
			.wr.rdma = { (uintptr_t)buf + SIZE, mr->rkey },
		}, *bad;
		struct ibv_recv_wr receive = { .wr_id = i }, *bad_receive;

		memset(buf, 'a' + i, SIZE);
		if (server && ibv_post_recv(server->qp, &receive, &bad_receive))
			give_up("ibv_post_recv");
		if (ibv_post_send(client->qp, &wr, &bad) && !has("unseen_reject"))
			give_up("ibv_post_send");
		complete(client->send_cq);
		/* The planted bug: memory is waited for, and no end of the connection. */
		while (has("unseen_disconnect") && ((volatile char *)buf)[2 * SIZE - 1] != 'a' + i)
			;
		complete(server->recv_cq);
		if (memcmp(buf, buf + SIZE, SIZE) != 0)
			abort();
	}
	rdma_disconnect(client);
	await(RDMA_CM_EVENT_DISCONNECTED);
	/* No bug: both ends wait until their queue pairs may be used again. */
	for (int ends = 0; has("timewait") && ends < 2;)
		ends += take_event() == RDMA_CM_EVENT_TIMEWAIT_EXIT;
	return 0;
}
