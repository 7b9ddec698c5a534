/* Calls what rdma-core has added to libibverbs and librdmacm since version 44, whose headers are installed here: the
 * declarations are of this file. Linked with our libraries, the program binds each function under its version.
 *
 *   usage: newer CASE
 */
#define _GNU_SOURCE
#include "pair.h"

#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

struct ibv_dmah;
struct ibv_buf;
struct ibv_comp_cntr;

enum {
    MASK_IOVA = 1 << 0, MASK_ADDR = 1 << 1, MASK_FD = 1 << 2, MASK_FD_OFFSET = 1 << 3, MASK_DMAH = 1 << 4,
    MASK_BUF = 1 << 5,
};

struct ibv_mr_init_attr {
    size_t length;
    int access;
    uint64_t comp_mask;
    uint64_t iova;
    void *addr;
    int fd;
    uint64_t fd_offset;
    struct ibv_dmah *dmah;
    struct ibv_buf *buf;
};

/* IBVERBS_1.15 */
struct ibv_dmah *ibv_alloc_dmah(struct ibv_context *, void *attr);
int ibv_dealloc_dmah(struct ibv_dmah *);
struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *, struct ibv_mr_init_attr *);
/* IBVERBS_1.16 */
int ibv_dm_export_dmabuf_fd(struct ibv_dm *);
int ibv_query_port_speed(struct ibv_context *, uint32_t port, uint64_t *speed);
/* IBVERBS_1.17 */
void *ibv_alloc_buf(struct ibv_pd *, size_t size, struct ibv_buf **);
void ibv_free_buf(struct ibv_buf *);
struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *, struct ibv_buf *, void *addr, size_t length, int access);
/* IBVERBS_1.18 */
int ibv_export_buf_dmabuf_fd(struct ibv_buf *);
int _ibv_query_comp_cntr_caps(struct ibv_context *, void *caps, size_t size);
struct ibv_comp_cntr *ibv_create_comp_cntr(struct ibv_context *, void *attr);
int ibv_destroy_comp_cntr(struct ibv_comp_cntr *);
int ibv_set_comp_cntr(struct ibv_comp_cntr *, uint64_t);
int ibv_set_err_comp_cntr(struct ibv_comp_cntr *, uint64_t);
int ibv_inc_comp_cntr(struct ibv_comp_cntr *, uint64_t);
int ibv_inc_err_comp_cntr(struct ibv_comp_cntr *, uint64_t);
int ibv_read_comp_cntr(struct ibv_comp_cntr *, uint64_t *);
int ibv_read_err_comp_cntr(struct ibv_comp_cntr *, uint64_t *);
int ibv_qp_attach_comp_cntr(struct ibv_qp *, struct ibv_comp_cntr *, void *attr);
/* IBVERBS_PRIVATE_65 */
const char *ibv_wr_opcode_str(int opcode);
/* RDMACM_1.4 */
int rdma_resolve_addrinfo(struct rdma_cm_id *, const char *node, const char *service, const struct rdma_addrinfo *);
int rdma_query_addrinfo(struct rdma_cm_id *, struct rdma_addrinfo **);
int rdma_write_cm_event(struct rdma_cm_id *, int event, int status, uint64_t arg);

enum { EVENT_ADDRINFO_RESOLVED = 16, EVENT_ADDRINFO_ERROR = 17, EVENT_USER = 18 };
enum { RAI_SA_ = 0x10, RAI_DNS_ = 0x20 };

#define NULL_WITH(call, number)                                                                        \
    do {                                                                                               \
        errno = 0;                                                                                     \
        CHECK((call) == NULL && errno == (number));                                                    \
    } while (0)

static void ports(struct pair_device *device)
{
    uint64_t speed = 0;
    struct ibv_port_attr port;
    CHECK(ibv_query_port_speed(device->context, 1, &speed) == 0);
    /* Width and speed by the older fields: both must agree. */
    CHECK(!ibv_query_port(device->context, 1, &port) && port.active_width == 2 && port.active_speed == 32);
    CHECK(speed == 4 * 250);
    CHECK(ibv_query_port_speed(device->context, 2, &speed) == EINVAL);
    CHECK(!strcmp(ibv_wr_opcode_str(IBV_WR_RDMA_READ), "rdma-read"));
    CHECK(!strcmp(ibv_wr_opcode_str(14), "flush") && !strcmp(ibv_wr_opcode_str(99), "unknown"));
}

static void regions(struct pair_device *device)
{
    static char memory[8192];
    struct ibv_mr_init_attr attr = { .length = 4096, .access = PAIR_ACCESS, .comp_mask = MASK_ADDR, .addr = memory };
    struct ibv_mr *mr = ibv_reg_mr_ex(device->pd, &attr);
    CHECK(mr && mr->addr == memory && mr->length == 4096 && mr->pd == device->pd && mr->context == device->context);
    CHECK(!ibv_dereg_mr(mr));

    /* Fields that are not in the mask are ignored. */
    attr = (struct ibv_mr_init_attr){ .length = 4096, .access = PAIR_ACCESS, .comp_mask = MASK_ADDR, .addr = memory,
                                      .iova = 77, .fd = 99, .fd_offset = 3, .dmah = (void *)1, .buf = (void *)1 };
    CHECK((mr = ibv_reg_mr_ex(device->pd, &attr)) && !ibv_dereg_mr(mr));

    /* So are those after the end of a shorter structure of an earlier release, which ends at a page boundary. */
    size_t page = sysconf(_SC_PAGESIZE);
    char *pages = aligned_alloc(page, page);
    struct ibv_mr_init_attr *shorter = (void *)(pages + page - offsetof(struct ibv_mr_init_attr, buf));
    memcpy(shorter, &attr, offsetof(struct ibv_mr_init_attr, buf));
    CHECK((mr = ibv_reg_mr_ex(device->pd, shorter)) && !ibv_dereg_mr(mr));
    free(pages);

    attr.comp_mask = MASK_ADDR | MASK_FD | MASK_FD_OFFSET | MASK_IOVA;
    NULL_WITH(ibv_reg_mr_ex(device->pd, &attr), EINVAL);
    attr.comp_mask = MASK_FD | MASK_IOVA;
    NULL_WITH(ibv_reg_mr_ex(device->pd, &attr), EINVAL);
    attr.comp_mask = MASK_FD | MASK_FD_OFFSET | MASK_IOVA;
    NULL_WITH(ibv_reg_mr_ex(device->pd, &attr), EOPNOTSUPP);
    attr.comp_mask = MASK_ADDR | MASK_DMAH;
    NULL_WITH(ibv_reg_mr_ex(device->pd, &attr), EOPNOTSUPP);
    attr.comp_mask = MASK_ADDR | 1 << 20;
    NULL_WITH(ibv_reg_mr_ex(device->pd, &attr), EOPNOTSUPP);
    attr.comp_mask = MASK_IOVA;
    NULL_WITH(ibv_reg_mr_ex(device->pd, &attr), EINVAL);
    NULL_WITH(ibv_reg_mr_ex(device->pd, NULL), EINVAL);
    NULL_WITH(ibv_reg_mr_ex(NULL, &(struct ibv_mr_init_attr){ .comp_mask = MASK_ADDR }), EINVAL);
}

static void buffers(struct pair_device *device)
{
    struct ibv_pd *other = ibv_alloc_pd(device->context);
    struct ibv_buf *buf = NULL;
    char *memory = ibv_alloc_buf(device->pd, 10000, &buf);
    CHECK(other && memory && buf && (uintptr_t)memory % sysconf(_SC_PAGESIZE) == 0);
    memset(memory, 1, 10000);
    struct ibv_mr *mr = ibv_reg_buf_mr(device->pd, buf, memory + 100, 9900, PAIR_ACCESS);
    CHECK(mr && mr->addr == memory + 100 && mr->length == 9900);
    CHECK(!ibv_dereg_mr(mr));
    NULL_WITH(ibv_reg_buf_mr(device->pd, buf, memory + 100, 9901, PAIR_ACCESS), EINVAL);
    NULL_WITH(ibv_reg_buf_mr(device->pd, buf, memory - 1, 10, PAIR_ACCESS), EINVAL);
    NULL_WITH(ibv_reg_buf_mr(device->pd, buf, memory + 10001, 0, PAIR_ACCESS), EINVAL);
    NULL_WITH(ibv_reg_buf_mr(device->pd, buf, memory + 1, (size_t)-1, PAIR_ACCESS), EINVAL);
    NULL_WITH(ibv_reg_buf_mr(other, buf, memory, 10000, PAIR_ACCESS), EINVAL);
    NULL_WITH(ibv_reg_buf_mr(device->pd, NULL, memory, 10000, PAIR_ACCESS), EINVAL);
    struct ibv_mr_init_attr attr = { .length = 10000, .access = PAIR_ACCESS, .comp_mask = MASK_BUF, .addr = memory,
                                     .buf = buf };
    NULL_WITH(ibv_reg_mr_ex(device->pd, &attr), EINVAL);
    attr.comp_mask = MASK_BUF | MASK_ADDR | MASK_IOVA;
    attr.iova = 0x1000;
    CHECK((mr = ibv_reg_mr_ex(device->pd, &attr)) && !ibv_dereg_mr(mr));
    FAILS(ibv_export_buf_dmabuf_fd(buf), ENODATA);
    ibv_free_buf(buf);
    NULL_WITH(ibv_alloc_buf(device->pd, 100, NULL), EINVAL);
    NULL_WITH(ibv_alloc_buf(device->pd, (size_t)-1 >> 1, &buf), ENOMEM);
    NULL_WITH(ibv_alloc_buf(NULL, 100, &buf), EINVAL);
    CHECK(!ibv_dealloc_pd(other));
}

/* Features that only hardware has. */
static void refused(struct pair_device *device)
{
    struct ibv_alloc_dm_attr attr = { .length = 64 };
    struct ibv_dm *dm = ibv_alloc_dm(device->context, &attr);
    uint64_t value;
    CHECK(dm);
    FAILS(ibv_dm_export_dmabuf_fd(dm), EOPNOTSUPP);
    CHECK(!ibv_free_dm(dm));
    NULL_WITH(ibv_alloc_dmah(device->context, &attr), EOPNOTSUPP);
    CHECK(ibv_dealloc_dmah(NULL) == EOPNOTSUPP);
    NULL_WITH(ibv_create_comp_cntr(device->context, &attr), EOPNOTSUPP);
    CHECK(_ibv_query_comp_cntr_caps(device->context, &attr, sizeof attr) == EOPNOTSUPP);
    CHECK(ibv_destroy_comp_cntr(NULL) == EOPNOTSUPP);
    CHECK(ibv_set_comp_cntr(NULL, 1) == EOPNOTSUPP && ibv_set_err_comp_cntr(NULL, 1) == EOPNOTSUPP);
    CHECK(ibv_inc_comp_cntr(NULL, 1) == EOPNOTSUPP && ibv_inc_err_comp_cntr(NULL, 1) == EOPNOTSUPP);
    CHECK(ibv_read_comp_cntr(NULL, &value) == EOPNOTSUPP && ibv_read_err_comp_cntr(NULL, &value) == EOPNOTSUPP);
    CHECK(ibv_qp_attach_comp_cntr(NULL, NULL, &attr) == EOPNOTSUPP);
}

/* ibv_wr_flush is a later field of the queue pair. */
struct newer_qp_ex {
    struct ibv_qp_ex before;
    void (*wr_flush)(struct ibv_qp_ex *, uint32_t rkey, uint64_t addr, size_t length, uint8_t type, uint8_t level);
};

static void flushes(struct pair_device *device)
{
    enum { EX_WITH_FLUSH = 1 << 11, FLUSH_GLOBAL = 1 << 8, OPCODE = 8 };
    static uint64_t memory[2] = { 42 };
    struct ibv_mr *mr = ibv_reg_mr(device->pd, memory, sizeof memory, PAIR_ACCESS | FLUSH_GLOBAL);
    struct ibv_mr *plain = ibv_reg_mr(device->pd, memory, sizeof memory, PAIR_ACCESS);
    struct ibv_cq *cq = ibv_create_cq(device->context, 16, NULL, NULL, 0);
    struct ibv_qp_init_attr_ex init = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .pd = device->pd,
        .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | EX_WITH_FLUSH,
    };
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = PAIR_ACCESS | FLUSH_GLOBAL };
    struct ibv_qp *ends[2];
    CHECK(mr && plain && cq);
    for (int i = 0; i < 2; i++) {
        CHECK(ends[i] = ibv_create_qp_ex(device->context, &init));
        CHECK(!ibv_modify_qp(ends[i], &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    }
    pair_connect(device, ends[0], ends[1]->qp_num);
    pair_connect(device, ends[1], ends[0]->qp_num);

    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(ends[0]);
    struct newer_qp_ex *newer = (void *)ex;
    CHECK(ex);
    for (int level = 0; level < 2; level++) {
        memory[1] = 0;
        ibv_wr_start(ex);
        ex->wr_id = 1;
        ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)&memory[1]);
        ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 8);
        ex->wr_id = 2;
        newer->wr_flush(ex, mr->rkey, (uintptr_t)&memory[1], 8, 1 /* global */, level);
        CHECK(ibv_wr_complete(ex) == 0);
        struct ibv_wc wc = pair_take(cq);
        CHECK(wc.wr_id == 1 && wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RDMA_WRITE);
        wc = pair_take(cq);
        CHECK(wc.wr_id == 2 && wc.status == IBV_WC_SUCCESS && (int)wc.opcode == OPCODE);
        CHECK(memory[1] == 42);
    }
    /* Invalid placement, invalid level. */
    ibv_wr_start(ex);
    newer->wr_flush(ex, mr->rkey, (uintptr_t)memory, 8, 0, 0);
    CHECK(ibv_wr_complete(ex) == EINVAL);
    ibv_wr_start(ex);
    newer->wr_flush(ex, mr->rkey, (uintptr_t)memory, 8, 1, 2);
    CHECK(ibv_wr_complete(ex) == EINVAL);
    /* Memory that was not registered for it. */
    ibv_wr_start(ex);
    ex->wr_id = 3;
    newer->wr_flush(ex, plain->rkey, (uintptr_t)memory, 8, 1, 0);
    CHECK(ibv_wr_complete(ex) == 0);
    struct ibv_wc wc = pair_take(cq);
    CHECK(wc.wr_id == 3 && wc.status == IBV_WC_REM_ACCESS_ERR);
    CHECK(!ibv_destroy_qp(ends[0]) && !ibv_destroy_qp(ends[1]));
    CHECK(!ibv_destroy_cq(cq) && !ibv_dereg_mr(mr) && !ibv_dereg_mr(plain));
}

static void take(struct rdma_event_channel *channel, struct rdma_cm_id *id, int event, int status, uint64_t arg)
{
    struct rdma_cm_event *got;
    CHECK(!rdma_get_cm_event(channel, &got));
    CHECK((int)got->event == event && got->status == status && got->id == id);
    CHECK(event != EVENT_USER || !memcmp(&got->param, &arg, sizeof arg));
    CHECK(!rdma_ack_cm_event(got));
}

static void *writer(void *id)
{
    CHECK(!rdma_write_cm_event(id, EVENT_USER, -7, 0x123456789abcdef0));
    return NULL;
}

/* Events written by the program. */
static void events(void)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id;
    pthread_t thread;
    CHECK(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    FAILS(rdma_write_cm_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, 0), EINVAL);
    FAILS(rdma_write_cm_event(id, EVENT_USER + 1, 0, 0), EINVAL);
    FAILS(rdma_write_cm_event(NULL, EVENT_USER, 0, 0), EINVAL);
    CHECK(!rdma_write_cm_event(id, EVENT_USER, 0, 1) && !rdma_write_cm_event(id, EVENT_USER, 5, 2));
    take(channel, id, EVENT_USER, 0, 1);
    take(channel, id, EVENT_USER, 5, 2);
    /* It wakes a waiting thread. */
    CHECK(!pthread_create(&thread, NULL, writer, id));
    take(channel, id, EVENT_USER, -7, 0x123456789abcdef0);
    CHECK(!pthread_join(thread, NULL));
    CHECK(!strcmp(rdma_event_str((enum rdma_cm_event_type)EVENT_USER), "RDMA_CM_EVENT_USER"));
    CHECK(!strcmp(rdma_event_str((enum rdma_cm_event_type)EVENT_ADDRINFO_ERROR),
                  "RDMA_CM_EVENT_ADDRINFO_ERROR"));
    CHECK(!rdma_destroy_id(id));
    rdma_destroy_event_channel(channel);
}

static void check_found(struct rdma_addrinfo *found)
{
    struct sockaddr_in *to = (void *)found->ai_dst_addr;
    CHECK(to && to->sin_family == AF_INET && to->sin_port == htons(7471));
    CHECK(to->sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    rdma_freeaddrinfo(found);
}

static void addresses(void)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *found = NULL;
    struct rdma_cm_id *id;
    CHECK(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    FAILS(rdma_query_addrinfo(id, &found), ENOENT);
    CHECK(!rdma_resolve_addrinfo(id, "127.0.0.1", "7471", &hints));
    FAILS(rdma_resolve_addrinfo(id, "127.0.0.1", "7471", &hints), EBUSY);
    take(channel, id, EVENT_ADDRINFO_RESOLVED, 0, 0);
    CHECK(!rdma_query_addrinfo(id, &found));
    check_found(found);
    FAILS(rdma_query_addrinfo(id, &found), ENOENT);
    /* An invalid name, which needs no lookup. */
    hints.ai_flags = RAI_NUMERICHOST | RAI_DNS_;
    CHECK(!rdma_resolve_addrinfo(id, "no number", "7471", &hints));
    take(channel, id, EVENT_ADDRINFO_ERROR, -ENOENT, 0);
    FAILS(rdma_query_addrinfo(id, &found), ENOENT);
    /* InfiniBand's subnet administrator. */
    hints.ai_flags = RAI_SA_;
    FAILS(rdma_resolve_addrinfo(id, NULL, "service", &hints), ENOENT);
    FAILS(rdma_resolve_addrinfo(id, "127.0.0.1", "service", &hints), EOPNOTSUPP);
    FAILS(rdma_getaddrinfo(NULL, "service", &hints, &found), ENOENT);
    hints.ai_flags = RAI_SA_ | RAI_DNS_;
    FAILS(rdma_resolve_addrinfo(id, NULL, "service", &hints), EOPNOTSUPP);
    /* A response that is not read is freed with its id. */
    CHECK(!rdma_resolve_addrinfo(id, "127.0.0.1", "7471", NULL));
    take(channel, id, EVENT_ADDRINFO_RESOLVED, 0, 0);
    CHECK(!rdma_destroy_id(id));
    rdma_destroy_event_channel(channel);
    /* An id without a channel waits for the response itself. */
    CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
    CHECK(!rdma_resolve_addrinfo(id, "127.0.0.1", "7471", NULL) && !rdma_query_addrinfo(id, &found));
    check_found(found);
    hints.ai_flags = RAI_NUMERICHOST;
    FAILS(rdma_resolve_addrinfo(id, "no number", "7471", &hints), ENOENT);
    CHECK(!rdma_destroy_id(id));
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*of_device)(struct pair_device *);
        void (*of_manager)(void);
    } cases[] = {
        { "ports", ports, NULL }, { "regions", regions, NULL }, { "buffers", buffers, NULL },
        { "refused", refused, NULL }, { "flushes", flushes, NULL }, { "events", NULL, events },
        { "addresses", NULL, addresses },
    };
    for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(argv[1], cases[i].name))
            continue;
        if (cases[i].of_manager) {
            cases[i].of_manager();
        } else {
            struct pair_device device = pair_open();
            cases[i].of_device(&device);
            CHECK(!ibv_dealloc_pd(device.pd) && !ibv_close_device(device.context));
        }
        puts("ok");
        return 0;
    }
    fprintf(stderr, "no such case\n");
    return 2;
}
