/* Common parts of the program: pairs of connected sockets, and readiness checks. */
#ifndef CALLS_H
#define CALLS_H

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

/* The timeout of every operation, in milliseconds. */
#define LIMIT 60000

static inline struct sockaddr_in loopback(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return to;
}

static inline struct sockaddr_in name_of(int fd)
{
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    CHECK(getsockname(fd, (struct sockaddr *)&name, &length) == 0 && length == sizeof name);
    return name;
}

static inline int bound(void)
{
    struct sockaddr_in any = loopback();
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&any, sizeof any) == 0);
    return fd;
}

static inline int listener(void)
{
    int fd = bound();
    CHECK(listen(fd, 16) == 0);
    return fd;
}

/* Whether the kernel knows the peer, which means that TCP carries the connection. */
static inline int is_tcp(int fd)
{
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    return syscall(SYS_getpeername, fd, &name, &length) == 0;
}

static inline int connected_to(int server)
{
    struct sockaddr_in to = name_of(server);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
    return fd;
}

static inline void connect_both(int ends[2])
{
    int server = listener();
    ends[0] = connected_to(server);
    ends[1] = accept(server, NULL, NULL);
    CHECK(ends[1] >= 0 && !is_tcp(ends[0]) && !is_tcp(ends[1]));
    CHECK(close(server) == 0);
}

static inline void close_both(int ends[2])
{
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

static inline int ready(int fd, int events, int timeout)
{
    struct pollfd one = {.fd = fd, .events = events};
    int count = poll(&one, 1, timeout);
    CHECK(count == !!one.revents);
    return one.revents;
}

static inline struct epoll_event event(uint32_t events, uint64_t value)
{
    return (struct epoll_event){.events = events, .data.u64 = value};
}

static inline void add(int set, int fd, uint32_t events, uint64_t value)
{
    struct epoll_event wanted = event(events, value);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &wanted) == 0);
}

/* Waits for events: those of this member, and no others. */
static inline uint32_t reported(int set, uint64_t value, int timeout)
{
    struct epoll_event found[4];
    int count = epoll_wait(set, found, 4, timeout);
    if (count == 0)
        return 0;
    CHECK(count == 1 && found[0].data.u64 == value);
    return found[0].events;
}

#define LENGTH 3000000
extern unsigned char data[LENGTH], copy[LENGTH];

/* The cases of the other files. */
void epoll_levels(void);
void epoll_edges(void);
void epoll_edges_of_threads(void);
void epoll_members_first(void);
void forked(void);
void forked_listener(void);
void closed_without_waiting(void);

#endif
