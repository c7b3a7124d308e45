/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Device memory, memory of descriptors, and what contexts share that were imported from another. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "requests.h"

enum {
	ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	      IBV_ACCESS_REMOTE_ATOMIC,
	ZERO = IBV_ACCESS_ZERO_BASED,
};

static size_t largest(void)
{
	struct ibv_device_attr_ex attr;

	CHECK(ibv_query_device_ex(context, NULL, &attr) == 0);
	CHECK(attr.max_dm_size >= 4096);
	return attr.max_dm_size;
}

static void no_memory(size_t length, uint32_t alignment, uint32_t mask, int error)
{
	struct ibv_alloc_dm_attr attr = { length, alignment, mask };

	errno = 0;
	CHECK(!ibv_alloc_dm(context, &attr) && errno == error);
}

static struct ibv_dm *memory(size_t length)
{
	struct ibv_alloc_dm_attr attr = { .length = length };
	struct ibv_dm *dm = ibv_alloc_dm(context, &attr);

	CHECK(dm && dm->context == context);
	return dm;
}

static void no_dm_region(struct ibv_dm *dm, uint64_t offset, size_t length, unsigned int access)
{
	errno = 0;
	CHECK(!ibv_reg_dm_mr(pd, dm, offset, length, access) && errno == EINVAL);
}

static void device_memory(void)
{
	struct ibv_dm *dm = memory(4096);
	struct ibv_mr *mr = ibv_reg_dm_mr(pd, dm, 1024, 1024, ALL | ZERO);
	char text[64] = "what lies in the device's memory", back[64] = { 1 };

	no_memory(largest() + 1, 0, 0, ENOMEM);
	no_memory(0, 0, 0, EINVAL);
	no_memory(64, 40, 0, EINVAL);
	no_memory(64, 0, 1, EOPNOTSUPP);
	ibv_free_dm(memory(largest()));

	CHECK(mr && mr->addr == NULL && mr->length == 1024);
	CHECK(ibv_memcpy_from_dm(back, dm, 4032, 64) == 0 && back[0] == 0);
	CHECK(ibv_memcpy_to_dm(dm, 1024, text, sizeof(text)) == 0);
	CHECK(ibv_memcpy_from_dm(back, dm, 1024, 64) == 0 && memcmp(text, back, 64) == 0);
	CHECK(ibv_memcpy_to_dm(dm, 3, text, 4) == EINVAL);
	CHECK(ibv_memcpy_from_dm(back, dm, 4, 3) == EINVAL);
	CHECK(ibv_memcpy_to_dm(dm, 4096, text, 4) == EINVAL);
	CHECK(ibv_memcpy_from_dm(back, dm, UINT64_MAX - 3, 8) == EINVAL);

	/* The network sees the part that is registered, from 0. */
	done(IBV_WR_RDMA_READ, part(&a, 0, 64), 0, mr->rkey);
	CHECK(memcmp(a.buf, text, 64) == 0);
	memset(a.buf, 'y', 8);
	done(IBV_WR_RDMA_WRITE, part(&a, 0, 8), 1016, mr->rkey);
	CHECK(ibv_memcpy_from_dm(back, dm, 2040, 8) == 0 && back[0] == 'y' && back[7] == 'y');
	done(IBV_WR_RDMA_WRITE, (struct ibv_sge){ 0, 12, mr->lkey }, (uintptr_t)b.buf,
	     b.mr->rkey);
	CHECK(memcmp(b.buf, text, 12) == 0);
	denied(IBV_WR_RDMA_WRITE, part(&a, 0, 8), 1020, mr->rkey);

	no_dm_region(dm, 0, 4100, ALL | ZERO);
	no_dm_region(dm, 4096, 4, ALL | ZERO);
	no_dm_region(dm, 2, 4, ALL | ZERO);
	no_dm_region(dm, 0, 4, ALL);
	no_dm_region(dm, 0, 4, IBV_ACCESS_REMOTE_WRITE | ZERO);
	no_dm_region(dm, 0, 4, ALL | ZERO | IBV_ACCESS_ON_DEMAND);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL) != 0);
	CHECK(ibv_free_dm(dm) == EBUSY);
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_free_dm(dm) == 0);
}

static struct ibv_context *import(void)
{
	struct ibv_context *twin = ibv_import_device(dup(context->cmd_fd));

	CHECK(twin && twin != context && twin->device == context->device);
	return twin;
}

static void no_device(int fd, int error)
{
	errno = 0;
	CHECK(!ibv_import_device(fd) && errno == error);
}

/* A region of one context, used by a queue pair of another. */
static void shared(void)
{
	struct ibv_context *twin = import(), *again = import();
	struct ibv_pd *its_pd = ibv_import_pd(twin, pd->handle);
	struct ibv_mr *its_mr = ibv_import_mr(its_pd, a.mr->handle);
	struct ibv_dm *dm = memory(64), *its_dm = ibv_import_dm(twin, dm->handle);
	char back[4];
	int pipes[2];

	CHECK(its_pd && its_pd->context == twin && its_pd->handle == pd->handle);
	CHECK(its_mr && its_mr->context == twin && its_mr->pd == its_pd && !its_mr->addr);
	CHECK(its_mr->lkey == a.mr->lkey && its_mr->rkey == a.mr->rkey);
	CHECK(its_mr->length == a.mr->length && its_mr->handle == a.mr->handle);
	CHECK(its_dm && its_dm->context == twin);
	CHECK(ibv_memcpy_to_dm(dm, 0, "word", 4) == 0);
	CHECK(ibv_memcpy_from_dm(back, its_dm, 0, 4) == 0 && memcmp(back, "word", 4) == 0);

	/* Of the right kind, or none. */
	errno = 0;
	CHECK(!ibv_import_pd(twin, a.mr->handle) && errno == ENOENT);
	CHECK(!ibv_import_mr(its_pd, pd->handle) && errno == ENOENT);
	CHECK(!ibv_import_dm(twin, 0xffffff) && errno == ENOENT);
	CHECK(!ibv_import_dm(twin, pd->handle) && errno == ENOENT);

	/* Handles count on in all of them. */
	struct ibv_pd *new_pd = ibv_alloc_pd(again), *found = ibv_import_pd(context, new_pd->handle);
	CHECK(new_pd && new_pd->handle != pd->handle && found);
	uint32_t handle = new_pd->handle;
	ibv_unimport_pd(found);
	CHECK(ibv_dealloc_pd(new_pd) == 0);
	CHECK(!ibv_import_pd(context, handle) && errno == ENOENT);
	CHECK(ibv_close_device(again) == 0);

	/* The queue pairs of the imported context and domain, with the regions of the first. */
	struct side first_a = a, first_b = b;
	struct ibv_context *first = context;
	struct ibv_pd *first_pd = pd;
	struct ibv_comp_channel *first_channel = channel;

	context = twin, pd = its_pd;
	channel = ibv_create_comp_channel(twin);
	meet();
	memset(first_a.buf, 'z', 100);
	done(IBV_WR_RDMA_WRITE,
	     (struct ibv_sge){ (uintptr_t)first_a.buf, 100, its_mr->lkey },
	     (uintptr_t)first_b.buf, first_b.mr->rkey);
	CHECK(first_b.buf[0] == 'z' && first_b.buf[99] == 'z');
	CHECK(ibv_dealloc_pd(its_pd) == EBUSY);
	unmake(&a);
	unmake(&b);
	CHECK(ibv_destroy_comp_channel(channel) == 0);
	context = first, pd = first_pd, channel = first_channel, a = first_a, b = first_b;

	/* Given back, they leave the first as it was. */
	ibv_unimport_mr(its_mr);
	ibv_unimport_dm(its_dm);
	ibv_unimport_pd(its_pd);
	CHECK(ibv_close_device(twin) == 0);
	CHECK(ibv_free_dm(dm) == 0);
	done(IBV_WR_RDMA_READ, part(&a, 0, 64), (uintptr_t)b.buf, b.mr->rkey);

	CHECK(pipe(pipes) == 0);
	no_device(pipes[0], EINVAL);
	no_device(-1, EBADF);
	no_device(987, EBADF);
	CHECK(fcntl(pipes[0], F_GETFD) >= 0);
}

/* The deregistration of either ends a shared region. */
static void gone(void)
{
	struct ibv_context *twin = import();
	struct ibv_pd *its_pd = ibv_import_pd(twin, pd->handle);
	struct ibv_mr *mr = ibv_reg_mr(pd, a.buf, 64, ALL);
	struct ibv_mr *its_mr = ibv_import_mr(its_pd, mr->handle);

	CHECK(mr && its_mr && ibv_dereg_mr(mr) == 0);
	CHECK(ibv_dereg_mr(its_mr) == EINVAL);
	ibv_unimport_mr(its_mr);
	CHECK(!ibv_import_mr(its_pd, 1u << 30) && errno == ENOENT);
	ibv_unimport_pd(its_pd);
	CHECK(ibv_close_device(twin) == 0);
}

/* A child goes on with its parent's domain; imports are the parent's. */
static void child(void)
{
	pid_t pid = fork();
	int status;

	CHECK(pid >= 0);
	if (pid == 0) {
		struct ibv_dm *dm;
		struct ibv_mr *mr;

		alarm(30);
		no_device(context->cmd_fd, EOPNOTSUPP);
		dm = memory(64);
		CHECK(ibv_memcpy_to_dm(dm, 0, "word", 4) == 0);
		mr = ibv_reg_dm_mr(pd, dm, 0, 64, ALL | ZERO);
		CHECK(mr && ibv_dereg_mr(mr) == 0);
		CHECK(!ibv_import_dm(context, dm->handle) && !ibv_import_pd(context, pd->handle));
		CHECK(ibv_free_dm(dm) == 0);
		/* Its own device can be imported. */
		open_context();
		ibv_close_device(import());
		close_context();
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* As <linux/udmabuf.h> has it. */
struct udmabuf {
	uint32_t memfd;
	uint32_t flags;
	uint64_t offset;
	uint64_t size;
};

/* Not every kernel has them. */
static int udmabuf(int file, size_t length)
{
	struct udmabuf create = { (uint32_t)file, 1, 0, length };
	int device = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
	int fd = device < 0 ? -1 : ioctl(device, _IOW('u', 0x42, struct udmabuf), &create);

	close(device);
	return fd;
}

static void no_dmabuf(uint64_t offset, size_t length, uint64_t iova, int fd, int access, int error)
{
	errno = 0;
	CHECK(!ibv_reg_dmabuf_mr(pd, offset, length, iova, fd, access) && errno == error);
}

static void descriptors(void)
{
	enum { LEN = 4 * 4096 };
	int file = memfd_create("pages", MFD_ALLOW_SEALING | MFD_CLOEXEC), fd;
	struct ibv_mr *mr;
	char *seen;

	CHECK(file >= 0 && ftruncate(file, LEN) == 0);
	CHECK(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
	no_dmabuf(0, LEN, 0, file, ALL, EINVAL);
	no_dmabuf(0, LEN, 0, -1, ALL, EBADF);
	fd = udmabuf(file, LEN);
	if (fd < 0) {
		puts("no udmabuf");
		close(file);
		return;
	}
	no_dmabuf(0, LEN + 1, 0, fd, ALL, EINVAL);
	no_dmabuf(LEN, 1, 0, fd, ALL, EINVAL);
	no_dmabuf(0, 0, 0, fd, ALL, EINVAL);
	no_dmabuf(100, 100, 0, fd, ALL, EINVAL);
	no_dmabuf(0, LEN, 0, fd, IBV_ACCESS_REMOTE_WRITE, EINVAL);
	mr = ibv_reg_dmabuf_mr(pd, 4096 + 100, 4096, 0x10000 + 100, fd, ALL);
	CHECK(mr && mr->length == 4096);
	seen = mmap(NULL, LEN, PROT_READ, MAP_SHARED, file, 0);
	CHECK(seen != MAP_FAILED);
	memset(a.buf, 'd', 4096);
	/* It is registered for as long as it is, descriptor or not. */
	close(fd);
	done(IBV_WR_RDMA_WRITE, part(&a, 0, 4096), 0x10000 + 100, mr->rkey);
	CHECK(seen[4195] == 0 && seen[4196] == 'd' && seen[8291] == 'd' && seen[8292] == 0);
	denied(IBV_WR_RDMA_READ, part(&a, 0, 8), 0x10000 + 99, mr->rkey);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, a.buf, 64, 0) != 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	munmap(seen, LEN);
	close(file);
}

int main(void)
{
	open_context();
	meet();
	device_memory();
	shared();
	gone();
#ifndef __SANITIZE_THREAD__
	/* It has no threads in a child. */
	child();
#endif
	descriptors();
	unmake(&a);
	unmake(&b);
	close_context();
	return 0;
}
