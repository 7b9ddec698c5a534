/* What the programs of faults share: both ends of connections in one process, so that all happens in one order, and a
 * `main` that runs the case it is told. */
#ifndef FAULTS_H
#define FAULTS_H

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "check.h"

/* A peer that never responds must not block the test forever. */
#define LIMIT 30000

static inline struct sockaddr_in at(const char *address, unsigned short port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    CHECK(inet_pton(AF_INET, address, &to.sin_addr) == 1);
    return to;
}

static inline struct rdma_event_channel *channel(void)
{
    struct rdma_event_channel *made = rdma_create_event_channel();
    CHECK(made);
    return made;
}

static inline struct rdma_cm_id *make(struct rdma_event_channel *events, enum rdma_port_space space)
{
    struct rdma_cm_id *id;
    CHECK(rdma_create_id(events, &id, NULL, space) == 0);
    return id;
}

static inline struct rdma_cm_event *wait_for(struct rdma_event_channel *events, enum rdma_cm_event_type type)
{
    struct rdma_cm_event *event;
    struct pollfd one = {.fd = events->fd, .events = POLLIN};
    CHECK(poll(&one, 1, LIMIT) == 1);
    CHECK(rdma_get_cm_event(events, &event) == 0);
    if (event->event != type)
        fprintf(stderr, "got %s, status %d\n", rdma_event_str(event->event), event->status);
    CHECK(event->event == type);
    return event;
}

static inline void pass(struct rdma_event_channel *events, enum rdma_cm_event_type type)
{
    struct rdma_cm_event *event = wait_for(events, type);
    CHECK(event->status == 0);
    CHECK(rdma_ack_cm_event(event) == 0);
}

static inline struct rdma_cm_id *listener(struct rdma_event_channel *events, enum rdma_port_space space)
{
    struct rdma_cm_id *id = make(events, space);
    struct sockaddr_in any_port = at("127.0.0.1", 0);
    CHECK(rdma_bind_addr(id, (struct sockaddr *) &any_port) == 0);
    CHECK(rdma_get_src_port(id) != 0 && id->verbs && id->pd);
    CHECK(rdma_listen(id, 0) == 0);
    return id;
}

static inline struct rdma_cm_id *resolved(struct rdma_event_channel *events, enum rdma_port_space space,
                                   unsigned short port)
{
    struct rdma_cm_id *id = make(events, space);
    struct sockaddr_in to = at("127.0.0.1", port);
    CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *) &to, 1000) == 0);
    pass(events, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(id->verbs && id->pd && id->port_num == 1 && ntohs(rdma_get_dst_port(id)) == port);
    CHECK(rdma_resolve_route(id, 1000) == 0);
    pass(events, RDMA_CM_EVENT_ROUTE_RESOLVED);
    CHECK(id->route.num_paths == 1 && id->route.path_rec->mtu >= IBV_MTU_1024);
    return id;
}

static inline void give_pair(struct rdma_cm_id *id)
{
    struct ibv_qp_init_attr attr = {
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    CHECK(rdma_create_qp(id, NULL, &attr) == 0);
    CHECK(id->qp && id->send_cq && id->recv_cq && id->send_cq_channel && id->recv_cq_channel);
    FAILS(rdma_create_qp(id, NULL, &attr), EINVAL);
}

/* A connection request, with the id of this side. */
static inline struct rdma_cm_id *request(struct rdma_event_channel *events, const void *data, size_t length)
{
    struct rdma_cm_event *event = wait_for(events, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_id *id = event->id;
    CHECK(event->listen_id && id != event->listen_id && id->verbs);
    CHECK(event->param.conn.private_data_len >= length);
    CHECK(memcmp(event->param.conn.private_data, data, length) == 0);
    CHECK(rdma_ack_cm_event(event) == 0);
    return id;
}

static inline void end(struct rdma_cm_id *id)
{
    if (id->qp)
        rdma_destroy_qp(id);
    CHECK(rdma_destroy_id(id) == 0);
}

struct one_case {
    const char *name;
    void (*run)(void);
};

#define CASE(name) {#name, name}

/* Runs the case in the arguments. */
static inline int run_case(const struct one_case *cases, size_t number, int count, char **arguments)
{
    for (size_t which = 0; count >= 2 && which < number; which++) {
        if (strcmp(cases[which].name, arguments[1]) == 0) {
            cases[which].run();
            printf("%s: passed\n", arguments[1]);
            return 0;
        }
    }
    fprintf(stderr, "usage: %s CASE\n", arguments[0]);
    return 2;
}

#endif
