/* Two ways to wait for a completion. */
#include "learn.h"

static void server(void)
{
	struct rdma_cm_id *peer = next_request();

	expect_word(peer);
	expect_word(peer);
	OK(rdma_accept(peer, NULL));
	for (int i = 0; i < 2; i++) {
		received(peer);
		usleep(100000); /* it has to think */
		send_word(peer);
	}
}

/* Keeps asking: the answer is seen at once, and the CPU is busy until then. */
static int by_polling(struct rdma_cm_id *server)
{
	struct ibv_wc wc;
	int looks = 1;

	while (ibv_poll_cq(server->recv_cq, 1, &wc) == 0)
		looks++;
	return looks;
}

/* Sleeps until something has come. */
static int by_event(struct rdma_cm_id *server)
{
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;

	for (int looks = 1;; looks++) {
		/* Armed first: what comes after this look makes an event. */
		OK(ibv_req_notify_cq(server->recv_cq, 0));
		if (ibv_poll_cq(server->recv_cq, 1, &wc) > 0)
			return looks;
		OK(ibv_get_cq_event(server->recv_cq_channel, &cq, &context));
		ibv_ack_cq_events(cq, 1);
	}
}

static void client(void)
{
	struct rdma_cm_id *server = to_server();

	expect_word(server);
	expect_word(server);
	OK(rdma_connect(server, NULL));
	send_word(server);
	/* How often is another number each time: it goes where no test looks. */
	fprintf(stderr, "looked %d times\n", by_polling(server));
	printf("the first answer is found by polling\n");
	send_word(server);
	fprintf(stderr, "looked %d times\n", by_event(server));
	printf("the second answer is found by an event\n");
}

int main(int argc, char **argv)
{
	return learn(argc, argv, server, client, 1);
}
