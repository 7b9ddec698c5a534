/* Shared code of the rsocket test programs in C. */
#ifndef COMMON_H
#define COMMON_H

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include <rdma/rsocket.h>

#include "check.h"

/* The maximum duration of any step, in milliseconds. */
#define LIMIT 60000

static inline struct sockaddr_in at(unsigned short port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return to;
}

static inline void set(int socket, int level, int name, int value)
{
    CHECK(rsetsockopt(socket, level, name, &value, sizeof value) == 0);
}

static inline int get(int socket, int level, int name)
{
    int value = -1;
    socklen_t length = sizeof value;
    CHECK(rgetsockopt(socket, level, name, &value, &length) == 0 && length == sizeof value);
    return value;
}

static inline void nonblocking_on(int socket)
{
    CHECK(rfcntl(socket, F_SETFL, rfcntl(socket, F_GETFL) | O_NONBLOCK) == 0);
}

static inline int poll_for(int socket, int events, int timeout)
{
    struct pollfd one = {.fd = socket, .events = events};
    int ready = rpoll(&one, 1, timeout);
    CHECK(ready >= 0 && ready == !!one.revents);
    return one.revents;
}

static inline unsigned char pattern(size_t place)
{
    return place * 31 + (place >> 8);
}

static inline int entries(const char *path)
{
    int count = 0;
    DIR *folder = opendir(path);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static inline int descriptors(void)
{
    return entries("/proc/self/fd");
}

struct test_case {
    const char *name;
    void (*run)(void);
};

#define CASE(name) {#name, name}

/* Runs the case named by the first argument. */
static inline int run_case(const struct test_case *cases, size_t amount, int count, char **words)
{
    for (size_t place = 0; place < amount; place++) {
        if (count == 2 && strcmp(words[1], cases[place].name) == 0) {
            cases[place].run();
            printf("%s passed\n", words[1]);
            return 0;
        }
    }
    return 2;
}

#endif
