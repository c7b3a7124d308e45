/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Asynchronous events: each is told once, about the right object, and destroying that waits until
 * the program has acknowledged it. */
#include <pthread.h>
#include <stdatomic.h>
#include "pair.h"

static struct ibv_async_event next(void)
{
	struct pollfd ready = { context->async_fd, POLLIN };
	struct ibv_async_event event;

	CHECK(poll(&ready, 1, 20000) == 1);
	CHECK(ibv_get_async_event(context, &event) == 0);
	return event;
}

static int none(void)
{
	struct pollfd ready = { context->async_fd, POLLIN };

	return poll(&ready, 1, 0) == 0;
}

static void post(enum ibv_wr_opcode opcode, uint32_t length, int signal)
{
	struct ibv_sge sge = part(&a, 0, length);
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = opcode,
		.send_flags = signal ? IBV_SEND_SIGNALED : 0,
	}, *bad;

	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
}

static struct ibv_srq *srq_of(int receives)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 32, .max_sge = 2 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &init);

	CHECK(srq && init.attr.max_wr == 32);
	for (int i = 0; i < receives; i++) {
		struct ibv_sge sge = part(&b, i * 100, 100);
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;

		CHECK(ibv_post_srq_recv(srq, &wr, &bad) == 0);
	}
	return srq;
}

/* Fewer receives than the limit, then a queue pair that takes none any more. */
static void shared_queue(void)
{
	struct ibv_srq_attr attr = { .srq_limit = 3 };
	struct ibv_qp_attr to_error = { .qp_state = IBV_QPS_ERR };

	make(&a, NULL);
	b.buf = calloc(1, SIZE);
	b.mr = ibv_reg_mr(pd, b.buf, SIZE, IBV_ACCESS_LOCAL_WRITE);
	CHECK(b.mr);
	struct ibv_srq *srq = srq_of(4);
	struct side kept = b;
	make(&b, srq);
	join();
	CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT) == 0);
	CHECK(ibv_query_srq(srq, &attr) == 0 && attr.srq_limit == 3 && attr.max_wr == 32);
	CHECK(none());
	post(IBV_WR_SEND, 10, 1);
	CHECK(take(&a).status == IBV_WC_SUCCESS);
	struct ibv_wc wc = take(&b);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 0 && wc.qp_num == b.qp->qp_num);
	CHECK(none());
	post(IBV_WR_SEND, 10, 1);
	CHECK(take(&a).status == IBV_WC_SUCCESS && take(&b).wr_id == 1);
	struct ibv_async_event event = next();
	CHECK(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == srq);
	ibv_ack_async_event(&event);
	/* Told once; the limit is gone. */
	CHECK(ibv_query_srq(srq, &attr) == 0 && attr.srq_limit == 0 && none());

	CHECK(ibv_modify_qp(b.qp, &to_error, IBV_QP_STATE) == 0);
	event = next();
	CHECK(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && event.element.qp == b.qp);
	ibv_ack_async_event(&event);
	CHECK(ibv_destroy_srq(srq) == EBUSY);
	unmake(&a);
	unmake(&b);
	CHECK(ibv_destroy_srq(srq) == 0 && ibv_dereg_mr(kept.mr) == 0);
	free(kept.buf);
}

static atomic_int destroyed;

static void *destroy(void *qp)
{
	CHECK(ibv_destroy_qp(qp) == 0);
	atomic_store(&destroyed, 1);
	return NULL;
}

/* The first reaches for what is not there, and has nothing that could tell it so. */
static void reach(void)
{
	struct ibv_sge sge = part(&a, 0, 8);
	struct ibv_send_wr write = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = { (uintptr_t)b.buf, ~b.mr->rkey },
	}, *bad;

	CHECK(ibv_post_send(a.qp, &write, &bad) == 0);
}

/*
 * The event of the end that was reached for. The other has one too, unless its request was still under way
 * and tells why by its own completion.
 */
static struct ibv_async_event of_b(void)
{
	struct ibv_async_event event = next();

	if (event.element.qp == a.qp) {
		CHECK(event.event_type == IBV_EVENT_QP_FATAL);
		ibv_ack_async_event(&event);
		event = next();
	}
	CHECK(event.event_type == IBV_EVENT_QP_ACCESS_ERR && event.element.qp == b.qp);
	return event;
}

/* It ends the connection of both. */
static void fatal(void)
{
	pthread_t thread;

	meet();
	reach();
	struct ibv_async_event event = of_b();
	CHECK(b.qp->events_completed == 0);
	/* Whose event is not acknowledged stays. */
	CHECK(pthread_create(&thread, NULL, destroy, b.qp) == 0);
	usleep(50000);
	CHECK(!atomic_load(&destroyed));
	ibv_ack_async_event(&event);
	CHECK(pthread_join(thread, NULL) == 0 && atomic_load(&destroyed));

	/* An event that nobody took goes with its object. */
	CHECK(ibv_destroy_cq(b.cq) == 0 && ibv_dereg_mr(b.mr) == 0);
	free(b.buf);
	unmake(&a);
	CHECK(none());
	meet();
	reach();
	struct pollfd ready = { context->async_fd, POLLIN };
	CHECK(poll(&ready, 1, 20000) == 1);
	/* Only this way it is sure that the other's has come as well. */
	while (ibv_query_qp(a.qp, &(struct ibv_qp_attr){}, 0, &(struct ibv_qp_init_attr){}) == 0 &&
	       a.qp->state != IBV_QPS_ERR)
		usleep(1000);
	unmake(&a);
	unmake(&b);
	CHECK(none());
}

/* More completions than fit. */
static void overrun(void)
{
	make(&a, NULL);
	make(&b, NULL);
	CHECK(ibv_resize_cq(a.cq, 4) == 0 && a.cq->cqe == 4);
	join();
	for (int i = 0; i < 8; i++)
		post(IBV_WR_SEND, 0, 1);
	for (int i = 0; i < 8; i++)
		receive(&b, i, 0, 10);
	struct ibv_async_event event;
	int of_queue = 0;
	do {
		event = next();
		of_queue = event.event_type == IBV_EVENT_CQ_ERR;
		if (of_queue)
			CHECK(event.element.cq == a.cq);
		ibv_ack_async_event(&event);
	} while (!of_queue);
	CHECK(a.cq->async_events_completed == 1);
	unmake(&a);
	unmake(&b);
}

int main(void)
{
	open_context();
	shared_queue();
	fatal();
	overrun();
	close_context();
	return 0;
}
