/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A program whose sandbox refuses system calls from the start: those that REFUSED names. It moves
 * bytes all the same, or says what failed. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include "pair.h"

static const struct {
	const char *name;
	int number;
} calls[] = {
#define CALL(name) { #name, SYS_##name }
	CALL(ioctl), CALL(getrandom), CALL(epoll_pwait2), CALL(epoll_pwait), CALL(membarrier),
	CALL(madvise), CALL(memfd_create), CALL(timerfd_create), CALL(mincore),
	CALL(sched_yield), CALL(sched_getaffinity), CALL(getsockopt), CALL(prctl),
	CALL(rt_sigprocmask), CALL(clock_nanosleep), CALL(openat), CALL(eventfd2),
	CALL(epoll_create1), CALL(epoll_ctl), CALL(fcntl), CALL(clone3), CALL(socket),
	CALL(bind), CALL(listen), CALL(connect), CALL(getsockname), CALL(getpeername),
	CALL(setsockopt), CALL(recvmsg), CALL(accept), CALL(accept4), CALL(recvmmsg),
};

static int deny(int number)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(*filter), filter };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &program);
}

/* Waits until both sides have completed something, well; whichever says first that it cannot. */
static void both(void)
{
	struct side *sides[] = { &a, &b };
	double end = now() + 15;
	int done[2] = { 0 };
	struct ibv_wc wc;

	while (!done[0] || !done[1]) {
		for (int i = 0; i < 2; i++) {
			int n = ibv_poll_cq(sides[i]->cq, 1, &wc);

			CHECK(n >= 0);
			if (n && wc.status != IBV_WC_SUCCESS) {
				printf("%s\n", ibv_wc_status_str(wc.status));
				exit(1);
			}
			done[i] += n;
		}
		if (now() > end) {
			puts("stands still");
			exit(2);
		}
	}
}

static void exchange(void)
{
	struct ibv_sge sge = part(&a, 0, 1000);
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	for (int i = 0; i < 100; i++) {
		memset(a.buf, i + 1, 1000);
		receive(&b, i, 0, 1000);
		CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
		both();
		CHECK(b.buf[0] == i + 1 && b.buf[999] == i + 1);
	}
	/* The worker completes it. */
	struct pollfd ready = { channel->fd, POLLIN };
	struct ibv_cq *cq;
	void *its;
	CHECK(ibv_req_notify_cq(b.cq, 0) == 0);
	receive(&b, 0, 0, 1000);
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	CHECK(ppoll(&ready, 1, &(struct timespec){ 15 }, NULL) == 1);
	CHECK(ibv_get_cq_event(channel, &cq, &its) == 0 && cq == b.cq);
	ibv_ack_cq_events(cq, 1);
	both();
}

/* Something is on its way that cannot be taken: the worker does not try it all the time. */
static void rest(void)
{
	struct timespec used[2];
	struct ibv_sge sge = part(&a, 0, 1000);
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

	receive(&b, 0, 0, 1000);
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used[0]);
	ppoll(NULL, 0, &(struct timespec){ 2 }, NULL);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used[1]);
	if (used[1].tv_sec - used[0].tv_sec + (used[1].tv_nsec - used[0].tv_nsec) / 1e9 < 0.5)
		puts("rests");
}

int main(void)
{
	char *list = getenv("REFUSED"), *name;

	CHECK(list);
	while ((name = strsep(&list, ","))) {
		size_t i = 0;

		while (strcmp(calls[i].name, name))
			CHECK(++i < sizeof(calls) / sizeof(*calls));
		CHECK(deny(calls[i].number) == 0);
	}
	open_context();
	meet();
	if (getenv("RESTS")) {
		rest();
		return 0;
	}
	exchange();
	unmake(&a);
	unmake(&b);
	puts("works");
	return 0;
}
