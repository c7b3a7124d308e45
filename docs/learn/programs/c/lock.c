/* Two clients count in the server's memory, with a lock that is there as well. */
#include "learn.h"

#define CLIENTS 2
#define ROUNDS 100

/* Alignment: atomic operations want addresses that are multiples of 8. */
struct shared {
	uint64_t lock, counter;
};

static void server(void)
{
	struct rdma_cm_id *peers[CLIENTS];
	struct shared shared = { 0, 0 };

	for (int i = 0; i < CLIENTS; i++) {
		peers[i] = next_request();
		expect_word(peers[i]);
		accept_and_grant(peers[i], HAVE(ibv_reg_mr(peers[i]->pd, &shared, sizeof shared,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
			IBV_ACCESS_REMOTE_ATOMIC)));
	}
	for (int i = 0; i < CLIENTS; i++)
		received(peers[i]);
	printf("server: the counter is %d\n", (int)shared.counter);
	printf("server: the lock is %s\n", shared.lock ? "taken" : "free");
}

/* Puts `after` there if `before` is there; returns what was there. */
static uint64_t compare_swap(struct rdma_cm_id *server, struct grant *grant, uint64_t before,
			     uint64_t after)
{
	static uint64_t found;
	static struct ibv_mr *into;
	struct ibv_send_wr request = { .opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .num_sge = 1 }, *bad;
	struct ibv_sge place;

	if (!into)
		into = HAVE(rdma_reg_msgs(server, &found, sizeof found));
	place = (struct ibv_sge){ (uintptr_t)&found, sizeof found, into->lkey };
	request.sg_list = &place;
	request.wr.atomic.remote_addr = grant->address + offsetof(struct shared, lock);
	request.wr.atomic.rkey = grant->key;
	request.wr.atomic.compare_add = before;
	request.wr.atomic.swap = after;
	OK(ibv_post_send(server->qp, &request, &bad));
	sent(server);
	return found;
}

static void client(void)
{
	struct rdma_cm_id *server = to_server();
	struct grant grant = connect_for_grant(server);
	uint64_t counter, place = grant.address + offsetof(struct shared, counter);
	struct ibv_mr *memory = HAVE(rdma_reg_msgs(server, &counter, sizeof counter));

	for (int round = 0; round < ROUNDS; round++) {
		while (compare_swap(server, &grant, 0, 1) != 0)
			; /* the other one has it */
		OK(rdma_post_read(server, NULL, &counter, 8, memory, 0, place, grant.key));
		sent(server);
		counter++;
		OK(rdma_post_write(server, NULL, &counter, 8, memory, 0, place, grant.key));
		sent(server);
		compare_swap(server, &grant, 1, 0);
	}
	send_word(server);
}

int main(int argc, char **argv)
{
	return learn(argc, argv, server, client, CLIENTS);
}
