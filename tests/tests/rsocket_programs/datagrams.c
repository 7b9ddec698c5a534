/* The calls of rsocket(7) for datagrams, one case for each name that may be given. All sockets are in this process. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common.h"

/* The longest datagram over IPv4 if packets can be longer than 2048 bytes. */
enum { LONGEST = 2032 };

static struct sockaddr_in name_of(int socket)
{
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    CHECK(rgetsockname(socket, (struct sockaddr *)&name, &length) == 0 && length == sizeof name);
    return name;
}

/* A socket with its own port, and its address. */
static int bound(struct sockaddr_in *where)
{
    int socket = rsocket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in any = at(0);
    CHECK(socket >= 0);
    CHECK(rbind(socket, (struct sockaddr *)&any, sizeof any) == 0);
    *where = name_of(socket);
    CHECK(where->sin_port != 0 && where->sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    return socket;
}

static void send_to(int socket, const struct sockaddr_in *to, const void *data, size_t length)
{
    CHECK(rsendto(socket, data, length, 0, (const struct sockaddr *)to, sizeof *to) == (ssize_t)length);
}

/* Expects this datagram from this sender next. */
static void expect_from(int socket, const struct sockaddr_in *sender, const char *text)
{
    char got[100];
    struct sockaddr_in from;
    socklen_t length = sizeof from;
    CHECK(poll_for(socket, POLLIN, LIMIT) == POLLIN);
    CHECK(rrecvfrom(socket, got, sizeof got, 0, (struct sockaddr *)&from, &length) == (ssize_t)strlen(text));
    CHECK(memcmp(got, text, strlen(text)) == 0);
    CHECK(length == sizeof from && from.sin_family == AF_INET && from.sin_port == sender->sin_port);
    CHECK(from.sin_addr.s_addr == sender->sin_addr.s_addr);
}

static void pair_up(int ends[2], struct sockaddr_in where[2])
{
    for (int end = 0; end < 2; end++)
        ends[end] = bound(&where[end]);
    for (int end = 0; end < 2; end++)
        CHECK(rconnect(ends[end], (struct sockaddr *)&where[!end], sizeof *where) == 0);
}

static void close_both(int ends[2])
{
    CHECK(rclose(ends[0]) == 0 && rclose(ends[1]) == 0);
}

/* Several clients of one server: first over UDP, then between queue pairs. */
static void peers(void)
{
    struct sockaddr_in server_at, where[3];
    int server = bound(&server_at), clients[3];
    for (int number = 0; number < 3; number++) {
        clients[number] = rsocket(AF_INET, SOCK_DGRAM, IPPROTO_UDP);
        send_to(clients[number], &server_at, "first", 5);
        /* Having sent, it has a port but no particular address. */
        where[number] = name_of(clients[number]);
        CHECK(where[number].sin_port != 0 && where[number].sin_addr.s_addr == htonl(INADDR_ANY));
        where[number].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        expect_from(server, &where[number], "first");
    }
    for (int round = 0; round < 50; round++) {
        for (int number = 0; number < 3; number++) {
            char text[30];
            snprintf(text, sizeof text, "%d of client %d", round, number);
            send_to(clients[number], &server_at, text, strlen(text));
            expect_from(server, &where[number], text);
            send_to(server, &where[number], text, strlen(text));
            expect_from(clients[number], &server_at, text);
        }
    }
    /* All at the same time, and none is lost. */
    for (int number = 0; number < 3; number++)
        send_to(clients[number], &server_at, "last", 4);
    for (int number = 0; number < 3; number++) {
        char got[10];
        CHECK(rrecv(server, got, sizeof got, 0) == 4 && memcmp(got, "last", 4) == 0);
    }
    for (int number = 0; number < 3; number++)
        CHECK(rclose(clients[number]) == 0);
    CHECK(rclose(server) == 0);
}

static void connected(void)
{
    struct sockaddr_in where[2], other_at, name;
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    socklen_t length = sizeof name;
    int ends[2], other = bound(&other_at);
    FAILS(rsend(other, "x", 1, 0), EDESTADDRREQ);
    FAILS(rgetpeername(other, (struct sockaddr *)&name, &length), ENOTCONN);
    pair_up(ends, where);
    CHECK(rgetpeername(ends[0], (struct sockaddr *)&name, &length) == 0);
    CHECK(name.sin_port == where[1].sin_port && name.sin_addr.s_addr == where[1].sin_addr.s_addr);
    for (int round = 0; round < 20; round++) {
        CHECK(rsend(ends[0], "ping", 4, 0) == 4);
        expect_from(ends[1], &where[0], "ping");
        CHECK(rwrite(ends[1], "pong", 4) == 4);
        expect_from(ends[0], &where[1], "pong");
    }
    /* No other sender is received, over UDP or from a known queue pair. */
    send_to(ends[1], &other_at, "to another", 10);
    expect_from(other, &where[1], "to another");
    for (int round = 0; round < 5; round++) {
        send_to(other, &where[0], "intruder", 8);
        send_to(other, &where[1], "intruder", 8);
    }
    CHECK(rsend(ends[0], "ping", 4, 0) == 4);
    expect_from(ends[1], &where[0], "ping");
    CHECK(rsend(ends[1], "pong", 4, 0) == 4);
    expect_from(ends[0], &where[1], "pong");
    CHECK(poll_for(ends[0], POLLIN, 0) == 0 && poll_for(ends[1], POLLIN, 0) == 0);
    /* Another peer, then none. */
    CHECK(rconnect(ends[0], (struct sockaddr *)&other_at, sizeof other_at) == 0);
    CHECK(rsend(ends[0], "new", 3, 0) == 3);
    expect_from(other, &where[0], "new");
    CHECK(rconnect(ends[0], &none, sizeof none) == 0);
    FAILS(rsend(ends[0], "x", 1, 0), EDESTADDRREQ);
    close_both(ends);
    CHECK(rclose(other) == 0);
}

/* A datagram that does not fit is dropped, and the next one is received. */
static void cut(void)
{
    struct sockaddr_in where[2];
    char got[100] = {0}, small[4];
    struct iovec room = {small, sizeof small};
    struct msghdr message = {.msg_iov = &room, .msg_iovlen = 1};
    int ends[2];
    pair_up(ends, where);
    /* The first is sent over UDP, the others are not. */
    for (int round = 0; round < 3; round++) {
        CHECK(rsend(ends[0], "long datagram", 13, 0) == 13);
        CHECK(rrecv(ends[1], got, 5, MSG_PEEK) == 5 && memcmp(got, "long ", 5) == 0);
        CHECK(rrecv(ends[1], got, 5, MSG_PEEK | MSG_TRUNC) == 13);
        CHECK(rrecv(ends[1], got, 4, 0) == 4 && memcmp(got, "long", 4) == 0);
        FAILS(rrecv(ends[1], got, sizeof got, MSG_DONTWAIT), EAGAIN);
        CHECK(rsend(ends[0], "long datagram", 13, 0) == 13);
        CHECK(rrecvmsg(ends[1], &message, 0) == 4 && message.msg_flags == MSG_TRUNC);
        CHECK(rsend(ends[0], "four", 4, 0) == 4);
        CHECK(rrecvmsg(ends[1], &message, 0) == 4 && message.msg_flags == 0 && memcmp(small, "four", 4) == 0);
        /* An empty datagram counts. */
        CHECK(rsend(ends[0], "", 0, 0) == 0);
        CHECK(poll_for(ends[1], POLLIN, LIMIT) == POLLIN);
        CHECK(rrecv(ends[1], got, sizeof got, 0) == 0);
        FAILS(rrecv(ends[1], got, sizeof got, MSG_DONTWAIT), EAGAIN);
    }
    close_both(ends);
}

static void too_long(void)
{
    static unsigned char data[LONGEST + 1], got[LONGEST + 1];
    struct sockaddr_in where[2];
    int ends[2];
    pair_up(ends, where);
    for (size_t place = 0; place < sizeof data; place++)
        data[place] = pattern(place);
    for (int round = 0; round < 3; round++) {
        FAILS(rsend(ends[0], data, LONGEST + 1, 0), EMSGSIZE);
        FAILS(rsend(ends[0], data, (size_t)-1 / 2, 0), EMSGSIZE);
        CHECK(rsend(ends[0], data, LONGEST, 0) == LONGEST);
        memset(got, 0, sizeof got);
        CHECK(rrecv(ends[1], got, sizeof got, 0) == LONGEST && memcmp(got, data, LONGEST) == 0);
    }
    close_both(ends);
}

static void does_not_wait(void)
{
    struct sockaddr_in where[2];
    struct timeval soon = {.tv_usec = 20000};
    fd_set readable, writable;
    char byte;
    int ends[2], fresh = rsocket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    CHECK(rfcntl(fresh, F_GETFL) & O_NONBLOCK);
    FAILS(rrecv(fresh, &byte, 1, 0), EWOULDBLOCK);
    CHECK(poll_for(fresh, POLLIN | POLLOUT, 0) == POLLOUT);
    CHECK(rclose(fresh) == 0);
    pair_up(ends, where);
    FAILS(rrecv(ends[0], &byte, 1, MSG_DONTWAIT), EAGAIN);
    CHECK(rsetsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon) == 0);
    FAILS(rrecv(ends[0], &byte, 1, 0), EAGAIN);
    nonblocking_on(ends[0]);
    FAILS(rrecv(ends[0], &byte, 1, 0), EAGAIN);
    CHECK(poll_for(ends[0], POLLIN, 20) == 0);
    CHECK(poll_for(ends[0], POLLIN | POLLOUT, LIMIT) == POLLOUT);
    for (int round = 0; round < 3; round++) {
        CHECK(rsend(ends[1], "x", 1, 0) == 1);
        FD_ZERO(&readable);
        FD_ZERO(&writable);
        FD_SET(ends[0], &readable);
        CHECK(rselect(ends[0] + 1, &readable, NULL, NULL, NULL) == 1 && FD_ISSET(ends[0], &readable));
        FD_SET(ends[0], &writable);
        CHECK(rselect(ends[0] + 1, &readable, &writable, NULL, NULL) == 2);
        CHECK(rrecv(ends[0], &byte, 1, 0) == 1 && byte == 'x');
        CHECK(rselect(ends[0] + 1, &readable, NULL, NULL, &soon) == 0);
        FAILS(rrecv(ends[0], &byte, 1, 0), EAGAIN);
    }
    close_both(ends);
}

static void vectors(void)
{
    char one[3], two[100];
    struct iovec out[3] = {{"ab", 2}, {"", 0}, {"cdefg", 5}};
    struct iovec in[2] = {{one, 3}, {two, sizeof two}};
    struct sockaddr_in where[2], from;
    struct msghdr message;
    int ends[2];
    pair_up(ends, where);
    for (int round = 0; round < 3; round++) {
        CHECK(rwritev(ends[0], out, 3) == 7);
        CHECK(rreadv(ends[1], in, 2) == 7);
        CHECK(memcmp(one, "abc", 3) == 0 && memcmp(two, "defg", 4) == 0);
        message = (struct msghdr){.msg_iov = out, .msg_iovlen = 3, .msg_name = &where[0], .msg_namelen = sizeof from};
        CHECK(rsendmsg(ends[1], &message, 0) == 7);
        message = (struct msghdr){.msg_iov = in, .msg_iovlen = 2, .msg_name = &from, .msg_namelen = sizeof from};
        CHECK(rrecvmsg(ends[0], &message, 0) == 7 && message.msg_namelen == sizeof from);
        CHECK(from.sin_port == where[1].sin_port);
        CHECK(rwrite(ends[0], "xyz", 3) == 3);
        CHECK(rread(ends[1], two, sizeof two) == 3 && two[2] == 'z');
    }
    message = (struct msghdr){.msg_iov = out, .msg_iovlen = 3, .msg_control = two, .msg_controllen = 20};
    FAILS(rsendmsg(ends[0], &message, 0), ENOTSUP);
    close_both(ends);
}

/* An IPv6 socket that also receives IPv4. */
static void families(void)
{
    struct sockaddr_in6 any = {.sin6_family = AF_INET6}, from;
    struct sockaddr_in to = at(0);
    socklen_t length = sizeof any;
    char got[10];
    int both = rsocket(AF_INET6, SOCK_DGRAM, 0), four = rsocket(AF_INET, SOCK_DGRAM, 0);
    int six = rsocket(AF_INET6, SOCK_DGRAM, 0);
    CHECK(rbind(both, (struct sockaddr *)&any, sizeof any) == 0);
    CHECK(rgetsockname(both, (struct sockaddr *)&any, &length) == 0 && any.sin6_port != 0);
    to.sin_port = any.sin6_port;
    any.sin6_addr = in6addr_loopback;
    CHECK(rconnect(four, (struct sockaddr *)&to, sizeof to) == 0);
    CHECK(rconnect(six, (struct sockaddr *)&any, sizeof any) == 0);
    for (int round = 0; round < 5; round++) {
        for (int number = 0; number < 2; number++) {
            int client = number ? six : four;
            CHECK(rsend(client, "ask", 3, 0) == 3);
            length = sizeof from;
            CHECK(rrecvfrom(both, got, sizeof got, 0, (struct sockaddr *)&from, &length) == 3);
            CHECK(length == sizeof from && from.sin6_family == AF_INET6);
            CHECK(IN6_IS_ADDR_V4MAPPED(&from.sin6_addr) == !number);
            CHECK(rsendto(both, "tell", 4, 0, (struct sockaddr *)&from, length) == 4);
            CHECK(rrecv(client, got, sizeof got, 0) == 4 && memcmp(got, "tell", 4) == 0);
        }
    }
    /* An IPv4 socket has no route there. */
    FAILS(rsendto(four, "x", 1, 0, (struct sockaddr *)&any, sizeof any), EAFNOSUPPORT);
    CHECK(rclose(both) == 0 && rclose(four) == 0 && rclose(six) == 0);
}

static void nobody(void)
{
    struct sockaddr_in where;
    char byte;
    int socket = bound(&where);
    CHECK(rclose(socket) == 0);
    socket = rsocket(AF_INET, SOCK_DGRAM, 0);
    CHECK(rconnect(socket, (struct sockaddr *)&where, sizeof where) == 0);
    CHECK(rsend(socket, "x", 1, 0) == 1);
    CHECK(poll_for(socket, POLLIN, LIMIT) & POLLERR);
    FAILS(rrecv(socket, &byte, 1, 0), ECONNREFUSED);
    FAILS(rrecv(socket, &byte, 1, MSG_DONTWAIT), EAGAIN);
    CHECK(rclose(socket) == 0);
}

/* A restarted peer has a new queue pair: the old one is not used forever. */
static void restarted(void)
{
    struct sockaddr_in where;
    char got[10];
    int waited = 0, server = bound(&where), client = rsocket(AF_INET, SOCK_DGRAM, 0);
    for (int round = 0; round < 3; round++) {
        send_to(client, &where, "before", 6);
        CHECK(rrecv(server, got, sizeof got, 0) == 6);
    }
    CHECK(rclose(server) == 0);
    server = rsocket(AF_INET, SOCK_DGRAM, 0);
    CHECK(rbind(server, (struct sockaddr *)&where, sizeof where) == 0);
    do {
        CHECK((waited += 50) < LIMIT);
        send_to(client, &where, "after", 5);
    } while (poll_for(server, POLLIN, 50) == 0);
    CHECK(rrecv(server, got, sizeof got, 0) == 5 && memcmp(got, "after", 5) == 0);
    CHECK(rclose(server) == 0 && rclose(client) == 0);
}

/* A UDP socket of the system that speaks the protocol of rdma-core's rsockets, and other protocols. */
static void foreign(void)
{
    static const unsigned char good[20] = {0x55, 0x55, 0x55, 0x55, 4, 0, 16, 0, 0, 0x12, 0x34, 0x56,
                                           127,  0,    0,    1,    'd', 'a', 't', 'a'};
    unsigned char bad[sizeof good], answer[100];
    struct sockaddr_in where, from, own;
    socklen_t length = sizeof own;
    int rsock = bound(&where), plain = socket(AF_INET, SOCK_DGRAM, 0);
    struct pollfd answers = {.fd = plain, .events = POLLIN};
    struct { int place; unsigned char value; } wrong[] = {
        {0, 0x54}, {3, 0}, {4, 6}, {4, 0}, {5, 1}, {5, 6}, {5, 255}, {6, 15}, {6, 28}, {6, 0},
    };
    own = at(0);
    CHECK(bind(plain, (struct sockaddr *)&own, sizeof own) == 0);
    CHECK(getsockname(plain, (struct sockaddr *)&own, &length) == 0);
    CHECK(connect(plain, (struct sockaddr *)&where, sizeof where) == 0);
    for (size_t bytes = 0; bytes < 16; bytes++)
        CHECK(send(plain, good, bytes, 0) == (ssize_t)bytes);
    for (size_t number = 0; number < sizeof wrong / sizeof *wrong; number++) {
        memcpy(bad, good, sizeof bad);
        bad[wrong[number].place] = wrong[number].value;
        CHECK(send(plain, bad, sizeof bad, 0) == sizeof bad);
    }
    /* Management queue pairs cannot be named. */
    memcpy(bad, good, sizeof bad);
    memcpy(bad + 9, "\0\0\1", 3);
    CHECK(send(plain, bad, sizeof bad, 0) == sizeof bad);
    /* An unrequested response is not a datagram. */
    memcpy(bad, good, sizeof bad);
    bad[5] = 7;
    CHECK(send(plain, bad, 16, 0) == 16);
    CHECK(send(plain, good, sizeof good, 0) == sizeof good);
    /* UDP is in order here: the valid one comes last, alone, and is answered. */
    length = sizeof from;
    CHECK(rrecvfrom(rsock, answer, sizeof answer, 0, (struct sockaddr *)&from, &length) == 4);
    CHECK(memcmp(answer, "data", 4) == 0 && from.sin_port == own.sin_port);
    FAILS(rrecv(rsock, answer, sizeof answer, MSG_DONTWAIT), EAGAIN);
    CHECK(poll(&answers, 1, LIMIT) == 1);
    CHECK(recv(plain, answer, sizeof answer, 0) == 16);
    CHECK(memcmp(answer, "\x55\x55\x55\x55\x04\x07\x10\x00\x00", 9) == 0 && memcmp(answer + 12, "\x7f\0\0\1", 4) == 0);
    CHECK((answer[9] | answer[10] | answer[11]) != 0);
    CHECK(recv(plain, answer, sizeof answer, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    CHECK(close(plain) == 0 && rclose(rsock) == 0);
}

static void options(void)
{
    struct sockaddr_in where[2];
    int ends[2], socket = rsocket(AF_INET6, SOCK_DGRAM, 0);
    CHECK(get(socket, SOL_SOCKET, SO_TYPE) == SOCK_DGRAM && get(socket, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_UDP);
    CHECK(get(socket, SOL_SOCKET, SO_DOMAIN) == AF_INET6 && get(socket, SOL_SOCKET, SO_ERROR) == 0);
    CHECK(get(socket, SOL_RDMA, RDMA_SQSIZE) == 384 && get(socket, SOL_RDMA, RDMA_RQSIZE) == 384);
    set(socket, SOL_RDMA, RDMA_SQSIZE, 10);
    set(socket, SOL_RDMA, RDMA_RQSIZE, 20);
    CHECK(get(socket, SOL_RDMA, RDMA_SQSIZE) == 10 && get(socket, SOL_RDMA, RDMA_RQSIZE) == 20);
    set(socket, SOL_SOCKET, SO_RCVBUF, 50000);
    set(socket, SOL_SOCKET, SO_SNDBUF, 60000);
    CHECK(get(socket, SOL_SOCKET, SO_RCVBUF) == 100000 && get(socket, SOL_SOCKET, SO_SNDBUF) == 120000);
    set(socket, SOL_SOCKET, SO_REUSEADDR, 1);
    CHECK(get(socket, SOL_SOCKET, SO_REUSEADDR) == 1);
    set(socket, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    CHECK(get(socket, IPPROTO_IPV6, IPV6_V6ONLY) == 1);
    /* Options that only streams have. */
    FAILS(rlisten(socket, 1), EOPNOTSUPP);
    FAILS(raccept(socket, NULL, NULL), EOPNOTSUPP);
    FAILS(rsocket(AF_INET, SOCK_DGRAM, IPPROTO_TCP), ENOTSUP);
    FAILS(rshutdown(socket, SHUT_WR), ENOTCONN);
    CHECK(rclose(socket) == 0);
    FAILS(rrecv(socket, &ends, 1, MSG_DONTWAIT), EBADF);
    pair_up(ends, where);
    FAILS(rsetsockopt(ends[0], SOL_RDMA, RDMA_SQSIZE, &(int){5}, sizeof(int)), EINVAL);
    /* Each direction separately. */
    CHECK(rshutdown(ends[0], SHUT_WR) == 0);
    FAILS(rsend(ends[0], "x", 1, 0), EPIPE);
    CHECK(rsend(ends[1], "x", 1, 0) == 1);
    expect_from(ends[0], &where[1], "x");
    CHECK(rshutdown(ends[0], SHUT_RD) == 0);
    CHECK(rrecv(ends[0], &socket, 1, 0) == 0);
    close_both(ends);
}

enum { CLIENTS = 4, ROUNDS = 300, BYTES = 1500 };

static struct sockaddr_in echo_at;

/* A datagram may be lost under load: it is then sent again, and each has a number. */
static void *asks(void *number)
{
    unsigned char data[BYTES], got[BYTES];
    int socket = rsocket(AF_INET, SOCK_DGRAM, 0);
    CHECK(rconnect(socket, (struct sockaddr *)&echo_at, sizeof echo_at) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        int waited = 0, same = 0;
        for (size_t place = 0; place < BYTES; place++)
            data[place] = pattern(place + round) + *(int *)number;
        memcpy(data, &round, sizeof round);
        while (!same) {
            CHECK((waited += 100) < LIMIT);
            CHECK(rsend(socket, data, BYTES, 0) == BYTES);
            while (!same && poll_for(socket, POLLIN, 100) != 0) {
                int older;
                CHECK(rrecv(socket, got, BYTES, 0) == BYTES);
                memcpy(&older, got, sizeof older);
                same = memcmp(got, data, BYTES) == 0;
                CHECK(same || older < round);
            }
        }
    }
    CHECK(rclose(socket) == 0);
    return NULL;
}

static void *echoes(void *server)
{
    char data[BYTES];
    struct sockaddr_in from;
    socklen_t length = sizeof from;
    ssize_t bytes;
    while ((bytes = rrecvfrom(*(int *)server, data, BYTES, 0, (struct sockaddr *)&from, &length)) != 1)
        send_to(*(int *)server, &from, data, bytes);
    return NULL;
}

/* Two threads on one socket, and one on each of its peers. */
static void threads(void)
{
    pthread_t clients[CLIENTS], servers[2];
    int numbers[CLIENTS], server = bound(&echo_at), end = rsocket(AF_INET, SOCK_DGRAM, 0);
    for (int number = 0; number < 2; number++)
        CHECK(pthread_create(&servers[number], NULL, echoes, &server) == 0);
    for (int number = 0; number < CLIENTS; number++) {
        numbers[number] = number;
        CHECK(pthread_create(&clients[number], NULL, asks, &numbers[number]) == 0);
    }
    for (int number = 0; number < CLIENTS; number++)
        CHECK(pthread_join(clients[number], NULL) == 0);
    for (int number = 0; number < 2; number++)
        send_to(end, &echo_at, "e", 1);
    for (int number = 0; number < 2; number++)
        CHECK(pthread_join(servers[number], NULL) == 0);
    CHECK(rclose(server) == 0 && rclose(end) == 0);
}

static long resident(void)
{
    long all, kept;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(fscanf(file, "%ld %ld", &all, &kept) == 2);
    fclose(file);
    return kept * sysconf(_SC_PAGESIZE);
}

/* Descriptors, threads and memory are released when sockets are closed. */
static void cycles(void)
{
    struct sockaddr_in where[2];
    int ends[2], files = 0, tasks = 0;
    long memory = 0;
    for (int number = 0; number < 200; number++) {
        pair_up(ends, where);
        for (int round = 0; round < 3; round++) {
            CHECK(rsend(ends[0], "ping", 4, 0) == 4);
            expect_from(ends[1], &where[0], "ping");
            CHECK(rsend(ends[1], "pong", 4, 0) == 4);
            expect_from(ends[0], &where[1], "pong");
        }
        /* Unread data must not keep anything alive. */
        CHECK(rsend(ends[0], "unread", 6, 0) == 6);
        close_both(ends);
        if (number == 20) {
            files = descriptors();
            tasks = entries("/proc/self/task");
            memory = resident();
        }
    }
    /* A thread gets a descriptor when it first waits, which may be late. */
    CHECK(descriptors() <= files + 1 && entries("/proc/self/task") <= tasks);
    /* A pair has half a megabyte of buffers: leaking them would take 90. */
    CHECK(resident() - memory < 20 << 20);
}

int main(int count, char **words)
{
    static const struct test_case cases[] = {
        CASE(peers), CASE(connected), CASE(cut), CASE(too_long), CASE(does_not_wait), CASE(vectors),
        CASE(families), CASE(nobody), CASE(restarted), CASE(foreign), CASE(options), CASE(threads),
        CASE(cycles),
    };
    return run_case(cases, sizeof cases / sizeof *cases, count, words);
}
