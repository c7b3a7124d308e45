/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A program that has no more memory: what it asks for is refused by ENOMEM, and what goes on goes
 * on or ends, but the process does not. */
#include "pair.h"
#include <limits.h>
#include <sys/resource.h>

enum { MIB = 1 << 20, MANY = 200000, MESSAGE = 10000, MESSAGES = 40 };

/* Pages of the process, as /proc/self/statm has them: 0 all, 1 in memory. */
static size_t octets(int which)
{
	unsigned long pages[2];
	FILE *file = fopen("/proc/self/statm", "r");

	CHECK(file && fscanf(file, "%lu %lu", &pages[0], &pages[1]) == 2);
	fclose(file);
	return pages[which] * sysconf(_SC_PAGESIZE);
}

/* From now on there is so much more memory, and no more than that. */
static void limit(size_t more)
{
	struct rlimit as;

	CHECK(getrlimit(RLIMIT_AS, &as) == 0);
	as.rlim_cur = octets(0) + more;
	CHECK(setrlimit(RLIMIT_AS, &as) == 0);
}

static void unlimit(void)
{
	struct rlimit as;

	CHECK(getrlimit(RLIMIT_AS, &as) == 0);
	as.rlim_cur = as.rlim_max;
	CHECK(setrlimit(RLIMIT_AS, &as) == 0);
}

/* The rest of it, taken. */
struct taken {
	struct taken *next;
};

/* Besides what was taken before. */
static struct taken *take_all(struct taken *all)
{
	for (size_t size = MIB; size >= 16; size /= 2) {
		struct taken *more;

		while ((more = malloc(size))) {
			more->next = all;
			all = more;
		}
	}
	return all;
}

static void give_back(struct taken *all)
{
	while (all) {
		struct taken *next = all->next;

		free(all);
		all = next;
	}
}

static struct ibv_qp *new_qp(uint32_t send, uint32_t receive)
{
	struct ibv_qp_init_attr init = {
		.send_cq = a.cq,
		.recv_cq = a.cq,
		.cap = { send, receive, 1, 1, 0 },
		.qp_type = IBV_QPT_RC,
	};

	errno = 0;
	return ibv_create_qp(pd, &init);
}

static struct ibv_qp *new_datagram_qp(struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .cap = { 16, 16, 1, 1, 0 }, .qp_type = IBV_QPT_UD,
	};

	errno = 0;
	return ibv_create_qp(pd, &init);
}

static struct ibv_cq *new_cq(int cqe)
{
	errno = 0;
	return ibv_create_cq(context, cqe, NULL, NULL, 0);
}

/* The first queue pair over datagrams opens the port that all of them share, which takes more
 * memory than any: with less than that it is refused. The last one closes it. */
static void port(void)
{
	struct ibv_cq *cq = new_cq(100);
	int refused = 0, made = 0;

	CHECK(cq);
	for (size_t more = 0; more <= 4 * MIB; more += MIB / 16) {
		struct ibv_qp *qp;

		limit(more);
		qp = new_datagram_qp(cq);
		CHECK(qp || errno == ENOMEM);
		refused += !qp;
		made += qp != NULL;
		unlimit();
		CHECK(!qp || ibv_destroy_qp(qp) == 0);
	}
	CHECK(refused && made);
	CHECK(ibv_destroy_cq(cq) == 0);
}

/* No number that a program asks for costs memory before it is refused or used. */
static void absurd_sizes(void)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = UINT_MAX, .max_sge = 1 } };
	struct ibv_device_attr device;
	size_t before = octets(1);
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	CHECK(ibv_query_device(context, &device) == 0);
	CHECK(!new_cq(INT_MAX) && errno == EINVAL);
	CHECK(!new_cq(device.max_cqe + 1) && errno == EINVAL);
	CHECK(!new_cq(0) && errno == EINVAL);
	CHECK(!new_cq(-1) && errno == EINVAL);
	CHECK(!new_qp(UINT_MAX, 1) && errno == EINVAL);
	CHECK(!new_qp(1, UINT_MAX) && errno == EINVAL);
	CHECK(!ibv_create_srq(pd, &srq) && errno == EINVAL);
	cq = new_cq(device.max_cqe);
	CHECK(cq);
	CHECK(ibv_resize_cq(cq, 1) == 0);
	CHECK(ibv_resize_cq(cq, device.max_cqe) == 0);
	CHECK(ibv_resize_cq(cq, INT_MAX) == EINVAL);
	CHECK(ibv_destroy_cq(cq) == 0);
	qp = new_qp(device.max_qp_wr, device.max_qp_wr);
	CHECK(qp && ibv_destroy_qp(qp) == 0);
	CHECK(octets(1) < before + 8 * MIB);
}

/* Makes objects until there is no memory, destroys half of them, and makes one more, which may be
 * refused: what is given back can lie in pieces between what is kept. Destroys the rest. */
#define FILL(type, make, destroy)                                              \
	do {                                                                   \
		static type *all[MANY];                                        \
		int count = 0;                                                 \
		errno = 0;                                                     \
		while (count < MANY && (all[count] = make))                    \
			count++;                                               \
		CHECK(count > 3 && count < MANY && errno == ENOMEM);           \
		for (int half = count / 2; count > half; count--)              \
			CHECK(destroy(all[count - 1]) == 0);                   \
		all[count] = make;                                             \
		CHECK(all[count] || errno == ENOMEM);                          \
		for (count -= !all[count]; count >= 0; count--)                \
			CHECK(destroy(all[count]) == 0);                       \
	} while (0)

/* With memory there is one again. */
#define AGAIN(make, destroy) CHECK(destroy(make) == 0)

static void filled(void)
{
	struct ibv_device_attr device;
	struct ibv_cq *cq = new_cq(10);

	CHECK(cq && ibv_query_device(context, &device) == 0);
	limit(24 * MIB);
	CHECK(!new_cq(device.max_cqe) && errno == ENOMEM);
	CHECK(ibv_resize_cq(cq, device.max_cqe) == ENOMEM && cq->cqe == 10);
	CHECK(ibv_resize_cq(cq, 20) == 0 && cq->cqe == 20);
	CHECK(ibv_destroy_cq(cq) == 0);
	FILL(struct ibv_cq, new_cq(50000), ibv_destroy_cq);
	FILL(struct ibv_mr, ibv_reg_mr(pd, a.buf, SIZE, 0), ibv_dereg_mr);
	/* Between what the others have left there may be no room for the first. */
	unlimit();
	limit(8 * MIB);
	FILL(struct ibv_qp, new_qp(16, 16), ibv_destroy_qp);
	unlimit();
	limit(8 * MIB);
	FILL(struct ibv_qp, new_datagram_qp(a.cq), ibv_destroy_qp);
	unlimit();
	limit(8 * MIB);
	FILL(struct ibv_pd, ibv_alloc_pd(context), ibv_dealloc_pd);
	unlimit();
	AGAIN(new_cq(50000), ibv_destroy_cq);
	AGAIN(ibv_reg_mr(pd, a.buf, SIZE, 0), ibv_dereg_mr);
	AGAIN(new_qp(16, 16), ibv_destroy_qp);
	AGAIN(ibv_alloc_pd(context), ibv_dealloc_pd);
}

/* Posts a list of receives on a new queue pair until there is no memory for one. */
static void posts(void)
{
	struct ibv_sge sge = part(&a, 0, 100);
	struct ibv_recv_wr wrs[2], *bad = NULL;
	struct ibv_device_attr device;
	struct ibv_qp *qp;
	int error = 0, posted = 0;

	CHECK(ibv_query_device(context, &device) == 0);
	qp = new_qp(1, device.max_qp_wr);
	CHECK(qp);
	step(qp, b.qp, IBV_QPS_INIT);
	limit(MIB);
	for (int i = 0; i < 2; i++)
		wrs[i] = (struct ibv_recv_wr){ i, i ? NULL : &wrs[1], &sge, 1 };
	while (!error && posted < device.max_qp_wr) {
		error = ibv_post_recv(qp, wrs, &bad);
		posted += error ? bad - wrs : 2;
	}
	CHECK(error == ENOMEM && posted < device.max_qp_wr);
	CHECK(bad == &wrs[posted % 2]);
	unlimit();
	/* The one that was refused is posted now. */
	CHECK(ibv_post_recv(qp, bad, &bad) == 0);
	CHECK(ibv_destroy_qp(qp) == 0);
}

#define REFUSED(type, make, unmake)                                            \
	do {                                                                   \
		struct type *made = make;                                      \
									       \
		if (!made) {                                                   \
			CHECK(errno == ENOMEM);                                \
			break;                                                 \
		}                                                              \
		CHECK(unmake(made) == 0);                                      \
		freed = take_all(freed);                                       \
		CHECK(now() < end);                                            \
	} while (1)

/* Messages come that nobody receives, and there is no memory for anything at all. */
static void nothing_left(void)
{
	struct ibv_sge sge = part(&a, 0, MESSAGE);
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;
	int posted = 0, done = 0, receives = 0;
	double end = now() + 20;
	struct taken *all, *freed;
	struct ibv_wc wc;

	meet();
	sge = part(&a, 0, MESSAGE);
	limit(0);
	all = take_all(NULL);
	for (int i = 0; i < MESSAGES; i++) {
		int error;

		bad = NULL;
		error = ibv_post_send(a.qp, &wr, &bad);
		CHECK(error ? error == ENOMEM && bad == &wr : !bad);
		posted += !error;
		CHECK(ibv_poll_cq(b.cq, 1, &wc) >= 0);
	}
	/* New things are refused, also small ones. A connection that has ended gave memory back, or
	 * does so just now. */
	freed = take_all(NULL);
	REFUSED(ibv_cq, new_cq(1), ibv_destroy_cq);
	REFUSED(ibv_qp, new_qp(1, 1), ibv_destroy_qp);
	REFUSED(ibv_qp, new_datagram_qp(a.cq), ibv_destroy_qp);
	REFUSED(ibv_pd, ibv_alloc_pd(context), ibv_dealloc_pd);
	REFUSED(ibv_comp_channel, ibv_create_comp_channel(context), ibv_destroy_comp_channel);
	unlimit();
	give_back(all);
	give_back(freed);
	/* Whether they were kept, wait, or ended the connection: each completes. */
	while (done < posted) {
		if (receives < MESSAGES) {
			receive(&b, receives, 0, MESSAGE);
			receives++;
		}
		done += ibv_poll_cq(a.cq, 1, &wc);
		CHECK(ibv_poll_cq(b.cq, 1, &wc) >= 0);
		CHECK(now() < end);
	}
	unmake(&a);
	unmake(&b);
}

/* And there is one to show that all is well. */
static void all_is_well(void)
{
	struct ibv_send_wr wr = { .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_sge sge;

	meet();
	sge = part(&a, 0, MESSAGE);
	wr.sg_list = &sge;
	memset(a.buf, 0x5a, MESSAGE);
	receive(&b, 7, 0, MESSAGE);
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	CHECK(take(&a).status == IBV_WC_SUCCESS);
	CHECK(take(&b).status == IBV_WC_SUCCESS);
	CHECK(memcmp(a.buf, b.buf, MESSAGE) == 0);
	unmake(&a);
	unmake(&b);
}

int main(void)
{
	open_context();
	port();
	make(&a, NULL);
	make(&b, NULL);
	absurd_sizes();
	/* Before so much was freed that a queue has room without asking the system. */
	posts();
	filled();
	unmake(&a);
	unmake(&b);
	for (int round = 0; round < 5; round++)
		nothing_left();
	all_is_well();
	close_context();
	return 0;
}
