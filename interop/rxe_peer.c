/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * One end of an exchange between two queue pairs; the same program runs at both ends, each on its
 * own host's libibverbs. First the end that connects operates and the other one checks, then the
 * other way round. Both walk through the same steps: each operation that the type of queue pair
 * has, with lengths of 0 to 1 MiB, from and to odd addresses. Every byte is compared, and 64 on
 * either side of it must be untouched.
 *
 * usage: rxe_peer [-d DEVICE] [-g GID-INDEX] [-t rc|uc|ud] [-m MTU] [-s SECONDS] [-w SECONDS]
 *                 [-l] PORT [HOST]
 *   -s  goes through all steps again and again for so long, each time with other contents
 *   -w  waits so many seconds before the first step, and says its number and PSN
 *   -l  the way loses packets: messages of UC and UD may stay away, or come twice; RC waits for
 *       answers a quarter as long
 * Without HOST it waits for the other end at TCP port PORT. Status 0: all was as it should be.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LONGEST (1u << 20)	/* bytes of a message */
#define MARGIN 64u		/* bytes around it that nobody may touch */
#define WINDOW (LONGEST + 4 * MARGIN)
#define SIZE (3 * WINDOW)	/* even steps, odd steps, unreliable messages */
#define UNTOUCHED 0xee
#define GRH 40u
#define QKEY 0x11111111u
#define DEPTH 64
#define BURST 32		/* requests posted at once */
#define SURE 16384u		/* unreliable messages up to this length arrive unless the way is bad */
#define PATIENCE 90.0		/* seconds for an operation */
#define LOST 0.15		/* seconds after which an unreliable message is lost */

enum op { SEND, SEND_IMM, SEND_INV, WRITE, WRITE_IMM, READ, SWAP, ADD, OPS };

static const char *const names[OPS] = {
	"Send", "Send with Immediate", "Send with Invalidate", "Write", "Write with Immediate",
	"Read", "Compare-Swap", "Fetch-Add",
};
static const enum ibv_wr_opcode opcodes[OPS] = {
	IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV, IBV_WR_RDMA_WRITE,
	IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
	IBV_WR_ATOMIC_FETCH_AND_ADD,
};
static const uint32_t lengths[] = {
	0, 1, 2, 3, 4, 5, 63, 255, 256, 257, 1023, 1024, 1025, 2048, 4096, 10001, 65536, 300001,
	LONGEST,
};

/* What the ends tell each other in the beginning; in network byte order but for the GID. */
struct hello {
	union ibv_gid gid;
	uint64_t addr;
	uint32_t rkey, qpn, psn;
};

/* What they say at each step. */
struct word {
	uint32_t what, rkey;
};

struct step {
	uint32_t seed, length;
	enum op op;
	uint8_t *from, *to;	/* at the active end, at the passive one */
	uint64_t to_offset;
};

static enum ibv_qp_type type = IBV_QPT_RC;
static bool lossy;
static uint32_t mtu = 1024;
static int sock = -1;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_ah *ah;
static struct ibv_mr *own_mr, *lent_mr;
static uint8_t *own, *lent;	/* the active end's memory, the passive one's */
static struct hello ours, theirs;
static bool waits;		/* a receive waits for an unreliable message */
static unsigned long done, lost, twice;

__attribute__((noreturn, format(printf, 1, 2)))
static void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("rxe_peer: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(1);
}

static void must(bool well, const char *what)
{
	if (!well)
		die("%s: %s", what, strerror(errno));
}

static double now(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static bool reliable(void)
{
	return type == IBV_QPT_RC;
}

/* The byte at a place of a message: no two places of a few hundred alike, no two seeds either. */
static uint8_t octet(uint32_t seed, uint32_t place)
{
	uint32_t mixed = (place + seed * 0x9e3779b9u) * 0x85ebca6bu;

	return (uint8_t)(mixed >> 24 ^ mixed >> 11);
}

static void fill(uint8_t *at, uint32_t seed, uint32_t length)
{
	for (uint32_t i = 0; i < length; i++)
		at[i] = octet(seed, i);
}

static void clear(uint8_t *at, uint32_t length)
{
	memset(at - MARGIN, UNTOUCHED, length + 2 * MARGIN);
}

/* Whether the message is there, and nothing else around it. Around unreliable messages there may be
 * a GRH, or what is left of one that did not come whole. */
static bool holds(const uint8_t *at, uint32_t seed, uint32_t length)
{
	for (uint32_t i = 0; i < length; i++) {
		if (at[i] != octet(seed, i))
			return false;
	}
	for (uint32_t i = 0; i < MARGIN && reliable(); i++) {
		if (at[-1 - (int)i] != UNTOUCHED || at[length + i] != UNTOUCHED)
			return false;
	}
	return true;
}

/* ---- the other end, over TCP ---- */

static void put(const void *from, size_t length)
{
	must(send(sock, from, length, MSG_NOSIGNAL) == (ssize_t)length, "telling the other end");
}

static void get(void *to, size_t length)
{
	ssize_t got = recv(sock, to, length, MSG_WAITALL);

	must(got >= 0, "hearing the other end");
	if (got != (ssize_t)length)
		die("the other end is gone");
}

static void tell(uint32_t what, uint32_t rkey)
{
	struct word word = { htonl(what), htonl(rkey) };

	put(&word, sizeof word);
}

static uint32_t hear(uint32_t what)
{
	struct word word;

	get(&word, sizeof word);
	if (ntohl(word.what) != what)
		die("the other end is at step %u, this one at %u", ntohl(word.what), what);
	return ntohl(word.rkey);
}

static void meet(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE }, *found;
	struct timeval patience = { .tv_sec = 2 * (long)PATIENCE };
	int one = 1;

	if (!host)
		hints.ai_family = AF_INET6;
	if (getaddrinfo(host, port, &hints, &found))
		die("no such address");
	sock = socket(found->ai_family, SOCK_STREAM, 0);
	must(sock >= 0, "socket");
	if (host) {
		must(!connect(sock, found->ai_addr, found->ai_addrlen), "connect");
	} else {
		int listener = sock;

		setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
		must(!bind(listener, found->ai_addr, found->ai_addrlen), "bind");
		must(!listen(listener, 1), "listen");
		sock = accept(listener, NULL, NULL);
		must(sock >= 0, "accept");
		close(listener);
	}
	freeaddrinfo(found);
	setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
}

/* ---- the queue pair ---- */

static void open_device(const char *name, int gid_index)
{
	int rights = IBV_ACCESS_LOCAL_WRITE;
	struct ibv_device **list = ibv_get_device_list(NULL), **at = list;
	struct ibv_qp_init_attr init = {
		.qp_type = type,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 2,
			 .max_recv_sge = 2 },
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	must(list != NULL, "ibv_get_device_list");
	while (*at && name && strcmp(ibv_get_device_name(*at), name))
		at++;
	if (!*at)
		die("no device");
	context = ibv_open_device(*at);
	must(context != NULL, "ibv_open_device");
	pd = ibv_alloc_pd(context);
	must(pd != NULL, "ibv_alloc_pd");
	cq = ibv_create_cq(context, 2 * DEPTH, NULL, NULL, 0);
	must(cq != NULL, "ibv_create_cq");
	own = malloc(SIZE);
	lent = malloc(SIZE);
	must(own && lent, "malloc");
	memset(lent, UNTOUCHED, SIZE);
	memset(own, UNTOUCHED, SIZE);
	own_mr = ibv_reg_mr(pd, own, SIZE, rights);
	if (reliable())
		rights |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
	lent_mr = ibv_reg_mr(pd, lent, SIZE, rights | IBV_ACCESS_REMOTE_WRITE);
	must(own_mr && lent_mr, "ibv_reg_mr");
	init.send_cq = init.recv_cq = cq;
	qp = ibv_create_qp(pd, &init);
	must(qp != NULL, "ibv_create_qp");
	if (type == IBV_QPT_UD) {
		mask |= IBV_QP_QKEY;
	} else {
		mask |= IBV_QP_ACCESS_FLAGS;
		attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
		if (reliable())
			attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	}
	errno = ibv_modify_qp(qp, &attr, mask);
	must(!errno, "to INIT");
	must(!ibv_query_gid(context, 1, gid_index, &ours.gid), "ibv_query_gid");
	ours.addr = htobe64((uintptr_t)lent);
	ours.rkey = htonl(lent_mr->rkey);
	ours.qpn = htonl(qp->qp_num);
	/* near the end, so that it wraps */
	ours.psn = htonl((0xffff00u + (uint32_t)getpid()) & 0xffffffu);
}

static void get_ready(int gid_index)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu == 256 ? IBV_MTU_256 : mtu == 512 ? IBV_MTU_512 :
			    mtu == 1024 ? IBV_MTU_1024 : mtu == 2048 ? IBV_MTU_2048 : IBV_MTU_4096,
		.dest_qp_num = ntohl(theirs.qpn),
		.rq_psn = ntohl(theirs.psn),
		.max_dest_rd_atomic = 16,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = theirs.gid, .sgid_index = gid_index,
				      .hop_limit = 64 } },
	};
	int mask = IBV_QP_STATE, more = 0;

	if (type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (reliable()) {
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		more = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	}
	errno = ibv_modify_qp(qp, &attr, mask);
	must(!errno, "to RTR");
	if (type == IBV_QPT_UD) {
		ah = ibv_create_ah(pd, &attr.ah_attr);
		must(ah != NULL, "ibv_create_ah");
	}
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = ntohl(ours.psn);
	/* 0.27 s: a busy guest may stand still for longer than 1 s. Where packets are lost the time goes
	 * by in waiting, as rxe has other means for few losses only; so 67 ms. */
	attr.timeout = lossy ? 14 : 16;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 16;
	errno = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | more);
	must(!errno, "to RTS");
}

/* Waits for a completion so long. False: none came. */
static bool poll_for(struct ibv_wc *wc, double seconds)
{
	double end = now() + seconds;

	for (unsigned int tries = 0;; tries++) {
		int polled = ibv_poll_cq(cq, 1, wc);

		if (polled < 0)
			die("ibv_poll_cq fails");
		if (polled == 1)
			break;
		if (tries % 256 == 255) {
			if (now() > end)
				return false;
			usleep(50);
		}
	}
	if (wc->status != IBV_WC_SUCCESS)
		die("request %llu ends with %s", (unsigned long long)wc->wr_id,
		    ibv_wc_status_str(wc->status));
	return true;
}

static void finish(struct ibv_wc *wc, const char *what)
{
	if (!poll_for(wc, PATIENCE))
		die("%s: no completion", what);
}

/* Two elements for one stretch of memory. */
static int split(struct ibv_sge sge[2], const struct ibv_mr *mr, uint8_t *at, uint32_t length)
{
	uint32_t first = length / 3;

	sge[0] = (struct ibv_sge){ (uintptr_t)at, first, mr->lkey };
	sge[1] = (struct ibv_sge){ (uintptr_t)at + first, length - first, mr->lkey };
	return 2;
}

static void post_receive(uint8_t *at, uint32_t length)
{
	struct ibv_sge sge[2];
	struct ibv_recv_wr wr = { .sg_list = sge }, *bad;

	wr.num_sge = split(sge, lent_mr, at, length);
	errno = ibv_post_recv(qp, &wr, &bad);
	must(!errno, "ibv_post_recv");
}

/* What an atomic operation finds. */
static uint64_t before(const struct step *step)
{
	return (uint64_t)step->seed << 32 | (step->seed & 1);
}

/* What a Compare-Swap compares it with: every second one swaps. */
static uint64_t compared(const struct step *step)
{
	return (uint64_t)step->seed << 32;
}

static void post(const struct step *step, uint32_t rkey, bool signaled)
{
	struct ibv_sge sge[2];
	struct ibv_send_wr *bad, wr = {
		.wr_id = step->seed,
		.opcode = opcodes[step->op],
		.send_flags = signaled ? IBV_SEND_SIGNALED : 0,
		.sg_list = sge,
	};
	uint64_t to = be64toh(theirs.addr) + step->to_offset;

	wr.num_sge = split(sge, own_mr, step->from, step->length);
	switch (step->op) {
	case SEND_INV:
		wr.invalidate_rkey = rkey;
		break;
	case SWAP:
	case ADD:
		wr.num_sge = 1;
		sge[0].length = 8;
		wr.wr.atomic.remote_addr = to;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = step->op == ADD ? step->seed : compared(step);
		wr.wr.atomic.swap = ~(uint64_t)step->seed;
		break;
	default:
		wr.imm_data = htonl(step->seed);
		if (type == IBV_QPT_UD) {
			wr.wr.ud.ah = ah;
			wr.wr.ud.remote_qpn = ntohl(theirs.qpn);
			wr.wr.ud.remote_qkey = QKEY;
		} else {
			wr.wr.rdma.remote_addr = to;
			wr.wr.rdma.rkey = rkey;
		}
	}
	errno = ibv_post_send(qp, &wr, &bad);
	must(!errno, "ibv_post_send");
}

/* ---- steps ---- */

static bool takes_receive(enum op op)
{
	return op <= SEND_INV || op == WRITE_IMM;
}

static bool exists(enum op op, uint32_t length)
{
	switch (type) {
	case IBV_QPT_RC:
		return op < SWAP || length < 10;
	case IBV_QPT_UC:
		/* a burst of longer ones is more than many a socket holds */
		return (lossy || length <= SURE) &&
		       (op <= SEND_IMM || op == WRITE_IMM || (op == WRITE && !lossy));
	default:
		return op <= SEND_IMM && length <= mtu;
	}
}

static struct step make(uint32_t seed, enum op op, uint32_t length)
{
	uint32_t base = seed % 2 * WINDOW + MARGIN;
	uint32_t to = base + seed % 29, from = base + seed % 23;

	if (op >= SWAP)
		to = from = base, length = 8;
	return (struct step){ .seed = seed, .length = length, .op = op, .from = own + from,
			      .to = lent + to, .to_offset = to };
}

/* What is wrong with a message that has come, to `at` if that is known; NULL: nothing. */
static const char *flaw(const struct step *step, const struct ibv_wc *wc, const uint8_t *at,
			uint32_t rkey)
{
	bool write = step->op == WRITE_IMM, inv = step->op == SEND_INV;
	bool imm = write || step->op == SEND_IMM, ud = type == IBV_QPT_UD;

	if (wc->opcode != (write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV))
		return "wrong opcode";
	if (wc->byte_len != step->length + (ud ? GRH : 0))
		return "wrong byte_len";
	if (imm != !!(wc->wc_flags & IBV_WC_WITH_IMM) || (imm && ntohl(wc->imm_data) != step->seed))
		return "wrong immediate";
	/* rxe (Linux 7.3) says the kernel's own flag, which programs know by another name */
	if (inv != !!(wc->wc_flags & (IBV_WC_WITH_INV | IBV_WC_IP_CSUM_OK)) ||
	    (inv && wc->invalidated_rkey != rkey))
		return "wrong invalidated R_Key";
	if (ud && (wc->src_qp != ntohl(theirs.qpn) || !(wc->wc_flags & IBV_WC_GRH)))
		return "wrong source, or no GRH";
	return !at || holds(at, step->seed, step->length) ? NULL : "wrong contents";
}

__attribute__((noreturn))
static void refuse(const struct step *step, const char *flaw)
{
	die("%s of %u bytes, step %u: %s", names[step->op], step->length, step->seed, flaw);
}

static void active(const struct step *step)
{
	struct ibv_wc wc;
	uint32_t rkey;
	uint64_t value = before(step);

	if (step->op >= READ)
		clear(step->from, step->length);
	else
		fill(step->from, step->seed, step->length);
	rkey = hear(step->seed);
	post(step, rkey, true);
	finish(&wc, names[step->op]);
	if (wc.wr_id != step->seed)
		refuse(step, "another request completed");
	if (step->op == READ && !holds(step->from, step->seed, step->length))
		refuse(step, "wrong contents");
	if (step->op >= SWAP && memcmp(step->from, &value, 8))
		refuse(step, "wrong original value");
	tell(step->seed, 0);
	hear(step->seed);
	done++;
}

/* A memory window that the other end invalidates. */
static struct ibv_mw *bind_window(const struct step *step, uint32_t *rkey)
{
	struct ibv_send_wr *bad, wr = { .opcode = IBV_WR_BIND_MW,
					.send_flags = IBV_SEND_SIGNALED };
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_wc wc;

	must(mw != NULL, "ibv_alloc_mw");
	*rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = *rkey;
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
		lent_mr, (uintptr_t)step->to, 64, IBV_ACCESS_REMOTE_WRITE };
	errno = ibv_post_send(qp, &wr, &bad);
	must(!errno, "binding a memory window");
	finish(&wc, "binding a memory window");
	return mw;
}

static void passive_reliable(const struct step *step)
{
	struct ibv_mw *mw = NULL;
	struct ibv_wc wc;
	uint32_t rkey = lent_mr->rkey;
	uint64_t value = before(step);
	const char *wrong = NULL;

	clear(step->to, step->length);
	if (step->op == READ)
		fill(step->to, step->seed, step->length);
	if (step->op >= SWAP)
		memcpy(step->to, &value, 8);
	if (takes_receive(step->op))
		post_receive(step->to, step->op == WRITE_IMM ? 0 : step->length);
	if (step->op == SEND_INV)
		mw = bind_window(step, &rkey);
	tell(step->seed, rkey);
	if (takes_receive(step->op)) {
		finish(&wc, names[step->op]);
		wrong = flaw(step, &wc, step->to, rkey);
	}
	hear(step->seed);
	if (step->op == ADD)
		value += step->seed;
	else if (step->op == SWAP && value == compared(step))
		value = ~(uint64_t)step->seed;
	if (step->op >= SWAP)
		wrong = memcmp(step->to, &value, 8) ? "wrong result" : NULL;
	else if (!wrong && !holds(step->to, step->seed, step->length))
		wrong = "wrong contents";
	if (wrong)
		refuse(step, wrong);
	if (mw)
		must(!ibv_dealloc_mw(mw), "ibv_dealloc_mw");
	tell(step->seed, 0);
	done++;
}

/* Has a receive wait for the next unreliable message. */
static void await(uint8_t *inbox)
{
	uint32_t grh = type == IBV_QPT_UD ? GRH : 0;

	if (!waits)
		post_receive(inbox - grh, LONGEST + grh);
	waits = true;
}

/* Takes an unreliable message, if it comes, from where such messages go. */
static bool arrives(const struct step *step, uint8_t *inbox)
{
	static struct step recent[4];	/* what may still come, or come again */
	double patience = lossy ? LOST : PATIENCE;
	struct ibv_wc wc;

	recent[step->seed % 4] = *step;
	while (poll_for(&wc, patience)) {
		const char *wrong = flaw(step, &wc, step->op == WRITE_IMM ? step->to : inbox, 0);
		const char *known = wrong;

		waits = false;
		if (!wrong)
			return true;
		for (int i = 0; i < 4 && known; i++)
			known = flaw(&recent[i], &wc, recent[i].op == WRITE_IMM ? NULL : inbox, 0);
		if (known || !lossy)
			refuse(step, wrong);
		twice++;
		await(inbox);
	}
	return false;
}

static void passive_unreliable(const struct step *step)
{
	uint8_t *inbox = lent + 2 * WINDOW + MARGIN;
	double end = now() + PATIENCE;

	clear(step->to, step->length);
	await(inbox);
	tell(step->seed, lent_mr->rkey);
	if (takes_receive(step->op)) {
		if (!arrives(step, inbox))
			lost++;
	} else {
		while (!holds(step->to, step->seed, step->length)) {
			if (now() > end)
				refuse(step, "wrong contents");
			usleep(50);
		}
	}
	hear(step->seed);
	tell(step->seed, 0);
	done++;
}

/* Requests of all kinds that are posted at once, each in a place of its own. */
static uint32_t burst(bool operates, uint32_t seed)
{
	static const enum op ops[] = { SEND, WRITE, READ, SEND_IMM, WRITE_IMM };
	struct step steps[BURST];
	struct ibv_wc wc;

	for (uint32_t i = 0; i < BURST; i++) {
		uint32_t place = MARGIN + i * (LONGEST / BURST);

		steps[i] = make(seed + i, ops[i % 5], (i * 7919 + seed) % 30000);
		steps[i].from = own + place;
		steps[i].to = lent + place;
		steps[i].to_offset = place;
	}
	for (struct step *step = steps; step < steps + BURST; step++) {
		bool filled = operates != (step->op == READ);
		uint8_t *at = operates ? step->from : step->to;

		clear(at, step->length);
		if (filled)
			fill(at, step->seed, step->length);
		if (!operates && takes_receive(step->op))
			post_receive(step->to, step->op == WRITE_IMM ? 0 : step->length);
	}
	if (operates) {
		uint32_t rkey = hear(seed);

		for (uint32_t i = 0; i < BURST; i++)
			post(&steps[i], rkey, i == BURST - 1);
		finish(&wc, "many requests");
		tell(seed, 0);
		hear(seed);
	} else {
		tell(seed, lent_mr->rkey);
		for (uint32_t i = 0; i < BURST; i++) {
			const char *wrong;

			if (!takes_receive(steps[i].op))
				continue;
			finish(&wc, "many requests");
			wrong = flaw(&steps[i], &wc, steps[i].to, 0);
			if (wrong)
				refuse(&steps[i], wrong);
		}
		hear(seed);
	}
	for (struct step *step = steps; step < steps + BURST; step++) {
		if (operates == (step->op == READ) &&
		    !holds(operates ? step->from : step->to, step->seed, step->length))
			refuse(step, "wrong contents, one of many");
	}
	if (!operates)
		tell(seed, 0);
	done += BURST;
	return seed + BURST;
}

static uint32_t all_steps(bool operates, uint32_t seed)
{
	for (enum op op = 0; op < OPS; op++) {
		for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
			struct step step = make(seed, op, lengths[i]);

			if (!exists(op, lengths[i]))
				continue;
			if (operates)
				active(&step);
			else if (reliable())
				passive_reliable(&step);
			else
				passive_unreliable(&step);
			seed++;
		}
	}
	return reliable() ? burst(operates, seed) : seed;
}

__attribute__((noreturn))
static void usage(void)
{
	die("usage: rxe_peer [-d DEVICE] [-g GID-INDEX] [-t rc|uc|ud] [-m MTU] [-s SECONDS] "
	    "[-w SECONDS] [-l] PORT [HOST]");
}

int main(int argc, char **argv)
{
	const char *device = NULL, *host;
	double seconds = 0, wait = 0, start;
	int gid_index = 0, option;
	uint32_t seed = 1;
	bool more = true;

	while ((option = getopt(argc, argv, "d:g:t:m:s:w:l")) != -1) {
		switch (option) {
		case 'd': device = optarg; break;
		case 'g': gid_index = atoi(optarg); break;
		case 'm': mtu = (uint32_t)atoi(optarg); break;
		case 's': seconds = atof(optarg); break;
		case 'w': wait = atof(optarg); break;
		case 'l': lossy = true; break;
		case 't':
			type = !strcmp(optarg, "ud") ? IBV_QPT_UD :
			       !strcmp(optarg, "uc") ? IBV_QPT_UC : IBV_QPT_RC;
			break;
		default: usage();
		}
	}
	if (optind >= argc)
		usage();
	host = argv[optind + 1];
	meet(host, argv[optind]);
	open_device(device, gid_index);
	put(&ours, sizeof ours);
	get(&theirs, sizeof theirs);
	get_ready(gid_index);
	/* both are ready to receive before anybody sends */
	tell(0, 0);
	hear(0);
	if (wait > 0) {
		printf("waits as %#x, expects %#x\n", qp->qp_num, ntohl(theirs.psn));
		fflush(stdout);
		usleep((useconds_t)(wait * 1e6));
	}
	start = now();
	while (more) {
		seed = all_steps(host != NULL, seed);
		seed = all_steps(host == NULL, seed);
		more = now() < start + seconds;
		/* the end that connects decides */
		if (host)
			tell(seed, more);
		else
			more = hear(seed);
	}
	printf("%lu operations, contents right; %lu lost, %lu late or twice; %.0f s\n", done, lost,
	       twice, now() - start);
	return 0;
}
