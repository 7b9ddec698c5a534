/* Connections and listeners of processes that fork. */
#include "calls.h"

static int child_status(pid_t child)
{
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Connections stay with the parent, whatever its children close. */
void forked(void)
{
    char byte;
    int ends[2];
    connect_both(ends);
    pid_t child = fork();
    if (child == 0) {
        FAILS(read(ends[0], &byte, 1), ENOTCONN);
        CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
        _exit(5);
    }
    CHECK(child_status(child) == 5);
    child = vfork();
    if (child == 0) {
        close(ends[0]);
        dup2(STDERR_FILENO, ends[1]);
        _exit(6);
    }
    CHECK(child_status(child) == 6);
    CHECK(write(ends[0], "x", 1) == 1 && read(ends[1], &byte, 1) == 1 && byte == 'x');
    close_both(ends);
}

/* A listener moves to the child that waits for connections. */
void forked_listener(void)
{
    char byte;
    int server = listener(), told[2];
    CHECK(pipe(told) == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(ready(server, POLLIN, 0) == 0 && write(told[1], "!", 1) == 1);
        for (int number = 0; number < 2; number++) {
            int accepted = accept(server, NULL, NULL);
            CHECK(accepted >= 0 && is_tcp(accepted) == number);
            CHECK(write(accepted, "x", 1) == 1 && close(accepted) == 0);
        }
        exit(7);
    }
    CHECK(read(told[0], &byte, 1) == 1);
    int client = connected_to(server);
    CHECK(!is_tcp(client) && read(client, &byte, 1) == 1 && byte == 'x' && close(client) == 0);
    struct sockaddr_in to = name_of(server);
    client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(syscall(SYS_connect, client, &to, sizeof to) == 0);
    CHECK(read(client, &byte, 1) == 1 && byte == 'x' && close(client) == 0);
    CHECK(child_status(child) == 7 && close(server) == 0);
}

/* A nonblocking socket is closed while the peer does not answer. The close does not wait for it: had it done so, the
 * connection would have failed before the peer went on, and what was sent would not arrive. */
void closed_without_waiting(void)
{
    char got[8];
    int server = listener(), told[2], status;
    CHECK(pipe(told) == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(read(told[0], got, 1) == 1);
        int client = connected_to(server);
        CHECK(!is_tcp(client) && read(client, got, 1) == 1 && raise(SIGSTOP) == 0);
        CHECK(recv(client, got, sizeof got, MSG_WAITALL) == 4 && memcmp(got, "last", 4) == 0);
        exit(8);
    }
    CHECK(ready(server, POLLIN, 0) == 0 && write(told[1], "!", 1) == 1);
    CHECK(ready(server, POLLIN, LIMIT) == POLLIN);
    int accepted = accept4(server, NULL, NULL, SOCK_NONBLOCK);
    CHECK(accepted >= 0 && !is_tcp(accepted) && write(accepted, "!", 1) == 1);
    CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    CHECK(write(accepted, "last", 4) == 4 && shutdown(accepted, SHUT_WR) == 0);
    FAILS(send(accepted, "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK(close(accepted) == 0 && kill(child, SIGCONT) == 0 && child_status(child) == 8);
    CHECK(close(server) == 0);
}
