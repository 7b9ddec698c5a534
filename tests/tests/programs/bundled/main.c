/* A program that knows nothing of RDMA, and loads the module that it is given, if it is given one.
 *
 * Says whether the dynamic linker protects it, and whether our libibverbs was loaded before the module called it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>

static int is_ours(struct dl_phdr_info *info, size_t size, void *found)
{
    (void)size;
    *(int *)found |= strstr(info->dlpi_name, "libferroce_capi") || strstr(info->dlpi_name, "libibverbs.so.1");
    return 0;
}

int main(int count, char **words)
{
    int loaded = 0;
    dl_iterate_phdr(is_ours, &loaded);
    printf("secure %lu\n", getauxval(AT_SECURE));
    printf("view %d\n", dlsym(RTLD_DEFAULT, "ibv_get_device_list") != NULL);
    printf("verbs %d\n", loaded);
    if (count > 1) {
        void *module = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
        void (*run)(void) = module ? (void (*)(void))dlsym(module, "run") : NULL;
        if (!run) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        run();
    }
    return 0;
}
