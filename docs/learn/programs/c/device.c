/* Which RDMA devices are there, and what can they do? */
#include <errno.h>
#include <stdio.h>

#include <infiniband/verbs.h>

int main(void)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);

	if (!list || count == 0) {
		fprintf(stderr, "no RDMA device: did you start this by `iwarp run`?\n");
		return 1;
	}
	for (int i = 0; i < count; i++) {
		struct ibv_context *device = ibv_open_device(list[i]);
		struct ibv_device_attr can;
		struct ibv_port_attr port;

		if (!device || ibv_query_device(device, &can) || ibv_query_port(device, 1, &port)) {
			perror(ibv_get_device_name(list[i]));
			return 1;
		}
		printf("device %s\n", ibv_get_device_name(list[i]));
		printf("  port 1: %s\n", ibv_port_state_str(port.state));
		printf("  atomics: %s\n", can.atomic_cap == IBV_ATOMIC_NONE ? "no" : "yes");
		printf("  Reads under way at a time: %d\n", can.max_qp_rd_atom);
		ibv_close_device(device);
	}
	ibv_free_device_list(list);
	return 0;
}
