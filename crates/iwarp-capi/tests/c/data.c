/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Every operation, posted in every way, between two queue pairs of one process. */
#include <netinet/in.h>
#include "pair.h"

static void send_one(unsigned flags, enum ibv_wr_opcode opcode, uint32_t imm)
{
	struct ibv_sge sge = part(&a, 0, 100);
	struct ibv_send_wr wr = {
		.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
		.send_flags = flags | IBV_SEND_SIGNALED, .imm_data = imm,
		.wr.rdma = { (uintptr_t)b.buf + 1000, b.mr->rkey },
	}, *bad;

	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
}

static void two_sided(void)
{
	memset(a.buf, 'x', 100);
	receive(&b, 1, 200, 150);
	send_one(0, IBV_WR_SEND, 0);
	struct ibv_wc wc = take(&a);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_SEND && wc.wr_id == 7);
	CHECK(wc.qp_num == a.qp->qp_num);
	wc = take(&b);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.wr_id == 1);
	CHECK(wc.byte_len == 100 && wc.qp_num == b.qp->qp_num && wc.wc_flags == 0);
	CHECK(memcmp(b.buf + 200, a.buf, 100) == 0 && b.buf[300] == 0);

	receive(&b, 2, 0, 150);
	send_one(IBV_SEND_INLINE, IBV_WR_SEND_WITH_IMM, htobe32(0x01020304));
	/* Inline data was taken: the buffer is the program's again. */
	memset(a.buf, 'y', 100);
	CHECK(take(&a).status == IBV_WC_SUCCESS);
	wc = take(&b);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wc_flags == IBV_WC_WITH_IMM);
	CHECK(wc.imm_data == htobe32(0x01020304) && wc.opcode == IBV_WC_RECV);
	CHECK(b.buf[0] == 'x' && b.buf[99] == 'x');
}

static void one_sided(void)
{
	memset(a.buf, 'w', 100);
	receive(&b, 3, 0, 0);
	send_one(0, IBV_WR_RDMA_WRITE_WITH_IMM, htobe32(5));
	CHECK(take(&a).opcode == IBV_WC_RDMA_WRITE);
	struct ibv_wc wc = take(&b);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
	CHECK(wc.byte_len == 100 && wc.imm_data == htobe32(5) && wc.wr_id == 3);
	CHECK(b.buf[1000] == 'w' && b.buf[1099] == 'w' && b.buf[1100] == 0);

	b.buf[1000] = 'r';
	send_one(0, IBV_WR_RDMA_READ, 0);
	wc = take(&a);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RDMA_READ && wc.byte_len == 100);
	CHECK(a.buf[0] == 'r' && a.buf[1] == 'w');

	struct ibv_sge sge = part(&a, 8, 8);
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.atomic = { (uintptr_t)b.buf + 2000, 5, 0, b.mr->rkey },
	}, *bad;
	uint64_t value = 37;
	memcpy(b.buf + 2000, &value, 8);
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	wc = take(&a);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_FETCH_ADD);
	CHECK(*(uint64_t *)(a.buf + 8) == 37 && *(uint64_t *)(b.buf + 2000) == 42);
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	wr.wr.atomic.compare_add = 42;
	wr.wr.atomic.swap = 1;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	CHECK(take(&a).opcode == IBV_WC_COMP_SWAP);
	CHECK(*(uint64_t *)(a.buf + 8) == 42 && *(uint64_t *)(b.buf + 2000) == 1);
}

/* Gives the peer rights that the queue pair did not give so far. */
static void give(struct ibv_qp *qp, int access, int more)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .qp_access_flags = access };
	struct ibv_qp_init_attr init;

	CHECK(ibv_modify_qp(qp, &attr, more | IBV_QP_ACCESS_FLAGS) == 0);
	CHECK(ibv_query_qp(qp, &attr, IBV_QP_ACCESS_FLAGS, &init) == 0);
	CHECK(attr.qp_access_flags == (unsigned)access && attr.qp_state == IBV_QPS_RTS);
}

/* A list of more requests than are handed over at a time, inline data in between. */
static void lists(void)
{
	enum { N = 50 };
	struct ibv_sge sges[N];
	struct ibv_send_wr wrs[N], *bad;
	struct ibv_recv_wr recvs[N], *bad_recv;

	for (int i = 0; i < N; i++) {
		memset(a.buf + i * 100, i + 1, 100);
		sges[i] = part(&b, i * 100, 100);
		recvs[i] = (struct ibv_recv_wr){ i, i + 1 < N ? &recvs[i + 1] : NULL, &sges[i], 1 };
	}
	CHECK(ibv_post_recv(b.qp, recvs, &bad_recv) == 0);
	for (int i = 0; i < N; i++) {
		sges[i] = part(&a, i * 100, 100);
		wrs[i] = (struct ibv_send_wr){
			.wr_id = i, .next = i + 1 < N ? &wrs[i + 1] : NULL, .sg_list = &sges[i],
			.num_sge = 1, .opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_SIGNALED | (i % 3 ? IBV_SEND_INLINE : 0),
		};
	}
	CHECK(ibv_post_send(a.qp, wrs, &bad) == 0);
	for (int i = 0; i < N; i++) {
		struct ibv_wc wc = take(&b);
		CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == i && wc.byte_len == 100);
		CHECK(b.buf[i * 100] == i + 1 && b.buf[i * 100 + 99] == i + 1);
	}
	for (int i = 0; i < N; i++)
		CHECK(take(&a).wr_id == i);

	/* Requests ahead of the bad one are posted. */
	receive(&b, 1, 0, 100);
	wrs[0].next = &wrs[1];
	wrs[1].next = &wrs[2];
	wrs[1].num_sge = 5;
	bad = NULL;
	CHECK(ibv_post_send(a.qp, wrs, &bad) == EINVAL && bad == &wrs[1]);
	CHECK(take(&a).wr_id == 0 && take(&b).wr_id == 1);
	wrs[0].next = NULL;
	wrs[0].sg_list->length = 129;
	wrs[0].send_flags = IBV_SEND_INLINE;
	bad = NULL;
	CHECK(ibv_post_send(a.qp, wrs, &bad) == EINVAL && bad == &wrs[0]);
	wrs[0].sg_list->length = 10;
	wrs[0].opcode = IBV_WR_TSO;
	CHECK(ibv_post_send(a.qp, wrs, &bad) == EOPNOTSUPP);
}

/* Requests that are built one by one. */
static void built(void)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(a.qp);
	struct ibv_data_buf parts[2] = { { "in", 2 }, { "line", 4 } };
	struct ibv_sge sges[2] = { part(&a, 0, 3), part(&a, 10, 3) };

	CHECK(qp);
	memcpy(a.buf, "one", 3);
	memcpy(a.buf + 10, "two", 3);
	receive(&b, 1, 0, 100);
	receive(&b, 2, 100, 100);
	ibv_wr_start(qp);
	qp->wr_id = 11;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(qp);
	ibv_wr_set_sge_list(qp, 2, sges);
	qp->wr_id = 12;
	ibv_wr_send(qp);
	ibv_wr_set_inline_data_list(qp, 2, parts);
	qp->wr_id = 13;
	ibv_wr_rdma_write(qp, b.mr->rkey, (uintptr_t)b.buf + 200);
	ibv_wr_set_sge(qp, a.mr->lkey, (uintptr_t)a.buf, 3);
	CHECK(ibv_wr_complete(qp) == 0);
	for (int id = 11; id <= 13; id++) {
		struct ibv_wc wc = take(&a);
		CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == id);
	}
	CHECK(take(&b).byte_len == 6 && take(&b).byte_len == 6);
	CHECK(memcmp(b.buf, "onetwo", 6) == 0 && memcmp(b.buf + 100, "inline", 6) == 0);

	/* Nothing of what is given up goes out, nor of what has something wrong. */
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	ibv_wr_abort(qp);
	ibv_wr_start(qp);
	qp->wr_id = 14;
	ibv_wr_send(qp);
	ibv_wr_set_sge(qp, a.mr->lkey, (uintptr_t)a.buf, 3);
	ibv_wr_send_imm(qp, 0);
	CHECK(ibv_wr_complete(qp) == EOPNOTSUPP);
	receive(&b, 3, 0, 100);
	send_one(0, IBV_WR_SEND, 0);
	CHECK(take(&a).wr_id == 7 && take(&b).wr_id == 3);
}

/* Completion events, and the acknowledgement that destroying a queue waits for. */
static void events(void)
{
	struct pollfd ready = { channel->fd, POLLIN };
	struct ibv_cq *cq = NULL;
	void *of = NULL;

	CHECK(poll(&ready, 1, 0) == 0);
	CHECK(ibv_req_notify_cq(b.cq, 0) == 0);
	receive(&b, 1, 0, 100);
	send_one(0, IBV_WR_SEND, 0);
	CHECK(ibv_get_cq_event(channel, &cq, &of) == 0);
	CHECK(cq == b.cq && of == &b);
	CHECK(poll(&ready, 1, 0) == 0);
	CHECK(take(&a).wr_id == 7 && take(&b).wr_id == 1);
	ibv_ack_cq_events(cq, 1);

	/* Solicited only. */
	CHECK(ibv_req_notify_cq(b.cq, 1) == 0);
	receive(&b, 1, 0, 100);
	receive(&b, 2, 0, 100);
	send_one(0, IBV_WR_SEND, 0);
	CHECK(take(&a).wr_id == 7 && take(&b).wr_id == 1);
	CHECK(poll(&ready, 1, 0) == 0);
	send_one(IBV_SEND_SOLICITED, IBV_WR_SEND, 0);
	CHECK(poll(&ready, 1, 20000) == 1);
	CHECK(ibv_get_cq_event(channel, &cq, &of) == 0 && cq == b.cq);
	CHECK(take(&a).wr_id == 7 && take(&b).wr_id == 2);
	ibv_ack_cq_events(cq, 1);
}

static int is_loopback(const union ibv_gid *of)
{
	return IN6_IS_ADDR_LOOPBACK((const struct in6_addr *)of->raw) ||
	       (IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)of->raw) && of->raw[12] == 127);
}

/* As adapters have it, no entry is a loopback address where the host has any other. */
static void check_gids(int length)
{
	struct ibv_gid_entry all[64];
	union ibv_gid one;
	ssize_t n = ibv_query_gid_table(context, all, 64, 0);

	CHECK(n >= 1 && n <= length);
	if (is_loopback(&all[0].gid))
		return;
	for (int i = 0; i < length; i++) {
		CHECK(ibv_query_gid(context, 1, i, &one) == 0);
		CHECK(!is_loopback(&one));
	}
	for (int i = 0; i < n; i++)
		CHECK(!is_loopback(&all[i].gid));
}

/* The answers that the program is given are true. */
static void questions(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_device_attr_ex ex;
	struct ibv_port_attr port;
	uint16_t pkey;

	CHECK(ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init) == 0);
	CHECK(attr.qp_state == IBV_QPS_RTS && attr.dest_qp_num == b.qp->qp_num);
	CHECK(attr.timeout == 14 && attr.max_rd_atomic == 4 && attr.port_num == 1);
	CHECK(init.cap.max_send_wr == DEPTH && init.send_cq == a.cq && init.qp_type == IBV_QPT_RC);
	CHECK(memcmp(&attr.ah_attr.grh.dgid, &gid, 16) == 0);
	CHECK(ibv_query_device_ex(context, NULL, &ex) == 0);
	CHECK(ex.orig_attr.max_qp > 0 && ex.orig_attr.atomic_cap != IBV_ATOMIC_NONE);
	CHECK(ibv_query_port(context, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE);
	CHECK(ibv_query_port(context, 2, &port) == EINVAL);
	CHECK(ibv_query_pkey(context, 1, 0, &pkey) == 0 && pkey == 0xffff);
	CHECK(ibv_query_gid(context, 1, 1 << 16, &gid) == -1);
	check_gids(port.gid_tbl_len);
	CHECK(ibv_query_gid(context, 1, 0, &gid) == 0);
	attr.qp_state = IBV_QPS_RTR;
	CHECK(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE) == EINVAL);
}

/* The device does what it claims, and claims nothing that it does not do. */
static void claims(void)
{
	enum {
		CLAIMED = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_SYS_IMAGE_GUID |
			  IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B |
			  IBV_DEVICE_MEM_MGT_EXTENSIONS,
	};
	struct ibv_qp_attr attr = { .cap = { 2 * DEPTH, DEPTH, 4, 4, 128 } };
	struct ibv_srq_init_attr queue = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq_attr larger = { .max_wr = 64 };
	struct ibv_send_wr invalidate = {
		.wr_id = 9, .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	struct ibv_device_attr about;

	CHECK(ibv_query_device(context, &about) == 0);
	/* A Send without a receive fails as often as a card's, or waits: `roce` or not. */
	CHECK((about.device_cap_flags & ~IBV_DEVICE_RC_RNR_NAK_GEN) == CLAIMED);
	CHECK(about.sys_image_guid != 0);

	/* Neither IBV_DEVICE_RESIZE_MAX_WR nor IBV_DEVICE_SRQ_RESIZE. */
	CHECK(ibv_modify_qp(a.qp, &attr, IBV_QP_CAP) == EOPNOTSUPP);
	struct ibv_srq *srq = ibv_create_srq(pd, &queue);
	CHECK(srq && ibv_modify_srq(srq, &larger, IBV_SRQ_MAX_WR) == EOPNOTSUPP);
	CHECK(ibv_destroy_srq(srq) == 0);

	attr.qp_state = attr.cur_qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE) == 0);
	attr.cur_qp_state = IBV_QPS_SQD;
	CHECK(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE) == EINVAL);

	struct ibv_mw *first = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	struct ibv_mw *second = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	CHECK(first && second);
	struct ibv_send_wr bind = {
		.wr_id = 8, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
		.bind_mw = { second, ibv_inc_rkey(second->rkey), { a.mr, (uintptr_t)a.buf, 100,
						     IBV_ACCESS_REMOTE_READ } },
	};
	struct ibv_mr *may_bind = ibv_reg_mr(pd, a.buf, SIZE, IBV_ACCESS_LOCAL_WRITE |
							      IBV_ACCESS_MW_BIND);
	CHECK(may_bind);
	bind.bind_mw.bind_info.mr = may_bind;
	CHECK(ibv_post_send(a.qp, &bind, &bad) == 0);
	struct ibv_wc wc = take(&a);
	CHECK(wc.wr_id == 8 && wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_BIND_MW);
	invalidate.invalidate_rkey = bind.bind_mw.rkey;
	CHECK(ibv_post_send(a.qp, &invalidate, &bad) == 0);
	wc = take(&a);
	CHECK(wc.wr_id == 9 && wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_LOCAL_INV);
	CHECK(ibv_dealloc_mw(first) == 0 && ibv_dealloc_mw(second) == 0);
	CHECK(ibv_dereg_mr(may_bind) == 0);
}

/* Objects in use stay, and calls that a real device refuses are refused. */
static void refusals(void)
{
	struct ibv_qp_init_attr init = {
		.send_cq = a.cq, .recv_cq = a.cq, .qp_type = IBV_QPT_XRC_SEND,
	};
	struct ibv_device_attr about;
	struct ibv_mr *mr;

	/* Where there are no address handles, there is nothing that they would be for. */
	CHECK(ibv_query_device(context, &about) == 0);
	int missing = about.max_ah ? EINVAL : EOPNOTSUPP;

	CHECK(ibv_destroy_cq(a.cq) == EBUSY && ibv_dealloc_pd(pd) == EBUSY);
	CHECK(ibv_destroy_comp_channel(channel) == EBUSY && channel->refcnt == 2);
	errno = 0;
	CHECK(!ibv_create_qp(pd, &init) && errno == EOPNOTSUPP);
	errno = 0;
	CHECK(!ibv_create_ah(pd, NULL) && errno == missing);
	errno = 0;
	CHECK(!ibv_create_cq(context, 16, NULL, NULL, context->num_comp_vectors) && errno == EINVAL);
	errno = 0;
	mr = ibv_reg_mr(pd, a.buf, SIZE, IBV_ACCESS_REMOTE_WRITE);
	CHECK(!mr && errno == EINVAL);
#ifndef __SANITIZE_THREAD__
	/* There memory is accessed plainly, so that races are seen, and not tried first. */
	errno = 0;
	mr = ibv_reg_mr(pd, (void *)4096, SIZE, 0);
	CHECK(!mr && errno == EFAULT);
#endif
	CHECK(ibv_attach_mcast(a.qp, &gid, 0) == missing);

	/* Except for one thing of RNICs, because perftest does it: a domain may go before its regions.
	 * The library keeps it then, which is no leak while there is a pointer to it. */
	static struct ibv_pd *volatile other;
	other = ibv_alloc_pd(context);
	CHECK(other);
	mr = ibv_reg_mr(other, a.buf, SIZE, 0);
	if (context->device->transport_type == IBV_TRANSPORT_IWARP) {
		CHECK(mr && ibv_dealloc_pd(other) == 0);
		CHECK(ibv_dereg_mr(mr) == 0);
	} else {
		CHECK(mr && ibv_dealloc_pd(other) == EBUSY);
		CHECK(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(other) == 0);
	}
}

/* The other side goes: what is posted is flushed, and the program is told. */
static void end(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	const char *wire = getenv("IWARP_WIRE");

	receive(&a, 1, 0, 100);
	CHECK(ibv_modify_qp(b.qp, &attr, IBV_QP_STATE) == 0);
	/* As with InfiniBand, nobody is told there: not before something is asked of the other. */
	if (wire && strcmp(wire, "roce") == 0)
		CHECK(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE) == 0);
	struct ibv_wc wc = take(&a);
	CHECK(wc.wr_id == 1 && wc.status == IBV_WC_WR_FLUSH_ERR && wc.qp_num == a.qp->qp_num);
}

/* Queue pairs that allow themselves no Reads, nor Atomics: other requests are carried out. */
static void no_reads(void)
{
	max_rd_atomic = 0;
	meet();
	struct ibv_sge sge = part(&a, 8, 8);
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)b.buf, b.mr->rkey },
	};

	CHECK(ibv_post_send(a.qp, &wr, &bad) == EINVAL && bad == &wr);
	wr.opcode = IBV_WR_RDMA_WRITE;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	CHECK(take(&a).status == IBV_WC_SUCCESS);
	wr.opcode = IBV_WR_RDMA_READ;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == EINVAL && bad == &wr);
	wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	wr.wr.atomic.remote_addr = (uintptr_t)b.buf;
	wr.wr.atomic.rkey = b.mr->rkey;
	wr.wr.atomic.compare_add = 1;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == EINVAL && bad == &wr);
	unmake(&a);
	unmake(&b);
	max_rd_atomic = 4;
}

int main(void)
{
	open_context();
	int all = rights;

	no_reads();
	/* The last word counts. */
	rights = 0;
	meet();
	two_sided();
	give(a.qp, all, IBV_QP_STATE);
	give(b.qp, all, 0);
	one_sided();
	lists();
	built();
	events();
	questions();
	claims();
	refusals();
	end();
	unmake(&a);
	unmake(&b);
	close_context();
	return 0;
}
