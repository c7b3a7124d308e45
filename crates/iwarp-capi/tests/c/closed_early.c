/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A context whose objects are left when it is closed stays for them, and goes with the last. */
#include <malloc.h>
#include "pair.h"

static struct ibv_device *device;

static struct ibv_context *open_again(void)
{
	struct ibv_context *opened = ibv_open_device(device);

	CHECK(opened);
	return opened;
}

static size_t allocated(void)
{
	return mallinfo2().uordblks;
}

/* Each kind of object as the one that is left. */
static void cycle(int i)
{
	struct ibv_context *closed = open_again();
	struct ibv_comp_channel *channel;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_srq *srq;
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 1, .max_sge = 1 } };
	static char memory[64];

	switch (i % 5) {
	case 0:
		CHECK((pd = ibv_alloc_pd(closed)));
		CHECK(ibv_close_device(closed) == 0);
		CHECK(pd->context == closed && ibv_dealloc_pd(pd) == 0);
		break;
	case 1:
		CHECK((channel = ibv_create_comp_channel(closed)));
		CHECK(ibv_close_device(closed) == 0);
		CHECK(ibv_destroy_comp_channel(channel) == 0);
		break;
	case 2:
		CHECK((cq = ibv_create_cq(closed, 1, NULL, NULL, 0)));
		CHECK(ibv_close_device(closed) == 0);
		CHECK(ibv_destroy_cq(cq) == 0);
		break;
	case 3:
		/* The region is the last, where it outlives its domain. */
		CHECK((pd = ibv_alloc_pd(closed)));
		CHECK((mr = ibv_reg_mr(pd, memory, sizeof(memory), 0)));
		int is_rnic = closed->device->transport_type == IBV_TRANSPORT_IWARP;
		CHECK(ibv_close_device(closed) == 0);
		CHECK(ibv_dealloc_pd(pd) == (is_rnic ? 0 : EBUSY));
		CHECK(mr->context == closed && ibv_dereg_mr(mr) == 0);
		CHECK(is_rnic || ibv_dealloc_pd(pd) == 0);
		break;
	case 4:
		CHECK((pd = ibv_alloc_pd(closed)));
		CHECK((srq = ibv_create_srq(pd, &init)));
		CHECK(ibv_close_device(closed) == 0);
		CHECK(ibv_destroy_srq(srq) == 0);
		CHECK(ibv_dealloc_pd(pd) == 0);
		break;
	}
}

/* The queue pairs of a closed context work on. */
static void works_on(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	open_context();
	meet();
	CHECK(ibv_close_device(context) == 0);
	/* A second time frees nothing. */
	CHECK(ibv_close_device(context) == -1 && errno == EINVAL);
	memset(a.buf, 7, 100);
	receive(&b, 1, 0, 100);
	sge = part(&a, 0, 100);
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	CHECK(take(&a).status == IBV_WC_SUCCESS);
	CHECK(take(&b).status == IBV_WC_SUCCESS);
	CHECK(b.buf[99] == 7);
	unmake(&a);
	unmake(&b);
	CHECK(ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_destroy_comp_channel(channel) == 0);
}

int main(void)
{
	enum { TIMES = 10000, ROUNDS = 100 };
	struct ibv_device **devices = ibv_get_device_list(NULL);
	size_t before;

	CHECK(devices && devices[0]);
	device = devices[0];
	works_on();
	/* Tables of the library have grown by then. */
	for (int i = 0; i < ROUNDS; i++)
		cycle(i);
	before = allocated();
	for (int i = 0; i < TIMES; i++)
		cycle(i);
	/* A context is more than 1,000 bytes. */
	fprintf(stderr, "%ld bytes more\n", (long)(allocated() - before));
	CHECK(allocated() < before + 100 * TIMES);
	ibv_free_device_list(devices);
	return 0;
}
