/*
 * A minimal verbs program: an RC queue pair on each side, an RDMA WRITE into the server's memory, and an RDMA READ back.
 *
 *     verbs_write_read [-d DEVICE] [-g GID_INDEX] [-p PORT]           server
 *     verbs_write_read [-d DEVICE] [-g GID_INDEX] [-p PORT] HOST      client
 *
 * libibverbs moves data but does not find the peer: the two sides exchange QPN, PSN, GID, address and rkey over TCP.
 * cm_write_send.c leaves that to the connection manager.
 */
#include <endian.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PORT_NUM = 1, SIZE = 16384 };

/* What a side must know of the other; all integers in network byte order. */
struct peer {
	union ibv_gid gid;
	uint64_t addr;
	uint32_t rkey;
	uint32_t qpn;
	uint32_t psn;
	uint32_t mtu;
} __attribute__((packed));

/* Everything that must be released. A null pointer, or -1, stands for what was not created. */
struct resources {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	char *buffer;
	int tcp;
};

/* Prints a message and the meaning of an error number. Returns -1, for the caller to return. */
static int fail(const char *what, int error)
{
	fprintf(stderr, "verbs_write_read: %s: %s\n", what, strerror(error));
	return -1;
}

/* The same for failures without an error number. */
static int fail_because(const char *what, const char *why)
{
	fprintf(stderr, "verbs_write_read: %s: %s\n", what, why);
	return -1;
}

/* TCP: the connection over which the two sides meet. */

static int tcp_connect(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct addrinfo *list;
	int error = getaddrinfo(host, port, &hints, &list);
	if (error)
		return fail_because(host, gai_strerror(error));
	int fd = -1, last = 0;
	for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
		fd = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
		if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0)
			break;
		last = errno;
		if (fd >= 0)
			close(fd);
		fd = -1;
	}
	freeaddrinfo(list);
	if (fd < 0)
		fprintf(stderr, "verbs_write_read: cannot connect to %s, TCP port %s: %s\n", host, port, strerror(last));
	return fd;
}

static int tcp_accept(const char *port)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE };
	struct addrinfo *list;
	int error = getaddrinfo(NULL, port, &hints, &list);
	if (error)
		return fail_because("cannot listen", gai_strerror(error));
	int fd = -1, one = 1;
	int listener = socket(list->ai_family, list->ai_socktype, list->ai_protocol);
	if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
	    bind(listener, list->ai_addr, list->ai_addrlen) || listen(listener, 1)) {
		fail("cannot listen", errno);
	} else {
		printf("waiting for a client on TCP port %s\n", port);
		fd = accept(listener, NULL, NULL);
		if (fd < 0)
			fail("accept", errno);
	}
	if (listener >= 0)
		close(listener);
	freeaddrinfo(list);
	return fd;
}

/* Sends `size` bytes and receives as many. It also serves as a barrier: neither side returns before the other has called it. */
static int swap(int tcp, const void *ours, void *theirs, size_t size)
{
	for (size_t done = 0; done < size;) {
		ssize_t n = send(tcp, (const char *)ours + done, size - done, MSG_NOSIGNAL);
		if (n < 0)
			return fail("send over TCP", errno);
		done += n;
	}
	for (size_t done = 0; done < size;) {
		ssize_t n = recv(tcp, (char *)theirs + done, size - done, 0);
		if (n < 0)
			return fail("receive over TCP", errno);
		if (n == 0)
			return fail_because("receive over TCP", "the peer closed the connection");
		done += n;
	}
	return 0;
}

static int barrier(int tcp)
{
	char ours = 0, theirs;
	return swap(tcp, &ours, &theirs, 1);
}

/* Verbs. */

static int open_device(struct resources *r, const char *name)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	if (!list)
		return fail("ibv_get_device_list", errno);
	struct ibv_device *device = NULL;
	for (int i = 0; i < count && !device; i++)
		if (!name || strcmp(ibv_get_device_name(list[i]), name) == 0)
			device = list[i];
	if (device)
		r->context = ibv_open_device(device);
	int error = errno;
	/* An open device does not need the list. */
	ibv_free_device_list(list);
	if (!device)
		return fail_because("no RDMA device", name ? name : "ibv_devices lists none");
	return r->context ? 0 : fail("ibv_open_device", error);
}

/*
 * Picks a GID: the port's addresses. RoCE v2 with an IPv4 address is what most networks route; adapters that support RoCE v1
 * have each address twice, so index 0 may be the wrong one.
 */
static int pick_gid(struct ibv_context *context, const struct ibv_port_attr *port)
{
	static const uint8_t ipv4[12] = { [10] = 0xff, [11] = 0xff };
	int found = -1;
	for (int i = 0; i < port->gid_tbl_len; i++) {
		struct ibv_gid_entry entry;
		if (ibv_query_gid_ex(context, PORT_NUM, i, &entry, 0) || entry.gid_type != IBV_GID_TYPE_ROCE_V2)
			continue;
		if (memcmp(entry.gid.raw, ipv4, sizeof(ipv4)) == 0)
			return i;
		if (found < 0)
			found = i;
	}
	return found;
}

static int create(struct resources *r)
{
	r->buffer = calloc(2, SIZE);
	if (!r->buffer)
		return fail("calloc", errno);
	r->pd = ibv_alloc_pd(r->context);
	if (!r->pd)
		return fail("ibv_alloc_pd", errno);
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	r->mr = ibv_reg_mr(r->pd, r->buffer, 2 * SIZE, access);
	if (!r->mr)
		return fail("ibv_reg_mr", errno);
	r->cq = ibv_create_cq(r->context, 4, NULL, NULL, 0);
	if (!r->cq)
		return fail("ibv_create_cq", errno);
	struct ibv_qp_init_attr init = {
		.send_cq = r->cq,
		.recv_cq = r->cq,
		.cap = { .max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	r->qp = ibv_create_qp(r->pd, &init);
	return r->qp ? 0 : fail("ibv_create_qp", errno);
}

/* INIT, RTR (ready to receive), RTS (ready to send). ibv_modify_qp returns the error number. */
static int connect_qp(struct ibv_qp *qp, const struct peer *us, const struct peer *peer, int gid_index)
{
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT,
		.port_num = PORT_NUM,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};
	int error = ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (error)
		return fail("ibv_modify_qp to INIT", error);
	uint32_t our_mtu = be32toh(us->mtu), peer_mtu = be32toh(peer->mtu);
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = our_mtu < peer_mtu ? our_mtu : peer_mtu,
		.dest_qp_num = be32toh(peer->qpn),
		.rq_psn = be32toh(peer->psn),
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1,
			.port_num = PORT_NUM,
			.grh = { .dgid = peer->gid, .sgid_index = gid_index, .hop_limit = 64 },
		},
	};
	error = ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (error)
		return fail("ibv_modify_qp to RTR", error);
	/* A timeout of 14 is 4.096 µs × 2^14 = 67 ms. A peer that is gone is an error after seven retries, not a hang. */
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = be32toh(us->psn),
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};
	error = ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						IBV_QP_MAX_QP_RD_ATOMIC);
	return error ? fail("ibv_modify_qp to RTS", error) : 0;
}

/* Posts one work request and waits for its completion. */
static int transfer(struct resources *r, enum ibv_wr_opcode opcode, char *local, const struct peer *peer)
{
	const char *name = opcode == IBV_WR_RDMA_WRITE ? "RDMA WRITE" : "RDMA READ";
	struct ibv_sge sge = { .addr = (uintptr_t)local, .length = SIZE, .lkey = r->mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = 1,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = be64toh(peer->addr), .rkey = be32toh(peer->rkey) },
	};
	struct ibv_send_wr *bad;
	int error = ibv_post_send(r->qp, &wr, &bad);
	if (error)
		return fail("ibv_post_send", error);
	struct ibv_wc wc;
	int n;
	while ((n = ibv_poll_cq(r->cq, 1, &wc)) == 0)
		;
	if (n < 0)
		return fail_because("ibv_poll_cq", "failed");
	if (wc.status != IBV_WC_SUCCESS)
		return fail_because(name, ibv_wc_status_str(wc.status));
	printf("%s of %d bytes completed\n", name, SIZE);
	return 0;
}

static int client(struct resources *r, const struct peer *peer)
{
	char *written = r->buffer, *read_back = r->buffer + SIZE;
	for (int i = 0; i < SIZE; i++)
		written[i] = (char)(i * 7 + 1);
	if (transfer(r, IBV_WR_RDMA_WRITE, written, peer) || transfer(r, IBV_WR_RDMA_READ, read_back, peer))
		return -1;
	if (memcmp(written, read_back, SIZE))
		return fail_because("RDMA READ", "other bytes than were written");
	printf("all %d bytes match\n", SIZE);
	return 0;
}

static int server(struct resources *r)
{
	for (int i = 0; i < SIZE; i++)
		if (r->buffer[i] != (char)(i * 7 + 1))
			return fail_because("the client's RDMA WRITE", "wrong bytes");
	printf("the client has written %d bytes, all correct\n", SIZE);
	return 0;
}

static int run(struct resources *r, const char *device, int gid_index, const char *host, const char *port_name)
{
	struct ibv_port_attr port;
	if (open_device(r, device))
		return -1;
	int error = ibv_query_port(r->context, PORT_NUM, &port);
	if (error)
		return fail("ibv_query_port", error);
	if (port.state != IBV_PORT_ACTIVE)
		return fail_because("the port is not active", ibv_port_state_str(port.state));
	if (gid_index < 0)
		gid_index = pick_gid(r->context, &port);
	if (gid_index < 0)
		return fail_because("the port has no RoCE v2 GID", "choose one with -g");
	if (create(r))
		return -1;

	struct peer us = {
		.addr = htobe64((uintptr_t)r->buffer),
		.rkey = htobe32(r->mr->rkey),
		.qpn = htobe32(r->qp->qp_num),
		.mtu = htobe32(port.active_mtu),
	}, peer;
	/* ibv_query_gid would return zeros for an unused index, this is an error. */
	struct ibv_gid_entry entry;
	error = ibv_query_gid_ex(r->context, PORT_NUM, gid_index, &entry, 0);
	if (error)
		return fail("ibv_query_gid_ex", error);
	us.gid = entry.gid;
	/* A random first PSN: packets of an earlier connection with the same QPN are then not taken for those of this one. */
	uint32_t random;
	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return fail("getrandom", errno);
	us.psn = htobe32(random & 0xffffff);

	printf("device %s, GID index %d\n", ibv_get_device_name(r->context->device), gid_index);
	r->tcp = host ? tcp_connect(host, port_name) : tcp_accept(port_name);
	if (r->tcp < 0)
		return -1;
	if (swap(r->tcp, &us, &peer, sizeof(us)) || connect_qp(r->qp, &us, &peer, gid_index))
		return -1;
	/* The client sends only when the server's queue pair is ready to receive. */
	if (barrier(r->tcp))
		return -1;
	if (host && client(r, &peer))
		return -1;
	/* One-sided operations are invisible to the server's CPU: the client has to say that it is done. */
	if (barrier(r->tcp))
		return -1;
	return host ? 0 : server(r);
}

/* Releases everything that was created, in the reverse order, and reports failures. */
static int release(struct resources *r)
{
	int result = 0, error;
	if (r->qp && (error = ibv_destroy_qp(r->qp)))
		result = fail("ibv_destroy_qp", error);
	if (r->cq && (error = ibv_destroy_cq(r->cq)))
		result = fail("ibv_destroy_cq", error);
	if (r->mr && (error = ibv_dereg_mr(r->mr)))
		result = fail("ibv_dereg_mr", error);
	if (r->pd && (error = ibv_dealloc_pd(r->pd)))
		result = fail("ibv_dealloc_pd", error);
	if (r->context && ibv_close_device(r->context))
		result = fail("ibv_close_device", errno);
	if (r->tcp >= 0)
		close(r->tcp);
	free(r->buffer);
	return result;
}

/* Returns a number between `least` and `most`, or -1 after a message. */
static int number(const char *what, const char *text, long least, long most)
{
	char *end;
	errno = 0;
	long value = strtol(text, &end, 10);
	if (errno || end == text || *end || value < least || value > most) {
		fprintf(stderr, "verbs_write_read: %s must be a number from %ld to %ld, not '%s'\n", what, least, most, text);
		return -1;
	}
	return (int)value;
}

int main(int argc, char **argv)
{
	const char *device = NULL, *port = "7471";
	int gid_index = -1, option;
	while ((option = getopt(argc, argv, "d:g:p:")) != -1) {
		switch (option) {
		case 'd':
			device = optarg;
			break;
		case 'g':
			gid_index = number("GID index", optarg, 0, 255);
			if (gid_index < 0)
				return 2;
			break;
		case 'p':
			port = optarg;
			if (number("port", port, 1, 65535) < 0)
				return 2;
			break;
		default:
			fprintf(stderr, "usage: %s [-d DEVICE] [-g GID_INDEX] [-p PORT] [HOST]\n", argv[0]);
			return 2;
		}
	}
	/* Lines appear at once, also in a pipe or a file. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	struct resources r = { .tcp = -1 };
	int result = run(&r, device, gid_index, argv[optind], port);
	if (release(&r))
		result = -1;
	return result ? 1 : 0;
}
