/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Datagram services (RDMA_PS_UDP): what programs are told, step by step. */
#include "cm.h"

#define QKEY 0x01234567

static struct rdma_event_channel *channel;

static struct rdma_cm_id *make_id(void)
{
	struct rdma_cm_id *id;

	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_UDP) == 0);
	CHECK(id->qp_type == IBV_QPT_UD && id->ps == RDMA_PS_UDP);
	return id;
}

static void make_ud(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_UD,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attr;

	CHECK(rdma_create_qp(id, NULL, &init) == 0);
	CHECK(id->qp->qp_type == IBV_QPT_UD && id->qp->state == IBV_QPS_RTS);
	CHECK(ibv_query_qp(id->qp, &attr, IBV_QP_STATE | IBV_QP_QKEY, &init) == 0);
	CHECK(attr.qp_state == IBV_QPS_RTS && attr.qkey == QKEY);
}

static struct rdma_cm_id *serve(void)
{
	struct sockaddr_in any = loopback(0);
	struct rdma_cm_id *id = make_id();

	CHECK(rdma_bind_addr(id, (struct sockaddr *)&any) == 0);
	CHECK(rdma_listen(id, 4) == 0);
	CHECK(rdma_get_src_port(id) != 0);
	return id;
}

static struct rdma_cm_id *resolve(uint16_t port)
{
	struct sockaddr_in addr = loopback(ntohs(port));
	struct rdma_cm_id *id = make_id();

	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&addr, 1000) == 0);
	pass(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(id->verbs);
	CHECK(rdma_resolve_route(id, 1000) == 0);
	pass(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(rdma_get_src_port(id) != 0 && rdma_get_dst_port(id) == port);
	return id;
}

static void ask(struct rdma_cm_id *id, const char *data)
{
	struct rdma_conn_param param = { .private_data = data, .private_data_len = strlen(data) };

	CHECK(rdma_connect(id, &param) == 0);
}

/* A question, its answer, and a datagram that follows it. */
static void order(void)
{
	struct rdma_cm_id *listener = serve(), *asker = resolve(rdma_get_src_port(listener));
	struct rdma_conn_param param = { .private_data = "me", .private_data_len = 2 };
	struct rdma_cm_event *event;
	struct rdma_cm_id *asked;
	struct ibv_ah *ah;
	struct ibv_wc wc;
	char octets[64] = { 0 };

	make_ud(asker);
	ask(asker, "who");
	event = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	asked = event->id;
	CHECK(event->listen_id == listener && asked != listener && event->status == 0);
	CHECK(asked->qp_type == IBV_QPT_UD && asked->ps == RDMA_PS_UDP && asked->verbs);
	CHECK(event->param.ud.private_data_len == 180);
	CHECK(memcmp(event->param.ud.private_data, "who", 4) == 0);
	CHECK(rdma_get_dst_port(asked) == rdma_get_src_port(asker));
	make_ud(asked);
	struct ibv_mr *mr = ibv_reg_mr(asked->pd, octets, sizeof(octets), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge sge = { (uintptr_t)octets, sizeof(octets), mr->lkey };
	struct ibv_recv_wr recv = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad_recv;
	CHECK(ibv_post_recv(asked->qp, &recv, &bad_recv) == 0);
	CHECK(rdma_accept(asked, &param) == 0);
	FAILS(rdma_accept(asked, &param), EINVAL);
	CHECK(rdma_ack_cm_event(event) == 0);
	event = expect(channel, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(event->id == asker && event->status == 0);
	CHECK(event->param.ud.private_data_len == 136);
	CHECK(memcmp(event->param.ud.private_data, "me", 3) == 0);
	CHECK(event->param.ud.qp_num == asked->qp->qp_num && event->param.ud.qkey == QKEY);
	CHECK(event->param.ud.ah_attr.is_global && event->param.ud.ah_attr.port_num == 1);
	CHECK(memcmp(&event->param.ud.ah_attr.grh.dgid, &asker->route.addr.addr.ibaddr.dgid, 16) == 0);
	ah = ibv_create_ah(asker->pd, &event->param.ud.ah_attr);
	CHECK(ah);
	struct ibv_sge out = { (uintptr_t)"datagram", 8, 0 };
	struct ibv_send_wr send = {
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
		.sg_list = &out,
		.num_sge = 1,
		.wr.ud = { ah, event->param.ud.qp_num, event->param.ud.qkey },
	}, *bad_send;
	CHECK(ibv_post_send(asker->qp, &send, &bad_send) == 0);
	CHECK(rdma_ack_cm_event(event) == 0);
	while (ibv_poll_cq(asked->recv_cq, 1, &wc) == 0)
		;
	CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len == 48);
	CHECK(memcmp(octets + 40, "datagram", 8) == 0);
	/* There is no connection to end. */
	FAILS(rdma_disconnect(asker), EINVAL);
	nothing(channel);
	CHECK(ibv_destroy_ah(ah) == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	rdma_destroy_qp(asked);
	rdma_destroy_qp(asker);
	CHECK(rdma_destroy_id(asked) == 0);
	CHECK(rdma_destroy_id(asker) == 0);
	CHECK(rdma_destroy_id(listener) == 0);
}

static void refuse(void)
{
	struct rdma_cm_id *listener = serve(), *asker = resolve(rdma_get_src_port(listener));
	struct rdma_cm_event *event;
	int status;

	for (status = 2; status > 0; status--) {
		ask(asker, "");
		if (listener) {
			event = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
			struct rdma_cm_id *asked = event->id;
			CHECK(rdma_reject(asked, NULL, 0) == 0);
			CHECK(rdma_ack_cm_event(event) == 0);
			CHECK(rdma_destroy_id(asked) == 0);
			CHECK(rdma_destroy_id(listener) == 0);
			listener = NULL;
		}
		event = expect(channel, RDMA_CM_EVENT_UNREACHABLE);
		CHECK(event->id == asker && event->status == status);
		CHECK(rdma_ack_cm_event(event) == 0);
	}
	CHECK(rdma_destroy_id(asker) == 0);
}

/* The attributes for a program that sets up a queue pair of its own. */
static void attributes(void)
{
	struct rdma_cm_id *listener = serve(), *asker = resolve(rdma_get_src_port(listener));
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	int mask = 0;

	CHECK(rdma_init_qp_attr(asker, &attr, &mask) == 0);
	CHECK(mask == (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	CHECK(attr.qkey == QKEY && attr.port_num == 1);
	CHECK(rdma_destroy_id(asker) == 0);
	CHECK(rdma_destroy_id(listener) == 0);
}

/* Other kinds of queue pairs, ports and ids. */
static void wrong(void)
{
	struct rdma_cm_id *listener = serve(), *asker = resolve(rdma_get_src_port(listener)), *other;
	struct sockaddr_in taken = loopback(ntohs(rdma_get_src_port(listener)));
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	char much[181] = { 0 };
	struct rdma_conn_param param = { .private_data = much, .private_data_len = sizeof(much) };

	FAILS(rdma_create_qp(asker, NULL, &init), EINVAL);
	FAILS(rdma_connect(asker, &param), EINVAL);
	FAILS(rdma_accept(asker, NULL), EINVAL);
	other = make_id();
	FAILS(rdma_bind_addr(other, (struct sockaddr *)&taken), EADDRINUSE);
	CHECK(rdma_destroy_id(other) == 0);
	CHECK(rdma_destroy_id(asker) == 0);
	CHECK(rdma_destroy_id(listener) == 0);
}

/* Joining a group is an event, and the queue pair gets what is sent there. */
static void group(void)
{
	struct sockaddr_in any = loopback(0), addr = loopback(0);
	struct rdma_cm_id *id = make_id();
	struct rdma_cm_event *event;
	unsigned char gid[16] = { [10] = 0xff, [11] = 0xff, [12] = 239, [13] = 9, [14] = 9, [15] = 9 };

	addr.sin_addr.s_addr = htonl(0xef090909);
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&any) == 0);
	FAILS(rdma_join_multicast(id, (struct sockaddr *)&any, NULL), EINVAL);
	CHECK(rdma_join_multicast(id, (struct sockaddr *)&addr, &any) == 0);
	event = expect(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
	CHECK(event->id == id && event->status == 0);
	CHECK(event->param.ud.private_data == &any && event->param.ud.private_data_len == 0);
	CHECK(event->param.ud.qp_num == 0xffffff && event->param.ud.qkey == QKEY);
	CHECK(memcmp(&event->param.ud.ah_attr.grh.dgid, gid, 16) == 0);
	CHECK(event->param.ud.ah_attr.grh.hop_limit == 64 && event->param.ud.ah_attr.is_global);
	CHECK(rdma_ack_cm_event(event) == 0);
	CHECK(rdma_leave_multicast(id, (struct sockaddr *)&addr) == 0);
	FAILS(rdma_leave_multicast(id, (struct sockaddr *)&addr), EADDRNOTAVAIL);
	CHECK(rdma_destroy_id(id) == 0);
}

int main(int argc, char **argv)
{
	const struct { const char *name; void (*run)(void); } all[] = {
		{ "order", order }, { "refuse", refuse }, { "attributes", attributes },
		{ "wrong", wrong }, { "group", group },
	};

	CHECK(argc == 2);
	channel = rdma_create_event_channel();
	CHECK(channel);
	for (size_t at = 0; at < sizeof(all) / sizeof(all[0]); at++) {
		if (strcmp(argv[1], all[at].name) == 0) {
			all[at].run();
			rdma_destroy_event_channel(channel);
			return 0;
		}
	}
	return 2;
}
