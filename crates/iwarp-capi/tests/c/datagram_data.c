/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Messages between queue pairs over datagrams of one process. */
#define _GNU_SOURCE
#include "pair.h"

enum { QKEY = 0x11223344, GRH = 40 };

/* In place of the service level: by UDP, over IPv4 or IPv6. */
static uint8_t kind_of_packet(void)
{
	return gid.raw[0] == 0 && gid.raw[10] == 0xff ? 0xa : 0x9;
}

static struct ibv_ah *ah;

static void make_of(struct side *side, enum ibv_qp_type type, uint64_t ops)
{
	struct ibv_qp_init_attr_ex init = {
		.cap = { DEPTH, DEPTH, 4, 4, 128 }, .qp_type = type, .pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | ops,
	};
	struct ibv_cq_init_attr_ex cq_init = {
		.cqe = 4 * DEPTH, .wc_flags = IBV_WC_STANDARD_FLAGS,
	};

	side->cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(context, &cq_init));
	CHECK(side->cq);
	init.send_cq = init.recv_cq = side->cq;
	side->qp = ibv_create_qp_ex(context, &init);
	CHECK(side->qp);
	side->buf = calloc(1, SIZE);
	side->mr = ibv_reg_mr(pd, side->buf, SIZE,
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(side->mr);
}

static void ready(struct side *side, struct side *peer)
{
	int is_ud = side->qp->qp_type == IBV_QPT_UD;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE, .path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qp->qp_num, .rq_psn = 0xfffffe, .sq_psn = 0xfffffe,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid } },
	};

	CHECK(ibv_modify_qp(side->qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				    (is_ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)) == 0);
	attr.qp_state = IBV_QPS_RTR;
	CHECK(ibv_modify_qp(side->qp, &attr,
			    IBV_QP_STATE | (is_ud ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU |
							IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)) == 0);
	attr.qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
}

/* A Send to b. */
static struct ibv_send_wr message(struct ibv_sge *sge, uint64_t id)
{
	return (struct ibv_send_wr){
		.wr_id = id, .sg_list = sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.ud = { .ah = ah, .remote_qpn = b.qp->qp_num, .remote_qkey = QKEY },
	};
}

static void post(struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	CHECK(ibv_post_send(a.qp, wr, &bad) == 0);
}

static void sent(uint64_t id)
{
	struct ibv_wc wc = take(&a);

	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_SEND && wc.wr_id == id);
	CHECK(wc.qp_num == a.qp->qp_num);
}

/* The receive of b at an offset: `length` bytes with that value, by a GRH that tells who sent
 * it. */
static struct ibv_wc came(uint64_t id, size_t offset, uint32_t length, unsigned char value)
{
	struct ibv_wc wc = take(&b);
	struct ibv_ah_attr back;

	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == id && wc.qp_num == b.qp->qp_num);
	CHECK(wc.opcode == IBV_WC_RECV && wc.byte_len == GRH + length);
	CHECK(wc.wc_flags & IBV_WC_GRH && wc.src_qp == a.qp->qp_num);
	CHECK(wc.slid == 0 && wc.pkey_index == 0 && wc.dlid_path_bits == 0);
	CHECK(wc.sl == kind_of_packet());
	for (uint32_t i = 0; i < length; i++)
		CHECK(b.buf[offset + GRH + i] == value);
	CHECK(ibv_init_ah_from_wc(context, 1, &wc, (struct ibv_grh *)(b.buf + offset), &back) == 0);
	CHECK(back.grh.sgid_index == 0 && !memcmp(&back.grh.dgid, &gid, 16));
	return wc;
}

static void nothing_came(void)
{
	struct ibv_sge sge = part(&a, 0, 1);
	struct ibv_send_wr wr = message(&sge, 99);

	/* Later messages come later, through one port. */
	memset(a.buf, 0x77, 1);
	post(&wr);
	sent(99);
	came(1, 0, 1, 0x77);
}

static void datagrams(void)
{
	struct ibv_sge sge = part(&a, 0, 1000);
	struct ibv_send_wr wr = message(&sge, 3), list[40], *bad = NULL;
	struct ibv_wc wc;

	/* One, and one with immediate data and inline. */
	memset(a.buf, 0x11, 1000);
	receive(&b, 7, 0, GRH + 1000);
	post(&wr);
	sent(3);
	CHECK(!(came(7, 0, 1000, 0x11).wc_flags & IBV_WC_WITH_IMM));
	receive(&b, 8, 0, GRH + 64);
	memset(a.buf, 0x22, 1000);
	sge.length = 64;
	wr.opcode = IBV_WR_SEND_WITH_IMM;
	wr.imm_data = htobe32(0x01020304);
	wr.send_flags |= IBV_SEND_INLINE;
	post(&wr);
	memset(a.buf, 0, 1000);
	sent(3);
	wc = came(8, 0, 64, 0x22);
	CHECK(wc.wc_flags & IBV_WC_WITH_IMM && wc.imm_data == htobe32(0x01020304));

	/* A list that is longer than what is handed over at a time. */
	memset(a.buf, 0x33, 1000);
	for (int i = 0; i < 40; i++) {
		receive(&b, i, i * 128, GRH + 64);
		list[i] = message(&sge, i);
		list[i].next = i < 39 ? &list[i + 1] : NULL;
	}
	post(list);
	for (int i = 0; i < 40; i++) {
		sent(i);
		came(i, i * 128, 64, 0x33);
	}

	/* Handles may go at once. */
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid } };
	struct ibv_ah *other = ibv_create_ah(pd, &attr);
	CHECK(other);
	receive(&b, 1, 0, GRH + 64);
	wr = message(&sge, 4);
	wr.wr.ud.ah = other;
	post(&wr);
	CHECK(ibv_destroy_ah(other) == 0);
	sent(4);
	came(1, 0, 64, 0x33);

	/* The queue pair's own Q_Key, by its top bit; another one, and nobody of that number. */
	receive(&b, 1, 0, GRH + 64);
	wr = message(&sge, 5);
	wr.wr.ud.remote_qkey = 0x80000000;
	post(&wr);
	sent(5);
	came(1, 0, 64, 0x33);
	receive(&b, 1, 0, GRH + 64);
	wr.wr.ud.remote_qkey = QKEY + 1;
	post(&wr);
	sent(5);
	wr = message(&sge, 5);
	wr.wr.ud.remote_qpn = 0xfffff0;
	post(&wr);
	sent(5);
	nothing_came();
	CHECK(ibv_poll_cq(b.cq, 1, &wc) == 0);
	CHECK(bad == NULL);
}

/* By the functions of extended queue pairs and completion queues. */
static void built(void)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(a.qp);
	struct ibv_cq_ex *cq = (struct ibv_cq_ex *)b.cq;
	struct ibv_poll_cq_attr poll_attr = { 0 };
	double end = now() + 20;

	memset(a.buf, 0x44, 100);
	for (int i = 0; i < 20; i++)
		receive(&b, i, i * 256, GRH + 100);
	ibv_wr_start(qp);
	for (int i = 0; i < 20; i++) {
		qp->wr_id = i;
		qp->wr_flags = IBV_SEND_SIGNALED;
		if (i % 2)
			ibv_wr_send(qp);
		else
			ibv_wr_send_imm(qp, htobe32(i));
		ibv_wr_set_ud_addr(qp, ah, b.qp->qp_num, QKEY);
		if (i % 3)
			ibv_wr_set_sge(qp, a.mr->lkey, (uintptr_t)a.buf, 100);
		else
			ibv_wr_set_inline_data(qp, a.buf, 100);
	}
	CHECK(ibv_wr_complete(qp) == 0);
	for (int i = 0; i < 20; i++) {
		sent(i);
		while (ibv_start_poll(cq, &poll_attr))
			CHECK(now() < end);
		CHECK(cq->status == IBV_WC_SUCCESS && cq->wr_id == (uint64_t)i);
		CHECK(ibv_wc_read_opcode(cq) == IBV_WC_RECV);
		CHECK(ibv_wc_read_byte_len(cq) == GRH + 100);
		CHECK(ibv_wc_read_src_qp(cq) == a.qp->qp_num);
		CHECK(ibv_wc_read_wc_flags(cq) == (IBV_WC_GRH | (i % 2 ? 0 : IBV_WC_WITH_IMM)));
		CHECK(i % 2 || ibv_wc_read_imm_data(cq) == htobe32(i));
		CHECK(ibv_wc_read_slid(cq) == 0 && ibv_wc_read_sl(cq) == kind_of_packet());
		CHECK(ibv_wc_read_dlid_path_bits(cq) == 0);
		CHECK(b.buf[i * 256 + GRH + 99] == 0x44);
		ibv_end_poll(cq);
	}
	/* An address for nothing. */
	ibv_wr_start(qp);
	ibv_wr_set_ud_addr(qp, ah, b.qp->qp_num, QKEY);
	CHECK(ibv_wr_complete(qp) == EINVAL);
}

/* A request that cannot be: refused at once, or by its completion. */
static void fails(struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;
	int error = ibv_post_send(a.qp, wr, &bad);

	if (error) {
		CHECK(error == EINVAL && bad == wr);
		return;
	}
	struct ibv_wc wc = take(&a);
	CHECK(wc.status == IBV_WC_LOC_QP_OP_ERR && wc.wr_id == wr->wr_id);
	CHECK(wc.qp_num == a.qp->qp_num);
	/* On its way to the state for such errors, or beyond. */
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	CHECK(ibv_modify_qp(a.qp, &reset, IBV_QP_STATE) == 0);
	ready(&a, &b);
}

static void mistakes(void)
{
	struct ibv_pd *others = ibv_alloc_pd(context);
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid } };
	struct ibv_ah dummy = { .handle = 1234 }, *foreign = ibv_create_ah(others, &attr);
	struct ibv_ah *gone = ibv_create_ah(pd, &attr);
	/* perftest posts a pointer that it never set, where its device is an RNIC. */
	struct ibv_ah *unset = (struct ibv_ah *)(uintptr_t)0x1f00;
	struct ibv_ah *wrong[] = { NULL, &dummy, foreign, gone, unset };
	const enum ibv_wr_opcode lacks[] = {
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND_WITH_INV,
	};
	struct ibv_sge sge = part(&a, 0, 8);
	struct ibv_send_wr wr;

	CHECK(foreign && gone && ibv_destroy_ah(gone) == 0);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		wr = message(&sge, 20 + i);
		wr.wr.ud.ah = wrong[i];
		fails(&wr);
	}
	for (size_t i = 0; i < sizeof(lacks) / sizeof(*lacks); i++) {
		wr = message(&sge, 30 + i);
		wr.opcode = lacks[i];
		fails(&wr);
	}
	CHECK(ibv_destroy_ah(foreign) == 0 && ibv_dealloc_pd(others) == 0);
	/* Correct requests still work. */
	receive(&b, 1, 0, GRH + 8);
	nothing_came();
}

/* Messages of several packets, Writes, and immediate data. */
static void unreliable(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = {
		.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	struct ibv_wc wc;

	make_of(&a, IBV_QPT_UC, IBV_QP_EX_WITH_RDMA_WRITE);
	make_of(&b, IBV_QPT_UC, IBV_QP_EX_WITH_RDMA_WRITE);
	sge = part(&a, 0, 5000);
	ready(&a, &b);
	ready(&b, &a);
	memset(a.buf, 0x55, SIZE);
	receive(&b, 2, 100, 5000);
	receive(&b, 3, 0, 0);
	post(&wr);
	CHECK(take(&a).status == IBV_WC_SUCCESS);
	wc = take(&b);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 2 && wc.byte_len == 5000);
	CHECK(!(wc.wc_flags & IBV_WC_GRH) && wc.src_qp == 0);
	CHECK(b.buf[99] == 0 && b.buf[100] == 0x55 && b.buf[5099] == 0x55 && b.buf[5100] == 0);
	wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	wr.imm_data = htobe32(9);
	wr.wr.rdma.remote_addr = (uintptr_t)b.buf + 10000;
	wr.wr.rdma.rkey = b.mr->rkey;
	post(&wr);
	wc = take(&a);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RDMA_WRITE);
	wc = take(&b);
	CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.imm_data == htobe32(9) && wc.wr_id == 3);
	CHECK(b.buf[9999] == 0 && b.buf[10000] == 0x55 && b.buf[14999] == 0x55);
	wr.opcode = IBV_WR_RDMA_READ;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == EINVAL ||
	      take(&a).status == IBV_WC_LOC_QP_OP_ERR);
	unmake(&a);
	unmake(&b);
}

/* A group, from the loopback address, so that nobody else hears it. */
static void groups(void)
{
	union ibv_gid group = { .raw = { [10] = 0xff, [11] = 0xff, 239, 11, 22, 33 } };
	union ibv_gid own = { .raw = { [10] = 0xff, [11] = 0xff, 127, 0, 0, 1 } }, found;
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = group } };
	struct ibv_sge sge = part(&a, 0, 64);
	struct ibv_send_wr wr = message(&sge, 5);
	int index = 0;

	while (ibv_query_gid(context, 1, index, &found) == 0 && memcmp(&found, &own, 16))
		index++;
	if (memcmp(&found, &own, 16))
		return;
	attr.grh.sgid_index = index;
	wr.wr.ud.ah = ibv_create_ah(pd, &attr);
	CHECK(wr.wr.ud.ah);
	wr.wr.ud.remote_qpn = 0xffffff;
	CHECK(ibv_attach_mcast(b.qp, &group, 0) == 0);
	memset(a.buf, 0x44, 64);
	receive(&b, 9, 0, GRH + 64);
	post(&wr);
	sent(5);
	struct ibv_wc wc = take(&b);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 9 && wc.byte_len == GRH + 64);
	CHECK(wc.src_qp == a.qp->qp_num && b.buf[GRH] == 0x44 && b.buf[GRH + 63] == 0x44);
	CHECK(!memcmp(b.buf + 36, group.raw + 12, 4));
	CHECK(ibv_detach_mcast(b.qp, &group, 0) == 0);
	receive(&b, 1, 0, GRH + 64);
	post(&wr);
	sent(5);
	nothing_came();
	CHECK(ibv_destroy_ah(wr.wr.ud.ah) == 0);
}

int main(void)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid } };

	/* Groups are joined at all interfaces. */
	own_network();
	open_context();
	attr.grh.dgid = gid;
	ah = ibv_create_ah(pd, &attr);
	CHECK(ah);
	make_of(&a, IBV_QPT_UD, 0);
	make_of(&b, IBV_QPT_UD, 0);
	ready(&a, &b);
	ready(&b, &a);
	datagrams();
	built();
	groups();
	mistakes();
	unmake(&a);
	unmake(&b);
	unreliable();
	CHECK(ibv_destroy_ah(ah) == 0);
	close_context();
	return 0;
}
