/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The refused requests, and the reasons given: lists that are not there, more than a queue holds,
 * objects of another context. */
#include <limits.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include "pair.h"

static char place;

/* A list of three requests of which the second is wrong: the first is posted. */
static void send_refused(struct ibv_sge *list, int count, unsigned flags)
{
	struct ibv_sge good = part(&a, 0, 4);
	struct ibv_send_wr wr[3], *bad = NULL;

	for (int i = 0; i < 3; i++)
		wr[i] = (struct ibv_send_wr){
			.wr_id = i, .next = i < 2 ? &wr[i + 1] : NULL,
			.sg_list = &good, .num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { (uintptr_t)b.buf, b.mr->rkey },
		};
	wr[1].sg_list = list;
	wr[1].num_sge = count;
	wr[1].send_flags |= flags;
	errno = 0;
	CHECK(ibv_post_send(a.qp, wr, &bad) == EINVAL && errno == EINVAL);
	CHECK(bad == &wr[1]);
	struct ibv_wc wc = take(&a);
	CHECK(wc.wr_id == 0 && wc.status == IBV_WC_SUCCESS);
	bad = NULL;
	wr[1].next = NULL;
	CHECK(ibv_post_send(a.qp, &wr[1], &bad) == EINVAL && bad == &wr[1]);
	CHECK(ibv_poll_cq(a.cq, 1, &wc) == 0);
}

static void receive_refused(struct ibv_srq *srq, struct ibv_sge *list, int count)
{
	struct ibv_recv_wr second = { .wr_id = 1, .sg_list = list, .num_sge = count };
	struct ibv_recv_wr first = { .next = &second }, *bad = NULL;

	errno = 0;
	CHECK((srq ? ibv_post_srq_recv(srq, &first, &bad) : ibv_post_recv(b.qp, &first, &bad)) ==
	      EINVAL);
	CHECK(bad == &second && errno == EINVAL);
}

/* The first of each list was posted. */
static void lists(struct ibv_srq *srq)
{
	struct ibv_sge many[8] = { 0 }, nowhere = { .addr = 0, .length = 8 };

	send_refused(NULL, 1, 0);
	send_refused(NULL, INT_MAX, 0);
	send_refused(NULL, 3, IBV_SEND_INLINE);
	send_refused(&nowhere, 1, IBV_SEND_INLINE);
	send_refused(many, -1, 0);
	send_refused(many, INT_MIN, IBV_SEND_INLINE);
	send_refused(many, 5, 0);
	for (int i = 0; i < 2; i++) {
		receive_refused(i ? srq : NULL, NULL, 1);
		receive_refused(i ? srq : NULL, many, -1);
		receive_refused(i ? srq : NULL, many, 5);
	}
}

/* The case of requests that are built one by one: all or none is posted. */
static void built(void)
{
	struct ibv_data_buf bufs[2] = { { &place, 1 }, { &place, SIZE_MAX } };
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(a.qp);
	struct ibv_sge sge = { 0 };
	struct ibv_wc wc;

	for (int i = 0; i < 7; i++) {
		ibv_wr_start(qp);
		qp->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_rdma_write(qp, b.mr->rkey, (uintptr_t)b.buf);
		ibv_wr_set_sge(qp, a.mr->lkey, (uintptr_t)a.buf, 4);
		ibv_wr_rdma_write(qp, b.mr->rkey, (uintptr_t)b.buf);
		switch (i) {
		case 0: ibv_wr_set_sge_list(qp, 1, NULL); break;
		case 1: ibv_wr_set_sge_list(qp, SIZE_MAX, &sge); break;
		case 2: ibv_wr_set_inline_data(qp, NULL, 1); break;
		case 3: ibv_wr_set_inline_data(qp, &place, SIZE_MAX); break;
		case 4: ibv_wr_set_inline_data_list(qp, 1, NULL); break;
		case 5: ibv_wr_set_inline_data_list(qp, 2, bufs); break;
		case 6: ibv_wr_set_sge_list(qp, 5, &sge); break;
		}
		CHECK(ibv_wr_complete(qp) == EINVAL);
	}
	CHECK(ibv_poll_cq(a.cq, 1, &wc) == 0);
}

/* As many as the queue holds and a few more, in one list. */
static int fill_sends(void)
{
	struct ibv_sge sge = part(&a, 0, 4);
	struct ibv_send_wr wr[DEPTH + 5], *bad = NULL;

	for (int i = 0; i < DEPTH + 5; i++)
		wr[i] = (struct ibv_send_wr){
			.next = i < DEPTH + 4 ? &wr[i + 1] : NULL,
			.sg_list = &sge, .num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { (uintptr_t)b.buf, b.mr->rkey },
		};
	errno = 0;
	CHECK(ibv_post_send(a.qp, wr, &bad) == ENOMEM && errno == ENOMEM);
	return bad - wr;
}

static int fill_receives(struct ibv_srq *srq)
{
	struct ibv_recv_wr wr[DEPTH + 5] = { 0 }, *bad = NULL;

	for (int i = 0; i < DEPTH + 4; i++)
		wr[i].next = &wr[i + 1];
	CHECK((srq ? ibv_post_srq_recv(srq, wr, &bad) : ibv_post_recv(b.qp, wr, &bad)) == ENOMEM);
	return bad - wr;
}

static void write_by_hand(struct ibv_qp_ex *qp)
{
	ibv_wr_rdma_write(qp, b.mr->rkey, (uintptr_t)b.buf);
	ibv_wr_set_sge(qp, a.mr->lkey, (uintptr_t)a.buf, 4);
}

static void full(void)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(a.qp);
	struct ibv_wc wc[DEPTH];

	for (int round = 0; round < 3; round++) {
		CHECK(fill_sends() == DEPTH);
		CHECK(fill_sends() == 0);
		CHECK(take(&a).status == IBV_WC_SUCCESS);
		/* A queue that is polled one by one has room one by one. */
		for (int i = 0; i < 3 * DEPTH; i++) {
			CHECK(fill_sends() == 1);
			CHECK(take(&a).status == IBV_WC_SUCCESS);
		}
		/* One fits, two do not. */
		ibv_wr_start(qp);
		qp->wr_flags = IBV_SEND_SIGNALED;
		write_by_hand(qp);
		write_by_hand(qp);
		CHECK(ibv_wr_complete(qp) == ENOMEM);
		ibv_wr_start(qp);
		write_by_hand(qp);
		CHECK(ibv_wr_complete(qp) == 0);
		for (int i = 0; i < DEPTH; i++)
			CHECK(take(&a).status == IBV_WC_SUCCESS);
	}
	CHECK(ibv_poll_cq(a.cq, DEPTH, wc) == 0);
}

/* Objects that belong together are of one context. */
static void others(void)
{
	struct ibv_context *other;
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_td_init_attr td_init = { 0 };

	CHECK(devices && (other = ibv_open_device(devices[0])));
	ibv_free_device_list(devices);
	struct ibv_pd *its_pd = ibv_alloc_pd(other);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	struct ibv_cq *its_cq = ibv_create_cq(other, 4, NULL, NULL, 0);
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_init);
	struct ibv_srq *its_srq = ibv_create_srq(its_pd, &srq_init);
	CHECK(its_pd && cq && its_cq && srq && its_srq);
	for (int which = 0; which < 5; which++) {
		struct ibv_qp_init_attr init = {
			.send_cq = which == 1 ? its_cq : cq, .recv_cq = which == 2 ? its_cq : cq,
			.srq = which == 3 ? its_srq : srq,
			.cap = { 1, 1, 1, 1 }, .qp_type = IBV_QPT_RC,
		};
		errno = 0;
		struct ibv_qp *qp = ibv_create_qp(which == 4 ? its_pd : pd, &init);
		if (which == 0) {
			CHECK(qp && ibv_destroy_qp(qp) == 0);
		} else {
			CHECK(!qp && errno == EINVAL);
		}
	}
	struct ibv_qp_init_attr_ex qp_ex = {
		.send_cq = its_cq, .recv_cq = its_cq, .cap = { 1, 1, 1, 1 },
		.qp_type = IBV_QPT_RC, .pd = its_pd, .send_ops_flags = IBV_QP_EX_WITH_SEND,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
	};
	errno = 0;
	CHECK(!ibv_create_qp_ex(context, &qp_ex) && errno == EINVAL);
	struct ibv_td *td = ibv_alloc_td(context, &td_init);
	CHECK(td);
	for (int which = 0; which < 2; which++) {
		struct ibv_parent_domain_init_attr parent = {
			.pd = which ? pd : its_pd, .td = td,
		};
		errno = 0;
		CHECK(!ibv_alloc_parent_domain(which ? other : context, &parent));
		CHECK(errno == EINVAL);
	}
	CHECK(ibv_dealloc_td(td) == 0);
	struct ibv_cq_init_attr_ex cq_ex = {
		.cqe = 4, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = its_pd,
	};
	errno = 0;
	CHECK(!ibv_create_cq_ex(context, &cq_ex) && errno == EINVAL);
	struct ibv_comp_channel *its_channel = ibv_create_comp_channel(other);
	errno = 0;
	CHECK(its_channel && !ibv_create_cq(context, 4, NULL, its_channel, 0) && errno == EINVAL);
	errno = 0;
	CHECK(ibv_rereg_mr(a.mr, IBV_REREG_MR_CHANGE_PD, its_pd, NULL, 0, 0) < 0);
	CHECK(errno == EINVAL && a.mr->pd == pd);

	/* An id has a context, too. */
	struct sockaddr_in any = { .sin_family = AF_INET };
	struct rdma_cm_id *id;
	CHECK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
	any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	any.sin_port = htons(1);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&any, 2000) == 0 && id->verbs);
	struct ibv_qp_init_attr init = { .cap = { 1, 1, 1, 1 }, .qp_type = IBV_QPT_RC };
	errno = 0;
	CHECK(rdma_create_qp(id, its_pd, &init) == -1 && errno == EINVAL && !id->qp);
	errno = 0;
	CHECK(rdma_create_srq(id, its_pd, &srq_init) == -1 && errno == EINVAL && !id->srq);
	init.send_cq = init.recv_cq = its_cq;
	errno = 0;
	CHECK(rdma_create_qp(id, NULL, &init) == -1 && errno == EINVAL && !id->qp);
	CHECK(rdma_destroy_id(id) == 0);

	CHECK(ibv_destroy_comp_channel(its_channel) == 0);
	CHECK(ibv_destroy_srq(srq) == 0 && ibv_destroy_srq(its_srq) == 0);
	CHECK(ibv_destroy_cq(cq) == 0 && ibv_destroy_cq(its_cq) == 0);
	CHECK(ibv_dealloc_pd(its_pd) == 0 && ibv_close_device(other) == 0);
}

int main(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = DEPTH, .max_sge = 1 } };

	open_context();
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	CHECK(srq);
	meet();
	lists(srq);
	built();
	full();
	/* Three of each were posted above. */
	CHECK(fill_receives(NULL) == DEPTH - 3 && fill_receives(srq) == DEPTH - 3);
	others();
	return 0;
}
