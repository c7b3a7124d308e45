/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Memory on demand: registered before it is there, and advice about it. */
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/mman.h>
#include "requests.h"

enum {
	PAGE = 4096,
	PAGES = 64,
	LEN = PAGE * PAGES,
	ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	      IBV_ACCESS_REMOTE_ATOMIC,
	DEMAND = IBV_ACCESS_ON_DEMAND,
};

/* Addresses where the system maps nothing by itself. */
static char *reserve(int protection)
{
	static uintptr_t place = 0x210000000000;
	char *area = mmap((void *)(place += 16 << 20), LEN, protection,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	CHECK(area != MAP_FAILED);
	return area;
}

static void capabilities(void)
{
	struct ibv_device_attr_ex attr;
	uint32_t rc = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE |
		      IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV;

	CHECK(ibv_query_device_ex(context, NULL, &attr) == 0);
	CHECK(attr.odp_caps.general_caps == (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT));
	CHECK(attr.odp_caps.per_transport_caps.rc_odp_caps == rc);
	CHECK(attr.xrc_odp_caps == 0);
}

static void no_region(void *addr, size_t length, uint64_t iova, unsigned int access, int error)
{
	errno = 0;
	CHECK(!ibv_reg_mr_iova2(pd, addr, length, iova, access) && errno == error);
}

static void refusals(void)
{
	char *area = reserve(PROT_NONE);

	no_region(area, LEN, (uintptr_t)area, IBV_ACCESS_REMOTE_READ, EFAULT);
	no_region(area, LEN, (uintptr_t)area, DEMAND | IBV_ACCESS_REMOTE_WRITE, EINVAL);
	no_region(NULL, PAGE, 0, DEMAND, EFAULT);
	no_region(NULL, SIZE_MAX, PAGE, DEMAND, EINVAL);
	no_region(NULL, SIZE_MAX, 0, DEMAND | IBV_ACCESS_ZERO_BASED, EINVAL);
	no_region(NULL, SIZE_MAX, 0, ALL, EINVAL);
	munmap(area, LEN);
}

/* Memory that comes, goes and comes again under one registration. */
static void comes_and_goes(void)
{
	char *area = reserve(PROT_NONE);
	struct ibv_mr *mr = ibv_reg_mr(pd, area, LEN, ALL | DEMAND);
	uint64_t second = (uintptr_t)area + PAGE;

	CHECK(mr && mr->addr == area && mr->length == LEN);
	for (int round = 1; round < 4; round++) {
		CHECK(mprotect(area + PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
		memset(a.buf, round, 100);
		done(IBV_WR_RDMA_WRITE, part(&a, 0, 100), second, mr->rkey);
		CHECK(area[PAGE] == round && area[PAGE + 99] == round && area[PAGE + 100] == 0);
		done(IBV_WR_ATOMIC_FETCH_AND_ADD, part(&a, 200, 8), second + 512, mr->rkey);
		CHECK(area[PAGE + 512] == round);
		CHECK(mprotect(area + PAGE, PAGE, PROT_NONE) == 0);
	}
	/* Neither the first page nor the second is there now. */
	denied(IBV_WR_RDMA_WRITE, part(&a, 0, 100), second, mr->rkey);
	denied(IBV_WR_RDMA_READ, part(&a, 0, 100), (uintptr_t)area, mr->rkey);
	/* It ends where it was said to. */
	CHECK(mprotect(area, LEN, PROT_READ | PROT_WRITE) == 0);
	denied(IBV_WR_RDMA_READ, part(&a, 0, 100), (uintptr_t)area + LEN - 99, mr->rkey);
	/* Without the flag it has to be there again. */
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL) == 0);
	CHECK(mprotect(area, LEN, PROT_NONE) == 0);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL) != 0);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL | DEMAND) == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	munmap(area, LEN);
}

static struct ibv_sge at(struct ibv_mr *mr, void *addr, uint32_t length)
{
	return (struct ibv_sge){ (uintptr_t)addr, length, mr->lkey };
}

/* One region for whatever the program has. */
static void everything(void)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, NULL, SIZE_MAX, ALL | DEMAND);
	struct ibv_mr *mine = ibv_reg_mr(pd, NULL, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE | DEMAND);
	char *area = reserve(PROT_READ | PROT_WRITE);
	uint64_t stack = 5, *heap = calloc(2, sizeof(*heap));
	uint64_t nowhere[] = { 0, 1, PAGE, (uintptr_t)area + LEN - 50, 0x00007ffffffff000,
			       0x0000800000000000, 0x7ffffffffffffff0, 0xffff888000000000 };

	CHECK(mr && mine && mr->lkey != mine->lkey);
	done(IBV_WR_RDMA_WRITE, at(mine, &stack, 8), (uintptr_t)heap, mr->rkey);
	CHECK(heap[0] == 5);
	done(IBV_WR_ATOMIC_FETCH_AND_ADD, at(mr, &stack, 8), (uintptr_t)(heap + 1), mr->rkey);
	CHECK(heap[1] == 1 && stack == 0);
	memset(area, 'x', LEN);
	done(IBV_WR_RDMA_READ, at(mine, a.buf, LEN / 8), (uintptr_t)area, mr->rkey);
	CHECK(memcmp(a.buf, area, LEN / 8) == 0);
	for (size_t i = 0; i < sizeof(nowhere) / sizeof(*nowhere); i++) {
		denied(IBV_WR_RDMA_WRITE, part(&a, 0, 100), nowhere[i], mr->rkey);
		denied(IBV_WR_RDMA_READ, part(&a, 0, 100), nowhere[i], mr->rkey);
	}
	denied(IBV_WR_RDMA_WRITE, part(&a, 0, 8), (uintptr_t)heap, mine->rkey);
	/* One's own, where nothing is. */
	post(IBV_WR_SEND, at(mine, (void *)(uintptr_t)PAGE, 8), 0, 0);
	CHECK(take(&a).status == IBV_WC_LOC_PROT_ERR);
	unmake(&a);
	unmake(&b);
	meet();
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_dereg_mr(mine) == 0);
	free(heap);
	munmap(area, LEN);
}

/* Pages that are in memory. */
static int present(char *area)
{
	unsigned char pages[PAGES];
	int count = 0;

	CHECK(mincore(area, LEN, pages) == 0);
	for (int i = 0; i < PAGES; i++)
		count += pages[i] & 1;
	return count;
}

static int advise(enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge sge)
{
	return ibv_advise_mr(pd, advice, flags, &sge, 1);
}

static void advice(void)
{
	enum {
		READ = IBV_ADVISE_MR_ADVICE_PREFETCH,
		WRITE = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
		NO_FAULT = IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
		FLUSH = IBV_ADVISE_MR_FLAG_FLUSH,
	};
	char *area = reserve(PROT_READ | PROT_WRITE);
	struct ibv_mr *mr = ibv_reg_mr(pd, area, LEN, ALL | DEMAND);
	struct ibv_mr *all = ibv_reg_mr(pd, NULL, SIZE_MAX, DEMAND);
	struct ibv_mr *plain = ibv_reg_mr(pd, a.buf, SIZE, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_pd *other = ibv_alloc_pd(context);
	struct ibv_sge some = at(mr, area + PAGE, 3 * PAGE);

	CHECK(mr && all && plain && other && present(area) == 0);
	CHECK(advise(NO_FAULT, FLUSH, some) == 0 && present(area) == 0);
	CHECK(advise(READ, FLUSH, some) == 0 && present(area) == 3);
	CHECK(advise(WRITE, FLUSH, at(mr, area + 7 * PAGE + 5, PAGE)) == 0 && present(area) == 5);
	CHECK(advise(WRITE, 0, at(mr, area + 10 * PAGE, 1)) == 0 && present(area) == 6);
	CHECK(advise(READ, FLUSH, at(all, area, LEN)) == 0 && present(area) == PAGES);
	CHECK(advise(READ, 0, at(mr, area, 0)) == 0);

	CHECK(advise(99, 0, some) == EOPNOTSUPP);
	CHECK(advise(READ, 8, some) == EINVAL);
	CHECK(ibv_advise_mr(pd, READ, 0, &some, 0) == EINVAL);
	CHECK(ibv_advise_mr(pd, READ, 0, NULL, 1) == EINVAL);
	CHECK(ibv_advise_mr(other, READ, 0, &some, 1) == EPERM);
	CHECK(advise(READ, FLUSH, at(plain, a.buf, 8)) == 0);
	CHECK(advise(WRITE, 0, at(all, area, 8)) == EPERM);
	CHECK(advise(READ, 0, at(mr, area + LEN - 7, 8)) == EFAULT);
	some.lkey ^= 1;
	CHECK(advise(READ, 0, some) == ENOENT);
	some.lkey ^= 1;
	/* Only who waits is told. */
	CHECK(mprotect(area + 2 * PAGE, PAGE, PROT_NONE) == 0);
	CHECK(advise(READ, FLUSH, some) == EFAULT && advise(READ, 0, some) == 0);
	CHECK(mprotect(area + 2 * PAGE, PAGE, PROT_READ) == 0);
	CHECK(advise(READ, FLUSH, some) == 0 && advise(WRITE, FLUSH, some) == EFAULT);

	CHECK(ibv_dereg_mr(mr) == 0 && ibv_dereg_mr(all) == 0 && ibv_dereg_mr(plain) == 0);
	CHECK(ibv_advise_mr(pd, READ, 0, &some, 1) == ENOENT);
	CHECK(ibv_dealloc_pd(other) == 0);
	munmap(area, LEN);
}

int main(void)
{
	open_context();
	capabilities();
	refusals();
	meet();
	comes_and_goes();
	everything();
	advice();
	unmake(&a);
	unmake(&b);
	close_context();
	return 0;
}
