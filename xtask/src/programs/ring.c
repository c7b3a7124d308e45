/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A ring of processes that passes messages of many sizes and checks them. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    int rank, size;
    long sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;

    for (size_t length = 1; length <= 1 << 20; length *= 32) {
        unsigned char *out = malloc(length), *in = calloc(1, length);
        memset(out, rank + 1, length);
        for (int round = 0; round < 10; round++) {
            MPI_Sendrecv(out, length, MPI_BYTE, next, 7, in, length, MPI_BYTE, previous, 7,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (size_t i = 0; i < length; i++) {
                if (in[i] != previous + 1) {
                    fprintf(stderr, "rank %d: octet %zu of %zu is %d\n", rank, i, length, in[i]);
                    MPI_Abort(MPI_COMM_WORLD, 1);
                }
            }
        }
        free(out);
        free(in);
    }
    long one = rank + 1;
    MPI_Allreduce(&one, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (sum != (long)size * (size + 1) / 2) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (rank == 0) {
        printf("ring of %d: ok\n", size);
    }
    MPI_Finalize();
    return 0;
}
