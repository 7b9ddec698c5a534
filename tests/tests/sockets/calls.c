/* Socket calls of an unmodified program, one case at a time. The preloaded library carries its connections. */
#include "calls.h"

static void streams(void)
{
    char one[4] = "", two[8] = "";
    struct iovec out[] = {{"ab", 2}, {"", 0}, {"cdefg", 5}}, in[] = {{one, 3}, {two, 8}};
    struct msghdr message = {.msg_iov = out, .msg_iovlen = 3};
    int ends[2], value = 0;
    connect_both(ends);

    struct sockaddr_in peer, local = name_of(ends[0]);
    socklen_t length = sizeof peer;
    CHECK(getpeername(ends[1], (struct sockaddr *)&peer, &length) == 0 && length == sizeof peer);
    CHECK(peer.sin_port == local.sin_port && peer.sin_addr.s_addr == local.sin_addr.s_addr);
    length = sizeof value;
    CHECK(getsockopt(ends[0], SOL_SOCKET, SO_ERROR, &value, &length) == 0 && value == 0);
    CHECK(setsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof value) == 0);
    CHECK(getsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &value, &length) == 0 && value == 1);
    FAILS(connect(ends[0], (struct sockaddr *)&peer, sizeof peer), EISCONN);

    CHECK(writev(ends[0], out, 3) == 7);
    CHECK(recv(ends[1], two, 3, MSG_PEEK | MSG_WAITALL) == 3 && memcmp(two, "abc", 3) == 0);
    CHECK(ready(ends[1], POLLIN, LIMIT) == POLLIN);
    CHECK(ioctl(ends[1], FIONREAD, &value) == 0 && value == 7);
    CHECK(readv(ends[1], in, 2) == 7 && memcmp(one, "abc", 3) == 0 && memcmp(two, "defg", 4) == 0);
    CHECK(sendmsg(ends[1], &message, 0) == 7);
    message = (struct msghdr){.msg_iov = in, .msg_iovlen = 2};
    CHECK(recvmsg(ends[0], &message, 0) == 7 && memcmp(two, "defg", 4) == 0);
    /* TCP ignores the address. */
    CHECK(sendto(ends[0], "x", 1, 0, (struct sockaddr *)&peer, sizeof peer) == 1);
    CHECK(recvfrom(ends[1], two, 1, 0, NULL, NULL) == 1 && *two == 'x');

    CHECK(shutdown(ends[0], SHUT_WR) == 0);
    CHECK(read(ends[1], two, 1) == 0);
    FAILS(send(ends[0], "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK(write(ends[1], "back", 4) == 4 && recv(ends[0], two, 4, MSG_WAITALL) == 4);
    close_both(ends);
}

static unsigned char pattern(size_t place)
{
    return place * 31 + (place >> 8);
}

unsigned char data[LENGTH], copy[LENGTH];

static void *send_all(void *argument)
{
    CHECK(write(*(int *)argument, data, LENGTH) == LENGTH);
    return NULL;
}

/* A blocking write of more than any buffer holds. */
static void large(void)
{
    int ends[2];
    pthread_t thread;
    connect_both(ends);
    for (size_t place = 0; place < LENGTH; place++)
        data[place] = pattern(place);
    CHECK(pthread_create(&thread, NULL, send_all, &ends[0]) == 0);
    CHECK(recv(ends[1], copy, LENGTH, MSG_WAITALL) == LENGTH && memcmp(data, copy, LENGTH) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    close_both(ends);
}

static void files(void)
{
    char name[] = "/tmp/ferroce-sockets-XXXXXX", got[16];
    int ends[2], file = mkstemp(name);
    off_t from = 2;
    CHECK(file >= 0 && unlink(name) == 0 && write(file, "0123456789", 10) == 10);
    connect_both(ends);
    CHECK(sendfile(ends[0], file, &from, 5) == 5 && from == 7 && lseek(file, 0, SEEK_CUR) == 10);
    CHECK(recv(ends[1], got, 5, MSG_WAITALL) == 5 && memcmp(got, "23456", 5) == 0);
    CHECK(lseek(file, 8, SEEK_SET) == 8 && sendfile(ends[0], file, NULL, 100) == 2);
    CHECK(lseek(file, 0, SEEK_CUR) == 10 && sendfile(ends[0], file, NULL, 100) == 0);
    CHECK(recv(ends[1], got, 2, MSG_WAITALL) == 2 && memcmp(got, "89", 2) == 0);
    close_both(ends);
}

static void nonblocking(void)
{
    char byte;
    int server = listener(), value = 1;
    CHECK((fcntl(server, F_GETFL) & O_NONBLOCK) == 0);
    CHECK(fcntl(server, F_SETFL, O_NONBLOCK) == 0 && fcntl(server, F_GETFL) & O_NONBLOCK);
    FAILS(accept(server, NULL, NULL), EAGAIN);
    CHECK(ready(server, POLLIN, 0) == 0);
    int client = connected_to(server);
    CHECK(ready(server, POLLIN, LIMIT) == POLLIN);
    int accepted = accept4(server, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    CHECK(accepted >= 0 && !is_tcp(accepted));
    CHECK(fcntl(accepted, F_GETFD) == FD_CLOEXEC && fcntl(accepted, F_GETFL) & O_NONBLOCK);
    FAILS(read(accepted, &byte, 1), EAGAIN);
    CHECK(ioctl(client, FIONBIO, &value) == 0);
    FAILS(read(client, &byte, 1), EAGAIN);
    size_t sent = 0;
    ssize_t bytes;
    while ((bytes = send(client, data, sizeof data, 0)) > 0)
        sent += bytes;
    CHECK(bytes == -1 && errno == EAGAIN && sent > 0 && ready(client, POLLOUT, 0) == 0);
    for (size_t got = 0; got < sent; got += bytes) {
        CHECK(ready(accepted, POLLIN, LIMIT) == POLLIN);
        CHECK((bytes = read(accepted, copy, sizeof copy)) > 0);
    }
    CHECK(ready(client, POLLOUT, LIMIT) == POLLOUT);
    value = 0;
    CHECK(ioctl(client, FIONBIO, &value) == 0 && (fcntl(client, F_GETFL) & O_NONBLOCK) == 0);
    CHECK(close(client) == 0 && ready(accepted, POLLIN, LIMIT) & POLLIN);
    CHECK(read(accepted, &byte, 1) == 0);
    CHECK(close(accepted) == 0 && close(server) == 0);
}

static void caught(int signal)
{
    (void)signal;
}

static void selected(void)
{
    int ends[2], pipes[2];
    char byte;
    fd_set readable, writable;
    struct timeval soon = {.tv_usec = 20000}, late = {.tv_sec = LIMIT / 1000};
    connect_both(ends);
    CHECK(pipe(pipes) == 0);
    int most = (ends[1] > pipes[0] ? ends[1] : pipes[0]) + 1;
    FD_ZERO(&readable);
    FD_SET(ends[1], &readable);
    FD_SET(pipes[0], &readable);
    CHECK(select(most, &readable, NULL, NULL, &soon) == 0 && soon.tv_usec == 0);
    CHECK(!FD_ISSET(ends[1], &readable));
    CHECK(write(ends[0], "x", 1) == 1 && write(pipes[1], "y", 1) == 1);
    CHECK(ready(ends[1], POLLIN, LIMIT) == POLLIN);
    FD_SET(ends[1], &readable);
    FD_SET(pipes[0], &readable);
    FD_ZERO(&writable);
    FD_SET(ends[1], &writable);
    CHECK(select(most, &readable, &writable, NULL, &late) == 3 && FD_ISSET(pipes[0], &readable));
    CHECK(FD_ISSET(ends[1], &readable) && read(ends[1], &byte, 1) == 1 && byte == 'x');

    /* A pending signal is delivered by the mask of the call, and ends it. */
    sigset_t blocked, none;
    struct pollfd one = {.fd = ends[1], .events = POLLIN};
    struct epoll_event found;
    int set = epoll_create1(0);
    struct sigaction action = {.sa_handler = caught};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    sigemptyset(&none);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    CHECK(sigprocmask(SIG_BLOCK, &blocked, NULL) == 0 && raise(SIGUSR1) == 0);
    struct timespec short_time = {.tv_nsec = 20000000};
    CHECK(ppoll(&one, 1, &short_time, &blocked) == 0);
    FAILS(ppoll(&one, 1, NULL, &none), EINTR);
    CHECK(raise(SIGUSR1) == 0);
    add(set, ends[1], EPOLLIN, 7);
    FAILS(epoll_pwait(set, &found, 1, -1, &none), EINTR);
    CHECK(epoll_pwait(set, &found, 1, 0, &none) == 0 && close(set) == 0);
    close_both(ends);
}

static pthread_t receiver;
static void *interrupt(void *argument)
{
    int *stop = argument;
    while (!__atomic_load_n(stop, __ATOMIC_SEQ_CST))
        CHECK(pthread_kill(receiver, SIGUSR1) == 0 && usleep(1000) == 0);
    return NULL;
}

/* A signal interrupts a waiting call, unless its handler has SA_RESTART. */
static void interrupted(void)
{
    char byte;
    int ends[2], stop = 0;
    pthread_t thread;
    struct timeval soon = {.tv_usec = 20000};
    struct sigaction action = {.sa_handler = caught};
    connect_both(ends);
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon) == 0);
    FAILS(read(ends[0], &byte, 1), EAGAIN);
    receiver = pthread_self();
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, interrupt, &stop) == 0);
    FAILS(read(ends[1], &byte, 1), EINTR);
    action.sa_flags = SA_RESTART;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(setsockopt(ends[1], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon) == 0);
    CHECK(write(ends[0], "x", 1) == 1 && read(ends[1], &byte, 1) == 1);
    __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
    CHECK(pthread_join(thread, NULL) == 0);
    close_both(ends);
}

static void copies(void)
{
    char byte;
    int ends[2];
    connect_both(ends);
    int second = dup(ends[0]), third = fcntl(ends[0], F_DUPFD_CLOEXEC, 100), fourth = 90;
    CHECK(second >= 0 && third >= 100 && dup2(ends[0], fourth) == fourth);
    CHECK(close(ends[0]) == 0 && close(second) == 0 && write(third, "x", 1) == 1);
    CHECK(read(ends[1], &byte, 1) == 1 && byte == 'x' && close_range(100, ~0U, 0) == 0);
    CHECK(write(ends[1], "y", 1) == 1 && read(fourth, &byte, 1) == 1 && byte == 'y');
    CHECK(ready(ends[1], POLLIN, 20) == 0);
    /* The descriptor number of a stdio stream is reused by another file. */
    int number = dup(fourth), pipes[2];
    CHECK(fclose(fdopen(number, "r")) == 0 && pipe(pipes) == 0 && pipes[0] == number);
    CHECK(write(pipes[1], "z", 1) == 1 && read(number, &byte, 1) == 1 && byte == 'z');
    /* The connection is closed with the last of them. */
    CHECK(dup2(STDERR_FILENO, fourth) == fourth && read(ends[1], &byte, 1) == 0);
    CHECK(close(fourth) == 0 && close(ends[1]) == 0);
}

static int descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* Connections that come and go leave nothing behind. Nonblocking ones are closed by another thread, which takes a moment, and
 * a device opens up to 16 sockets for its source ports as it goes. */
static void cycles(void)
{
    int server = listener(), set = epoll_create1(0), before = 0;
    add(set, server, EPOLLIN, 1);
    for (int round = 0; round < 100; round++) {
        int client = connected_to(server);
        CHECK(reported(set, 1, LIMIT) == EPOLLIN);
        int accepted = accept4(server, NULL, NULL, round % 2 ? SOCK_NONBLOCK : 0);
        CHECK(accepted >= 0 && !is_tcp(accepted));
        add(set, accepted, EPOLLIN | EPOLLET, 2);
        CHECK(write(client, "x", 1) == 1 && reported(set, 2, LIMIT) & EPOLLIN);
        CHECK(close(accepted) == 0 && close(client) == 0);
        if (round == 19)
            before = descriptors();
    }
    for (int waited = 0; descriptors() > before + 20; waited++)
        CHECK(waited < LIMIT && usleep(1000) == 0);
    CHECK(close(set) == 0 && close(server) == 0);
}

/* Descriptors of librdmacm do not reduce the number of connections below that of TCP. */
static void many(void)
{
    enum { MANY = 60 };
    static int clients[MANY], servers[MANY];
    char byte;
    struct rlimit limit = {.rlim_cur = 300, .rlim_max = 300};
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    int server = listener();
    for (int number = 0; number < MANY; number++) {
        clients[number] = connected_to(server);
        servers[number] = accept(server, NULL, NULL);
        CHECK(servers[number] >= 0 && write(clients[number], "x", 1) == 1);
        CHECK(read(servers[number], &byte, 1) == 1 && byte == 'x');
    }
    CHECK(!is_tcp(clients[0]) && is_tcp(clients[MANY - 1]));
    for (int number = 0; number < MANY; number++)
        CHECK(close(clients[number]) == 0 && close(servers[number]) == 0);
    CHECK(close(server) == 0);
}

/* The same listener accepts TCP connections, and a client connects to a server that has only TCP. */
static void fallback(void)
{
    char byte;
    int server = listener(), plain = bound(), client = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = name_of(server);
    CHECK(syscall(SYS_connect, client, &to, sizeof to) == 0);
    int accepted = accept(server, NULL, NULL), other = connected_to(server);
    CHECK(is_tcp(accepted) && !is_tcp(other));
    CHECK(write(client, "x", 1) == 1 && read(accepted, &byte, 1) == 1 && byte == 'x');
    CHECK(close(client) == 0 && close(accepted) == 0 && close(other) == 0 && close(server) == 0);

    CHECK(syscall(SYS_listen, plain, 16) == 0);
    client = connected_to(plain);
    accepted = accept(plain, NULL, NULL);
    CHECK(is_tcp(client) && is_tcp(accepted));
    CHECK(write(client, "x", 1) == 1 && read(accepted, &byte, 1) == 1 && byte == 'x');
    CHECK(close(client) == 0 && close(accepted) == 0);
    /* There is no listener. */
    to = name_of(plain);
    CHECK(close(plain) == 0);
    client = socket(AF_INET, SOCK_STREAM, 0);
    FAILS(connect(client, (struct sockaddr *)&to, sizeof to), ECONNREFUSED);
    CHECK(close(client) == 0);
}

/* An IPv6 socket accepts IPv4 clients, and sees their addresses mapped. */
static void families(void)
{
    struct sockaddr_in6 any = {.sin6_family = AF_INET6}, peer, mapped;
    socklen_t length = sizeof any;
    int server = socket(AF_INET6, SOCK_STREAM, 0);
    CHECK(bind(server, (struct sockaddr *)&any, sizeof any) == 0 && listen(server, 16) == 0);
    CHECK(getsockname(server, (struct sockaddr *)&any, &length) == 0);
    struct sockaddr_in to = loopback();
    to.sin_port = any.sin6_port;
    int client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(client, (struct sockaddr *)&to, sizeof to) == 0 && !is_tcp(client));
    length = sizeof peer;
    int accepted = accept(server, (struct sockaddr *)&peer, &length);
    CHECK(accepted >= 0 && length == sizeof peer && peer.sin6_family == AF_INET6);
    CHECK(IN6_IS_ADDR_V4MAPPED(&peer.sin6_addr) && peer.sin6_port == name_of(client).sin_port);
    length = sizeof mapped;
    CHECK(getsockname(accepted, (struct sockaddr *)&mapped, &length) == 0);
    CHECK(IN6_IS_ADDR_V4MAPPED(&mapped.sin6_addr));
    int other = socket(AF_INET6, SOCK_STREAM, 0);
    CHECK(connect(other, (struct sockaddr *)&mapped, sizeof mapped) == 0 && !is_tcp(other));
    CHECK(close(server) == 0);
    /* A server at such an address, as Java has them. */
    server = socket(AF_INET6, SOCK_STREAM, 0);
    mapped.sin6_port = 0;
    CHECK(bind(server, (struct sockaddr *)&mapped, sizeof mapped) == 0 && listen(server, 16) == 0);
    CHECK(getsockname(server, (struct sockaddr *)&mapped, &length) == 0 && close(client) == 0);
    client = socket(AF_INET, SOCK_STREAM, 0);
    to.sin_port = mapped.sin6_port;
    CHECK(connect(client, (struct sockaddr *)&to, sizeof to) == 0 && !is_tcp(client));
    CHECK(close(client) == 0 && close(accepted) == 0 && close(other) == 0 && close(server) == 0);
}

int main(int count, char **words)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
#define CASE(name) {#name, name}
        CASE(streams),        CASE(large),    CASE(files),       CASE(nonblocking),
        CASE(epoll_levels),   CASE(selected), CASE(epoll_edges), CASE(epoll_members_first),
        CASE(epoll_edges_of_threads), CASE(many),
        CASE(interrupted),    CASE(copies),   CASE(forked),      CASE(forked_listener),
        CASE(fallback),       CASE(families), CASE(closed_without_waiting), CASE(cycles),
    };
    for (size_t place = 0; place < sizeof cases / sizeof *cases; place++) {
        if (count == 2 && strcmp(words[1], cases[place].name) == 0) {
            cases[place].run();
            printf("%s passed\n", words[1]);
            return 0;
        }
    }
    return 2;
}
