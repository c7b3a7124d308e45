/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Nothing tells of a queue pair that was destroyed or reset: programs free what its completions and
 * events name. */
#include "pair.h"
#include <pthread.h>
#include <stdatomic.h>

enum { ROUNDS = 150, MESSAGES = 32 };

static struct ibv_cq *cq;
/* The number whose completions the other thread is not to see any more; 0 for none. */
static atomic_uint dead;
static atomic_int over, seen;

static void make_on(struct side *side)
{
	struct ibv_cq *own;

	make(side, NULL);
	own = side->cq;
	CHECK(ibv_destroy_qp(side->qp) == 0);
	CHECK(ibv_destroy_cq(own) == 0);
	side->cq = cq;
	side->qp = ibv_create_qp(pd, &(struct ibv_qp_init_attr){
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { DEPTH, DEPTH, 4, 4, 128 } });
	CHECK(side->qp);
}

/* Leaves completions of both queue pairs to the worker. */
static void send_all(void)
{
	for (int i = 0; i < MESSAGES; i++) {
		struct ibv_sge sge = part(&a, 0, 64);
		struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND },
				   *bad;

		receive(&b, i, 64 * i, 64);
		CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	}
}

static void none_of(uint32_t number)
{
	struct ibv_wc wc[16];
	int n;

	while ((n = ibv_poll_cq(cq, 16, wc)) > 0)
		for (int i = 0; i < n; i++)
			CHECK(wc[i].qp_num != number);
	CHECK(n == 0);
}

static void destroyed(void)
{
	uint32_t number;

	make_on(&a);
	make_on(&b);
	join();
	number = b.qp->qp_num;
	send_all();
	CHECK(ibv_destroy_qp(b.qp) == 0);
	none_of(number);
	number = a.qp->qp_num;
	CHECK(ibv_destroy_qp(a.qp) == 0);
	/* The worker may still be about what it found before. */
	for (int i = 0; i < 20; i++) {
		none_of(number);
		sched_yield();
	}
	for (struct side *side = &a; side; side = side == &a ? &b : NULL) {
		CHECK(ibv_dereg_mr(side->mr) == 0);
		free(side->buf);
	}
}

static void reset(void)
{
	make_on(&a);
	make_on(&b);
	join();
	send_all();
	CHECK(ibv_modify_qp(b.qp, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_RESET },
			    IBV_QP_STATE) == 0);
	none_of(b.qp->qp_num);
	for (struct side *side = &a; side; side = side == &a ? &b : NULL) {
		CHECK(ibv_destroy_qp(side->qp) == 0);
		CHECK(ibv_dereg_mr(side->mr) == 0);
		free(side->buf);
	}
	none_of(0);
}

/* Polls beside the thread that destroys. A completion that it took before the end is no fault, so
 * the number is noted as dead behind the call, and a round of polls that began later is judged. */
static void *poll_too(void *unused)
{
	struct ibv_wc wc[16];

	while (!atomic_load(&over)) {
		uint32_t number = atomic_load(&dead);
		int n = ibv_poll_cq(cq, 16, wc);

		CHECK(n >= 0);
		for (int i = 0; i < n; i++)
			CHECK(number == 0 || wc[i].qp_num != number);
		atomic_fetch_add(&seen, 1);
	}
	return unused;
}

static void destroyed_under_a_poller(void)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, poll_too, NULL) == 0);
	for (int round = 0; round < ROUNDS; round++) {
		uint32_t number;
		int before;

		make_on(&a);
		make_on(&b);
		atomic_store(&dead, 0);
		join();
		send_all();
		number = b.qp->qp_num;
		CHECK(ibv_destroy_qp(b.qp) == 0);
		atomic_store(&dead, number);
		CHECK(ibv_destroy_qp(a.qp) == 0);
		before = atomic_load(&seen);
		while (atomic_load(&seen) < before + 5)
			sched_yield();
		for (struct side *side = &a; side; side = side == &a ? &b : NULL) {
			CHECK(ibv_dereg_mr(side->mr) == 0);
			free(side->buf);
		}
	}
	atomic_store(&over, 1);
	CHECK(pthread_join(thread, NULL) == 0);
}

int main(void)
{
	open_context();
	cq = ibv_create_cq(context, 8 * DEPTH, NULL, NULL, 0);
	CHECK(cq);
	for (int round = 0; round < ROUNDS; round++)
		destroyed();
	for (int round = 0; round < ROUNDS; round++)
		reset();
	destroyed_under_a_poller();
	CHECK(ibv_destroy_cq(cq) == 0);
	close_context();
	return 0;
}
