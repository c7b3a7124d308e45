/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Two processes send 1 MiB there and back, and say how many MiB that is in a second. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define LENGTH (1 << 20)
#define WARM 10
#define ROUNDS 500

int main(int argc, char **argv)
{
    int rank;
    double start = 0;
    char *block = calloc(1, LENGTH);

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int round = 0; round < WARM + ROUNDS; round++) {
        if (round == WARM)
            start = MPI_Wtime();
        if (rank == 0) {
            block[round] = (char)round;
            MPI_Send(block, LENGTH, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
        }
        MPI_Recv(block, LENGTH, MPI_CHAR, !rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (block[round] != (char)round) {
            fprintf(stderr, "rank %d, round %d: it got an older message\n", rank, round);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        if (rank == 1)
            MPI_Send(block, LENGTH, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
    }
    if (rank == 0)
        printf("rate: %.0f MiB/s\n", 2 * ROUNDS / (MPI_Wtime() - start));
    MPI_Finalize();
    free(block);
    return 0;
}
