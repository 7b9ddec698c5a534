/* Connection failures, as the man pages specify them: one case for each name on the command line. */
#include <dirent.h>
#include <malloc.h>
#include <netdb.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "faults.h"

/* The reject reason without a listener: invalid service ID. */
static void no_listener(void)
{
    struct rdma_event_channel *events = channel();
    struct rdma_cm_id *id = resolved(events, RDMA_PS_TCP, 1);
    give_pair(id);
    CHECK(rdma_connect(id, NULL) == 0);
    struct rdma_cm_event *event = wait_for(events, RDMA_CM_EVENT_REJECTED);
    CHECK(event->id == id && event->status == 8);
    CHECK(rdma_ack_cm_event(event) == 0);
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK(ibv_query_qp(id->qp, &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_ERR);
    end(id);
    id = resolved(events, RDMA_PS_UDP, 1);
    CHECK(rdma_connect(id, NULL) == 0);
    event = wait_for(events, RDMA_CM_EVENT_UNREACHABLE);
    CHECK(event->status == 1);
    CHECK(rdma_ack_cm_event(event) == 0);
    end(id);
    rdma_destroy_event_channel(events);
}

static void synchronous_refused(void)
{
    struct rdma_cm_id *id = make(NULL, RDMA_PS_TCP);
    struct sockaddr_in to = at("127.0.0.1", 1);
    CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *) &to, 1000) == 0);
    CHECK(rdma_resolve_route(id, 1000) == 0);
    give_pair(id);
    FAILS(rdma_connect(id, NULL), ECONNREFUSED);
    CHECK(id->event && id->event->event == RDMA_CM_EVENT_REJECTED);
    end(id);
}

static void private_data(void)
{
    struct rdma_event_channel *active = channel(), *passive = channel();
    struct rdma_cm_id *listening = listener(passive, RDMA_PS_TCP);
    unsigned short port = ntohs(rdma_get_src_port(listening));
    unsigned char data[256];
    struct rdma_conn_param param = {.private_data = data, .private_data_len = 57, .qp_num = 77};
    for (int byte = 0; byte < 256; byte++)
        data[byte] = (unsigned char) (byte * 7 + 1);
    struct rdma_cm_id *id = resolved(active, RDMA_PS_TCP, port);
    FAILS(rdma_connect(id, &param), EINVAL);
    param.private_data_len = 56;
    CHECK(rdma_connect(id, &param) == 0);
    struct rdma_cm_id *other = request(passive, data, 56);
    param.qp_num = 78;
    param.private_data_len = 197;
    FAILS(rdma_accept(other, &param), EINVAL);
    FAILS(rdma_reject(other, data, 149), EINVAL);
    CHECK(rdma_reject(other, data, 148) == 0);
    struct rdma_cm_event *event = wait_for(active, RDMA_CM_EVENT_REJECTED);
    CHECK(event->status == 28 && event->param.conn.private_data_len == 148);
    CHECK(memcmp(event->param.conn.private_data, data, 148) == 0);
    CHECK(rdma_ack_cm_event(event) == 0);
    end(other);
    end(id);

    id = resolved(active, RDMA_PS_TCP, port);
    param.private_data_len = 0;
    param.qp_num = 79;
    CHECK(rdma_connect(id, &param) == 0);
    other = request(passive, NULL, 0);
    param.private_data_len = 196;
    param.qp_num = 80;
    CHECK(rdma_accept(other, &param) == 0);
    FAILS(rdma_accept(other, &param), EINVAL);
    event = wait_for(active, RDMA_CM_EVENT_CONNECT_RESPONSE);
    CHECK(event->param.conn.private_data_len == 196 && event->param.conn.qp_num == 80);
    CHECK(memcmp(event->param.conn.private_data, data, 196) == 0);
    CHECK(rdma_ack_cm_event(event) == 0);
    CHECK(rdma_establish(id) == 0);
    pass(passive, RDMA_CM_EVENT_ESTABLISHED);
    FAILS(rdma_establish(id), EINVAL);
    CHECK(rdma_disconnect(id) == 0);
    pass(active, RDMA_CM_EVENT_DISCONNECTED);
    pass(passive, RDMA_CM_EVENT_DISCONNECTED);
    CHECK(rdma_disconnect(other) == 0);
    FAILS(rdma_disconnect(other), EINVAL);
    FAILS(rdma_disconnect(id), EINVAL);
    end(other);
    end(id);
    end(listening);
    rdma_destroy_event_channel(active);
    rdma_destroy_event_channel(passive);
}

/* What a vendor's devices can do, by queue pairs that are none of the ids'. */
static void enhancements(void)
{
    struct rdma_event_channel *active = channel(), *passive = channel();
    struct rdma_cm_id *listening = listener(passive, RDMA_PS_TCP);
    struct rdma_conn_param param = {.qp_num = 81};
    struct ibv_ece offered = {.vendor_id = 0x15b3, .options = 0xabcdef01}, got = {0};
    struct rdma_cm_id *id = resolved(active, RDMA_PS_TCP, ntohs(rdma_get_src_port(listening)));
    struct ibv_ece none = {0};
    FAILS(rdma_set_local_ece(id, &none), EINVAL);
    CHECK(rdma_set_local_ece(id, &offered) == 0);
    CHECK(rdma_connect(id, &param) == 0);
    struct rdma_cm_id *other = request(passive, NULL, 0);
    CHECK(rdma_get_remote_ece(other, &got) == 0);
    CHECK(got.vendor_id == offered.vendor_id && got.options == offered.options);
    offered.options = 0x10;
    CHECK(rdma_set_local_ece(other, &offered) == 0);
    param.qp_num = 82;
    CHECK(rdma_accept(other, &param) == 0);
    struct rdma_cm_event *event = wait_for(active, RDMA_CM_EVENT_CONNECT_RESPONSE);
    CHECK(rdma_ack_cm_event(event) == 0);
    memset(&got, 0, sizeof got);
    CHECK(rdma_get_remote_ece(id, &got) == 0);
    CHECK(got.vendor_id == offered.vendor_id && got.options == 0x10);
    end(id);
    end(other);

    id = resolved(active, RDMA_PS_TCP, ntohs(rdma_get_src_port(listening)));
    param.qp_num = 83;
    CHECK(rdma_connect(id, &param) == 0);
    other = request(passive, NULL, 0);
    CHECK(rdma_reject_ece(other, NULL, 0) == 0);
    event = wait_for(active, RDMA_CM_EVENT_REJECTED);
    CHECK(event->status == 35);
    CHECK(rdma_ack_cm_event(event) == 0);
    end(id);
    end(other);
    end(listening);
    rdma_destroy_event_channel(active);
    rdma_destroy_event_channel(passive);
}

static void addresses(void)
{
    struct rdma_event_channel *events = channel();
    struct rdma_cm_id *first = listener(events, RDMA_PS_TCP), *second = make(events, RDMA_PS_TCP);
    struct sockaddr_in taken = at("127.0.0.1", ntohs(rdma_get_src_port(first)));
    struct sockaddr_in foreign = at("192.0.2.1", 0);
    struct sockaddr unknown = {.sa_family = AF_UNIX};
    FAILS(rdma_bind_addr(second, (struct sockaddr *) &taken), EADDRINUSE);
    FAILS(rdma_bind_addr(second, (struct sockaddr *) &foreign), EADDRNOTAVAIL);
    FAILS(rdma_bind_addr(second, &unknown), EINVAL);
    end(first);
    CHECK(rdma_bind_addr(second, (struct sockaddr *) &taken) == 0);
    FAILS(rdma_bind_addr(second, (struct sockaddr *) &taken), EINVAL);
    end(second);

    /* Shared by ids with the reuse option, until one of them listens. */
    int yes = 1;
    first = make(events, RDMA_PS_TCP);
    second = make(events, RDMA_PS_TCP);
    CHECK(rdma_set_option(first, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof yes) == 0);
    CHECK(rdma_set_option(second, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof yes) == 0);
    CHECK(rdma_bind_addr(first, (struct sockaddr *) &taken) == 0);
    CHECK(rdma_bind_addr(second, (struct sockaddr *) &taken) == 0);
    CHECK(rdma_listen(first, 1) == 0);
    FAILS(rdma_listen(second, 1), EADDRINUSE);
    end(second);
    end(first);

    /* "Any" address of IPv6 leaves IPv4 to others, if told to. */
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = taken.sin_port};
    first = make(events, RDMA_PS_TCP);
    second = make(events, RDMA_PS_TCP);
    CHECK(rdma_set_option(first, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &yes, sizeof yes) == 0);
    CHECK(rdma_bind_addr(first, (struct sockaddr *) &any) == 0);
    CHECK(rdma_bind_addr(second, (struct sockaddr *) &taken) == 0);
    end(second);
    end(first);
    rdma_destroy_event_channel(events);
}

static void wrong_order(void)
{
    struct rdma_event_channel *events = channel();
    struct rdma_cm_id *id = make(events, RDMA_PS_TCP), *none;
    struct rdma_conn_param param = {.qp_num = 1};
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC};
    FAILS(rdma_create_id(events, &none, NULL, 0x7777), EINVAL);
    FAILS(rdma_resolve_route(id, 1000), EINVAL);
    FAILS(rdma_connect(id, &param), EINVAL);
    FAILS(rdma_accept(id, &param), EINVAL);
    FAILS(rdma_reject(id, NULL, 0), EINVAL);
    FAILS(rdma_disconnect(id), EINVAL);
    FAILS(rdma_establish(id), EINVAL);
    FAILS(rdma_notify(id, IBV_EVENT_COMM_EST), EINVAL);
    FAILS(rdma_create_qp(id, NULL, &attr), EINVAL);
    FAILS(rdma_get_request(id, &none), EINVAL);
    FAILS(rdma_ack_cm_event(NULL), EINVAL);
    end(id);
    id = resolved(events, RDMA_PS_TCP, 1);
    FAILS(rdma_connect(id, NULL), EINVAL);
    param.responder_resources = 200;
    FAILS(rdma_connect(id, &param), EINVAL);
    FAILS(rdma_listen(id, 1), EINVAL);
    unsigned char type = 32, timeout = 14;
    CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &type, sizeof type) == 0);
    CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1) == 0);
    timeout = 32;
    FAILS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1), EINVAL);
    FAILS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &type, 4), EINVAL);
    FAILS(rdma_set_option(id, RDMA_OPTION_ID, 99, &type, 1), ENOSYS);
    end(id);
    rdma_destroy_event_channel(events);
}

static struct rdma_event_channel *moved_to;
static struct rdma_cm_id *moving;
static atomic_int begun, done;

static void *destroys(void *id)
{
    begun = 1;
    CHECK(rdma_destroy_id(id) == 0);
    done = 1;
    return NULL;
}

static void *migrates(void *channel_to)
{
    begun = 1;
    CHECK(rdma_migrate_id(moving, channel_to) == 0);
    done = 1;
    return NULL;
}

/* Runs a call that must not return before the event is acknowledged. */
static void waits_for(struct rdma_cm_event *event, void *(*call)(void *), void *argument)
{
    pthread_t thread;
    begun = done = 0;
    CHECK(pthread_create(&thread, NULL, call, argument) == 0);
    while (!begun)
        sched_yield();
    for (int turn = 0; turn < 2000; turn++) {
        CHECK(!done);
        sched_yield();
    }
    CHECK(rdma_ack_cm_event(event) == 0);
    CHECK(pthread_join(thread, NULL) == 0 && done);
}

static void unacknowledged(void)
{
    struct rdma_event_channel *events = channel();
    struct rdma_cm_id *id = make(events, RDMA_PS_TCP);
    struct sockaddr_in to = at("127.0.0.1", 1);
    CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *) &to, 1000) == 0);
    waits_for(wait_for(events, RDMA_CM_EVENT_ADDR_RESOLVED), destroys, id);
    rdma_destroy_event_channel(events);
}

static void migration(void)
{
    struct rdma_event_channel *first = channel(), *second = channel();
    struct rdma_cm_id *id = make(first, RDMA_PS_TCP);
    struct sockaddr_in to = at("127.0.0.1", 1);
    CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *) &to, 1000) == 0);
    /* An event that was not taken moves along. */
    CHECK(rdma_migrate_id(id, second) == 0 && id->channel == second);
    struct pollfd old = {.fd = first->fd, .events = POLLIN};
    CHECK(poll(&old, 1, 0) == 0);
    struct rdma_cm_event *event = wait_for(second, RDMA_CM_EVENT_ADDR_RESOLVED);
    /* An event that was taken is waited for. */
    moving = id;
    moved_to = first;
    waits_for(event, migrates, moved_to);
    CHECK(rdma_resolve_route(id, 1000) == 0);
    pass(first, RDMA_CM_EVENT_ROUTE_RESOLVED);
    /* To its own channel, and back. */
    CHECK(rdma_migrate_id(id, NULL) == 0 && id->channel != first);
    FAILS(rdma_migrate_id(id, NULL), EINVAL);
    give_pair(id);
    FAILS(rdma_connect(id, NULL), ECONNREFUSED);
    CHECK(rdma_migrate_id(id, second) == 0 && !id->event);
    end(id);
    rdma_destroy_event_channel(first);
    rdma_destroy_event_channel(second);
}

static void names(void)
{
    struct rdma_addrinfo hints = {0}, *found;
    CHECK(rdma_getaddrinfo(NULL, NULL, NULL, &found) == -1 && errno == EINVAL);
    hints.ai_flags = RAI_NUMERICHOST;
    CHECK(rdma_getaddrinfo("no.number", "1", &hints, &found) == EAI_NONAME);
    hints.ai_flags = RAI_PASSIVE;
    hints.ai_port_space = RDMA_PS_TCP;
    CHECK(rdma_getaddrinfo(NULL, "7471", &hints, &found) == 0);
    CHECK(found->ai_flags == RAI_PASSIVE && found->ai_src_len && !found->ai_dst_len);
    CHECK(found->ai_qp_type == IBV_QPT_RC && found->ai_port_space == RDMA_PS_TCP);
    rdma_freeaddrinfo(found);
    hints.ai_flags = RAI_NUMERICHOST;
    hints.ai_port_space = RDMA_PS_UDP;
    CHECK(rdma_getaddrinfo("::1", "7471", &hints, &found) == 0);
    CHECK(found->ai_family == AF_INET6 && found->ai_qp_type == IBV_QPT_UD && found->ai_dst_len);
    CHECK(((struct sockaddr_in6 *) found->ai_dst_addr)->sin6_port == htons(7471));
    rdma_freeaddrinfo(found);
    CHECK(strcmp(rdma_event_str(RDMA_CM_EVENT_ADDR_RESOLVED), "RDMA_CM_EVENT_ADDR_RESOLVED") == 0);
    CHECK(strcmp(rdma_event_str(RDMA_CM_EVENT_TIMEWAIT_EXIT), "RDMA_CM_EVENT_TIMEWAIT_EXIT") == 0);
    CHECK(strcmp(rdma_event_str(99), "UNKNOWN EVENT") == 0);
    int count;
    struct ibv_context **list = rdma_get_devices(&count), *first;
    CHECK(list && count > 0 && !list[count]);
    first = list[0];
    rdma_free_devices(list);
    list = rdma_get_devices(&count);
    CHECK(list && list[0] == first);
    struct ibv_device_attr attr;
    CHECK(ibv_query_device(first, &attr) == 0);
    rdma_free_devices(list);
}

static int descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    CHECK(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* A connection that comes and goes. What of it has to rest ends before this, if it waits for that. */
static void cycle(struct rdma_event_channel *active, struct rdma_event_channel *passive, unsigned short port,
                  int rests)
{
    struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
    struct rdma_cm_id *id = resolved(active, RDMA_PS_TCP, port);
    unsigned char shortest = 1;
    CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &shortest, 1) == 0);
    give_pair(id);
    CHECK(rdma_connect(id, &param) == 0);
    struct rdma_cm_id *other = request(passive, NULL, 0);
    give_pair(other);
    CHECK(rdma_accept(other, &param) == 0);
    pass(active, RDMA_CM_EVENT_ESTABLISHED);
    pass(passive, RDMA_CM_EVENT_ESTABLISHED);
    CHECK(rdma_disconnect(id) == 0);
    pass(active, RDMA_CM_EVENT_DISCONNECTED);
    pass(passive, RDMA_CM_EVENT_DISCONNECTED);
    CHECK(rdma_disconnect(other) == 0);
    if (rests) {
        pass(active, RDMA_CM_EVENT_TIMEWAIT_EXIT);
        pass(passive, RDMA_CM_EVENT_TIMEWAIT_EXIT);
    }
    end(id);
    end(other);
}

/* As many at once as will never rest together later, so that no table has to grow for those: what grows then, stays. */
#define AT_ONCE 128

/* Waits for a DISCONNECTED event. TIMEWAIT_EXIT events of others may precede it. */
static void over(struct rdma_event_channel *events)
{
    enum rdma_cm_event_type type;
    do {
        struct rdma_cm_event *event;
        struct pollfd one = {.fd = events->fd, .events = POLLIN};
        CHECK(poll(&one, 1, LIMIT) == 1);
        CHECK(rdma_get_cm_event(events, &event) == 0);
        type = event->event;
        CHECK(type == RDMA_CM_EVENT_DISCONNECTED || type == RDMA_CM_EVENT_TIMEWAIT_EXIT);
        CHECK(rdma_ack_cm_event(event) == 0);
    } while (type != RDMA_CM_EVENT_DISCONNECTED);
}

static void at_once(struct rdma_event_channel *active, struct rdma_event_channel *passive, unsigned short port)
{
    static struct rdma_cm_id *ids[AT_ONCE], *others[AT_ONCE];
    unsigned char shortest = 1;
    for (uint32_t one = 0; one < AT_ONCE; one++) {
        /* Queue pairs that there are not: each has descriptors, and there are not so many. */
        struct rdma_conn_param param = {.qp_num = 0x1000 + one};
        ids[one] = resolved(active, RDMA_PS_TCP, port);
        CHECK(rdma_set_option(ids[one], RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &shortest, 1) == 0);
        CHECK(rdma_connect(ids[one], &param) == 0);
        others[one] = request(passive, NULL, 0);
        param.qp_num += AT_ONCE;
        CHECK(rdma_accept(others[one], &param) == 0);
        struct rdma_cm_event *event = wait_for(active, RDMA_CM_EVENT_CONNECT_RESPONSE);
        CHECK(rdma_ack_cm_event(event) == 0);
        CHECK(rdma_establish(ids[one]) == 0);
        pass(passive, RDMA_CM_EVENT_ESTABLISHED);
    }
    /* One after the other: more messages than a socket holds would be lost, and retransmitted after seconds. */
    for (int one = 0; one < AT_ONCE; one++) {
        CHECK(rdma_disconnect(ids[one]) == 0);
        over(active);
        over(passive);
    }
    for (int one = 0; one < AT_ONCE; one++) {
        end(ids[one]);
        end(others[one]);
    }
}

/* Many cycles, without leaks. */
static void cycles(void)
{
    struct rdma_event_channel *active = channel(), *passive = channel();
    struct rdma_cm_id *listening = listener(passive, RDMA_PS_TCP);
    unsigned short port = ntohs(rdma_get_src_port(listening));
    int before = 0;
    size_t used = 0;
    at_once(active, passive, port);
    for (int count = 0; count <= 1100; count++) {
        /* They stay in timewait equally long, so that all earlier ones have left it with this one. */
        int measures = count == 100 || count == 1100;
        cycle(active, passive, port, measures);
        if (count == 100) {
            before = descriptors();
            used = mallinfo2().uordblks;
        }
    }
    size_t now = mallinfo2().uordblks;
    printf("%d descriptors before, %d after; %zu bytes before, %zu after\n", before, descriptors(), used, now);
    CHECK(descriptors() == before);
    /* A pointer per cycle would be 8,000 bytes, and the smallest allocation three times that. */
    CHECK(now < used + 4000);
    end(listening);
    rdma_destroy_event_channel(active);
    rdma_destroy_event_channel(passive);
}

int main(int count, char **arguments)
{
    static const struct one_case cases[] = {
        CASE(no_listener),
        CASE(synchronous_refused),
        CASE(private_data),
        CASE(enhancements),
        CASE(addresses),
        CASE(wrong_order),
        CASE(unacknowledged),
        CASE(migration),
        CASE(names),
        CASE(cycles),
    };
    return run_case(cases, sizeof cases / sizeof *cases, count, arguments);
}
