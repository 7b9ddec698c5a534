/*
 * A minimal rdma_cm program: the connection manager finds the device and connects the queue pairs; the client then writes into
 * the server's memory by RDMA WRITE and says so with a SEND.
 *
 *     cm_write_send [-p PORT]           server
 *     cm_write_send [-p PORT] HOST      client
 *
 * The server's private data, which travels with its acceptance, carries the address and rkey of its memory.
 */
#include <endian.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 16384, TIMEOUT_MS = 2000 };

/* The server's memory; integers in network byte order. */
struct memory {
	uint64_t addr;
	uint32_t rkey;
	uint32_t length;
} __attribute__((packed));

/* Everything that must be released. A null pointer stands for what was not created. */
struct resources {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	char *buffer;
};

/* Prints a message and the meaning of an error number. Returns -1, for the caller to return. */
static int fail(const char *what, int error)
{
	fprintf(stderr, "cm_write_send: %s: %s\n", what, strerror(error));
	return -1;
}

/* The same for failures without an error number. */
static int fail_because(const char *what, const char *why)
{
	fprintf(stderr, "cm_write_send: %s: %s\n", what, why);
	return -1;
}

/*
 * Waits for an event of the connection manager, which must be of this type. Copies what the caller needs, because
 * rdma_ack_cm_event releases the event: the new id of a connection request, or the memory in the private data.
 */
static int wait_for(struct rdma_event_channel *channel, enum rdma_cm_event_type wanted, struct rdma_cm_id **id,
		    struct memory *memory)
{
	struct rdma_cm_event *event;
	if (rdma_get_cm_event(channel, &event))
		return fail("rdma_get_cm_event", errno);
	int result = 0;
	if (event->event != wanted) {
		fprintf(stderr, "cm_write_send: expected %s, got %s", rdma_event_str(wanted), rdma_event_str(event->event));
		/* The status of a rejection is a reason of the InfiniBand specification, otherwise a negative errno. */
		if (event->event == RDMA_CM_EVENT_REJECTED)
			fprintf(stderr, ": reason %d%s\n", event->status, event->status == 8 ? ", nothing listens at that port" : "");
		else
			fprintf(stderr, ": %s\n", strerror(-event->status));
		result = -1;
	} else if (memory && event->param.conn.private_data_len < sizeof(*memory)) {
		result = fail_because("the server's private data", "too short");
	} else if (memory) {
		memcpy(memory, event->param.conn.private_data, sizeof(*memory));
	}
	if (id)
		*id = result ? NULL : event->id;
	if (rdma_ack_cm_event(event))
		return fail("rdma_ack_cm_event", errno);
	return result;
}

/* Creates memory and a queue pair on the device that the connection manager has chosen. */
static int create(struct resources *r)
{
	r->buffer = calloc(1, SIZE);
	if (!r->buffer)
		return fail("calloc", errno);
	r->pd = ibv_alloc_pd(r->id->verbs);
	if (!r->pd)
		return fail("ibv_alloc_pd", errno);
	r->mr = ibv_reg_mr(r->pd, r->buffer, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!r->mr)
		return fail("ibv_reg_mr", errno);
	r->cq = ibv_create_cq(r->id->verbs, 4, NULL, NULL, 0);
	if (!r->cq)
		return fail("ibv_create_cq", errno);
	struct ibv_qp_init_attr init = {
		.send_cq = r->cq,
		.recv_cq = r->cq,
		.cap = { .max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	/* From here on, rdma_connect and rdma_accept take the queue pair through its states. */
	return rdma_create_qp(r->id, r->pd, &init) ? fail("rdma_create_qp", errno) : 0;
}

/* Waits for a completion. Requests of one queue pair complete in order. */
static int complete(struct ibv_cq *cq, const char *what)
{
	struct ibv_wc wc;
	int n;
	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	if (n < 0)
		return fail_because("ibv_poll_cq", "failed");
	if (wc.status != IBV_WC_SUCCESS)
		return fail_because(what, ibv_wc_status_str(wc.status));
	printf("%s completed\n", what);
	return 0;
}

static int post(struct resources *r, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int error = ibv_post_send(r->id->qp, wr, &bad);
	return error ? fail("ibv_post_send", error) : 0;
}

static int client(struct resources *r, const char *host, const char *port)
{
	struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM }, *list;
	int error = getaddrinfo(host, port, &hints, &list);
	if (error)
		return fail_because(host, gai_strerror(error));
	if (rdma_create_id(r->channel, &r->id, NULL, RDMA_PS_TCP)) {
		freeaddrinfo(list);
		return fail("rdma_create_id", errno);
	}
	/* Which device reaches this address? */
	error = rdma_resolve_addr(r->id, NULL, list->ai_addr, TIMEOUT_MS) ? errno : 0;
	freeaddrinfo(list);
	if (error)
		return fail("rdma_resolve_addr", error);
	if (wait_for(r->channel, RDMA_CM_EVENT_ADDR_RESOLVED, NULL, NULL))
		return -1;
	if (rdma_resolve_route(r->id, TIMEOUT_MS))
		return fail("rdma_resolve_route", errno);
	if (wait_for(r->channel, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL, NULL) || create(r))
		return -1;

	struct rdma_conn_param parameters = { .retry_count = 7, .rnr_retry_count = 7 };
	struct memory memory;
	if (rdma_connect(r->id, &parameters))
		return fail("rdma_connect", errno);
	if (wait_for(r->channel, RDMA_CM_EVENT_ESTABLISHED, NULL, &memory))
		return -1;
	uint32_t length = be32toh(memory.length);
	printf("connected through %s to %u bytes of the server's memory\n", ibv_get_device_name(r->id->verbs->device), length);
	if (length > SIZE)
		length = SIZE;

	for (uint32_t i = 0; i < length; i++)
		r->buffer[i] = (char)(i * 7 + 1);
	struct ibv_sge sge = { .addr = (uintptr_t)r->buffer, .length = length, .lkey = r->mr->lkey };
	struct ibv_send_wr write = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = be64toh(memory.addr), .rkey = be32toh(memory.rkey) },
	};
	/* An empty SEND suffices: it is executed after the WRITE, so its arrival says that the bytes are there. */
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };
	if (post(r, &write) || post(r, &send))
		return -1;
	if (complete(r->cq, "RDMA WRITE") || complete(r->cq, "SEND"))
		return -1;
	if (rdma_disconnect(r->id))
		return fail("rdma_disconnect", errno);
	return wait_for(r->channel, RDMA_CM_EVENT_DISCONNECTED, NULL, NULL);
}

static int server(struct resources *r, const char *port)
{
	/* An IPv6 address accepts clients of IPv4, too. */
	struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_port = htobe16((uint16_t)atoi(port)) };
	if (rdma_create_id(r->channel, &r->listener, NULL, RDMA_PS_TCP))
		return fail("rdma_create_id", errno);
	if (rdma_bind_addr(r->listener, (struct sockaddr *)&any))
		return fail("rdma_bind_addr", errno);
	if (rdma_listen(r->listener, 1))
		return fail("rdma_listen", errno);
	printf("waiting for a client on port %u\n", be16toh(rdma_get_src_port(r->listener)));
	if (wait_for(r->channel, RDMA_CM_EVENT_CONNECT_REQUEST, &r->id, NULL) || create(r))
		return -1;

	/* Posted before the client can send. Without it the client would have to wait and try again (RNR NAK). */
	struct ibv_recv_wr receive = { .wr_id = 1 }, *bad;
	int error = ibv_post_recv(r->id->qp, &receive, &bad);
	if (error)
		return fail("ibv_post_recv", error);
	struct memory memory = {
		.addr = htobe64((uintptr_t)r->buffer),
		.rkey = htobe32(r->mr->rkey),
		.length = htobe32(SIZE),
	};
	struct rdma_conn_param parameters = {
		.private_data = &memory,
		.private_data_len = sizeof(memory),
		.rnr_retry_count = 7,
	};
	if (rdma_accept(r->id, &parameters))
		return fail("rdma_accept", errno);
	if (wait_for(r->channel, RDMA_CM_EVENT_ESTABLISHED, NULL, NULL))
		return -1;
	/*
	 * The client disconnects when its requests have completed, so its SEND is in the CQ by then. A server that waited for the
	 * SEND first would wait for ever if the client ended early.
	 */
	if (wait_for(r->channel, RDMA_CM_EVENT_DISCONNECTED, NULL, NULL))
		return -1;
	/* The device flushes receives that no SEND has used, so there is a completion in any case. */
	if (rdma_disconnect(r->id))
		return fail("rdma_disconnect", errno);
	if (complete(r->cq, "receive"))
		return -1;
	for (int i = 0; i < SIZE; i++)
		if (r->buffer[i] != (char)(i * 7 + 1))
			return fail_because("the client's RDMA WRITE", "wrong bytes");
	printf("the client has written %d bytes, all correct\n", SIZE);
	return 0;
}

/* Releases everything that was created, in the reverse order, and reports failures. */
static int release(struct resources *r)
{
	int result = 0, error;
	if (r->id && r->id->qp)
		rdma_destroy_qp(r->id);
	if (r->cq && (error = ibv_destroy_cq(r->cq)))
		result = fail("ibv_destroy_cq", error);
	if (r->mr && (error = ibv_dereg_mr(r->mr)))
		result = fail("ibv_dereg_mr", error);
	if (r->pd && (error = ibv_dealloc_pd(r->pd)))
		result = fail("ibv_dealloc_pd", error);
	if (r->id && rdma_destroy_id(r->id))
		result = fail("rdma_destroy_id", errno);
	if (r->listener && rdma_destroy_id(r->listener))
		result = fail("rdma_destroy_id", errno);
	if (r->channel)
		rdma_destroy_event_channel(r->channel);
	free(r->buffer);
	return result;
}

int main(int argc, char **argv)
{
	const char *port = "7471";
	int option;
	while ((option = getopt(argc, argv, "p:")) != -1) {
		char *end = NULL;
		long value = option == 'p' ? strtol(optarg, &end, 10) : 0;
		if (option != 'p') {
			fprintf(stderr, "usage: %s [-p PORT] [HOST]\n", argv[0]);
			return 2;
		}
		if (end == optarg || *end || value < 1 || value > 65535) {
			fprintf(stderr, "cm_write_send: port must be a number from 1 to 65535, not '%s'\n", optarg);
			return 2;
		}
		port = optarg;
	}
	/* Lines appear at once, also in a pipe or a file. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	struct resources r = { 0 };
	int result = -1;
	r.channel = rdma_create_event_channel();
	if (!r.channel)
		fail("rdma_create_event_channel", errno);
	else
		result = argv[optind] ? client(&r, argv[optind], port) : server(&r, port);
	if (release(&r))
		result = -1;
	return result ? 1 : 0;
}
