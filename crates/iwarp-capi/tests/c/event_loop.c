/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Processes with event loops, each connected with each: each sleeps in epoll on the descriptor of its
 * completion channel, which is not to wait, and takes an event whenever that is readable. The queues
 * of all connections share the channel; a second thread sends, and waits for what the loop takes. */
#include <sys/epoll.h>
#include "cm.h"

enum { ROUNDS = 2000, DEPTH = 16, SIZE = 64, PROCESSES = 3, CONNECTIONS = PROCESSES - 1 };

struct connection {
	struct rdma_cm_id *id;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_mr *mr;
	char buffers[2 * DEPTH][SIZE];
	int received, sent;
	pthread_mutex_t lock;
	pthread_cond_t more;
	/* It listens for the other end. */
	int serves;
	/* A line to the process at the other end. */
	int line;
};

static struct connection connections[CONNECTIONS];
static struct ibv_comp_channel *channel;
static int epoll, solicited_only, rank;

static void post_recv(struct connection *on, int number)
{
	struct ibv_sge sge = { (uintptr_t)on->buffers[number], SIZE, on->mr->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = number, .sg_list = &sge, .num_sge = 1 };

	CHECK(ibv_post_recv(on->id->qp, &wr, &bad) == 0);
}

static void post_send(struct connection *on)
{
	struct ibv_sge sge = { (uintptr_t)on->buffers[DEPTH], SIZE / 2, on->mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED | (solicited_only ? IBV_SEND_SOLICITED : 0),
	};

	pthread_mutex_lock(&on->lock);
	CHECK(ibv_post_send(on->id->qp, &wr, &bad) == 0);
	pthread_mutex_unlock(&on->lock);
}

/* Arms the queue, and takes what it has in one call: more has an event of its own. */
static void arm_and_take(struct connection *on, struct ibv_cq *cq)
{
	struct ibv_wc done[4 * DEPTH];
	int number;

	CHECK(ibv_req_notify_cq(cq, solicited_only && cq != on->send_cq) == 0);
	pthread_mutex_lock(&on->lock);
	number = ibv_poll_cq(cq, 4 * DEPTH, done);
	CHECK(number >= 0);
	for (int i = 0; i < number; i++) {
		CHECK(done[i].status == IBV_WC_SUCCESS);
		if (!(done[i].opcode & IBV_WC_RECV)) {
			on->sent++;
			continue;
		}
		on->received++;
		post_recv(on, done[i].wr_id);
	}
	pthread_cond_signal(&on->more);
	pthread_mutex_unlock(&on->lock);
}

/* Sleeps until the descriptor is readable, and takes one event. */
static void turn(void)
{
	struct epoll_event ready;
	struct ibv_cq *cq;
	void *context;

	CHECK(epoll_wait(epoll, &ready, 1, DEADLINE_MS) == 1);
	CHECK(ibv_get_cq_event(channel, &cq, &context) == 0);
	ibv_ack_cq_events(cq, 1);
	arm_and_take(context, cq);
}

static void make_channel(struct ibv_context *device)
{
	struct epoll_event readable = { .events = EPOLLIN };
	int flags;

	CHECK((channel = ibv_create_comp_channel(device)));
	flags = fcntl(channel->fd, F_GETFL);
	CHECK(fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) == 0);
	epoll = epoll_create1(0);
	CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, channel->fd, &readable) == 0);
}

static void set_up(struct connection *on, int one_queue)
{
	struct ibv_context *device = on->id->verbs;
	struct ibv_qp_init_attr attr = {
		.cap = { 2 * DEPTH, DEPTH, 1, 1, 0 },
		.qp_type = IBV_QPT_RC,
	};

	if (!channel)
		make_channel(device);
	pthread_mutex_init(&on->lock, NULL);
	pthread_cond_init(&on->more, NULL);
	on->recv_cq = on->send_cq = ibv_create_cq(device, 4 * DEPTH, on, channel, 0);
	if (!one_queue)
		on->send_cq = ibv_create_cq(device, 4 * DEPTH, on, channel, 0);
	attr.recv_cq = on->recv_cq;
	attr.send_cq = on->send_cq;
	CHECK(on->send_cq && on->recv_cq);
	CHECK(rdma_create_qp(on->id, NULL, &attr) == 0);
	on->mr = ibv_reg_mr(on->id->pd, on->buffers, sizeof on->buffers, IBV_ACCESS_LOCAL_WRITE);
	CHECK(on->mr);
	for (int i = 0; i < DEPTH; i++)
		post_recv(on, i);
	arm_and_take(on, on->recv_cq);
	if (!one_queue)
		arm_and_take(on, on->send_cq);
}

static void step(int fd, int tells)
{
	char byte = 0;

	if (tells)
		CHECK(write(fd, &byte, 1) == 1);
	else
		CHECK(readable(fd, DEADLINE_MS) && read(fd, &byte, 1) == 1);
}

/* The connection with the next process of the ring, or with the one before. */
static struct connection *neighbour(int distance)
{
	int other = (rank + PROCESSES + distance) % PROCESSES;

	return &connections[other < rank ? other : other - 1];
}

static void await(struct connection *on, int received)
{
	pthread_mutex_lock(&on->lock);
	while (on->received < received)
		pthread_cond_wait(&on->more, &on->lock);
	pthread_mutex_unlock(&on->lock);
}

/* Each gives something to the next one, which says that it has it. */
static void *go_round(void *unused)
{
	struct connection *next = neighbour(1), *last = neighbour(-1);

	for (int i = 1; i <= ROUNDS; i++) {
		post_send(next);
		await(last, i);
		post_send(last);
		await(next, i);
	}
	return unused;
}

static void run_loop(void)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, go_round, NULL) == 0);
	for (int i = 0; i < CONNECTIONS; i++)
		while (connections[i].received < ROUNDS || connections[i].sent < ROUNDS)
			turn();
	CHECK(pthread_join(thread, NULL) == 0);
}

/* Returns once all processes are here. */
static void meet(void)
{
	for (int i = 0; i < CONNECTIONS; i++)
		step(connections[i].line, 1);
	for (int i = 0; i < CONNECTIONS; i++)
		step(connections[i].line, 0);
}

/* One process does something else while a message of another comes. */
static void keep_waiting(void)
{
	struct connection *on = &connections[0];

	if (rank == 0) {
		/* The message is there, and its completion is not asked for. */
		step(on->line, 0);
		while (on->received == ROUNDS)
			turn();
	} else if (rank == 1) {
		post_send(on);
		while (on->sent == ROUNDS)
			turn();
		step(on->line, 1);
	}
}

static void join(struct connection *on, int one_queue)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };
	struct rdma_event_channel *steps = rdma_create_event_channel();
	struct rdma_cm_event *event;
	uint16_t port;

	CHECK(steps);
	if (on->serves) {
		port = ntohs(rdma_get_src_port(make_listener(steps, 0)));
		CHECK(write(on->line, &port, sizeof port) == sizeof port);
		event = expect(steps, RDMA_CM_EVENT_CONNECT_REQUEST);
		on->id = event->id;
		CHECK(rdma_ack_cm_event(event) == 0);
		set_up(on, one_queue);
		CHECK(rdma_accept(on->id, &param) == 0);
	} else {
		CHECK(read(on->line, &port, sizeof port) == sizeof port);
		on->id = make_client(steps, port);
		set_up(on, one_queue);
		CHECK(rdma_connect(on->id, &param) == 0);
	}
	pass(steps, RDMA_CM_EVENT_ESTABLISHED);
}

int main(int argc, char **argv)
{
	int lines[PROCESSES][PROCESSES], fds[2], status, one_queue;
	pid_t children[PROCESSES];

	one_queue = argc < 2 || !strchr(argv[1], '2');
	solicited_only = argc > 1 && strchr(argv[1], 's');
	for (int one = 0; one < PROCESSES; one++)
		for (int other = 0; other < one; other++) {
			CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
			lines[one][other] = fds[0];
			lines[other][one] = fds[1];
		}
	for (int child = 1; child < PROCESSES && rank == 0; child++) {
		CHECK((children[child] = fork()) >= 0);
		if (children[child] == 0)
			rank = child;
	}
	for (int other = 0, i = 0; other < PROCESSES; other++) {
		if (other == rank)
			continue;
		connections[i].line = lines[rank][other];
		connections[i].serves = rank < other;
		join(&connections[i++], one_queue);
	}
	run_loop();
	meet();
	keep_waiting();
	meet();
	if (rank > 0)
		return 0;
	for (int child = 1; child < PROCESSES; child++)
		CHECK(waitpid(children[child], &status, 0) == children[child] && status == 0);
	fprintf(stderr, "-- done\n");
	return 0;
}
