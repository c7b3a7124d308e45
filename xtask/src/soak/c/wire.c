/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A wire between two hosts (network namespaces), and the weather on it.
 *
 *     wire NAMESPACE NAMESPACE SEED
 *
 * makes `eth0` on both, says "ready", and carries IPv4 packets between them until its input ends.
 * Lines of the input change the weather: "clear", or a word of `weather` and its number. What kernels
 * bring for this (netem) is a module that many machines lack; TUN devices are nearly everywhere.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { MTU = 1500, HELD = 4096 };

/* Of a thousand packets how many, and how long in microseconds. */
static struct {
	unsigned loss, reorder, duplicate, damage, forge, delay;
	/* Nothing passes. */
	unsigned cut;
	/* So many packets with payload become resets of their connections. */
	unsigned reset;
} weather;

static struct {
	uint64_t passed, lost, reordered, duplicated, damaged, forged, reset;
} count;

static struct packet {
	uint64_t due;
	int to, length;
	uint8_t octets[MTU];
} held[HELD];
static int n_held;

static uint64_t state;

static uint64_t draw(void)
{
	/* SplitMix64 */
	uint64_t z = (state += 0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

static int happens(unsigned of_a_thousand)
{
	return of_a_thousand && draw() % 1000 < of_a_thousand;
}

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000ull + t.tv_nsec / 1000;
}

static void fail(const char *what)
{
	fprintf(stderr, "wire: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int make_device(const char *namespace)
{
	struct ifreq request = { .ifr_flags = IFF_TUN | IFF_NO_PI };
	char path[256];
	int in, device;

	snprintf(path, sizeof path, "/run/netns/%s", namespace);
	in = open(path, O_RDONLY | O_CLOEXEC);
	if (in < 0 || setns(in, CLONE_NEWNET) < 0)
		fail(path);
	close(in);
	device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	strcpy(request.ifr_name, "eth0");
	if (device < 0 || ioctl(device, TUNSETIFF, &request) < 0)
		fail("/dev/net/tun");
	return device;
}

/* The TCP header, if there is one that is whole. */
static struct tcphdr *tcp_of(uint8_t *octets, int length, int *header, int *payload)
{
	struct iphdr *ip = (struct iphdr *)octets;
	struct tcphdr *tcp;

	if (length < 20 || ip->version != 4 || ip->protocol != IPPROTO_TCP)
		return NULL;
	*header = ip->ihl * 4;
	if (length < *header + 20)
		return NULL;
	tcp = (struct tcphdr *)(octets + *header);
	*payload = length - *header - tcp->doff * 4;
	return *payload < 0 ? NULL : tcp;
}

static uint32_t sum_of(const uint8_t *octets, int length, uint32_t sum)
{
	int i;

	for (i = 0; i + 1 < length; i += 2)
		sum += octets[i] << 8 | octets[i + 1];
	return i < length ? sum + (octets[i] << 8) : sum;
}

static uint16_t folded(uint32_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return htons(~sum);
}

/* Makes both checksums right again. */
static void mend(uint8_t *octets, int length, int header)
{
	struct iphdr *ip = (struct iphdr *)octets;
	struct tcphdr *tcp = (struct tcphdr *)(octets + header);

	ip->tot_len = htons(length);
	ip->check = 0;
	ip->check = folded(sum_of(octets, header, 0));
	tcp->check = 0;
	/* Addresses, protocol and length are summed up with it (RFC 9293 §3.1). */
	tcp->check = folded(sum_of(octets + header, length - header,
				   sum_of(octets + 12, 8, IPPROTO_TCP + length - header)));
}

static void pass(int to, const uint8_t *octets, int length)
{
	count.passed++;
	/* A receiver without room loses the packet, as a switch would. */
	if (write(to, octets, length) < 0)
		count.lost++;
}

static void hold(int to, const uint8_t *octets, int length, uint64_t due)
{
	if (n_held == HELD) {
		count.lost++;
		return;
	}
	held[n_held].due = due;
	held[n_held].to = to;
	held[n_held].length = length;
	memcpy(held[n_held++].octets, octets, length);
}

/* Sends what is due, and says how many milliseconds there are until more is. */
static int release(void)
{
	uint64_t time = now(), next = UINT64_MAX;
	int kept = 0;

	for (int i = 0; i < n_held; i++) {
		if (held[i].due <= time) {
			pass(held[i].to, held[i].octets, held[i].length);
			continue;
		}
		if (held[i].due < next)
			next = held[i].due;
		if (kept != i)
			held[kept] = held[i];
		kept++;
	}
	n_held = kept;
	return kept ? (int)((next - time) / 1000) + 1 : -1;
}

static void carry(int to, uint8_t *octets, int length)
{
	int header = 0, payload = 0;
	struct tcphdr *tcp = tcp_of(octets, length, &header, &payload);

	if (weather.cut || happens(weather.loss)) {
		count.lost++;
		return;
	}
	if (weather.reset && tcp && payload > 0) {
		weather.reset--;
		count.reset++;
		tcp->rst = 1;
		length -= payload;
		mend(octets, length, header);
	}
	if (tcp && payload > 0 && happens(weather.damage)) {
		/* TCP finds this out. */
		count.damaged++;
		octets[length - 1 - draw() % payload] ^= 1 << draw() % 8;
	}
	if (tcp && payload > 1000 && happens(weather.forge)) {
		/* This it does not: only a CRC of the layer above can. Short segments are left alone:
		 * start-up frames have none. */
		count.forged++;
		octets[length - 1 - draw() % payload] ^= 1 << draw() % 8;
		mend(octets, length, header);
	}
	if (happens(weather.duplicate)) {
		count.duplicated++;
		pass(to, octets, length);
	}
	if (happens(weather.reorder)) {
		count.reordered++;
		hold(to, octets, length, now() + 200 + draw() % 4000);
	} else if (weather.delay) {
		hold(to, octets, length, now() + weather.delay);
	} else {
		pass(to, octets, length);
	}
}

static void obey(char *line)
{
	static const struct {
		const char *word;
		unsigned *value;
	} words[] = {
		{ "loss", &weather.loss },	     { "reorder", &weather.reorder },
		{ "duplicate", &weather.duplicate }, { "damage", &weather.damage },
		{ "forge", &weather.forge },	     { "delay", &weather.delay },
		{ "cut", &weather.cut },	     { "reset", &weather.reset },
	};
	char word[32];
	unsigned value = 0;

	if (sscanf(line, "%31s %u", word, &value) < 1)
		return;
	if (strcmp(word, "clear") == 0)
		memset(&weather, 0, sizeof weather);
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (strcmp(word, words[i].word) == 0)
			*words[i].value = value;
}

int main(int argc, char **argv)
{
	static char input[4096];
	static size_t filled;
	struct pollfd fds[3] = { { .fd = 0, .events = POLLIN } };
	uint8_t octets[MTU];

	if (argc != 4)
		return 2;
	state = strtoull(argv[3], NULL, 0);
	for (int i = 0; i < 2; i++)
		fds[1 + i] = (struct pollfd){ make_device(argv[1 + i]), POLLIN, 0 };
	puts("ready");
	fflush(stdout);
	for (;;) {
		if (poll(fds, 3, release()) < 0 && errno != EINTR)
			fail("poll");
		for (int i = 1; i < 3; i++) {
			for (int n = 0; n < 64; n++) {
				int length = read(fds[i].fd, octets, sizeof octets);

				if (length <= 0)
					break;
				carry(fds[3 - i].fd, octets, length);
			}
		}
		if (!fds[0].revents)
			continue;
		ssize_t more = read(0, input + filled, sizeof input - 1 - filled);
		if (more <= 0)
			break;
		filled += more;
		for (char *end; (end = memchr(input, '\n', filled));) {
			*end = 0;
			obey(input);
			filled -= end + 1 - input;
			memmove(input, end + 1, filled);
		}
	}
	printf("passed %llu lost %llu reordered %llu duplicated %llu damaged %llu forged %llu reset %llu\n",
	       (unsigned long long)count.passed, (unsigned long long)count.lost,
	       (unsigned long long)count.reordered, (unsigned long long)count.duplicated,
	       (unsigned long long)count.damaged, (unsigned long long)count.forged,
	       (unsigned long long)count.reset);
	return 0;
}
