/*
 * A stress of libibverbs: threads that create objects, move data between them, check every byte and every completion, and
 * destroy the objects again, in the middle of the work or after it. See main.c for how to run it.
 */
#ifndef STRESS_H
#define STRESS_H

#include "pair.h"

#include <stdatomic.h>
#include <stdbool.h>

enum {
    ROUNDS = 4,        /* per life, at most */
    OPERATIONS = 32,   /* per round, at most */
    LENGTH = 8000,     /* bytes per operation, at most */
    DATAGRAM = 1024,
    DATAGRAM_MTU = IBV_MTU_1024,
    GRH = 40,
    SLOT = 8192,       /* each operation and each receive has its own bytes */
    RECEIVES = OPERATIONS * SLOT,
    WORDS = 2 * RECEIVES, /* two words for atomics follow them */
    SIZE = WORDS + 4096,
};

enum service { RC, RC_SRQ, UC, UD, XRC, SERVICES };

enum kind { SEND, SEND_IMM, WRITE, WRITE_IMM, READ, FETCH_ADD, COMPARE_SWAP, KINDS };

struct operation {
    enum kind kind;
    uint32_t length;
};

/* A life: the objects of two halves from creation to destruction. Its rounds each begin with connecting the queue pairs and
 * end with RESET; after the last, they are destroyed. Both halves derive all of it from the same seed. */
struct life {
    uint64_t seed;
    enum service service;
    int count, depth, mtu;
    uint32_t scale; /* operations are so many times longer, and fewer */
    int reads;    /* READs and atomics in flight, on both sides */
    struct operation operations[OPERATIONS];
    bool events;  /* waits for completion events instead of polling */
    bool late;    /* receives are posted while messages are in flight: RNR */
    int rounds;
    bool abrupt[ROUNDS]; /* the round ends in the middle */
    bool destroys;       /* at an abrupt end, without RESET before */
    bool sender_first;
};

/* The attributes that the halves exchange. */
struct card {
    uint32_t qpn, srqn, rkey;
    uint64_t address;
};

/* One half of a lane: the sender, or the receiver. */
struct half {
    int lane, control, round;
    bool sender;
    struct pair_device device;
    struct ibv_xrcd *xrcd;
    struct life *life;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    struct ibv_srq *srq;
    struct ibv_qp *qp;
    struct ibv_ah *ah;
    uint8_t *memory;
    struct card me, you;
    const char *waits; /* for what, if it waits */
    int posted, done;  /* requests or receives of this round */
};

/* Counters of all threads of all processes. */
struct counts {
    atomic_long lives[SERVICES], abrupt[SERVICES], resets[SERVICES], done[SERVICES][KINDS];
    atomic_long reconnects, destroyed, bytes, lost, churned;
};

extern struct counts *counts;
extern uint64_t run_seed;

double now(void);
_Noreturn void fail(struct half *, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define MUST(half, what)                                                                               \
    do {                                                                                               \
        if (!(what))                                                                                   \
            fail(half, "%s:%d: %s does not hold; errno %d, %s", __FILE__, __LINE__, #what, errno,      \
                 strerror(errno));                                                                     \
    } while (0)

/* life.c */
uint64_t random_next(uint64_t *);
void plan(struct life *, uint64_t seed, enum service);
void run_life(struct half *);

/* objects.c */
void create_objects(struct half *);
void reset(struct half *);
void initialise(struct half *);
void connect_objects(struct half *);
void destroy_queue_pair(struct half *);
void destroy_objects(struct half *);
void exchange(struct half *, const void *out, void *in, size_t size);
void meet(struct half *); /* waits for the other half */

/* Whether faults are injected. */
static inline bool faulty(void)
{
    const char *faults = getenv("FERROCE_FAULTS");
    return faults && *faults;
}

static inline bool reliable(enum service service)
{
    return service == RC || service == RC_SRQ || service == XRC;
}

#endif
