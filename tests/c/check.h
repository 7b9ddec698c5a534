/* Checks for the C programs of the tests: the first one that fails ends the program. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                                    \
    do {                                                                                               \
        if (!(what)) {                                                                                 \
            fprintf(stderr, "line %d: %s does not hold; errno %d, %s\n", __LINE__, #what, errno,       \
                    strerror(errno));                                                                  \
            exit(1);                                                                                   \
        }                                                                                              \
    } while (0)

#define FAILS(call, number)                                                                            \
    do {                                                                                               \
        errno = 0;                                                                                     \
        CHECK((call) == -1 && errno == (number));                                                      \
    } while (0)

#endif
