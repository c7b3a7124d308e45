/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Servers that open, bind or listen first and fork then, as daemon(3) does: the child serves with what
 * its parent has made. */
#include "cm.h"

enum { SIZE = 64 };

/* The objects that the parent makes. */
struct server {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *completions;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char memory[SIZE];
};

enum stage { BOUND, LISTENS };

static void open_server(struct server *server, enum stage stage)
{
	struct sockaddr_in addr = loopback(0);
	struct ibv_context **contexts = rdma_get_devices(NULL);

	CHECK(contexts && contexts[0]);
	server->context = contexts[0];
	rdma_free_devices(contexts);
	server->pd = ibv_alloc_pd(server->context);
	server->completions = ibv_create_comp_channel(server->context);
	CHECK(server->pd && server->completions);
	server->cq = ibv_create_cq(server->context, 16, server, server->completions, 0);
	server->mr = ibv_reg_mr(server->pd, server->memory, SIZE, IBV_ACCESS_LOCAL_WRITE);
	server->channel = rdma_create_event_channel();
	CHECK(server->cq && server->mr && server->channel);
	CHECK(rdma_create_id(server->channel, &server->listener, server, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(server->listener, (struct sockaddr *)&addr) == 0);
	if (stage == LISTENS)
		CHECK(rdma_listen(server->listener, 8) == 0);
}

/* Serves one client, and ends everything. */
static void serve(struct server *server)
{
	struct ibv_qp_init_attr init = {
		.send_cq = server->cq,
		.recv_cq = server->cq,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_sge sge = { (uintptr_t)server->memory, SIZE, server->mr->lkey };
	struct ibv_recv_wr recv = { .wr_id = 7, .sg_list = &sge, .num_sge = 1 }, *bad;
	struct rdma_conn_param param = params(NULL);
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *of;

	/* By a call of the library: what only polls the descriptor tells it nothing. */
	CHECK(rdma_get_cm_event(server->channel, &event) == 0);
	CHECK(event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
	id = event->id;
	CHECK(event->listen_id == server->listener && id->verbs == server->context);
	CHECK(rdma_ack_cm_event(event) == 0);
	CHECK(rdma_create_qp(id, server->pd, &init) == 0);
	CHECK(ibv_post_recv(id->qp, &recv, &bad) == 0);
	CHECK(ibv_req_notify_cq(server->cq, 0) == 0);
	CHECK(rdma_accept(id, &param) == 0);
	pass(server->channel, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(ibv_get_cq_event(server->completions, &cq, &of) == 0);
	CHECK(cq == server->cq && of == server);
	ibv_ack_cq_events(cq, 1);
	CHECK(ibv_poll_cq(cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.wr_id == 7);
	CHECK(strcmp(server->memory, "to the child") == 0);
	pass(server->channel, RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_qp(id);
	CHECK(rdma_destroy_id(id) == 0 && rdma_destroy_id(server->listener) == 0);
	rdma_destroy_event_channel(server->channel);
	CHECK(ibv_destroy_cq(server->cq) == 0 && ibv_dereg_mr(server->mr) == 0);
	CHECK(ibv_destroy_comp_channel(server->completions) == 0);
	CHECK(ibv_dealloc_pd(server->pd) == 0);
}

static void ask(uint16_t port)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = make_client(channel, port);
	struct rdma_conn_param param = params(NULL);
	static char text[] = "to the child";
	struct ibv_sge sge = { (uintptr_t)text, sizeof(text) };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE,
	}, *bad;
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1,
			 .max_inline_data = sizeof(text) },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_wc wc;
	int n;

	CHECK(rdma_create_qp(id, NULL, &init) == 0);
	CHECK(rdma_connect(id, &param) == 0);
	pass(channel, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(ibv_post_send(id->qp, &wr, &bad) == 0);
	while ((n = ibv_poll_cq(id->send_cq, 1, &wc)) == 0)
		;
	CHECK(n == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(rdma_disconnect(id) == 0);
	pass(channel, RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_qp(id);
	CHECK(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(channel);
}

/* The parent's next step once it has a child. */
enum then { ENDS, STAYS };

/* The child of a process that opens, binds and perhaps listens, which this process asks as a client. */
static void daemonized(enum stage stage, enum then then)
{
	int from_parent[2], from_child[2], status;
	uint16_t port;
	char octet;
	pid_t parent;

	CHECK(pipe(from_parent) == 0 && pipe(from_child) == 0);
	parent = fork();
	CHECK(parent >= 0);
	if (!parent) {
		static struct server server;
		pid_t child;

		alarm(60);
		close(from_child[0]);
		open_server(&server, stage);
		child = fork();
		CHECK(child >= 0);
		if (child) {
			/* Of the connection that comes, the parent sees nothing. */
			if (then == STAYS)
				CHECK(waitpid(child, &status, 0) == child && status == 0);
			_exit(0);
		}
		alarm(60);
		close(from_parent[0]);
		if (stage == BOUND)
			CHECK(rdma_listen(server.listener, 8) == 0);
		port = ntohs(rdma_get_src_port(server.listener));
		CHECK(write(from_parent[1], &port, sizeof(port)) == sizeof(port));
		serve(&server);
		CHECK(write(from_child[1], "x", 1) == 1);
		_exit(0);
	}
	close(from_parent[1]);
	close(from_child[1]);
	CHECK(read(from_parent[0], &port, sizeof(port)) == sizeof(port));
	ask(port);
	CHECK(read(from_child[0], &octet, 1) == 1);
	CHECK(waitpid(parent, &status, 0) == parent && status == 0);
}

static void bound(void)
{
	daemonized(BOUND, ENDS);
}

static void listens(void)
{
	daemonized(LISTENS, ENDS);
}

static void bound_and_parent_stays(void)
{
	daemonized(BOUND, STAYS);
}

static void listens_and_parent_stays(void)
{
	daemonized(LISTENS, STAYS);
}

/* Ends what it has not used: that is the parent's, which goes on. */
static void only_cleans_up(void)
{
	static struct server server;
	uint16_t port;
	pid_t child;
	int status;

	open_server(&server, LISTENS);
	port = ntohs(rdma_get_src_port(server.listener));
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		CHECK(rdma_destroy_id(server.listener) == 0);
		rdma_destroy_event_channel(server.channel);
		CHECK(ibv_destroy_cq(server.cq) == 0 && ibv_dereg_mr(server.mr) == 0);
		CHECK(ibv_destroy_comp_channel(server.completions) == 0);
		CHECK(ibv_dealloc_pd(server.pd) == 0);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		alarm(60);
		ask(port);
		_exit(0);
	}
	serve(&server);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* A port is free once its maker has given it back, whatever children it has. */
static void given_back(void)
{
	static struct server server;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *again;
	int quit[2];
	uint16_t port;
	pid_t child;
	int status;
	char octet;

	CHECK(pipe(quit) == 0);
	open_server(&server, LISTENS);
	port = ntohs(rdma_get_src_port(server.listener));
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		close(quit[1]);
		_exit(read(quit[0], &octet, 1) != 0);
	}
	CHECK(rdma_destroy_id(server.listener) == 0);
	channel = rdma_create_event_channel();
	again = make_listener(channel, port);
	CHECK(rdma_destroy_id(again) == 0);
	rdma_destroy_event_channel(channel);
	close(quit[1]);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

MAIN({ "bound", bound }, { "listens", listens },
     { "bound-and-parent-stays", bound_and_parent_stays },
     { "listens-and-parent-stays", listens_and_parent_stays },
     { "only-cleans-up", only_cleans_up }, { "given-back", given_back })
