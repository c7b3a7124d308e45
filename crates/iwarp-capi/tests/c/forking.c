/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A child of a program that has everything open: connections that it inherited are dead and do not hang,
 * all else it goes on with, what it opens itself works, and the parent notices nothing. */
#include <sys/wait.h>
#include "pair.h"

static void exchange(void)
{
	struct ibv_sge sge = part(&a, 0, 100);
	struct ibv_send_wr wr = {
		.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	receive(&b, 1, 0, 100);
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	CHECK(take(&a).status == IBV_WC_SUCCESS && take(&b).status == IBV_WC_SUCCESS);
}

/* The parent is between two calls here, and nobody will make the second one in the child. */
static void built(void)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(a.qp);

	ibv_wr_start(qp);
	qp->wr_id = 1;
	ibv_wr_send(qp);
	ibv_wr_set_sge(qp, a.mr->lkey, (uintptr_t)a.buf, 8);
	CHECK(ibv_wr_complete(qp) != 0);
}

static void inherited(void)
{
	struct ibv_sge sge = part(&a, 0, 100);
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad_recv;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_wc wc;

	CHECK(ibv_post_send(a.qp, &wr, &bad) != 0);
	CHECK(ibv_post_recv(a.qp, &recv, &bad_recv) != 0);
	CHECK(ibv_poll_cq(a.cq, 1, &wc) == 0);
	CHECK(ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init) == ENODEV);
	built();
	CHECK(ibv_destroy_qp(a.qp) == 0 && ibv_destroy_qp(b.qp) == 0);
}

/* A queue pair of the child's, of what the parent has made. */
static void make_again(struct side *side)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = side->cq,
		.recv_cq = side->cq,
		.cap = { DEPTH, DEPTH, 4, 4, 128 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};

	side->qp = ibv_create_qp_ex(context, &init);
	CHECK(side->qp);
}

/* The keys are those that the program knows. */
static void write_once(void)
{
	struct ibv_sge sge = part(&a, 0, 8);
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)b.buf + 200, b.mr->rkey },
	}, *bad;

	strcpy((char *)a.buf, "written");
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0 && take(&a).status == IBV_WC_SUCCESS);
	/* A completed message is placed once the Send behind it has arrived. */
	exchange();
	CHECK(strcmp((char *)b.buf + 200, "written") == 0);
}

static void wait_for_event(void)
{
	struct ibv_cq *cq;
	void *of;

	CHECK(ibv_req_notify_cq(b.cq, 0) == 0);
	exchange();
	CHECK(ibv_get_cq_event(channel, &cq, &of) == 0 && cq == b.cq && of == &b);
	ibv_ack_cq_events(cq, 1);
}

static void make_handle(void)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid } };
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);

	CHECK(ah && ibv_destroy_ah(ah) == 0);
}

static void go_on(void)
{
	inherited();
	make_handle();
	make_again(&a);
	make_again(&b);
	join();
	exchange();
	write_once();
	wait_for_event();
	CHECK(ibv_rereg_mr(a.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			   IBV_ACCESS_LOCAL_WRITE) == 0);
	exchange();
	unmake(&a);
	unmake(&b);
	close_context();
}

int main(void)
{
	open_context();
	meet();
	exchange();
	for (int i = 0; i < 20; i++) {
		int status;
		pid_t child;

		ibv_wr_start(ibv_qp_to_qp_ex(a.qp));
		child = fork();

		CHECK(child != -1);
		if (child == 0) {
			alarm(30);
			if (i % 2 == 0)
				go_on();
			else
				inherited();
			open_context();
			meet();
			exchange();
			unmake(&a);
			unmake(&b);
			close_context();
			_exit(0);
		}
		ibv_wr_abort(ibv_qp_to_qp_ex(a.qp));
		exchange();
		CHECK(waitpid(child, &status, 0) == child);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
		exchange();
	}
	unmake(&a);
	unmake(&b);
	close_context();
	return 0;
}
