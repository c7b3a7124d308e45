/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Everything at once on one device, as far as verbs allow it: two threads post to a queue pair, one
 * sleeps for completions, one acknowledges their events, one watches asynchronous events, one asks
 * for and sets attributes, one registers and deregisters memory, one makes and destroys other
 * objects. Two more connect and disconnect. For sanitizers above all. */
#include "cm.h"
#include "pair.h"
#include <sched.h>
#include <stdatomic.h>

enum { ROUNDS = 300, POSTERS = 2, CREDITS = 16, LENGTH = 512 };

static atomic_int over, credits, sent, received, unacknowledged, reconnected, served, events;
/* A second pair with a shared receive queue. */
static struct side c, d;
static struct ibv_srq *srq;

static void start(pthread_t *thread, void *(*work)(void *), void *argument)
{
	CHECK(pthread_create(thread, NULL, work, argument) == 0);
}

static void receive_shared(void)
{
	/* Two threads have them filled at the same time: each has a place of its own. */
	static atomic_int places;
	struct ibv_sge sge = part(&c, 8192 + atomic_fetch_add(&places, 1) % 64 * LENGTH, LENGTH);
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK(ibv_post_srq_recv(srq, &wr, &bad) == 0);
}

static void end(pthread_t thread)
{
	CHECK(pthread_join(thread, NULL) == 0);
}

static void *post(void *number)
{
	/* Each has its part of the memory. */
	size_t offset = (size_t)number * 4096;
	struct ibv_sge sge = part(&a, offset, LENGTH);
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	for (int i = 0; i < ROUNDS; i++) {
		/* A receive for each message, and room in the queues for the others. */
		while (atomic_fetch_sub(&credits, 1) <= 0) {
			atomic_fetch_add(&credits, 1);
			sched_yield();
		}
		wr.opcode = i % 4 == 1 ? IBV_WR_RDMA_WRITE : i % 4 == 2 ? IBV_WR_RDMA_READ : IBV_WR_SEND;
		wr.wr.rdma.remote_addr = (uintptr_t)b.buf + 32768 + offset;
		wr.wr.rdma.rkey = b.mr->rkey;
		/* The completion's taker gives the credit back, with a receive if it needs one. */
		wr.wr_id = wr.opcode;
		CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	}
	return NULL;
}

static void complete(struct side *side)
{
	struct ibv_wc wcs[4];
	int n;

	while ((n = ibv_poll_cq(side->cq, 4, wcs)) > 0) {
		for (int i = 0; i < n; i++) {
			CHECK(wcs[i].status == IBV_WC_SUCCESS);
			if (wcs[i].opcode & IBV_WC_RECV) {
				receive(&b, 0, 49152, LENGTH);
				atomic_fetch_add(&received, 1);
				atomic_fetch_add(&credits, 1);
			} else {
				atomic_fetch_add(&sent, 1);
				if (wcs[i].wr_id != IBV_WR_SEND)
					atomic_fetch_add(&credits, 1);
			}
		}
	}
	CHECK(n == 0);
}

/* Sleeps for completions of both queues. */
static void *collect(void *unused)
{
	double limit = now() + 40;

	while (atomic_load(&sent) < POSTERS * ROUNDS || atomic_load(&received) < POSTERS * ROUNDS / 2) {
		struct pollfd ready = { channel->fd, POLLIN, 0 };
		struct ibv_cq *cq;
		void *of;

		CHECK(now() < limit);
		CHECK(ibv_req_notify_cq(a.cq, 0) == 0 && ibv_req_notify_cq(b.cq, 0) == 0);
		complete(&a);
		complete(&b);
		if (poll(&ready, 1, 20) != 1)
			continue;
		CHECK(ibv_get_cq_event(channel, &cq, &of) == 0);
		CHECK(of == &a || of == &b);
		/* Another thread acknowledges some of them, at its own pace. */
		if (cq == a.cq && atomic_fetch_add(&events, 1) % 2)
			atomic_fetch_add(&unacknowledged, 1);
		else
			ibv_ack_cq_events(cq, 1);
	}
	return NULL;
}

static void *acknowledge(void *unused)
{
	while (!atomic_load(&over) || atomic_load(&unacknowledged)) {
		if (atomic_load(&unacknowledged)) {
			ibv_ack_cq_events(a.cq, 1);
			atomic_fetch_sub(&unacknowledged, 1);
		}
		sched_yield();
	}
	return NULL;
}

/* Ends by being cancelled, as programs do it. */
static void *watch(void *unused)
{
	struct ibv_async_event event;

	while (ibv_get_async_event(context, &event) == 0)
		ibv_ack_async_event(&event);
	return NULL;
}

static void *ask(void *unused)
{
	while (!atomic_load(&over)) {
		struct ibv_qp_init_attr init;
		struct ibv_qp_attr attr = { .min_rnr_timer = 12 };

		CHECK(ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init) == 0);
		CHECK(attr.qp_state == IBV_QPS_RTS);
		CHECK(ibv_modify_qp(a.qp, &attr, IBV_QP_MIN_RNR_TIMER) == 0);
	}
	return NULL;
}

static void *ask_too(void *unused)
{
	while (!atomic_load(&over)) {
		struct ibv_qp_init_attr init;
		struct ibv_qp_attr attr;

		CHECK(ibv_query_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &init) == 0);
		CHECK(ibv_query_qp(b.qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &init) == 0);
	}
	return NULL;
}

static void *lend(void *unused)
{
	char *memory = calloc(1, 1 << 16);

	while (!atomic_load(&over)) {
		struct ibv_mr *mr = ibv_reg_mr(pd, memory, 1 << 16, IBV_ACCESS_LOCAL_WRITE);

		CHECK(mr && mr->length == 1 << 16);
		CHECK(ibv_dereg_mr(mr) == 0);
	}
	free(memory);
	return NULL;
}

/* Other objects come and go on the same channel. */
static void *make_and_destroy(void *unused)
{
	while (!atomic_load(&over)) {
		struct ibv_qp_init_attr init = {
			.cap = { 8, 8, 1, 1, 0 }, .qp_type = IBV_QPT_RC,
		};
		struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, channel, 0);
		struct ibv_qp *qp;

		CHECK(cq);
		init.send_cq = init.recv_cq = cq;
		qp = ibv_create_qp(pd, &init);
		CHECK(qp);
		CHECK(ibv_destroy_qp(qp) == 0);
		CHECK(ibv_destroy_cq(cq) == 0);
	}
	return NULL;
}

/* Both directions of a pair whose receives are shared, each by a thread of its own. */
static void *share(void *argument)
{
	struct side *side = argument;
	struct ibv_sge sge = part(side, 0, LENGTH);
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	int received = 0;

	for (int i = 0; i < ROUNDS; i++) {
		int completed = 0;

		CHECK(ibv_post_send(side->qp, &wr, &bad) == 0);
		/* Its own, and one of the peer's. */
		while (!completed || received <= i) {
			struct ibv_wc wc = take(side);

			CHECK(wc.status == IBV_WC_SUCCESS);
			if (wc.opcode & IBV_WC_RECV) {
				received++;
				receive_shared();
			} else {
				completed = 1;
			}
		}
	}
	return NULL;
}

/* A server that accepts and sees its clients go, until it is cancelled. */
static void *serve(void *argument)
{
	struct rdma_event_channel *events = argument;
	struct rdma_cm_event *event;

	while (rdma_get_cm_event(events, &event) == 0) {
		struct rdma_cm_id *id = event->id;
		enum rdma_cm_event_type type = event->event;
		struct rdma_conn_param param = { 0 };

		/* Only waits are there to be cancelled. */
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
		CHECK(rdma_ack_cm_event(event) == 0);
		if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
			make_qp(id);
			CHECK(rdma_accept(id, &param) == 0);
		} else if (type == RDMA_CM_EVENT_DISCONNECTED) {
			rdma_destroy_qp(id);
			CHECK(rdma_destroy_id(id) == 0);
			atomic_fetch_add(&served, 1);
		} else {
			CHECK(type == RDMA_CM_EVENT_ESTABLISHED);
		}
		pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	}
	return NULL;
}

/* Connects and disconnects; the queue pair is looked at while the library changes it. */
static void *reconnect(void *argument)
{
	struct sockaddr_in *to = argument;

	while (!atomic_load(&over)) {
		struct rdma_event_channel *events = rdma_create_event_channel();
		struct rdma_conn_param param = { 0 };
		struct rdma_cm_id *id;

		CHECK(events);
		CHECK(rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0);
		CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)to, 2000) == 0);
		pass(events, RDMA_CM_EVENT_ADDR_RESOLVED);
		CHECK(rdma_resolve_route(id, 2000) == 0);
		pass(events, RDMA_CM_EVENT_ROUTE_RESOLVED);
		make_qp(id);
		CHECK(rdma_connect(id, &param) == 0);
		pass(events, RDMA_CM_EVENT_ESTABLISHED);
		CHECK(rdma_disconnect(id) == 0);
		pass(events, RDMA_CM_EVENT_DISCONNECTED);
		rdma_destroy_qp(id);
		CHECK(rdma_destroy_id(id) == 0);
		rdma_destroy_event_channel(events);
		atomic_fetch_add(&reconnected, 1);
	}
	return NULL;
}

static void make_shared(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 64, .max_sge = 1 } };

	srq = ibv_create_srq(pd, &init);
	CHECK(srq);
	make(&c, srq);
	make(&d, srq);
	for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++) {
		step(c.qp, d.qp, state);
		step(d.qp, c.qp, state);
	}
	for (int i = 0; i < 32; i++)
		receive_shared();
}

int main(void)
{
	void *(*const beside[])(void *) = {
		acknowledge, ask, ask_too, lend, make_and_destroy, make_and_destroy,
	};
	enum { BESIDE = sizeof beside / sizeof *beside };
	pthread_t posters[POSTERS], sharers[2], others[BESIDE], collector, watcher, server, clients[2];
	struct rdma_event_channel *requests = rdma_create_event_channel();
	struct sockaddr_in to = loopback(0);
	struct rdma_cm_id *listener;

	open_context();
	meet();
	make_shared();
	CHECK(requests);
	listener = make_listener(requests, 0);
	to.sin_port = rdma_get_src_port(listener);
	for (int i = 0; i < CREDITS; i++)
		receive(&b, 0, 49152, LENGTH);
	atomic_store(&credits, CREDITS);
	start(&watcher, watch, NULL);
	start(&server, serve, requests);
	start(&collector, collect, NULL);
	for (int i = 0; i < BESIDE; i++)
		start(&others[i], beside[i], NULL);
	start(&sharers[0], share, &c);
	start(&sharers[1], share, &d);
	for (size_t i = 0; i < 2; i++)
		start(&clients[i], reconnect, &to);
	for (size_t i = 0; i < POSTERS; i++)
		start(&posters[i], post, (void *)i);
	for (int i = 0; i < POSTERS; i++)
		end(posters[i]);
	end(collector);
	end(sharers[0]);
	end(sharers[1]);
	while (atomic_load(&reconnected) < 20)
		sched_yield();
	atomic_store(&over, 1);
	end(clients[0]);
	end(clients[1]);
	for (int i = 0; i < BESIDE; i++)
		end(others[i]);
	CHECK(pthread_cancel(watcher) == 0);
	end(watcher);
	while (atomic_load(&served) < atomic_load(&reconnected))
		sched_yield();
	CHECK(pthread_cancel(server) == 0);
	end(server);
	CHECK(rdma_destroy_id(listener) == 0);
	rdma_destroy_event_channel(requests);
	unmake(&a);
	unmake(&b);
	unmake(&c);
	unmake(&d);
	CHECK(ibv_destroy_srq(srq) == 0);
	close_context();
	return 0;
}
