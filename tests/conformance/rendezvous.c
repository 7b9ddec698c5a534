/* A TCP connection on which the sides exchange attributes and synchronise. */
#include "conformance.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static int tcp;

static int listening(const struct addrinfo *at)
{
    int one = 1, zero = 0, s = socket(at->ai_family, SOCK_STREAM, 0);
    if (s < 0)
        return -1;
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (at->ai_family == AF_INET6)
        setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    if (bind(s, at->ai_addr, at->ai_addrlen) || listen(s, 1)) {
        close(s);
        return -1;
    }
    return s;
}

void rendezvous(const char *address, const char *port)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_family = address ? AF_UNSPEC : AF_INET6,
                              .ai_flags = address ? 0 : AI_PASSIVE }, *found;
    int one = 1;
    struct timeval limit = { .tv_sec = 60 };
    if (getaddrinfo(address, port, &hints, &found))
        give_up("no such address: %s", address);
    if (address) {
        int tries = 0;
        while ((tcp = socket(found->ai_family, SOCK_STREAM, 0)) < 0 ||
               connect(tcp, found->ai_addr, found->ai_addrlen)) {
            /* The other side may still be starting. */
            if (errno != ECONNREFUSED || ++tries > 1000)
                give_up("nobody listens at %s, port %s: %m", address, port);
            close(tcp);
            usleep(30000);
        }
    } else {
        int s = listening(found);
        if (s < 0 || (tcp = accept(s, NULL, NULL)) < 0)
            give_up("cannot listen on port %s: %m", port);
        close(s);
    }
    freeaddrinfo(found);
    setsockopt(tcp, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(tcp, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

void exchange(const void *out, void *in, size_t size)
{
    if (send(tcp, out, size, MSG_NOSIGNAL) != (ssize_t)size)
        give_up("the other side is not there: %m");
    for (size_t have = 0; have < size;) {
        ssize_t got = read(tcp, (char *)in + have, size - have);
        if (got <= 0)
            give_up("the other side %s", got ? "is late" : "has gone");
        have += got;
    }
}

void meet(void)
{
    /* By name, so that two sides in different cases do not synchronise. */
    char mine[32] = { 0 }, theirs[32];
    strncpy(mine, current, sizeof mine - 1);
    exchange(mine, theirs, sizeof mine);
    if (memcmp(mine, theirs, sizeof mine))
        give_up("the other side is in case %.31s", theirs);
}
