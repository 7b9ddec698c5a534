/*
 * What libibverbs promises, between two programs: every case knows what the InfiniBand specification wants, and says
 * where it got something else. See main.c for how to run it.
 */
#ifndef CONFORMANCE_H
#define CONFORMANCE_H

#include <endian.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MEMORY = 4 << 20,  /* bytes of each side's region */
    DEPTH = 128,       /* depth of the queues */
    SGES = 4,
    INLINE = 64,
    GRH = 40,          /* bytes before a datagram */
    QKEY = 0x11111111,
};

/* The attributes of a queue pair that the sides exchange. */
struct peer {
    uint32_t qpn, psn, rkey, other_rkey;
    uint64_t address;
    union ibv_gid gid;
};

struct end;

/* A case: the attributes of its queue pairs, and the actions of both sides. Zero means the default. */
struct test {
    const char *name, *what;
    void (*run)(struct end *);
    enum ibv_qp_type type;
    uint32_t psn;      /* the active side's first */
    int timeout, retries, rnr_retries;
    int region_access; /* of the passive side's region: without these */
    int qp_access;     /* of the passive side's queue pair: without these */
    bool wrong_qpn;    /* the active side sends to a queue pair that does not exist */
    bool shared;       /* the passive side receives from an SRQ */
    bool unsignaled;   /* no completion unless requested */
    bool channel;      /* the passive side has a completion channel */
};

/* One side of a case. */
struct end {
    const struct test *test;
    bool active;
    int mtu, rounds;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    struct ibv_ah *ah;
    uint8_t *memory;
    struct peer me, you;
};

/* report.c */
extern const char *current;
extern int failures;
void check(bool good, const char *format, ...) __attribute__((format(printf, 2, 3)));
void give_up(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* rendezvous.c */
void rendezvous(const char *address, const char *port);
void exchange(const void *out, void *in, size_t size);
void meet(void); /* waits for the other side */

/* end.c */
extern int gid_index;
struct ibv_context *open_by_address(const char *address);
void open_end(struct end *);
void connect_end(struct end *);
void close_end(struct end *);
void modify(struct end *, struct ibv_qp_attr *, int mask);
enum ibv_qp_state state(struct end *);

/* work.c */
void fill(struct end *, size_t offset, size_t length, unsigned seed);
bool holds(struct end *, size_t offset, size_t length, unsigned seed);
struct ibv_sge piece(struct end *, size_t offset, size_t length);
struct ibv_send_wr request(struct end *, enum ibv_wr_opcode, struct ibv_sge *, size_t remote);
void post(struct end *, struct ibv_send_wr *);
void receive(struct end *, size_t offset, size_t length, uint64_t id);
struct ibv_wc take(struct end *);
bool nothing(struct end *);
struct ibv_wc expect(struct end *, enum ibv_wc_status, const char *what);
struct ibv_wc expect_receive(struct end *, uint32_t length, bool immediate, const char *what);
/* posts and waits: LENGTH bytes at LOCAL, to or from REMOTE */
void simple(struct end *, enum ibv_wr_opcode, size_t local, size_t length, size_t remote, enum ibv_wc_status,
            const char *what);
/* the same by another key */
void by_key(struct end *, enum ibv_wr_opcode, size_t length, size_t remote, uint32_t rkey, enum ibv_wc_status,
            const char *what);
uint64_t atomic(struct end *, enum ibv_wr_opcode, size_t remote, uint32_t rkey, uint64_t compare_add, uint64_t swap,
                enum ibv_wc_status, const char *what);

static const uint32_t IMMEDIATE = 0x11223344;

/* The lists of cases, each terminated by one without a name. */
extern const struct test reliable_tests[], unreliable_tests[], refusal_tests[], window_tests[], queue_tests[];

#endif
