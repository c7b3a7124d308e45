/* The client reads a row of the server's table; the server has nothing to do. */
#include "learn.h"

struct row {
	char name[20];
	uint32_t height;
};

static void server(void)
{
	struct rdma_cm_id *peer = next_request();
	struct row rows[] = {
		{ "Aconcagua", 6961 }, { "Denali", 6190 },
		{ "Everest", 8849 }, { "Kilimanjaro", 5895 },
	};
	struct ibv_mr *region = HAVE(rdma_reg_read(peer, rows, sizeof rows));

	expect_word(peer);
	accept_and_grant(peer, region);
	/* Here it sleeps until the client says goodbye. */
	received(peer);
	printf("server: one message came, the goodbye\n");
}

static void client(void)
{
	struct rdma_cm_id *server = to_server();
	struct grant grant = connect_for_grant(server);
	struct row row;
	struct ibv_mr *into = HAVE(rdma_reg_msgs(server, &row, sizeof row));

	printf("client: there are %zu rows\n", grant.length / sizeof row);
	for (int number = 2; number >= 0; number -= 2) {
		uint64_t place = grant.address + number * sizeof row;

		OK(rdma_post_read(server, NULL, &row, sizeof row, into, 0, place, grant.key));
		sent(server);
		printf("client: row %d is %s, %u m\n", number, row.name, row.height);
	}
	send_word(server);
}

int main(int argc, char **argv)
{
	return learn(argc, argv, server, client, 1);
}
