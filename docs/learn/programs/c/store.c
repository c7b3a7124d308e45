/* A key-value store: the server puts, clients get by RDMA Read. */
#include "learn.h"

#define SLOTS 64

struct slot {
	char key[16], value[40];
	uint64_t check;
};

/* FNV-1a, over as many bytes as one likes. */
static uint64_t hash(const void *bytes, size_t length)
{
	uint64_t hash = 0xcbf29ce484222325;

	for (const unsigned char *byte = bytes; length-- > 0; byte++)
		hash = (hash ^ *byte) * 0x100000001b3;
	return hash;
}

static void put(struct slot *slots, const char *key, const char *value)
{
	struct slot slot = { .check = 0 };
	uint64_t place = hash(key, strlen(key)) % SLOTS;

	while (slots[place].key[0] && strncmp(slots[place].key, key, sizeof slot.key))
		place = (place + 1) % SLOTS;
	strncpy(slot.key, key, sizeof slot.key - 1);
	strncpy(slot.value, value, sizeof slot.value - 1);
	slot.check = hash(&slot, offsetof(struct slot, check));
	slots[place] = slot;
}

static void server(void)
{
	struct rdma_cm_id *peer = next_request();
	static struct slot slots[SLOTS];
	struct ibv_mr *region = HAVE(rdma_reg_read(peer, slots, sizeof slots));

	put(slots, "apple", "red");
	put(slots, "banana", "yellow");
	put(slots, "cherry", "dark red");
	expect_word(peer);
	expect_word(peer);
	accept_and_grant(peer, region);
	received(peer);
	put(slots, "apple", "green");
	send_word(peer);
	received(peer);
	printf("server: put 4 times, got nothing\n");
}

/* Reads slots from the key's place on, until the key or a free slot turns up. */
static int get(struct rdma_cm_id *server, struct grant *grant, const char *key, struct slot *slot)
{
	struct ibv_mr *into = HAVE(rdma_reg_msgs(server, slot, sizeof *slot));

	for (uint64_t place = hash(key, strlen(key));; place++) {
		do {
			uint64_t where = grant->address + place % SLOTS * sizeof *slot;

			OK(rdma_post_read(server, NULL, slot, sizeof *slot, into, 0, where, grant->key));
			sent(server);
			/* Half old and half new? Then read again. */
		} while (slot->key[0] && slot->check != hash(slot, offsetof(struct slot, check)));
		if (!slot->key[0] || !strcmp(slot->key, key)) {
			OK(rdma_dereg_mr(into));
			return slot->key[0] != 0;
		}
	}
}

static void client(void)
{
	struct rdma_cm_id *server = to_server();
	const char *keys[] = { "apple", "banana", "pear" };
	struct grant grant;
	struct slot slot;

	grant = connect_for_grant(server);
	for (int i = 0; i < 3; i++)
		printf("client: %s is %s\n", keys[i],
		       get(server, &grant, keys[i], &slot) ? slot.value : "not there");
	expect_word(server);
	send_word(server);
	received(server);
	get(server, &grant, "apple", &slot);
	printf("client: apple is now %s\n", slot.value);
	send_word(server);
}

int main(int argc, char **argv)
{
	return learn(argc, argv, server, client, 1);
}
