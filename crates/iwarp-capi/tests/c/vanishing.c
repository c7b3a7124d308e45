/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Memory that is unmapped, protected or truncated while it is registered: the request fails, the
 * program lives, and its own faults stay its own. */
#define _GNU_SOURCE
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include "pair.h"

enum { PAGE = 4096, PAGES = 16, LEN = PAGE * PAGES };

static sigjmp_buf out;
static volatile sig_atomic_t own_faults;

static void own_handler(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)info, (void)context;
	own_faults++;
	siglongjmp(out, 1);
}

static void take_faults(void)
{
	struct sigaction action = { .sa_sigaction = own_handler, .sa_flags = SA_SIGINFO };

	CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
	CHECK(sigaction(SIGBUS, &action, NULL) == 0);
}

/* What the program does with its signals when its memory is registered and connected. */
static enum { NOTHING, INSTALLS, RESETS, BLOCKS } late;

/* As if nobody had ever had a handler: a signal ends the process that does not block it. */
static void reset(void)
{
	CHECK(signal(SIGSEGV, SIG_DFL) != SIG_ERR && signal(SIGBUS, SIG_DFL) != SIG_ERR);
}

static void be_late(sigset_t *faults)
{
	sigemptyset(faults);
	sigaddset(faults, SIGSEGV);
	sigaddset(faults, SIGBUS);
	if (late == NOTHING)
		return;
	if (late == INSTALLS)
		take_faults();
	if (late >= RESETS)
		CHECK(pthread_sigmask(SIG_BLOCK, faults, NULL) == 0);
	if (late == RESETS)
		reset();
	/* A look at them holds for some milliseconds at most. */
	usleep(20000);
}

/* True if a thread of this process has both signals blocked, or has ended. */
static int blocks_faults(const char *thread)
{
	const unsigned long long both = 1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1);
	unsigned long long blocked = both;
	char path[300], line[256];

	snprintf(path, sizeof path, "/proc/self/task/%s/status", thread);
	FILE *file = fopen(path, "r");
	while (file && fgets(line, sizeof line, file))
		sscanf(line, "SigBlk: %llx", &blocked);
	if (file)
		fclose(file);
	return (blocked & both) == both;
}

/* Threads of the library block the signals while they wait, as all do in the end. */
static void be_quiet(void)
{
	int awake = 1;

	for (int looks = 0; awake; looks++) {
		DIR *threads = opendir("/proc/self/task");
		CHECK(threads && looks < 20000);
		awake = 0;
		for (struct dirent *thread; (thread = readdir(threads));)
			awake += thread->d_name[0] != '.' && !blocks_faults(thread->d_name);
		closedir(threads);
		usleep(1000);
	}
}

/* What it has blocked is blocked still, in all threads: it takes what it is sent itself. Where it
 * had put the default back, the library's handler is there again since the access; a program that
 * puts it back once more is ended by a signal that comes while a thread of the library is awake. */
static void take_own_signals(const sigset_t *faults)
{
	sigset_t blocked;
	int signal;

	if (late < RESETS)
		return;
	CHECK(pthread_sigmask(SIG_BLOCK, NULL, &blocked) == 0);
	CHECK(sigismember(&blocked, SIGSEGV) && sigismember(&blocked, SIGBUS));
	be_quiet();
	for (int i = 0; i < 100; i++) {
		CHECK(kill(getpid(), i % 2 ? SIGSEGV : SIGBUS) == 0);
		CHECK(sigwait(faults, &signal) == 0 && signal == (i % 2 ? SIGSEGV : SIGBUS));
	}
	CHECK(pthread_sigmask(SIG_UNBLOCK, faults, NULL) == 0);
	if (late == RESETS)
		take_faults();
}

/* The program's handler gets the program's fault, and jumps out of it. */
static void own_fault(void)
{
	char *page = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int before = own_faults;

	CHECK(page != MAP_FAILED);
	if (sigsetjmp(out, 1) == 0)
		*(volatile char *)page = 1;
	CHECK(own_faults == before + 1);
	munmap(page, PAGE);
}

static struct ibv_async_event next(void)
{
	struct pollfd ready = { context->async_fd, POLLIN };
	struct ibv_async_event event;

	CHECK(poll(&ready, 1, 20000) == 1);
	CHECK(ibv_get_async_event(context, &event) == 0);
	ibv_ack_async_event(&event);
	return event;
}

/* A buffer in a file in memory, so that it can be truncated. */
static int back(struct side *side)
{
	int file = memfd_create("buffer", MFD_CLOEXEC);

	CHECK(file >= 0 && ftruncate(file, LEN) == 0);
	CHECK(ibv_dereg_mr(side->mr) == 0);
	free(side->buf);
	/* Where the system maps nothing by itself, as it begins from above: what is unmapped there
	 * stays so, and no other memory comes to lie there. */
	static uintptr_t place = 0x200000000000;
	side->buf = mmap((void *)(place += 16 << 20), LEN, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_FIXED_NOREPLACE, file, 0);
	CHECK(side->buf != MAP_FAILED);
	side->mr = ibv_reg_mr(pd, side->buf, LEN,
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	CHECK(side->mr);
	return file;
}

static void take_away(struct side *side, int file, int way)
{
	switch (way) {
	case 0: CHECK(munmap(side->buf, LEN) == 0); break;
	case 1: CHECK(mprotect(side->buf, LEN, PROT_NONE) == 0); break;
	case 2: CHECK(ftruncate(file, 0) == 0); break;
	}
}

/* The peer's access, or one of the program's own. */
static void befall(int way, enum ibv_wr_opcode opcode, int own, uint32_t length)
{
	make(&a, NULL);
	make(&b, NULL);
	int file = back(&b);
	join();
	if (opcode == IBV_WR_SEND)
		receive(own ? &a : &b, 5, 0, length);
	sigset_t faults;
	be_late(&faults);
	take_away(&b, file, way);

	struct side *from = own ? &b : &a, *to = own ? &a : &b;
	struct ibv_sge sge = part(from, 0, length);
	struct ibv_send_wr wr = {
		.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)to->buf, to->mr->rkey },
	}, *bad;
	CHECK(ibv_post_send(from->qp, &wr, &bad) == 0);

	enum ibv_event_type expected = IBV_EVENT_QP_ACCESS_ERR;
	if (own) {
		struct ibv_wc wc = take(&b);
		CHECK(wc.wr_id == 7 && wc.status == IBV_WC_LOC_PROT_ERR);
		expected = IBV_EVENT_QP_FATAL;
	} else if (opcode == IBV_WR_SEND) {
		struct ibv_wc wc = take(&b);
		CHECK(wc.wr_id == 5 && wc.status == IBV_WC_LOC_PROT_ERR);
		expected = IBV_EVENT_QP_FATAL;
	}
	/* The other end is told that its peer gave up. */
	for (int seen = 0; seen != 3;) {
		struct ibv_async_event event = next();
		int victim = event.element.qp == b.qp;
		CHECK(event.event_type == (victim ? expected : IBV_EVENT_QP_FATAL));
		seen |= victim ? 1 : 2;
	}
	take_own_signals(&faults);
	own_fault();
	CHECK(ibv_destroy_qp(a.qp) == 0 && ibv_destroy_qp(b.qp) == 0);
	CHECK(ibv_destroy_cq(a.cq) == 0 && ibv_destroy_cq(b.cq) == 0);
	CHECK(ibv_dereg_mr(a.mr) == 0 && ibv_dereg_mr(b.mr) == 0);
	free(a.buf);
	munmap(b.buf, LEN);
	close(file);
}

static void refusals(void)
{
	int write = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	char *area = mmap(NULL, LEN, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr;

	CHECK(area != MAP_FAILED);
	errno = 0;
	CHECK(!ibv_reg_mr(pd, area, LEN, write) && errno == EFAULT);
	mr = ibv_reg_mr(pd, area, LEN, IBV_ACCESS_REMOTE_READ);
	CHECK(mr);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, write) != 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(mprotect(area + PAGE, PAGE, PROT_NONE) == 0);
	errno = 0;
	CHECK(!ibv_reg_mr(pd, area, LEN, IBV_ACCESS_REMOTE_READ) && errno == EFAULT);
	CHECK(munmap(area, LEN) == 0);
	errno = 0;
	CHECK(!ibv_reg_mr(pd, area, LEN, IBV_ACCESS_REMOTE_READ) && errno == EFAULT);
}

int main(int argc, char **argv)
{
	(void)argv;
	(void)argc;
	take_faults();
	open_context();
	refusals();
	for (int way = 0; way < 3; way++)
		for (int own = 0; own < 2; own++)
			for (int size = 0; size < 2; size++) {
				uint32_t length = size ? LEN : 64;
				befall(way, IBV_WR_RDMA_WRITE, own, length);
				befall(way, IBV_WR_RDMA_READ, own, length);
				befall(way, IBV_WR_SEND, own, length);
			}
	for (late = INSTALLS; late <= BLOCKS; late++)
		for (int own = 0; own < 2; own++) {
			befall(0, IBV_WR_RDMA_WRITE, own, 64);
			befall(1, IBV_WR_RDMA_READ, own, LEN);
			befall(2, IBV_WR_SEND, own, 64);
		}
	close_context();
	puts("vanished");
	return 0;
}
