/*
 * A queue pair of the kernel's that does as it is told: the guest's half of the tests of single operations.
 *
 *   usage: puppet PORT GID_INDEX
 *
 * Takes one TCP connection and ends with it. Each line is a command, numbers are decimal, and each gets a line back:
 *
 *   pair SERVICE QP_ACCESS MR_ACCESS    a new queue pair, in place of an earlier one: QPN RKEY ADDRESS GID
 *   connect QPN GID MTU FROM_PSN TO_PSN RNR_RETRY     to RTS: ok
 *   fill OFFSET LENGTH SEED             writes a pattern to memory: ok
 *   check OFFSET LENGTH SEED            looks for it there: ok, or differs AT
 *   receive OFFSET LENGTH               posts a receive: ok
 *   post OPCODE OFFSET LENGTH ADDRESS RKEY A B    posts a send: ok
 *   next                                waits for a completion: STATUS OPCODE LENGTH IMMEDIATE
 *
 * SERVICE, ACCESS, MTU, OPCODE and STATUS are the numbers of <infiniband/verbs.h>. A is immediate data, what to compare
 * with or what to add, B what to swap in. Whatever fails ends the program, with a line that says why.
 */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BYTES = 4 << 20, DEPTH = 64 };

static FILE *in, *out;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *local, *remote;
static uint8_t *memory;
static int gid_index;

static void fail(const char *what)
{
    fprintf(out ? out : stderr, "failed: %s: %m\n", what);
    exit(1);
}

static void answer(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(out, format, arguments);
    va_end(arguments);
    fputc('\n', out);
    if (fflush(out))
        fail("answer");
}

static void listen_at(int port)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
    int one = 1, socket_ = socket(AF_INET, SOCK_STREAM, 0), connection;
    setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(socket_, (struct sockaddr *)&at, sizeof at) || listen(socket_, 1) ||
        (connection = accept(socket_, NULL, NULL)) < 0)
        fail("listen");
    in = fdopen(connection, "r");
    out = fdopen(dup(connection), "w");
    if (!in || !out)
        fail("connection");
}

static void open_device(void)
{
    struct ibv_device **devices = ibv_get_device_list(NULL);
    if (!devices || !*devices || !(context = ibv_open_device(*devices)))
        fail("no device");
    if (posix_memalign((void **)&memory, 4096, BYTES) || !(pd = ibv_alloc_pd(context)) ||
        !(channel = ibv_create_comp_channel(context)) ||
        !(cq = ibv_create_cq(context, 2 * DEPTH, NULL, channel, 0)) ||
        !(local = ibv_reg_mr(pd, memory, BYTES, IBV_ACCESS_LOCAL_WRITE)))
        fail("set-up");
}

static void change(struct ibv_qp_attr *attributes, int mask)
{
    if (ibv_modify_qp(qp, attributes, mask))
        fail("modify");
}

static void pair(const char *line)
{
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .sq_sig_all = 1, .cap = { DEPTH, DEPTH, 1, 1, 0 } };
    struct ibv_qp_attr attributes = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
    union ibv_gid gid;
    int service, access;
    if (sscanf(line, "%d %d %d", &service, (int *)&attributes.qp_access_flags, &access) != 3)
        fail("pair");
    if ((qp && ibv_destroy_qp(qp)) || (remote && ibv_dereg_mr(remote)))
        fail("the last pair");
    init.qp_type = service;
    /* Half of the memory, so that the next byte is mapped and yet out of bounds. */
    remote = ibv_reg_mr(pd, memory, BYTES / 2, access);
    if (!remote || !(qp = ibv_create_qp(pd, &init)) || ibv_query_gid(context, 1, gid_index, &gid))
        fail("a new pair");
    change(&attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    char text[33];
    for (int i = 0; i < 16; i++)
        sprintf(text + 2 * i, "%02x", gid.raw[i]);
    answer("%u %u %" PRIu64 " %s", qp->qp_num, remote->rkey, (uint64_t)(uintptr_t)memory, text);
}

static void connect_to(const char *line)
{
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_RTR, .max_dest_rd_atomic = 4, .min_rnr_timer = 14, /* 1.28 ms */
        .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = gid_index, .hop_limit = 64 } },
    };
    char text[33];
    unsigned mtu, psn, rnr_retry;
    if (sscanf(line, "%u %32s %u %u %u %u", &attributes.dest_qp_num, text, &mtu, &attributes.rq_psn, &psn,
               &rnr_retry) != 6)
        fail("connect");
    for (int i = 0; i < 16; i++)
        sscanf(text + 2 * i, "%2hhx", &attributes.ah_attr.grh.dgid.raw[i]);
    attributes.path_mtu = mtu;
    int reliable = qp->qp_type == IBV_QPT_RC;
    change(&attributes, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            (reliable ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
    attributes = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .sq_psn = psn, .max_rd_atomic = 4, .timeout = 14, /* 67 ms */
        .retry_cnt = 7, .rnr_retry = rnr_retry,
    };
    change(&attributes, IBV_QP_STATE | IBV_QP_SQ_PSN |
                            (reliable ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0));
    answer("ok");
}

/* Both halves know this sequence: bytes that differ from place to place and from seed to seed. */
static void pattern(const char *line, int write)
{
    uint32_t offset, length, state;
    if (sscanf(line, "%" SCNu32 " %" SCNu32 " %" SCNu32, &offset, &length, &state) != 3 || offset > BYTES ||
        length > BYTES - offset)
        fail("pattern");
    for (uint32_t i = 0; i < length; i++) {
        state = state * 1664525 + 1013904223;
        if (write) {
            memory[offset + i] = state >> 24;
        } else if (memory[offset + i] != state >> 24) {
            answer("differs %u", i);
            return;
        }
    }
    answer("ok");
}

static struct ibv_sge part(uint32_t offset, uint32_t length)
{
    return (struct ibv_sge){ .addr = (uintptr_t)memory + offset, .length = length, .lkey = local->lkey };
}

static void receive(const char *line)
{
    uint32_t offset, length;
    if (sscanf(line, "%" SCNu32 " %" SCNu32, &offset, &length) != 2)
        fail("receive");
    struct ibv_sge sge = part(offset, length);
    struct ibv_recv_wr *bad, request = { .sg_list = &sge, .num_sge = 1 };
    if (ibv_post_recv(qp, &request, &bad))
        fail("post a receive");
    answer("ok");
}

static void post(const char *line)
{
    uint32_t opcode, offset, length, key;
    uint64_t address, a, b;
    if (sscanf(line, "%" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu64 " %" SCNu32 " %" SCNu64 " %" SCNu64, &opcode, &offset,
               &length, &address, &key, &a, &b) != 7)
        fail("post");
    struct ibv_sge sge = part(offset, length);
    struct ibv_send_wr *bad, request = { .opcode = opcode, .sg_list = &sge, .num_sge = length > 0 };
    if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        request.wr.atomic.remote_addr = address;
        request.wr.atomic.rkey = key;
        request.wr.atomic.compare_add = a;
        request.wr.atomic.swap = b;
    } else {
        request.wr.rdma.remote_addr = address;
        request.wr.rdma.rkey = key;
        request.imm_data = htonl(a);
    }
    if (ibv_post_send(qp, &request, &bad))
        fail("post a send");
    answer("ok");
}

static void next(void)
{
    struct ibv_wc done;
    struct ibv_cq *which;
    void *none;
    int count;
    while (!(count = ibv_poll_cq(cq, 1, &done))) {
        if (ibv_req_notify_cq(cq, 0))
            fail("ask for an event");
        /* What came before the question raises no event. */
        if ((count = ibv_poll_cq(cq, 1, &done)))
            break;
        if (ibv_get_cq_event(channel, &which, &none))
            fail("wait");
        ibv_ack_cq_events(which, 1);
    }
    if (count < 0)
        fail("poll");
    answer("%d %d %u %u", done.status, done.opcode, done.byte_len,
           done.wc_flags & IBV_WC_WITH_IMM ? ntohl(done.imm_data) : 0);
}

int main(int count, char **words)
{
    char line[256];
    if (count != 3) {
        fprintf(stderr, "usage: puppet PORT GID_INDEX\n");
        return 2;
    }
    gid_index = atoi(words[2]);
    open_device();
    listen_at(atoi(words[1]));
    while (fgets(line, sizeof line, in)) {
        char *rest = strpbrk(line, " \n");
        if (!rest)
            fail("a line is too long");
        *rest++ = 0;
        if (!strcmp(line, "pair"))
            pair(rest);
        else if (!strcmp(line, "connect"))
            connect_to(rest);
        else if (!strcmp(line, "fill") || !strcmp(line, "check"))
            pattern(rest, *line == 'f');
        else if (!strcmp(line, "receive"))
            receive(rest);
        else if (!strcmp(line, "post"))
            post(rest);
        else if (!strcmp(line, "next"))
            next();
        else
            fail(line);
    }
    return 0;
}
