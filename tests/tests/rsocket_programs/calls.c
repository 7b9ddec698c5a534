/* The calls of rsocket(7) for streams: the argument names the case. Both ends are in this process unless a case needs
 * two processes. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/rsocket.h>

#include "common.h"

/* A listener on any port, and its address. */
static int listener(struct sockaddr_in *where)
{
    int socket = rsocket(AF_INET, SOCK_STREAM, 0);
    socklen_t length = sizeof *where;
    *where = at(0);
    CHECK(socket >= 0);
    CHECK(rbind(socket, (struct sockaddr *)where, length) == 0);
    CHECK(rlisten(socket, 5) == 0);
    CHECK(rgetsockname(socket, (struct sockaddr *)where, &length) == 0);
    CHECK(length == sizeof *where && where->sin_port != 0);
    return socket;
}

/* Two ends of a connection; the first one connected. */
static void connect_both(int ends[2], void (*prepare)(int))
{
    struct sockaddr_in where, from;
    socklen_t length = sizeof from;
    int listening = rsocket(AF_INET, SOCK_STREAM, 0);
    where = at(0);
    if (prepare)
        prepare(listening);
    CHECK(rbind(listening, (struct sockaddr *)&where, sizeof where) == 0);
    CHECK(rlisten(listening, 5) == 0);
    CHECK(rgetsockname(listening, (struct sockaddr *)&where, &length) == 0);
    ends[0] = rsocket(AF_INET, SOCK_STREAM, 0);
    if (prepare)
        prepare(ends[0]);
    /* Established before the program accepts, as with TCP. */
    CHECK(rconnect(ends[0], (struct sockaddr *)&where, sizeof where) == 0);
    length = sizeof from;
    ends[1] = raccept(listening, (struct sockaddr *)&from, &length);
    CHECK(ends[1] >= 0 && length == sizeof from);
    length = sizeof where;
    CHECK(rgetsockname(ends[0], (struct sockaddr *)&where, &length) == 0);
    CHECK(where.sin_port == from.sin_port && where.sin_addr.s_addr == from.sin_addr.s_addr);
    CHECK(rclose(listening) == 0);
}

static void send_all(int socket, const char *data, size_t length)
{
    CHECK(rsend(socket, data, length, 0) == (ssize_t)length);
}

static void expect(int socket, const char *text)
{
    char got[100] = {0};
    CHECK(rrecv(socket, got, strlen(text), MSG_WAITALL) == (ssize_t)strlen(text));
    CHECK(strcmp(got, text) == 0);
}

static void close_both(int ends[2])
{
    CHECK(rclose(ends[0]) == 0 && rclose(ends[1]) == 0);
}

static void refused(void)
{
    struct sockaddr_in where = at(9);
    int socket = rsocket(AF_INET, SOCK_STREAM, 0);
    FAILS(rconnect(socket, (struct sockaddr *)&where, sizeof where), ECONNREFUSED);
    CHECK(rclose(socket) == 0);
    socket = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, IPPROTO_TCP);
    FAILS(rconnect(socket, (struct sockaddr *)&where, sizeof where), EINPROGRESS);
    CHECK(poll_for(socket, POLLOUT, LIMIT) & POLLERR);
    CHECK(get(socket, SOL_SOCKET, SO_ERROR) == ECONNREFUSED);
    CHECK(get(socket, SOL_SOCKET, SO_ERROR) == 0);
    CHECK(rclose(socket) == 0);
}

static void nonblocking(void)
{
    struct sockaddr_in where;
    char byte;
    int listening = listener(&where), client, server;
    nonblocking_on(listening);
    FAILS(raccept(listening, NULL, NULL), EAGAIN);
    CHECK(poll_for(listening, POLLIN, 0) == 0);
    client = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(rfcntl(client, F_GETFL) & O_NONBLOCK);
    FAILS(rconnect(client, (struct sockaddr *)&where, sizeof where), EINPROGRESS);
    CHECK(poll_for(client, POLLOUT, LIMIT) == POLLOUT);
    CHECK(get(client, SOL_SOCKET, SO_ERROR) == 0);
    FAILS(rconnect(client, (struct sockaddr *)&where, sizeof where), EISCONN);
    CHECK(poll_for(listening, POLLIN, LIMIT) == POLLIN);
    server = raccept(listening, NULL, NULL);
    CHECK(server >= 0);
    FAILS(rrecv(client, &byte, 1, 0), EAGAIN);
    CHECK(poll_for(client, POLLIN, 20) == 0);
    FAILS(rrecv(server, &byte, 1, MSG_DONTWAIT), EAGAIN);
    send_all(server, "x", 1);
    CHECK(poll_for(client, POLLIN | POLLOUT, LIMIT) & POLLOUT);
    CHECK(poll_for(client, POLLIN, LIMIT) == POLLIN);
    CHECK(rrecv(client, &byte, 1, 0) == 1 && byte == 'x');
    CHECK(rclose(client) == 0 && rclose(server) == 0 && rclose(listening) == 0);
}

/* A stream that is not read fills up, and everything that was accepted arrives. */
static void partial(void)
{
    enum { LENGTH = 8 << 20 };
    unsigned char *data = malloc(LENGTH), *got = malloc(LENGTH);
    size_t sent = 0, received = 0;
    ssize_t some;
    int ends[2];
    connect_both(ends, NULL);
    nonblocking_on(ends[0]);
    for (size_t place = 0; place < LENGTH; place++)
        data[place] = pattern(place);
    while ((some = rsend(ends[0], data + sent, LENGTH - sent, 0)) > 0)
        sent += some;
    CHECK(some == -1 && errno == EAGAIN && sent > 10000 && sent < LENGTH);
    CHECK(poll_for(ends[0], POLLOUT, 20) == 0);
    while (received < LENGTH) {
        some = rrecv(ends[1], got + received, 7777, 0);
        CHECK(some > 0);
        received += some;
        /* The credit arrives a moment later: a reader that has consumed everything must wait for it, not for more data. */
        if (received == sent && sent < LENGTH)
            CHECK(poll_for(ends[0], POLLOUT, LIMIT) == POLLOUT);
        some = rsend(ends[0], data + sent, LENGTH - sent, 0);
        CHECK(some >= 0 || errno == EAGAIN);
        sent += some > 0 ? some : 0;
    }
    CHECK(memcmp(data, got, LENGTH) == 0);
    CHECK(poll_for(ends[0], POLLOUT, LIMIT) == POLLOUT);
    close_both(ends);
}

static void shut_down(void)
{
    char byte;
    int ends[2];
    connect_both(ends, NULL);
    send_all(ends[0], "last words", 10);
    CHECK(rshutdown(ends[0], SHUT_WR) == 0);
    FAILS(rsend(ends[0], "more", 4, 0), EPIPE);
    expect(ends[1], "last words");
    CHECK(rrecv(ends[1], &byte, 1, 0) == 0);
    CHECK(poll_for(ends[1], POLLIN, LIMIT) == POLLIN);
    /* The other direction still works. */
    send_all(ends[1], "answer", 6);
    expect(ends[0], "answer");
    CHECK(rshutdown(ends[1], SHUT_WR) == 0);
    CHECK(rrecv(ends[0], &byte, 1, 0) == 0);
    CHECK(poll_for(ends[0], POLLIN, LIMIT) & POLLHUP);
    close_both(ends);
}

static void closed(void)
{
    char byte;
    int ends[2];
    connect_both(ends, NULL);
    send_all(ends[0], "bye", 3);
    CHECK(rclose(ends[0]) == 0);
    FAILS(rsend(ends[0], "x", 1, 0), EBADF);
    /* Data sent before the end is read before it. */
    expect(ends[1], "bye");
    CHECK(rrecv(ends[1], &byte, 1, 0) == 0);
    CHECK(poll_for(ends[1], POLLIN, LIMIT) & POLLHUP);
    FAILS(rsend(ends[1], "x", 1, 0), ECONNRESET);
    CHECK(rclose(ends[1]) == 0);
}

static void vectors(void)
{
    char one[3], two[100], peek[4] = {0};
    struct iovec out[3] = {{"ab", 2}, {"", 0}, {"cdefg", 5}};
    struct iovec in[2] = {{one, 3}, {two, sizeof two}};
    struct sockaddr_in from;
    struct msghdr message = {.msg_iov = out, .msg_iovlen = 3};
    socklen_t length = sizeof from;
    int ends[2];
    connect_both(ends, NULL);
    CHECK(rwritev(ends[0], out, 3) == 7);
    CHECK(rrecv(ends[1], peek, 3, MSG_PEEK) == 3 && strcmp(peek, "abc") == 0);
    CHECK(rreadv(ends[1], in, 2) == 7);
    CHECK(memcmp(one, "abc", 3) == 0 && memcmp(two, "defg", 4) == 0);
    CHECK(rsendmsg(ends[0], &message, 0) == 7);
    message = (struct msghdr){.msg_iov = in, .msg_iovlen = 2, .msg_name = &from, .msg_namelen = length};
    CHECK(rrecvmsg(ends[1], &message, 0) == 7 && message.msg_namelen == length);
    CHECK(from.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    CHECK(rwrite(ends[0], "xyz", 3) == 3);
    CHECK(rrecvfrom(ends[1], two, 1, 0, (struct sockaddr *)&from, &length) == 1 && *two == 'x');
    CHECK(rread(ends[1], two, sizeof two) == 2 && two[1] == 'z');
    // TCP ignores the address.
    CHECK(rsendto(ends[0], "x", 1, 0, (struct sockaddr *)&from, length) == 1);
    CHECK(rread(ends[1], two, sizeof two) == 1 && *two == 'x');
    close_both(ends);
}

static void selected(void)
{
    struct timeval soon = {.tv_usec = 20000}, late = {.tv_sec = LIMIT / 1000};
    struct pollfd both[2];
    fd_set readable, writable;
    char byte;
    int ends[2], pipes[2], most;
    connect_both(ends, NULL);
    CHECK(pipe(pipes) == 0);
    most = (ends[1] > pipes[0] ? ends[1] : pipes[0]) + 1;
    FD_ZERO(&readable);
    FD_ZERO(&writable);
    FD_SET(ends[1], &readable);
    FD_SET(pipes[0], &readable);
    CHECK(rselect(most, &readable, NULL, NULL, &soon) == 0);
    CHECK(!FD_ISSET(ends[1], &readable) && !FD_ISSET(pipes[0], &readable));
    FD_SET(ends[1], &readable);
    FD_SET(ends[1], &writable);
    FD_SET(pipes[0], &readable);
    CHECK(write(pipes[1], "p", 1) == 1);
    CHECK(rselect(most, &readable, &writable, NULL, NULL) == 2);
    CHECK(!FD_ISSET(ends[1], &readable) && FD_ISSET(ends[1], &writable) && FD_ISSET(pipes[0], &readable));
    CHECK(read(pipes[0], &byte, 1) == 1);
    send_all(ends[0], "s", 1);
    FD_SET(ends[1], &readable);
    CHECK(rselect(most, &readable, NULL, NULL, &late) == 1 && FD_ISSET(ends[1], &readable));
    CHECK(rread(ends[1], &byte, 1) == 1);
    both[0] = (struct pollfd){.fd = ends[1], .events = POLLIN};
    both[1] = (struct pollfd){.fd = pipes[0], .events = POLLIN};
    CHECK(rpoll(both, 2, 20) == 0);
    CHECK(write(pipes[1], "p", 1) == 1);
    CHECK(rpoll(both, 2, -1) == 1 && both[1].revents == POLLIN && both[0].revents == 0);
    close_both(ends);
}

static void options(void)
{
    struct linger linger = {0};
    socklen_t length = sizeof linger;
    int ends[2], socket = rsocket(AF_INET6, SOCK_STREAM, 0);
    CHECK(socket >= 0 && get(socket, SOL_SOCKET, SO_TYPE) == SOCK_STREAM);
    /* As in rsocket(7). */
    CHECK(get(socket, SOL_RDMA, RDMA_SQSIZE) == 384 && get(socket, SOL_RDMA, RDMA_RQSIZE) == 384);
    CHECK(get(socket, SOL_RDMA, RDMA_INLINE) == 64 && get(socket, SOL_RDMA, RDMA_IOMAPSIZE) == 0);
    /* Longer than there: 1 << 17. */
    CHECK(get(socket, SOL_SOCKET, SO_RCVBUF) == 1 << 20 && get(socket, SOL_SOCKET, SO_SNDBUF) == 1 << 20);
    set(socket, SOL_RDMA, RDMA_SQSIZE, 100);
    set(socket, SOL_RDMA, RDMA_RQSIZE, 200);
    set(socket, SOL_RDMA, RDMA_INLINE, 32);
    set(socket, SOL_RDMA, RDMA_IOMAPSIZE, 100);
    CHECK(get(socket, SOL_RDMA, RDMA_SQSIZE) == 100 && get(socket, SOL_RDMA, RDMA_RQSIZE) == 200);
    CHECK(get(socket, SOL_RDMA, RDMA_INLINE) == 32 && get(socket, SOL_RDMA, RDMA_IOMAPSIZE) == 100);
    set(socket, SOL_SOCKET, SO_RCVBUF, 50000);
    set(socket, SOL_SOCKET, SO_SNDBUF, 60000);
    CHECK(get(socket, SOL_SOCKET, SO_RCVBUF) == 100000 && get(socket, SOL_SOCKET, SO_SNDBUF) == 120000);
    CHECK(get(socket, IPPROTO_TCP, TCP_NODELAY) == 0);
    set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
    CHECK(get(socket, IPPROTO_TCP, TCP_NODELAY) == 1);
    set(socket, SOL_SOCKET, SO_REUSEADDR, 1);
    CHECK(get(socket, SOL_SOCKET, SO_REUSEADDR) == 1);
    set(socket, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    CHECK(get(socket, IPPROTO_IPV6, IPV6_V6ONLY) == 1);
    set(socket, IPPROTO_TCP, TCP_KEEPIDLE, 9);
    set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
    CHECK(get(socket, IPPROTO_TCP, TCP_KEEPIDLE) == 9 && get(socket, SOL_SOCKET, SO_KEEPALIVE) == 1);
    CHECK(rgetsockopt(socket, SOL_SOCKET, SO_LINGER, &linger, &length) == 0 && linger.l_onoff == 1);
    FAILS(rsetsockopt(socket, SOL_SOCKET, 9999, &length, sizeof length), ENOTSUP);
    CHECK(rclose(socket) == 0);
    connect_both(ends, NULL);
    length = 200;
    FAILS(rsetsockopt(ends[0], SOL_RDMA, RDMA_SQSIZE, &length, sizeof length), EINVAL);
    CHECK(get(ends[0], IPPROTO_TCP, TCP_MAXSEG) >= 256);
    close_both(ends);
}

static void with_maps(int socket)
{
    set(socket, SOL_RDMA, RDMA_IOMAPSIZE, 2);
}

static void mapped(void)
{
    enum { LENGTH = 100000 };
    static unsigned char data[LENGTH], room[2][LENGTH];
    int ends[2];
    connect_both(ends, with_maps);
    CHECK(riomap(ends[1], room[0], LENGTH, PROT_WRITE, 0, 5000) == 5000);
    CHECK(riomap(ends[1], room[1], LENGTH, PROT_WRITE, 0, -1) == (off_t)(uintptr_t)room[1]);
    FAILS(riomap(ends[1], data, LENGTH, PROT_WRITE, 0, 0), ENOMEM);
    FAILS(riomap(ends[1], data, LENGTH, PROT_EXEC, 0, 0), EINVAL);
    /* The peer learns of them with the next message. */
    send_all(ends[1], "mapped", 6);
    expect(ends[0], "mapped");
    for (size_t place = 0; place < LENGTH; place++)
        data[place] = pattern(place);
    CHECK(riowrite(ends[0], data, LENGTH, 5000, 0) == LENGTH);
    CHECK(riowrite(ends[0], data, 1000, (off_t)(uintptr_t)room[1] + 500, 0) == 1000);
    /* Nothing is mapped there. */
    CHECK(riowrite(ends[0], data, 10, 1, 0) == 0);
    /* All of it is there before data that is sent later. */
    send_all(ends[0], "written", 7);
    expect(ends[1], "written");
    CHECK(memcmp(room[0], data, LENGTH) == 0 && memcmp(room[1] + 500, data, 1000) == 0 && !room[1][1500]);
    CHECK(riounmap(ends[1], room[0], LENGTH) == 0);
    FAILS(riounmap(ends[1], room[0], LENGTH), EINVAL);
    close_both(ends);
}

enum { STREAM = 3000000 };

static void *sends(void *end)
{
    unsigned char piece[5000];
    for (size_t sent = 0; sent < STREAM; sent += sizeof piece) {
        for (size_t place = 0; place < sizeof piece; place++)
            piece[place] = pattern(sent + place);
        CHECK(rsend(*(int *)end, piece, sizeof piece, 0) == sizeof piece);
    }
    return NULL;
}

static void *receives(void *end)
{
    unsigned char piece[3333];
    for (size_t received = 0; received < STREAM;) {
        ssize_t some = rrecv(*(int *)end, piece, sizeof piece, 0);
        CHECK(some > 0);
        for (ssize_t place = 0; place < some; place++)
            CHECK(piece[place] == pattern(received + place));
        received += some;
    }
    return NULL;
}

/* Both ends send and receive concurrently, each with two threads. */
static void threads(void)
{
    pthread_t all[4];
    int ends[2];
    connect_both(ends, NULL);
    for (int number = 0; number < 4; number++)
        CHECK(pthread_create(&all[number], NULL, number & 1 ? sends : receives, &ends[number / 2]) == 0);
    for (int number = 0; number < 4; number++)
        CHECK(pthread_join(all[number], NULL) == 0);
    close_both(ends);
}

static void bad_calls(void)
{
    struct sockaddr_in where = at(0);
    char byte;
    int socket;
    FAILS(rsocket(AF_UNIX, SOCK_STREAM, 0), ENOTSUP);
    FAILS(rsocket(AF_INET, SOCK_STREAM, IPPROTO_UDP), ENOTSUP);
    FAILS(rsend(12345, "x", 1, 0), EBADF);
    FAILS(rlisten(-1, 1), EBADF);
    FAILS(rclose(12345), EBADF);
    socket = rsocket(AF_INET, SOCK_STREAM, 0);
    FAILS(rrecv(socket, &byte, 1, 0), ENOTCONN);
    FAILS(rsend(socket, "x", 1, 0), ENOTCONN);
    FAILS(rshutdown(socket, SHUT_RDWR), ENOTCONN);
    FAILS(rgetpeername(socket, (struct sockaddr *)&where, &(socklen_t){sizeof where}), ENOTCONN);
    FAILS(raccept(socket, NULL, NULL), EINVAL);
    FAILS(rbind(socket, (struct sockaddr *)&where, 3), EINVAL);
    CHECK(rbind(socket, (struct sockaddr *)&where, sizeof where) == 0);
    FAILS(rbind(socket, (struct sockaddr *)&where, sizeof where), EINVAL);
    CHECK(rclose(socket) == 0);
}

/* A peer killed by this signal sends nothing: its peers notice all the same. */
static void silenced(int signal)
{
    struct sockaddr_in where;
    int ready[2], server, listening;
    char byte;
    pid_t child;
    CHECK(pipe(ready) == 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int socket = rsocket(AF_INET, SOCK_STREAM, 0);
        CHECK(read(ready[0], &where, sizeof where) == sizeof where);
        CHECK(rconnect(socket, (struct sockaddr *)&where, sizeof where) == 0);
        send_all(socket, "x", 1);
        pause();
        _exit(0);
    }
    listening = listener(&where);
    CHECK(write(ready[1], &where, sizeof where) == sizeof where);
    server = raccept(listening, NULL, NULL);
    CHECK(server >= 0);
    expect(server, "x");
    CHECK(kill(child, signal) == 0);
    if (signal == SIGKILL) {
        /* As with Linux, whose kernel disconnects: the end of the stream. */
        CHECK(poll_for(server, POLLIN, LIMIT) & POLLIN);
        CHECK(rrecv(server, &byte, 1, 0) == 0);
    } else {
        CHECK(poll_for(server, POLLIN, LIMIT) & POLLERR);
        FAILS(rrecv(server, &byte, 1, 0), ETIMEDOUT);
        CHECK(kill(child, SIGKILL) == 0);
    }
    CHECK(waitpid(child, NULL, 0) == child);
    CHECK(rclose(server) == 0 && rclose(listening) == 0);
}

static void killed(void)
{
    silenced(SIGKILL);
}

static void stopped(void)
{
    silenced(SIGSTOP);
}

static void cycles(void)
{
    int ends[2], before = 0;
    for (int number = 0; number < 200; number++) {
        connect_both(ends, NULL);
        send_all(ends[0], "ping", 4);
        expect(ends[1], "ping");
        close_both(ends);
        if (number == 3)
            before = descriptors();
    }
    CHECK(descriptors() <= before);
}

int main(int count, char **words)
{
    static const struct test_case cases[] = {
        CASE(refused), CASE(nonblocking), CASE(partial), CASE(shut_down), CASE(closed),
        CASE(vectors), CASE(selected), CASE(options), CASE(mapped), CASE(threads),
        CASE(bad_calls), CASE(killed), CASE(stopped), CASE(cycles),
    };
    return run_case(cases, sizeof cases / sizeof *cases, count, words);
}
