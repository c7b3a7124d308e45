/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A daemon closes every descriptor it does not know and opens files of its own. Nothing of ours
 * is written into them. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>
#include "pair.h"

static void post(struct side *from)
{
	struct ibv_sge sge = part(from, 0, 100);
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	ibv_post_send(from->qp, &wr, &bad);
}

static void exchange(struct side *from, struct side *to)
{
	receive(to, 1, 0, 100);
	post(from);
	CHECK(take(from).status == IBV_WC_SUCCESS);
	CHECK(take(to).status == IBV_WC_SUCCESS);
}

int main(int argc, char **argv)
{
	enum { FILES = 40 };
	int files[FILES];

	open_context();
	meet();
	/* Once bytes have gone both ways, no thread of the library is about to take a connection, whose
	 * descriptor would have one of the numbers below for a moment. */
	exchange(&a, &b);
	exchange(&b, &a);
	/* Descriptors are passed then, too, until the connection has moved to shared memory. */
	for (int i = 0; i < 20; i++) {
		exchange(&a, &b);
		usleep(5000);
	}
	receive(&b, 1, 0, 100);
	closefrom(3);
	for (int i = 0; i < FILES; i++) {
		files[i] = open("/tmp", O_RDWR | O_TMPFILE, 0600);
		CHECK(files[i] == 3 + i);
	}
	/* Everything that would signal a descriptor or write to one. */
	ibv_req_notify_cq(a.cq, 0);
	ibv_req_notify_cq(b.cq, 0);
	struct ibv_wc wc;
	for (int i = 0; i < 100; i++) {
		post(&a);
		ibv_poll_cq(a.cq, 1, &wc);
		ibv_poll_cq(b.cq, 1, &wc);
		usleep(1000);
	}
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	ibv_modify_qp(a.qp, &attr, IBV_QP_STATE);
	ibv_modify_qp(b.qp, &attr, IBV_QP_STATE);
	usleep(100000);
	for (int i = 0; i < FILES; i++) {
		struct stat stat;
		CHECK(fstat(files[i], &stat) == 0);
		if (stat.st_size)
			fprintf(stderr, "descriptor %d: %ld bytes\n", files[i], (long)stat.st_size);
		CHECK(stat.st_size == 0);
	}
	return 0;
}
