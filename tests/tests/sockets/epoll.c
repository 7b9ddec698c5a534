/* epoll(7): level- and edge-triggered events, and members that get their rsocket later. */
#include "calls.h"

void epoll_levels(void)
{
    char buffer[8];
    struct epoll_event change;
    int ends[2], set = epoll_create1(EPOLL_CLOEXEC), counter = eventfd(0, EFD_NONBLOCK);
    connect_both(ends);
    add(set, ends[1], EPOLLIN, 7);
    add(set, counter, EPOLLIN, 8);
    change = event(EPOLLIN, 7);
    FAILS(epoll_ctl(set, EPOLL_CTL_ADD, ends[1], &change), EEXIST);
    FAILS(epoll_ctl(set, EPOLL_CTL_MOD, ends[0], &change), ENOENT);
    CHECK(reported(set, 0, 20) == 0);
    CHECK(write(ends[0], "abc", 3) == 3);
    CHECK(reported(set, 7, LIMIT) == EPOLLIN && reported(set, 7, LIMIT) == EPOLLIN);
    CHECK(read(ends[1], buffer, 8) == 3 && reported(set, 0, 0) == 0);
    /* The kernel's members are reported as before. */
    CHECK(eventfd_write(counter, 1) == 0 && reported(set, 8, LIMIT) == EPOLLIN);
    eventfd_t value;
    CHECK(eventfd_read(counter, &value) == 0 && reported(set, 0, 0) == 0);
    /* The set itself can be polled. */
    CHECK(ready(set, POLLIN, 0) == 0 && write(ends[0], "abc", 3) == 3);
    CHECK(ready(set, POLLIN, LIMIT) == POLLIN);

    change = event(EPOLLIN | EPOLLOUT | EPOLLONESHOT, 9);
    CHECK(epoll_ctl(set, EPOLL_CTL_MOD, ends[1], &change) == 0);
    CHECK(reported(set, 9, LIMIT) == (EPOLLIN | EPOLLOUT) && reported(set, 0, 0) == 0);
    CHECK(epoll_ctl(set, EPOLL_CTL_MOD, ends[1], &change) == 0);
    CHECK(reported(set, 9, LIMIT) != 0);
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, ends[1], NULL) == 0);
    FAILS(epoll_ctl(set, EPOLL_CTL_DEL, ends[1], NULL), ENOENT);
    CHECK(reported(set, 0, 0) == 0);
    /* A closed descriptor is no longer a member. */
    add(set, ends[1], EPOLLIN, 10);
    CHECK(reported(set, 10, LIMIT) == EPOLLIN);
    close_both(ends);
    CHECK(reported(set, 0, 0) == 0);
    CHECK(close(set) == 0 && close(counter) == 0);
}

void epoll_edges(void)
{
    char buffer[8];
    int ends[2], set = epoll_create1(0);
    connect_both(ends);
    CHECK(fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
    add(set, ends[1], EPOLLIN | EPOLLOUT | EPOLLET, 7);
    CHECK(reported(set, 7, LIMIT) == EPOLLOUT && reported(set, 0, 20) == 0);
    CHECK(write(ends[0], "abc", 3) == 3);
    CHECK(reported(set, 7, LIMIT) & EPOLLIN && reported(set, 0, 20) == 0);
    CHECK(read(ends[1], buffer, 8) == 3);
    FAILS(read(ends[1], buffer, 8), EAGAIN);
    CHECK(reported(set, 0, 20) == 0 && write(ends[0], "d", 1) == 1);
    CHECK(reported(set, 7, LIMIT) & EPOLLIN && read(ends[1], buffer, 8) == 1);
    ssize_t bytes, written = 0;
    while ((bytes = write(ends[1], data, sizeof data)) > 0)
        written += bytes;
    CHECK(errno == EAGAIN && reported(set, 0, 0) == 0);
    /* All of it, as it comes: the last part may still be on its way. */
    for (; written > 0; written -= bytes)
        CHECK((bytes = read(ends[0], copy, sizeof copy)) > 0);
    CHECK(reported(set, 7, LIMIT) & EPOLLOUT);
    CHECK(close(ends[0]) == 0 && reported(set, 7, LIMIT) & EPOLLIN);
    CHECK(read(ends[1], buffer, 8) == 0 && close(ends[1]) == 0 && close(set) == 0);
}

static int set_of_thread, told_by_thread[2];
static void *wait_for_two(void *argument)
{
    for (int number = 0; number < 2; number++)
        CHECK(reported(set_of_thread, 7, LIMIT) & EPOLLIN && write(told_by_thread[1], "!", 1) == 1);
    return argument;
}

/* One thread waits and another reads, so that the first sleeps when a new edge becomes possible. */
void epoll_edges_of_threads(void)
{
    char byte;
    int ends[2];
    pthread_t thread;
    connect_both(ends);
    set_of_thread = epoll_create1(0);
    CHECK(pipe(told_by_thread) == 0 && fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
    add(set_of_thread, ends[1], EPOLLIN | EPOLLET, 7);
    CHECK(pthread_create(&thread, NULL, wait_for_two, NULL) == 0);
    for (int number = 0; number < 2; number++) {
        CHECK(write(ends[0], "x", 1) == 1 && read(told_by_thread[0], &byte, 1) == 1);
        /* Most likely the thread sleeps by now. */
        CHECK(usleep(1000) == 0 && read(ends[1], &byte, 1) == 1);
        FAILS(read(ends[1], &byte, 1), EAGAIN);
    }
    CHECK(pthread_join(thread, NULL) == 0 && close(set_of_thread) == 0);
    close_both(ends);
}

static void *wait_for_one(void *argument)
{
    CHECK(reported(*(int *)argument, 7, LIMIT) == EPOLLIN);
    return NULL;
}

/* Members that get their rsocket after they were added, as in Boost.Asio, and while a thread waits. */
void epoll_members_first(void)
{
    char byte;
    pthread_t thread;
    int set = epoll_create1(0), server = bound(), client = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = name_of(server);
    add(set, server, EPOLLIN | EPOLLET, 6);
    CHECK(listen(server, 16) == 0);
    CHECK(pthread_create(&thread, NULL, wait_for_one, &set) == 0);
    struct epoll_event wanted = event(EPOLLIN, 7);
    CHECK(epoll_ctl(set, EPOLL_CTL_MOD, server, &wanted) == 0);
    CHECK(connect(client, (struct sockaddr *)&to, sizeof to) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    int accepted = accept(server, NULL, NULL);
    CHECK(accepted >= 0 && !is_tcp(accepted) && close(server) == 0);

    int other = listener();
    struct sockaddr_in there = name_of(other);
    int early = socket(AF_INET, SOCK_STREAM, 0);
    add(set, early, EPOLLIN | EPOLLET, 8);
    CHECK(connect(early, (struct sockaddr *)&there, sizeof there) == 0 && !is_tcp(early));
    int late = accept(other, NULL, NULL);
    CHECK(reported(set, 0, 0) == 0 && write(late, "x", 1) == 1);
    CHECK(reported(set, 8, LIMIT) == EPOLLIN && read(early, &byte, 1) == 1);
    CHECK(close(early) == 0 && close(late) == 0 && close(other) == 0);
    CHECK(close(client) == 0 && close(accepted) == 0 && close(set) == 0);
}
