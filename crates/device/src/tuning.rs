//! Every tunable of the data path, with its reason, so that they can be weighed against each other: those of this crate, of the links
//! and of the threads that drive a device. What a protocol fixes, a limit of a format or the size of a header, stays with the code
//! that implements it.
//! Times without a type are in nanoseconds.

/// Turns of QPs.
pub mod turns {
    /// The maximum number of packets a QP sends before the next QP gets its turn, of any kind. The flow control gives a QP fewer
    /// requests where others wait.
    pub const TURN: usize = 128;
}

/// Credit of QPs whose packets are acknowledged.
pub mod pools {
    /// Packets that a resumed QP may send. More would make the others wait, fewer would cost more ACKs and system calls.
    pub const QUANTUM_PACKETS: usize = 16;

    /// A pool shrinks no further than this: less does not fill a fast link.
    pub const MIN_LIMIT: usize = 256 << 10;

    /// Steps in which a pool that shrank grows back to its full size, one for each limit's worth of acknowledged bytes.
    pub const GROWTH_STEPS: usize = 32;
}

/// Credit of QPs whose packets are not acknowledged.
pub mod windows {
    use core::time::Duration;

    /// The interval after which a probe is repeated, as it may be lost like any packet.
    pub const PROBE_INTERVAL: Duration = Duration::from_millis(5);

    /// How often a probe is sent before it is given up.
    pub const MAX_PROBES: u32 = 20;

    /// After this many abandoned probes in a row the receiver is considered gone, and the window is no longer enforced.
    pub const MAX_UNANSWERED: u32 = 3;
}

/// Transmit queues.
pub mod transmit_queues {
    use core::time::Duration;

    /// How long datagrams wait for room: if a transmit queue stays full for as long, they are dropped until there is room again.
    pub const PATIENCE: Duration = Duration::from_millis(20);
}

/// Passes: how much one does, and how many a thread makes before it does something else.
pub mod passes {
    /// The maximum number of receive calls before timers run: enough to drain a full socket buffer.
    pub const MAX_RX_BEFORE_TIMERS: usize = 256;

    /// Packets sent in one pass before the next receive.
    pub const PACKETS_PER_PASS: usize = 256;

    /// Packets that a posting thread sends in one call. It does not receive, so more would only wait for ACKs.
    pub const PACKETS_PER_POST: usize = 1024;

    /// Rounds that a posting thread makes for requests that others leave meanwhile, before it leaves them to the device thread.
    pub const ROUNDS_PER_POST: usize = 2;

    /// Passes that a polling thread makes while there is more to send than one pass sends.
    pub const MAX_PASSES_PER_POLL: usize = 4;

    /// Passes that the device thread makes at a time, so that it notices a request to stop under load.
    pub const MAX_PASSES_PER_WAKEUP: usize = 64;
}

/// Destruction of objects.
pub mod destroy {
    /// How long to wait for space in a send buffer: the peer still needs the ACKs of completed requests.
    pub const LONGEST: u64 = 100_000_000;
}

/// Polls.
pub mod polling {
    /// Polls of different CQs within this time count as one: a program with several polls them in turn.
    pub const SAME_POLL: u64 = 1_000;
}

/// When a thread that polls in vain yields.
pub mod yielding {
    /// How long polls find nothing before they yield, unless it is known that the peer needs the core.
    pub const PATIENCE: u64 = 100_000;

    /// A yield that takes longer than this let another thread run.
    pub const YIELDED: u64 = 5_000;

    /// A yield that takes longer than this let a thread run that does not yield, or many.
    pub const LONG: u64 = 1_000_000;

    /// A yield that takes longer than this let many threads run, the peer or not.
    pub const CROWDED: u64 = 10_000_000;

    /// How long a thread keeps the core after a long yield: about a time slice.
    pub const PAUSE: u64 = 3_000_000;
}

/// Whether a thread that waits spins before it sleeps.
pub mod spin {
    /// How long a thread spins at most.
    pub const LONGEST: u64 = 50_000;

    /// A thread spins once this many more of its waits were short than [`PENALTY`] times those that were long.
    pub const ENOUGH: i32 = 8;
    /// Short waits beyond these do not count, so that three long ones end the spinning.
    pub const MAX: i32 = 16;
    /// How many short waits a long one outweighs.
    pub const PENALTY: i32 = 4;

    /// The credit after another thread ran meanwhile. It sleeps for a good while then.
    pub const CROWDED: i32 = -256;
    /// Another thread ran if a spin took this much longer than it should.
    pub const PREEMPTED: u64 = 100_000;

    /// More bytes than this through sockets from the end of one wait to that of the next are a bulk transfer: two packets of the
    /// largest size, so that a block of 4 KiB, which storage programs request one by one, is none.
    pub const SMALL: u64 = 2 * (4096 + 64);
}

/// How the device thread shares the sockets with programs that poll or wait.
pub mod doze {
    /// The shortest dozing interval, which doubles whenever the thread finds nothing to do.
    pub const MIN_INTERVAL: u64 = 20_000;
    /// The longest one.
    pub const MAX_INTERVAL: u64 = 500_000;

    /// With more polling threads than cores, the thread wakes up late. Frequent checks would only take time from the
    /// others, so the interval is stretched while that lasts, up to this factor.
    pub const MAX_STRETCH: u64 = 32;
    /// A thread that wakes up later than this is late.
    pub const LATE: u64 = 1_000_000;

    /// A program that polls continuously posts or makes a pass at least this often: between two passes it
    /// handles a message and sends the reply, such as an MPI rank that copies and adds up 32 KiB, and may be preempted by the
    /// device thread of another process. Packets that the thread finds earlier would have been found by the program as well.
    pub const GAP: u64 = 60_000;

    /// The evidence that a program polls too rarely: a check that finds packets counts for more than one that finds none,
    /// because the peer may be waiting for this process.
    pub const FOUND: u32 = 3;
    /// With this much evidence the thread watches the sockets: one check that finds packets may be coincidence.
    pub const ENOUGH: u32 = 6;

    /// After this many wakeups by packets, the thread dozes again to check whether watching is still necessary. A watching
    /// thread preempts the polling program and takes its packets, so only a check while dozing can show that.
    pub const MAX_WAKEUPS: u32 = 64;
    /// A wakeup for packets that the program took counts for this many.
    pub const VAIN: u32 = 8;

    /// Consecutive checks after which the thread leaves the sockets to a waiting thread until it is woken.
    pub const IDLE_CHECKS: u32 = 20;
}

/// Threads that wait for packets themselves.
pub mod wait {
    /// How long a thread waits at most before it begins again: a lease, because a C program can cancel the thread.
    pub const LEASE: u64 = 1_000_000_000;
}

/// ACKs that wait for the program's next call.
pub mod deferral {
    /// The maximum number of messages that are acknowledged at once after the program was late.
    pub const MAX_PAUSE: u32 = 256;
}

/// Receiving from sockets.
pub mod rx {
    /// Empty receive calls after which a link counts as quiet.
    pub const QUIET_AFTER: u32 = 256;

    /// The time between reads of quiet links: one read takes as long as five passes that look at the shared memory.
    pub const QUIET_LINK_INTERVAL: u64 = 100_000;

    /// The maximum number of datagrams per receive call.
    pub const MAX_BURST: usize = 16;

    /// The limit on tracked hosts and flows: more than this means spoofed addresses.
    pub const MAX_HISTORIES: usize = 4096;
}

/// Sending through sockets.
pub mod tx {
    /// The maximum number of bytes in flight to one peer.
    pub const MAX_IN_FLIGHT: usize = 4 << 20;

    /// The maximum number of send sockets per address: enough for the usual number of paths and receive queues, few enough
    /// for a process's descriptors.
    pub const MAX_SENDERS: usize = 16;

    /// The maximum number of reports read at a time.
    pub const MAX_REPORTS_PER_SOCKET: usize = 64;
}

/// Shared memory between processes.
pub mod shared_memory {
    /// The size of the memory in bytes: large enough that the two sides rarely wait for each other, small enough for their caches.
    pub const SIZE: usize = 1 << 20;

    /// How often a spinning thread polls the shared memory between two polls of the sockets.
    pub const SPINS: usize = 32;

    /// How often a pass of a polling program polls the shared memory before it does the rest.
    pub const SPINS_PER_PASS: usize = 64;

    /// The maximum payload of a run: large enough that its headers do not matter, small enough that both sides copy in parallel.
    pub const MAX_PAYLOAD: usize = 64 << 10;

    /// Records are published after this many bytes, so that receiver and sender copy in parallel.
    pub const PUBLISH: usize = 16 << 10;

    /// A payload up to this length is gathered into private memory first. The consumer holds the cache lines of the shared memory,
    /// so stores to them stay in the store buffer, and each locked instruction in between, of which access to the program's
    /// memory needs some, would wait until it drains.
    pub const SHORT: usize = 128;

    /// The maximum number of records taken from one process in one pass.
    pub const MAX_BURST: usize = 64;
    /// The maximum number of their bytes.
    pub const MAX_BURST_BYTES: usize = 256 << 10;
    /// The number of bytes after which their space is released.
    pub const RELEASE: usize = 32 << 10;

    /// The sender's program waits for the ACK of a marked record, so it is sent before the burst ends, but only after the
    /// first [`FEW`] records, and again only after this many more: the end of the burst acknowledges all.
    pub const ACK_INTERVAL: usize = 16;

    /// So few records are handled in less time than the accuracy that timers need.
    pub const FEW: usize = 4;

    /// The time until a connect to a process that accepted no shared memory is retried: another process may own the slot by then.
    pub const ASKED_AGAIN: u64 = 1_000_000_000;
}

/// Packets for other processes.
pub mod forwarding {
    /// The maximum number of queued bytes, with what each packet takes besides its own.
    pub const MAX_BACKLOG_BYTES: usize = 8 << 20;
}

/// Updates of the kernel's steering table.
pub mod steering {
    /// The minimum interval between updates caused by this process: a program may bind thousands of ports.
    pub const MIN_INTERVAL: u64 = 50_000_000;
    /// The interval between updates while there is traffic.
    pub const BUSY_INTERVAL: u64 = 1_000_000_000;
}

/// Published counters.
pub mod counters {
    /// How old the files may be. Linux drivers read their devices no more often by default.
    pub const LIFESPAN: u64 = 10_000_000;
}
