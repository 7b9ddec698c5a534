/* Addresses and routes, and ids without them: one case for each name on the command line. */
#include <ifaddrs.h>
#include <net/if.h>
#include <time.h>

#include "faults.h"

/* IP over InfiniBand: Linux makes the id, and refuses it where it meets a device that is RoCE's. */
static void ipoib(void)
{
    struct rdma_event_channel *events = channel();
    struct rdma_cm_id *id = make(events, RDMA_PS_IPOIB);
    struct sockaddr_in any = at("0.0.0.0", 0), to = at("127.0.0.1", 1), group = at("239.9.8.7", 0);
    CHECK(id->qp_type == IBV_QPT_UD);
    CHECK(rdma_bind_addr(id, (struct sockaddr *) &any) == 0 && rdma_listen(id, 0) == 0);
    end(id);
    struct sockaddr_in *destinations[] = {&to, &group};
    for (int which = 0; which < 2; which++) {
        id = make(events, RDMA_PS_IPOIB);
        CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *) destinations[which], 1000) == 0);
        struct rdma_cm_event *event = wait_for(events, RDMA_CM_EVENT_ADDR_ERROR);
        CHECK(event->status == -EINVAL);
        CHECK(rdma_ack_cm_event(event) == 0);
        end(id);
    }
    /* The address of a device, if there is one besides the loopback. */
    struct ifaddrs *list;
    CHECK(getifaddrs(&list) == 0);
    for (struct ifaddrs *one = list; one; one = one->ifa_next) {
        if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET || (one->ifa_flags & IFF_LOOPBACK))
            continue;
        id = make(events, RDMA_PS_IPOIB);
        FAILS(rdma_bind_addr(id, one->ifa_addr), EINVAL);
        FAILS(rdma_resolve_addr(id, one->ifa_addr, (struct sockaddr *) &to, 1000), EINVAL);
        end(id);
    }
    freeifaddrs(list);
    rdma_destroy_event_channel(events);
}

static struct ibv_path_data path_to(struct rdma_cm_id *id)
{
    struct ibv_path_data data = {
        .flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL,
        .path = {
            .sgid = id->route.addr.addr.ibaddr.sgid,
            .dgid = id->route.addr.addr.ibaddr.dgid,
            .flowlabel_hoplimit = htonl(0x12345 << 8 | 33),
            .tclass = 0x20,
            .reversible_numpath = IBV_PATH_RECORD_REVERSIBLE | 1,
            .pkey = htons(0xffff),
            .mtu = 2 << 6 | IBV_MTU_256,
            .rate = 2 << 6 | 3,
            .packetlifetime = 2 << 6 | 16,
        },
    };
    return data;
}

static int set_path(struct rdma_cm_id *id, struct ibv_path_data *data, size_t length)
{
    return rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, data, length);
}

static struct rdma_cm_id *with_address(struct rdma_event_channel *events, unsigned short port)
{
    struct rdma_cm_id *id = make(events, RDMA_PS_TCP);
    struct sockaddr_in to = at("127.0.0.1", port);
    CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *) &to, 1000) == 0);
    pass(events, RDMA_CM_EVENT_ADDR_RESOLVED);
    return id;
}

/* The attributes of a queue pair. */
static void goes_by(struct ibv_qp *qp, enum ibv_mtu mtu, uint8_t class, uint8_t hops)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK(ibv_query_qp(qp, &attr, IBV_QP_PATH_MTU | IBV_QP_AV, &init) == 0);
    CHECK(attr.path_mtu == mtu && attr.ah_attr.grh.traffic_class == class);
    CHECK(attr.ah_attr.grh.hop_limit == hops && attr.ah_attr.grh.flow_label == 0x12345);
}

/* RDMA_OPTION_IB_PATH: the program's path instead of rdma_resolve_route, with the results of Linux and rdma_rxe. */
static void paths(void)
{
    struct rdma_event_channel *active = channel(), *passive = channel();
    struct rdma_cm_id *listening = listener(passive, RDMA_PS_TCP);
    unsigned short port = ntohs(rdma_get_src_port(listening));
    struct rdma_cm_id *id = make(active, RDMA_PS_TCP);
    struct ibv_path_data two[2];
    two[0] = two[1] = path_to(id);
    FAILS(set_path(id, two, sizeof *two), EINVAL);
    end(id);
    id = with_address(active, port);
    two[0] = two[1] = path_to(id);
    FAILS(set_path(id, two, 0), EINVAL);
    FAILS(set_path(id, two, sizeof *two - 1), EINVAL);
    FAILS(set_path(id, two, sizeof *two + 1), EINVAL);
    FAILS(set_path(id, NULL, sizeof *two), EINVAL);
    FAILS(rdma_set_option(id, RDMA_OPTION_IB, 2, two, sizeof *two), ENOSYS);
    FAILS(rdma_set_option(id, 2, RDMA_OPTION_IB_PATH, two, sizeof *two), ENOSYS);
    two[0].flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY;
    FAILS(set_path(id, two, sizeof *two), EINVAL);
    /* The first complete one is used. */
    CHECK(set_path(id, two, sizeof two) == 0);
    pass(active, RDMA_CM_EVENT_ROUTE_RESOLVED);
    struct ibv_sa_path_rec *got = id->route.path_rec;
    CHECK(id->route.num_paths == 1 && got->mtu == IBV_MTU_256 && got->traffic_class == 0x20);
    CHECK(got->hop_limit == 33 && got->packet_life_time == 16 && got->pkey == htons(0xffff));
    CHECK(ntohl(got->flow_label) == 0x12345 && memcmp(&got->dgid, &two[1].path.dgid, 16) == 0);
    FAILS(set_path(id, two, sizeof two), EINVAL);
    FAILS(rdma_resolve_route(id, 1000), EINVAL);
    give_pair(id);
    CHECK(rdma_connect(id, NULL) == 0);
    struct rdma_cm_id *other = request(passive, NULL, 0);
    give_pair(other);
    CHECK(rdma_accept(other, NULL) == 0);
    pass(active, RDMA_CM_EVENT_ESTABLISHED);
    pass(passive, RDMA_CM_EVENT_ESTABLISHED);
    goes_by(id->qp, IBV_MTU_256, 0x20, 33);
    goes_by(other->qp, IBV_MTU_256, 0x20, 33);
    end(id);
    pass(passive, RDMA_CM_EVENT_DISCONNECTED);
    end(other);

    /* An invalid partition is detected when it is used. */
    id = with_address(active, port);
    two[0].flags = two[1].flags;
    two[0].path.pkey = htons(0x1234);
    CHECK(set_path(id, two, sizeof *two) == 0);
    pass(active, RDMA_CM_EVENT_ROUTE_RESOLVED);
    struct rdma_conn_param param = {.qp_num = 77};
    FAILS(rdma_connect(id, &param), ENOENT);
    end(id);

    /* Where Linux sends what nobody takes: sizes that are none, and to another than the peer. */
    id = with_address(active, port);
    two[0] = path_to(id);
    two[0].path.mtu = 2 << 6;
    FAILS(set_path(id, two, sizeof *two), EINVAL);
    two[0].path.mtu = 2 << 6 | 7;
    FAILS(set_path(id, two, sizeof *two), EINVAL);
    two[0] = path_to(id);
    two[0].path.dgid.raw[15] ^= 0x55;
    FAILS(set_path(id, two, sizeof *two), EINVAL);
    end(id);

    /* With rdma_create_ep, as rdma_getaddrinfo might return it. */
    struct sockaddr_in to = at("127.0.0.1", port);
    struct rdma_addrinfo about = {
        .ai_family = AF_INET, .ai_qp_type = IBV_QPT_RC, .ai_port_space = RDMA_PS_TCP,
        .ai_dst_addr = (struct sockaddr *) &to, .ai_dst_len = sizeof to,
        .ai_route = &two[1], .ai_route_len = sizeof *two,
    };
    CHECK(rdma_create_ep(&id, &about, NULL, NULL) == 0);
    CHECK(id->route.num_paths == 1 && id->route.path_rec->mtu == IBV_MTU_256);
    rdma_destroy_ep(id);
    end(listening);
    rdma_destroy_event_channel(active);
    rdma_destroy_event_channel(passive);
}

static struct sockaddr *address_of(const char *text, struct sockaddr_storage *room)
{
    struct sockaddr_in *short_one = (struct sockaddr_in *) room;
    struct sockaddr_in6 *long_one = (struct sockaddr_in6 *) room;
    memset(room, 0, sizeof *room);
    if (strchr(text, ':')) {
        *long_one = (struct sockaddr_in6) {.sin6_family = AF_INET6, .sin6_port = htons(7471)};
        CHECK(inet_pton(AF_INET6, text, &long_one->sin6_addr) == 1);
    } else {
        *short_one = at(text, 7471);
    }
    return (struct sockaddr *) room;
}

static double seconds(void)
{
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return now.tv_sec + now.tv_nsec / 1e9;
}

/* An unreachable host is detected within the timeout, and a reachable one is resolved: rdma_resolve_addr(3). */
static void gone_to(const char *nobody, const char *somebody)
{
    struct rdma_event_channel *events = channel();
    struct sockaddr_storage absent, present;
    struct rdma_cm_id *id = make(events, RDMA_PS_TCP);
    address_of(nobody, &absent);
    address_of(somebody, &present);
    double before = seconds();
    CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *) &absent, 300) == 0);
    FAILS(rdma_resolve_addr(id, NULL, (struct sockaddr *) &absent, 300), EINVAL);
    FAILS(rdma_resolve_route(id, 300), EINVAL);
    struct rdma_cm_event *event = wait_for(events, RDMA_CM_EVENT_ADDR_ERROR);
    CHECK(event->status == -ETIMEDOUT && seconds() - before >= 0.3);
    CHECK(rdma_ack_cm_event(event) == 0);
    /* The id is unchanged, and another address may be tried. */
    CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *) &present, LIMIT) == 0);
    pass(events, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(rdma_resolve_route(id, 1000) == 0);
    pass(events, RDMA_CM_EVENT_ROUTE_RESOLVED);
    end(id);
    /* A destroyed id has no pending resolution. */
    id = make(events, RDMA_PS_UDP);
    CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *) &absent, LIMIT) == 0);
    end(id);
    struct pollfd one = {.fd = events->fd, .events = POLLIN};
    CHECK(poll(&one, 1, 0) == 0);
    rdma_destroy_event_channel(events);
    id = make(NULL, RDMA_PS_TCP);
    FAILS(rdma_resolve_addr(id, NULL, (struct sockaddr *) &absent, 100), ETIMEDOUT);
    CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *) &present, LIMIT) == 0);
    end(id);
}

/* On a link to one other host: 10.9.0.2 and fd09::2. */
static void gone(void)
{
    gone_to("10.9.0.99", "10.9.0.2");
    gone_to("fd09::99", "fd09::2");
}

int main(int count, char **arguments)
{
    static const struct one_case cases[] = {
        CASE(ipoib),
        CASE(paths),
        CASE(gone),
    };
    return run_case(cases, sizeof cases / sizeof *cases, count, arguments);
}
