/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A child of a program that has everything open: what it inherited is dead and does not hang, what
 * it opens itself works, and the parent notices nothing. */
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
	struct ibv_cq *cq;
	struct ibv_async_event event;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init = { .send_cq = a.cq, .recv_cq = a.cq, .qp_type = IBV_QPT_RC };
	union ibv_gid gid;
	struct ibv_wc wc;
	void *of;

	CHECK(ibv_post_send(a.qp, &wr, &bad) != 0);
	CHECK(ibv_post_recv(a.qp, &recv, &bad_recv) != 0);
	CHECK(ibv_poll_cq(a.cq, 1, &wc) <= 0);
	CHECK(ibv_get_cq_event(channel, &cq, &of) == -1);
	CHECK(ibv_get_async_event(context, &event) == -1);
	CHECK(!ibv_create_comp_channel(context));
	CHECK(!ibv_create_cq(context, 16, NULL, NULL, 0));
	CHECK(!ibv_reg_mr(pd, a.buf, SIZE, 0));
	CHECK(!ibv_create_qp(pd, &init) && errno == ENODEV);
	CHECK(ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init) == ENODEV);
	CHECK(ibv_query_gid(context, 1, 0, &gid) == -1);
	CHECK(ibv_rereg_mr(a.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE));
	built();
	ibv_destroy_qp(a.qp);
	ibv_dereg_mr(a.mr);
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
