/* Calls symbols of our libraries that lead to nothing: reads "NAME VERSION" lines, and prints NAME, what the function
 * returned as a pointer would be, the same as an int, and errno. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>

int main(void)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW);
	char name[128], version[128];

	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	while (scanf("%127s %127s", name, version) == 2) {
		/* With any arguments: none of these functions uses them. */
		long (*function)(void *, void *, void *, void *, void *, void *) = dlvsym(library, name, version);

		if (!function) {
			fprintf(stderr, "%s\n", dlerror());
			return 1;
		}
		errno = 0;
		long returned = function(NULL, NULL, NULL, NULL, NULL, NULL);
		printf("%s %ld %d %d\n", name, returned, (int)returned, errno);
	}
	return 0;
}
