// Preloaded into programs of librdmacm, so that tests know from outside when they listen: binding a port shows in the
// tables of sockets, listening on it does not.
//
// After each rdma_listen() and rlisten() that succeeds, an abstract Unix socket ferroce-test/listening/PORT/N exists until
// the process ends, for the N-th listener of the process at that port.
//
// With FERROCE_TEST_LISTEN_AT_ONCE in its environment, a server listens as soon as it has bound a port: qperf's tells its
// client the port before it listens there, and a client that is fast is rejected.
//
// With FERROCE_TEST_LISTENERS=PORT:N in its environment, a client's first rdma_connect() waits for the first listener at
// that port, its second for the second, and so on up to the N-th.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

struct rdma_cm_id;
struct rdma_conn_param;

static int name(char *text, size_t room, unsigned port, unsigned count)
{
	return snprintf(text, room, "ferroce-test/listening/%u/%u", port, count);
}

// The socket is never closed: it goes with the process.
static void announce(unsigned port)
{
	static unsigned counts[65536];
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	unsigned count = __atomic_add_fetch(&counts[port & 0xffff], 1, __ATOMIC_RELAXED);
	int length = name(address.sun_path + 1, sizeof address.sun_path - 1, port, count);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, offsetof(struct sockaddr_un, sun_path) + 1 + length))
		perror("listening.c: the listener cannot be announced");
}

// The one that listens already.
static struct rdma_cm_id *early;

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	int (*next)(struct rdma_cm_id *, int) = dlsym(RTLD_NEXT, "rdma_listen");
	uint16_t (*port)(struct rdma_cm_id *) = dlsym(RTLD_NEXT, "rdma_get_src_port");
	if (id == early) {
		early = NULL;
		return 0;
	}
	int result = next(id, backlog);
	if (result == 0)
		announce(ntohs(port(id)));
	return result;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *address)
{
	int (*next)(struct rdma_cm_id *, struct sockaddr *) = dlsym(RTLD_NEXT, "rdma_bind_addr");
	int result = next(id, address);
	if (result == 0 && getenv("FERROCE_TEST_LISTEN_AT_ONCE")) {
		result = rdma_listen(id, 0);
		early = id;
	}
	return result;
}

int rlisten(int socket, int backlog)
{
	int (*next)(int, int) = dlsym(RTLD_NEXT, "rlisten");
	int (*own)(int, struct sockaddr *, socklen_t *) = dlsym(RTLD_NEXT, "rgetsockname");
	struct sockaddr_storage address;
	socklen_t length = sizeof address;
	int result = next(socket, backlog);
	// The port is at the same place for both families.
	if (result == 0 && own(socket, (struct sockaddr *)&address, &length) == 0)
		announce(ntohs(((struct sockaddr_in *)&address)->sin_port));
	return result;
}

static int listens(unsigned port, unsigned count)
{
	char wanted[64], line[256];
	int found = 0;
	FILE *table = fopen("/proc/self/net/unix", "re");
	name(wanted, sizeof wanted, port, count);
	while (table && !found && fgets(line, sizeof line, table)) {
		char *at = strstr(line, wanted);
		found = at && at[strlen(wanted)] == '\n';
	}
	if (table)
		fclose(table);
	return found;
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	static unsigned connects;
	int (*next)(struct rdma_cm_id *, struct rdma_conn_param *) = dlsym(RTLD_NEXT, "rdma_connect");
	const char *wanted = getenv("FERROCE_TEST_LISTENERS");
	unsigned port, most;
	if (wanted && sscanf(wanted, "%u:%u", &port, &most) == 2) {
		unsigned count = __atomic_add_fetch(&connects, 1, __ATOMIC_RELAXED);
		while (!listens(port, count < most ? count : most))
			nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	return next(id, param);
}
