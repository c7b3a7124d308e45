/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Every process sends a block to every other, of many sizes, and checks all that it gets; then they
 * do the same with one-sided Puts. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, size;

static unsigned word(int from, int to, size_t place)
{
    return (from * 31u + to + 1) * 2654435761u + (unsigned)place;
}

static void fill(unsigned *blocks, size_t length)
{
    for (int to = 0; to < size; to++)
        for (size_t i = 0; i < length; i++)
            blocks[to * length + i] = word(rank, to, i);
}

static void check(const unsigned *blocks, size_t length, const char *how)
{
    for (int from = 0; from < size; from++) {
        for (size_t i = 0; i < length; i++) {
            if (blocks[from * length + i] != word(from, rank, i)) {
                fprintf(stderr, "rank %d, %s: word %zu of %zu from %d is wrong\n", rank, how, i,
                        length, from);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
        }
    }
}

int main(int argc, char **argv)
{
    size_t moved = 0;
    char host[MPI_MAX_PROCESSOR_NAME];
    int host_length;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_processor_name(host, &host_length);
    for (size_t length = 1; length <= 1 << 20; length *= 8) {
        unsigned *out = malloc(size * length * sizeof *out);
        unsigned *in = calloc(size * length, sizeof *in);
        MPI_Win window;

        fill(out, length);
        MPI_Alltoall(out, (int)length, MPI_UNSIGNED, in, (int)length, MPI_UNSIGNED, MPI_COMM_WORLD);
        check(in, length, "all to all");

        for (size_t i = 0; i < size * length; i++)
            in[i] = 0;
        MPI_Win_create(in, (MPI_Aint)(size * length * sizeof *in), sizeof *in, MPI_INFO_NULL,
                       MPI_COMM_WORLD, &window);
        MPI_Win_fence(0, window);
        for (int to = 0; to < size; to++)
            MPI_Put(out + to * length, (int)length, MPI_UNSIGNED, to, (MPI_Aint)(rank * length),
                    (int)length, MPI_UNSIGNED, window);
        MPI_Win_fence(0, window);
        check(in, length, "Put");
        MPI_Win_free(&window);
        moved += 2 * size * size * length * sizeof *in;
        free(out);
        free(in);
    }
    if (rank == 0)
        printf("%d ranks, %zu MiB: all is right\n", size, moved >> 20);
    MPI_Finalize();
    return 0;
}
