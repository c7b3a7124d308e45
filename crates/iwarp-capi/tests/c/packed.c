/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A program that packs its structures passes requests, elements and completions at odd addresses, as
 * libiscsi does. Devices take them. */
#include "pair.h"

enum { REQUESTS = 40, ELEMENTS = 3, PART = 10 };

/* A request with its elements, behind one byte. */
struct __attribute__((packed)) send {
	char before;
	struct ibv_send_wr wr;
	struct ibv_sge sge[ELEMENTS];
};

struct __attribute__((packed)) recv {
	char before;
	struct ibv_recv_wr wr;
	struct ibv_sge sge[ELEMENTS];
};

static struct __attribute__((packed, aligned(8))) {
	char before;
	struct ibv_wc wc[REQUESTS];
	struct ibv_send_wr *bad_send;
	struct ibv_recv_wr *bad_recv;
	struct ibv_data_buf bufs[ELEMENTS];
} odd;

static struct send sends[REQUESTS];
static struct recv recvs[REQUESTS];

/* An address within a packed structure, which the compiler does not give without a warning. */
#define AT(member) ((void *)((char *)&odd + offsetof(__typeof__(odd), member)))

static void *inside(void *start, size_t offset)
{
	return (char *)start + offset;
}

static struct ibv_send_wr *send_list(int count, unsigned flags)
{
	for (int i = 0; i < count; i++) {
		struct send *at = &sends[i];

		at->wr = (struct ibv_send_wr){
			.wr_id = i,
			.next = i + 1 == count ? NULL :
				inside(&sends[i + 1], offsetof(struct send, wr)),
			.sg_list = inside(at, offsetof(struct send, sge)),
			.num_sge = ELEMENTS,
			.opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_SIGNALED | flags,
		};
		for (int j = 0; j < ELEMENTS; j++)
			at->sge[j] = part(&a, (i * ELEMENTS + j) * PART, PART);
	}
	return inside(sends, offsetof(struct send, wr));
}

static struct ibv_recv_wr *recv_list(int count)
{
	for (int i = 0; i < count; i++) {
		struct recv *at = &recvs[i];

		at->wr = (struct ibv_recv_wr){
			.wr_id = i,
			.next = i + 1 == count ? NULL :
				inside(&recvs[i + 1], offsetof(struct recv, wr)),
			.sg_list = inside(at, offsetof(struct recv, sge)),
			.num_sge = ELEMENTS,
		};
		/* In the other order, so that a list that is taken for another one shows. */
		for (int j = 0; j < ELEMENTS; j++)
			at->sge[j] = part(&b, (i * ELEMENTS + ELEMENTS - 1 - j) * PART, PART);
	}
	return inside(recvs, offsetof(struct recv, wr));
}

static void completed(struct side *side, int count)
{
	double end = now() + 20;

	for (int done = 0; done < count;) {
		int n = ibv_poll_cq(side->cq, count - done, AT(wc));

		CHECK(n >= 0 && now() < end);
		for (int i = 0; i < n; i++)
			CHECK(odd.wc[i].status == IBV_WC_SUCCESS &&
			      odd.wc[i].wr_id == (uint64_t)done + i);
		done += n;
	}
}

static void arrived(int count)
{
	completed(&b, count);
	completed(&a, count);
	for (int i = 0; i < count; i++)
		for (int j = 0; j < ELEMENTS; j++)
			CHECK(memcmp(b.buf + (i * ELEMENTS + ELEMENTS - 1 - j) * PART,
				     a.buf + (i * ELEMENTS + j) * PART, PART) == 0);
	memset(b.buf, 0, SIZE);
}

static void lists(int count, unsigned flags)
{
	for (int i = 0; i < SIZE; i++)
		a.buf[i] = i * 7 + count + flags;
	CHECK(ibv_post_recv(b.qp, recv_list(count), AT(bad_recv)) == 0);
	CHECK(ibv_post_send(a.qp, send_list(count, flags), AT(bad_send)) == 0);
	arrived(count);
}

/* The elements of one request, given to the functions of an extended queue pair. */
static void extended(void)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(a.qp);

	CHECK(ibv_post_recv(b.qp, recv_list(2), AT(bad_recv)) == 0);
	send_list(1, 0);
	for (int j = 0; j < ELEMENTS; j++)
		odd.bufs[j] = (struct ibv_data_buf){ a.buf + (ELEMENTS + j) * PART, PART };
	ibv_wr_start(qp);
	qp->wr_id = 0;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(qp);
	ibv_wr_set_sge_list(qp, ELEMENTS, inside(sends, offsetof(struct send, sge)));
	qp->wr_id = 1;
	ibv_wr_send(qp);
	ibv_wr_set_inline_data_list(qp, ELEMENTS, AT(bufs));
	CHECK(ibv_wr_complete(qp) == 0);
	arrived(2);
}

/* The request that was refused is named where the program wants it. */
static void refused(void)
{
	struct ibv_send_wr *first = send_list(3, 0);

	sends[1].wr.num_sge = 1000;
	CHECK(ibv_post_recv(b.qp, recv_list(1), AT(bad_recv)) == 0);
	CHECK(ibv_post_send(a.qp, first, AT(bad_send)) == EINVAL);
	CHECK((void *)odd.bad_send == inside(&sends[1], offsetof(struct send, wr)));
	arrived(1);
	recv_list(1);
	recvs[0].wr.num_sge = -1;
	CHECK(ibv_post_recv(b.qp, inside(recvs, offsetof(struct recv, wr)), AT(bad_recv)) == EINVAL);
	CHECK((void *)odd.bad_recv == inside(recvs, offsetof(struct recv, wr)));
}

int main(void)
{
	open_context();
	meet();
	for (int count = 1; count <= REQUESTS; count++) {
		lists(count, 0);
		lists(count, IBV_SEND_INLINE);
	}
	extended();
	refused();
	unmake(&a);
	unmake(&b);
	close_context();
	return 0;
}
