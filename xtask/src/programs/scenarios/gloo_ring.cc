// Each of SIZE processes reduces numbers with the others over gloo's ibverbs transport, and checks the
// results. With an ADDRESS it goes by gloo's TCP transport instead, and with `speed` it says how often
// the processes reduce a few sizes in a second.
// gloo_ring RANK SIZE FOLDER DEVICE|ADDRESS [speed]
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <unistd.h>

#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>
#include <gloo/transport/tcp/device.h>

static int rank, size;

static uint64_t value(int from, int i, int round)
{
	return (uint64_t)from * 1000003 + (uint64_t)i * 31 + round;
}

template <typename A>
static void reduce(const std::shared_ptr<gloo::Context> &context, int count, const char *name)
{
	// The last Send of an algorithm may be under way when it has run; none is destroyed.
	auto &data = *new std::vector<uint64_t>(count);
	auto &algorithm = *new A(context, {data.data()}, count);

	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < count; i++)
			data[i] = value(rank, i, round);
		algorithm.run();
		for (int i = 0; i < count; i++) {
			uint64_t wanted = 0;
			for (int from = 0; from < size; from++)
				wanted += value(from, i, round);
			if (data[i] != wanted) {
				printf("%s: element %d of %d in round %d is %lu, not %lu\n", name, i,
				       count, round, (unsigned long)data[i], (unsigned long)wanted);
				exit(1);
			}
		}
	}
	printf("rank %d: %s of %d numbers is right\n", rank, name, count);
	fflush(stdout);
}

// The first result is checked. The sums of sums that follow cost no time of ours.
template <typename A>
static void measure(const std::shared_ptr<gloo::Context> &context, int bytes, int rounds)
{
	int count = bytes / sizeof(uint64_t);
	auto &data = *new std::vector<uint64_t>(count);
	auto &algorithm = *new A(context, {data.data()}, count);

	for (int i = 0; i < count; i++)
		data[i] = value(rank, i, 0);
	algorithm.run();
	for (int i = 0; i < count; i++) {
		uint64_t wanted = 0;
		for (int from = 0; from < size; from++)
			wanted += value(from, i, 0);
		if (data[i] != wanted) {
			printf("element %d of %d is %lu, not %lu\n", i, count, (unsigned long)data[i],
			       (unsigned long)wanted);
			exit(1);
		}
	}
	auto start = std::chrono::steady_clock::now();
	for (int round = 0; round < rounds; round++)
		algorithm.run();
	std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
	printf("rate of %d KiB: %.3f\n", bytes >> 10, rounds / took.count());
}

static std::shared_ptr<gloo::transport::Device> make_device(const char *where)
{
	if (strchr(where, '.'))
		return gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(where));
	return gloo::transport::ibverbs::CreateDevice(gloo::transport::ibverbs::attr{where, 1, 0});
}

int main(int argc, char **argv)
{
	rank = atoi(argv[1]);
	size = atoi(argv[2]);
	static auto &device =
		*new std::shared_ptr<gloo::transport::Device>(make_device(argv[4]));
	gloo::rendezvous::FileStore store(argv[3]);
	static auto &context = *new std::shared_ptr<gloo::rendezvous::Context>(
		new gloo::rendezvous::Context(rank, size));

	context->connectFullMesh(store, device);
	if (argc > 5) {
		measure<gloo::AllreduceHalvingDoubling<uint64_t>>(context, 4 << 10, 1000);
		measure<gloo::AllreduceHalvingDoubling<uint64_t>>(context, 4 << 20, 50);
	}
	for (int count : {1, 1000, 250000}) {
		if (argc > 5)
			break;
		reduce<gloo::AllreduceRing<uint64_t>>(context, count, "AllreduceRing");
		reduce<gloo::AllreduceRingChunked<uint64_t>>(context, count, "AllreduceRingChunked");
		reduce<gloo::AllreduceHalvingDoubling<uint64_t>>(context, count,
								  "AllreduceHalvingDoubling");
	}
	// Nobody leaves before everybody is done.
	store.set("done" + std::to_string(rank), {1});
	for (int other = 0; other < size; other++)
		store.wait({"done" + std::to_string(other)});
	// Nobody leaves at all: gloo's thread ends the process where receives are flushed, as they are
	// when the first peer has left. And ~Pair may wait for ever (docs/suites.md).
	printf("rank %d: done\n", rank);
	fflush(stdout);
	for (;;)
		pause();
}
