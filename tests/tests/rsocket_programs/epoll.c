/* repoll_create, repoll_ctl and repoll_wait, one case for each name that may be given. They are of rdma-core 65, and so
 * declared here. */
#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common.h"

int repoll_create(int flags);
int repoll_ctl(int set, int op, int fd, struct epoll_event *event);
int repoll_wait(int set, struct epoll_event *events, int most, int timeout);

static int listener(struct sockaddr_in *where)
{
    int socket = rsocket(AF_INET, SOCK_STREAM, 0);
    socklen_t length = sizeof *where;
    *where = at(0);
    CHECK(rbind(socket, (struct sockaddr *)where, length) == 0 && rlisten(socket, 5) == 0);
    CHECK(rgetsockname(socket, (struct sockaddr *)where, &length) == 0);
    return socket;
}

static void connect_both(int ends[2])
{
    struct sockaddr_in where;
    int listening = listener(&where);
    ends[0] = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(rconnect(ends[0], (struct sockaddr *)&where, sizeof where) == 0);
    ends[1] = raccept(listening, NULL, NULL);
    CHECK(ends[1] >= 0 && rclose(listening) == 0);
}

static void close_both(int ends[2])
{
    CHECK(rclose(ends[0]) == 0 && rclose(ends[1]) == 0);
}

static int create(void)
{
    int set = repoll_create(EPOLL_CLOEXEC);
    CHECK(set >= 0 && fcntl(set, F_GETFD) & FD_CLOEXEC);
    return set;
}

static void change(int set, int op, int fd, uint32_t events, uint64_t data)
{
    struct epoll_event event = {.events = events, .data.u64 = data};
    CHECK(repoll_ctl(set, op, fd, &event) == 0);
}

/* Waits for one event with this data and returns it. */
static uint32_t one(int set, uint64_t data)
{
    struct epoll_event events[8];
    CHECK(repoll_wait(set, events, 8, LIMIT) == 1 && events[0].data.u64 == data);
    return events[0].events;
}

static int none(int set)
{
    struct epoll_event events[8];
    return repoll_wait(set, events, 8, 0) == 0 && repoll_wait(set, events, 8, 20) == 0;
}

/* Set-up of the connection may raise edges too, but not for long. */
static void until_quiet(int set)
{
    struct epoll_event events[8];
    int edges = 0;
    while (repoll_wait(set, events, 8, 50) > 0)
        CHECK(++edges < 20);
}

static void send_byte(int socket)
{
    CHECK(rsend(socket, "x", 1, 0) == 1);
}

static void take_byte(int socket)
{
    char byte = 0;
    CHECK(rrecv(socket, &byte, 1, 0) == 1 && byte == 'x');
}

/* A level-triggered event is reported as long as it lasts, from the listener to the end of the stream. */
static void level(void)
{
    struct sockaddr_in where;
    int listening = listener(&where), set = create(), client, server;
    change(set, EPOLL_CTL_ADD, listening, EPOLLIN, 100);
    CHECK(none(set));
    client = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    FAILS(rconnect(client, (struct sockaddr *)&where, sizeof where), EINPROGRESS);
    CHECK(one(set, 100) == EPOLLIN && one(set, 100) == EPOLLIN);
    CHECK((server = raccept(listening, NULL, NULL)) >= 0 && none(set));
    change(set, EPOLL_CTL_ADD, client, EPOLLOUT, 1);
    CHECK(one(set, 1) == EPOLLOUT);
    change(set, EPOLL_CTL_MOD, client, EPOLLIN | EPOLLRDHUP, 2);
    CHECK(none(set));
    send_byte(server);
    CHECK(one(set, 2) == EPOLLIN && one(set, 2) == EPOLLIN);
    take_byte(client);
    CHECK(none(set));
    CHECK(rclose(server) == 0);
    CHECK(one(set, 2) & EPOLLRDHUP);
    CHECK(repoll_ctl(set, EPOLL_CTL_DEL, client, NULL) == 0 && none(set));
    CHECK(rclose(client) == 0 && rclose(listening) == 0 && rclose(set) == 0);
}

static void edge(void)
{
    int set = create(), ends[2];
    struct epoll_event events[8];
    connect_both(ends);
    nonblocking_on(ends[0]);
    change(set, EPOLL_CTL_ADD, ends[0], EPOLLIN | EPOLLOUT | EPOLLET, 5);
    CHECK(one(set, 5) == EPOLLOUT);
    until_quiet(set);
    send_byte(ends[1]);
    while (!(one(set, 5) & EPOLLIN))
        ;
    /* Not read, and not reported again. */
    until_quiet(set);
    /* More data is reported. */
    send_byte(ends[1]);
    CHECK(one(set, 5) & EPOLLIN);
    take_byte(ends[0]);
    take_byte(ends[0]);
    /* Data that arrived between the last read and the wait is not lost. */
    for (int round = 0; round < 1000; round++) {
        char byte;
        send_byte(ends[1]);
        do
            CHECK(repoll_wait(set, events, 8, LIMIT) == 1);
        while (!(events[0].events & EPOLLIN));
        while (rrecv(ends[0], &byte, 1, 0) == 1)
            ;
        CHECK(errno == EAGAIN);
    }
    /* A change of the entry is an edge. */
    change(set, EPOLL_CTL_MOD, ends[0], EPOLLOUT | EPOLLET, 6);
    CHECK(one(set, 6) == EPOLLOUT);
    close_both(ends);
    CHECK(rclose(set) == 0);
}

static void one_shot(void)
{
    int set = create(), ends[2];
    connect_both(ends);
    change(set, EPOLL_CTL_ADD, ends[0], EPOLLIN | EPOLLONESHOT, 7);
    send_byte(ends[1]);
    CHECK(one(set, 7) == EPOLLIN && none(set));
    send_byte(ends[1]);
    CHECK(none(set));
    change(set, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLONESHOT, 8);
    CHECK(one(set, 8) == EPOLLIN && none(set));
    close_both(ends);
    CHECK(rclose(set) == 0);
}

/* Other descriptors beside rsockets: none starves the others, however few events are taken at a time. */
static void mixed(void)
{
    enum { PAIRS = 3, MOST = 2 };
    int set = create(), ends[PAIRS][2], ways[2], seen[PAIRS + 1] = {0};
    struct epoll_event events[MOST];
    CHECK(pipe(ways) == 0);
    change(set, EPOLL_CTL_ADD, ways[0], EPOLLIN, PAIRS);
    CHECK(none(set));
    for (int i = 0; i < PAIRS; i++) {
        connect_both(ends[i]);
        change(set, EPOLL_CTL_ADD, ends[i][0], EPOLLIN, i);
    }
    CHECK(none(set));
    CHECK(write(ways[1], "x", 1) == 1);
    CHECK(one(set, PAIRS) == EPOLLIN);
    for (int i = 0; i < PAIRS; i++) {
        send_byte(ends[i][1]);
        CHECK(poll_for(ends[i][0], POLLIN, LIMIT) == POLLIN);
    }
    for (int round = 0; round < 8; round++) {
        int found = repoll_wait(set, events, MOST, LIMIT);
        CHECK(found > 0 && found <= MOST);
        for (int i = 0; i < found; i++)
            seen[events[i].data.u64]++;
    }
    for (int i = 0; i <= PAIRS; i++)
        CHECK(seen[i] > 0);
    for (int i = 0; i < PAIRS; i++)
        close_both(ends[i]);
    CHECK(one(set, PAIRS) == EPOLLIN);
    CHECK(close(ways[0]) == 0 && close(ways[1]) == 0 && none(set));
    CHECK(rclose(set) == 0);
}

static int waiting_set, added;

static void *later(void *unused)
{
    /* The other thread most likely waits by now; the case holds even if it does not. */
    usleep(20000);
    change(waiting_set, EPOLL_CTL_ADD, added, EPOLLIN, 9);
    return unused;
}

/* A descriptor added while a thread waits is reported. */
static void added_later(void)
{
    pthread_t thread;
    int ends[2];
    waiting_set = create();
    connect_both(ends);
    send_byte(ends[1]);
    added = ends[0];
    CHECK(pthread_create(&thread, NULL, later, NULL) == 0);
    CHECK(one(waiting_set, 9) == EPOLLIN);
    CHECK(pthread_join(thread, NULL) == 0);
    close_both(ends);
    CHECK(rclose(waiting_set) == 0);
}

/* Whether a descriptor is an epoll instance: another thread may get the number of a closed one for something else. */
static int is_epoll(int fd)
{
    char path[64], target[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length < 0)
        return 0;
    target[length] = 0;
    return strstr(target, "eventpoll") != NULL;
}

/* A closed socket leaves its sets; closing a set does not affect its sockets. */
static void closed(void)
{
    int set = create(), other = create(), ends[2], before;
    connect_both(ends);
    change(set, EPOLL_CTL_ADD, ends[0], EPOLLIN | EPOLLOUT, 1);
    change(other, EPOLL_CTL_ADD, ends[0], EPOLLIN, 2);
    CHECK(one(set, 1) == EPOLLOUT);
    CHECK(is_epoll(set) && rclose(set) == 0 && !is_epoll(set));
    send_byte(ends[1]);
    CHECK(one(other, 2) == EPOLLIN);
    close_both(ends);
    CHECK(none(other));
    before = descriptors();
    for (int i = 0; i < 100; i++)
        CHECK(rclose(create()) == 0);
    CHECK(descriptors() == before);
    CHECK(rclose(other) == 0);
    FAILS(rclose(other), EBADF);
}

/* As in epoll(7). */
static void bad_calls(void)
{
    int set = create(), ends[2];
    struct epoll_event event = {.events = EPOLLIN};
    connect_both(ends);
    FAILS(repoll_create(1), EINVAL);
    FAILS(repoll_ctl(set, EPOLL_CTL_MOD, ends[0], &event), ENOENT);
    FAILS(repoll_ctl(set, EPOLL_CTL_DEL, ends[0], NULL), ENOENT);
    FAILS(repoll_ctl(set, EPOLL_CTL_ADD, ends[0], NULL), EFAULT);
    FAILS(repoll_ctl(set, 99, ends[0], &event), EINVAL);
    CHECK(repoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event) == 0);
    FAILS(repoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event), EEXIST);
    FAILS(repoll_ctl(set, EPOLL_CTL_ADD, -1, &event), EBADF);
    FAILS(repoll_ctl(set, EPOLL_CTL_ADD, set, &event), EINVAL);
    FAILS(repoll_ctl(ends[0], EPOLL_CTL_ADD, ends[1], &event), EINVAL);
    FAILS(repoll_wait(set, &event, 0, 0), EINVAL);
    FAILS(repoll_wait(set, NULL, 1, 0), EFAULT);
    FAILS(repoll_wait(ends[0], &event, 1, 0), EINVAL);
    close_both(ends);
    CHECK(rclose(set) == 0);
}

int main(int count, char **words)
{
    static const struct test_case cases[] = {
        CASE(level), CASE(edge), CASE(one_shot), CASE(mixed), CASE(added_later), CASE(closed), CASE(bad_calls),
    };
    return run_case(cases, sizeof cases / sizeof *cases, count, words);
}
