// SPDX-License-Identifier: MIT OR Apache-2.0

// Opens the device, which complains of a variable that is not known.

#include <stdio.h>
#include <unistd.h>

#include <infiniband/verbs.h>

int main(void) {
    printf("%d\n", getpid());
    struct ibv_device **devices = ibv_get_device_list(NULL);
    if (!devices || !devices[0])
        return 1;
    struct ibv_context *context = ibv_open_device(devices[0]);
    if (!context)
        return 2;
    ibv_close_device(context);
    ibv_free_device_list(devices);
    return 0;
}
