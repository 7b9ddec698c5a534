/* A module that is linked with the bundled library, like a Python extension. */
#include <errno.h>
#include <stdio.h>

struct ibv_device;
struct ibv_device **ibv_get_device_list(int *count);
const char *ibv_get_device_name(struct ibv_device *device);
void ibv_free_device_list(struct ibv_device **list);

void run(void)
{
    int count = 0;
    errno = 12345;
    struct ibv_device **list = ibv_get_device_list(&count);
    printf("errno %d\n", errno);
    for (int i = 0; i < count; i++)
        printf("device %s\n", ibv_get_device_name(list[i]));
    ibv_free_device_list(list);
}
