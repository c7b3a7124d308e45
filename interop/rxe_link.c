/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A wire between two network interfaces that treats RoCE v2 badly: it loses, repeats and delays
 * packets to UDP port 4791, both ways, and leaves everything else alone; with tcp=1, it does so to
 * TCP instead. What netem does, where the system has none, or has it at one end only.
 *
 * usage: rxe_link INTERFACE INTERFACE [lose=PERCENT] [repeat=PERCENT] [delay=PERCENT] [seed=N] [tcp=1]
 * A delayed packet is overtaken by those of the next 1 to 4 ms. On SIGTERM it says what it did.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ROCE 4791
#define LONGEST (65536 + 14)
#define HELD 4096	/* packets that can be delayed at a time */

struct held {
	uint64_t due;	/* 0: none */
	int to;
	size_t length;
	uint8_t *frame;
};

static struct { uint32_t lose, repeat, delay; } chances;	/* of 2^32 */
static struct { unsigned long packets, lost, repeated, delayed, refused; } counts;
static struct held held[HELD];
static uint64_t state = 1;
static volatile sig_atomic_t over;
static bool tcp;	/* what is treated badly: that, or RoCE v2 */

static void stop(int signal)
{
	(void)signal;
	over = 1;
}

static uint64_t now(void)	/* in ns */
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return (uint64_t)at.tv_sec * 1000000000 + (uint64_t)at.tv_nsec;
}

static uint32_t chance(void)	/* xorshift64* */
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return (uint32_t)(state * 0x2545f4914f6cdd1d >> 32);
}

static bool is_tcp(const uint8_t *frame, size_t length)
{
	return length >= 54 &&
		((frame[12] == 0x08 && frame[13] == 0x00 && frame[23] == 6) ||
		 (frame[12] == 0x86 && frame[13] == 0xdd && frame[20] == 6));
}

static bool is_roce(const uint8_t *frame, size_t length)
{
	size_t udp;

	if (length < 62)
		return false;
	if (frame[12] == 0x08 && frame[13] == 0x00 && frame[23] == 17)
		udp = 14 + 4 * (frame[14] & 0xf);
	else if (frame[12] == 0x86 && frame[13] == 0xdd && frame[20] == 17)
		udp = 54;
	else
		return false;
	return udp + 4 <= length && (frame[udp + 2] << 8 | frame[udp + 3]) == ROCE;
}

static int attach(const char *name)
{
	struct sockaddr_ll at = {
		.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL),
		.sll_ifindex = (int)if_nametoindex(name),
	};
	struct packet_mreq all = { .mr_ifindex = at.sll_ifindex, .mr_type = PACKET_MR_PROMISC };
	int one = 1, room = 8 << 20, sock = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, 0);

	if (sock < 0 || !at.sll_ifindex ||
	    setsockopt(sock, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one) ||
	    setsockopt(sock, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof all) ||
	    bind(sock, (struct sockaddr *)&at, sizeof at)) {
		perror(name);
		exit(1);
	}
	setsockopt(sock, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
	return sock;
}

static void pass(int to, const uint8_t *frame, size_t length)
{
	if (send(to, frame, length, 0) < 0)
		counts.refused++;
}

static void hold(int to, const uint8_t *frame, size_t length)
{
	for (struct held *place = held; place < held + HELD; place++) {
		if (place->due)
			continue;
		place->frame = malloc(length);
		if (!place->frame)
			break;
		memcpy(place->frame, frame, length);
		place->length = length;
		place->to = to;
		place->due = now() + 1000000 + chance() % 3000000;
		counts.delayed++;
		return;
	}
	pass(to, frame, length);
}

static void treat(int to, const uint8_t *frame, size_t length)
{
	if (!(tcp ? is_tcp : is_roce)(frame, length)) {
		pass(to, frame, length);
		return;
	}
	counts.packets++;
	if (chance() < chances.lose) {
		counts.lost++;
		return;
	}
	if (chance() < chances.repeat) {
		counts.repeated++;
		pass(to, frame, length);
	}
	if (chance() < chances.delay)
		hold(to, frame, length);
	else
		pass(to, frame, length);
}

/* Sends what is due. The milliseconds until the next is; -1: none waits. */
static int release(void)
{
	uint64_t at = now(), next = UINT64_MAX;

	for (struct held *place = held; place < held + HELD; place++) {
		if (place->due && place->due <= at) {
			pass(place->to, place->frame, place->length);
			free(place->frame);
			place->due = 0;
		} else if (place->due && place->due < next) {
			next = place->due;
		}
	}
	return next == UINT64_MAX ? -1 : (int)((next - at) / 1000000 + 1);
}

static void set(const char *arg)
{
	const char *value = strchr(arg, '=');
	double fraction = value ? atof(value + 1) / 100 : -1;
	uint32_t odds = fraction >= 1 ? UINT32_MAX : (uint32_t)(fraction * 4294967296.0);

	if (fraction < 0) {
		fprintf(stderr, "rxe_link: what is %s?\n", arg);
		exit(2);
	}
	if (!strncmp(arg, "lose=", 5))
		chances.lose = odds;
	else if (!strncmp(arg, "repeat=", 7))
		chances.repeat = odds;
	else if (!strncmp(arg, "delay=", 6))
		chances.delay = odds;
	else if (!strncmp(arg, "tcp=", 4))
		tcp = value[1] == '1';
	else
		state = strtoull(value + 1, NULL, 0) * 2 + 1;
}

int main(int argc, char **argv)
{
	static uint8_t frame[LONGEST];
	struct sigaction action = { .sa_handler = stop };
	struct pollfd ends[2];

	if (argc < 3) {
		fprintf(stderr, "usage: rxe_link INTERFACE INTERFACE [KEY=VALUE]...\n");
		return 2;
	}
	for (int i = 3; i < argc; i++)
		set(argv[i]);
	sigaction(SIGTERM, &action, NULL);
	for (int i = 0; i < 2; i++)
		ends[i] = (struct pollfd){ .fd = attach(argv[i + 1]), .events = POLLIN };
	printf("passes packets\n");
	fflush(stdout);
	while (!over) {
		poll(ends, 2, release());
		for (int i = 0; i < 2; i++) {
			ssize_t length;

			/* a few at a time, so that the other way is not kept waiting */
			for (int n = 0; n < 64; n++) {
				length = recv(ends[i].fd, frame, sizeof frame, 0);
				if (length <= 0)
					break;
				treat(ends[!i].fd, frame, (size_t)length);
			}
		}
	}
	printf("%lu packets: %lu lost, %lu repeated, %lu delayed; %lu not taken by the system\n",
	       counts.packets, counts.lost, counts.repeated, counts.delayed, counts.refused);
	return 0;
}
