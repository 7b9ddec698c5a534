//! Every tunable of the data path, with its reason, so that they can be weighed against each other. What a protocol fixes, a limit of
//! a format or the size of a header, stays with the code that implements it; so do the bounds of credit and of a turn, in
//! `ferroce-device`.
//! Times are in nanoseconds.

/// Passes: how much one does, and how many a thread makes before it does something else.
pub(crate) mod passes {
    /// The maximum number of receive calls before timers run: enough to drain a full socket buffer.
    pub(crate) const MAX_RX_BEFORE_TIMERS: usize = 256;

    /// Packets sent in one pass before the next receive.
    pub(crate) const PACKETS_PER_PASS: usize = 256;

    /// Packets that a posting thread sends in one call. It does not receive, so more would only wait for ACKs.
    pub(crate) const PACKETS_PER_POST: usize = 1024;

    /// Rounds that a posting thread makes for requests that others leave meanwhile, before it leaves them to the device thread.
    pub(crate) const ROUNDS_PER_POST: usize = 2;

    /// Passes that a polling thread makes while there is more to send than one pass sends.
    pub(crate) const MAX_PASSES_PER_POLL: usize = 4;

    /// Passes that the device thread makes at a time, so that it notices a request to stop under load.
    pub(crate) const MAX_PASSES_PER_WAKEUP: usize = 64;
}

/// Destruction of objects.
pub(crate) mod destroy {
    /// How long to wait for space in a send buffer: the peer still needs the ACKs of completed requests.
    pub(crate) const LONGEST: u64 = 100_000_000;
}

/// Polls.
pub(crate) mod polling {
    /// Polls of different CQs within this time count as one: a program with several polls them in turn.
    pub(crate) const SAME_POLL: u64 = 1_000;
}

/// When a thread that polls in vain yields.
pub(crate) mod yielding {
    /// How long polls find nothing before they yield, unless it is known that the peer needs the core.
    pub(crate) const PATIENCE: u64 = 100_000;

    /// A yield that takes longer than this let another thread run.
    pub(crate) const YIELDED: u64 = 5_000;

    /// A yield that takes longer than this let a thread run that does not yield, or many.
    pub(crate) const LONG: u64 = 1_000_000;

    /// A yield that takes longer than this let many threads run, the peer or not.
    pub(crate) const CROWDED: u64 = 10_000_000;

    /// How long a thread keeps the core after a long yield: about a time slice.
    pub(crate) const PAUSE: u64 = 3_000_000;
}

/// Whether a thread that waits spins before it sleeps.
pub(crate) mod spin {
    /// How long a thread spins at most.
    pub(crate) const LONGEST: u64 = 50_000;

    /// A thread spins once this many more of its waits were short than [`PENALTY`] times those that were long.
    pub(crate) const ENOUGH: i32 = 8;
    /// Short waits beyond these do not count, so that three long ones end the spinning.
    pub(crate) const MAX: i32 = 16;
    /// How many short waits a long one outweighs.
    pub(crate) const PENALTY: i32 = 4;

    /// The credit after another thread ran meanwhile. It sleeps for a good while then.
    pub(crate) const CROWDED: i32 = -256;
    /// Another thread ran if a spin took this much longer than it should.
    pub(crate) const PREEMPTED: u64 = 100_000;

    /// More bytes than this through sockets from the end of one wait to that of the next are a bulk transfer: two packets of the
    /// largest size, so that a block of 4 KiB, which storage programs request one by one, is none.
    pub(crate) const SMALL: u64 = 2 * (4096 + 64);
}

/// How the device thread shares the sockets with programs that poll or wait.
pub(crate) mod doze {
    /// The shortest dozing interval, which doubles whenever the thread finds nothing to do.
    pub(crate) const MIN_INTERVAL: u64 = 20_000;
    /// The longest one.
    pub(crate) const MAX_INTERVAL: u64 = 500_000;

    /// With more polling threads than cores, the thread wakes up late. Frequent checks would only take time from the
    /// others, so the interval is stretched while that lasts, up to this factor.
    pub(crate) const MAX_STRETCH: u64 = 32;
    /// A thread that wakes up later than this is late.
    pub(crate) const LATE: u64 = 1_000_000;

    /// A program that polls continuously posts or makes a pass at least this often: between two passes it
    /// handles a message and sends the reply, such as an MPI rank that copies and adds up 32 KiB, and may be preempted by the
    /// device thread of another process. Packets that the thread finds earlier would have been found by the program as well.
    pub(crate) const GAP: u64 = 60_000;

    /// The evidence that a program polls too rarely: a check that finds packets counts for more than one that finds none,
    /// because the peer may be waiting for this process.
    pub(crate) const FOUND: u32 = 3;
    /// With this much evidence the thread watches the sockets: one check that finds packets may be coincidence.
    pub(crate) const ENOUGH: u32 = 6;

    /// After this many wakeups by packets, the thread dozes again to check whether watching is still necessary. A watching
    /// thread preempts the polling program and takes its packets, so only a check while dozing can show that.
    pub(crate) const MAX_WAKEUPS: u32 = 64;
    /// A wakeup for packets that the program took counts for this many.
    pub(crate) const VAIN: u32 = 8;

    /// Consecutive checks after which the thread leaves the sockets to a waiting thread until it is woken.
    pub(crate) const IDLE_CHECKS: u32 = 20;
}

/// Threads that wait for packets themselves.
pub(crate) mod wait {
    /// How long a thread waits at most before it begins again: a lease, because a C program can cancel the thread.
    pub(crate) const LEASE: u64 = 1_000_000_000;
}

/// ACKs that wait for the program's next call.
pub(crate) mod deferral {
    /// The maximum number of messages that are acknowledged at once after the program was late.
    pub(crate) const MAX_PAUSE: u32 = 256;
}

/// Receiving from sockets.
pub(crate) mod rx {
    /// Empty receive calls after which a link counts as quiet.
    pub(crate) const QUIET_AFTER: u32 = 256;

    /// The time between reads of quiet links: one read takes as long as five passes that look at the rings.
    pub(crate) const QUIET_LINK_INTERVAL: u64 = 100_000;

    /// The maximum number of datagrams per receive call.
    pub(crate) const MAX_BURST: usize = 16;

    /// The limit on tracked hosts and flows: more than this means spoofed addresses.
    pub(crate) const MAX_HISTORIES: usize = 4096;
}

/// Sending through sockets.
pub(crate) mod tx {
    /// The maximum number of bytes in flight to one peer.
    pub(crate) const MAX_IN_FLIGHT: usize = 4 << 20;

    /// The maximum number of send sockets per address: enough for the usual number of paths and receive queues, few enough
    /// for a process's descriptors.
    pub(crate) const MAX_SENDERS: usize = 16;

    /// The maximum number of reports read at a time.
    pub(crate) const MAX_REPORTS_PER_SOCKET: usize = 64;
}

/// Shared memory between processes.
pub(crate) mod rings {
    /// The size of a ring in bytes: large enough that the two sides rarely wait for each other, small enough for their caches.
    pub(crate) const RING_SIZE: usize = ferroce_sys::MAX_RING_SIZE;

    /// How often a spinning thread polls the rings between two polls of the sockets.
    pub(crate) const SPINS: usize = 32;

    /// How often a pass of a polling program polls the rings before it does the rest.
    pub(crate) const SPINS_PER_PASS: usize = 64;

    /// The maximum payload of a run: large enough that its headers do not matter, small enough that both sides copy in parallel.
    pub(crate) const MAX_PAYLOAD: usize = 64 << 10;

    /// Records are published after this many bytes, so that receiver and sender copy in parallel.
    pub(crate) const PUBLISH: usize = 16 << 10;

    /// A payload up to this length is gathered into private memory first. The consumer holds the cache lines of the ring,
    /// so stores to them stay in the store buffer, and each locked instruction in between, of which access to the program's
    /// memory needs some, would wait until it drains.
    pub(crate) const SHORT: usize = 128;

    /// The maximum number of records taken from a ring in one pass.
    pub(crate) const MAX_BURST: usize = 64;
    /// The maximum number of their bytes.
    pub(crate) const MAX_BURST_BYTES: usize = 256 << 10;
    /// The number of bytes after which their space is released.
    pub(crate) const RELEASE: usize = 32 << 10;

    /// The sender's program waits for the ACK of a marked record, so it is sent before the burst ends, but only after the
    /// first [`FEW`] records, and again only after this many more: the end of the burst acknowledges all.
    pub(crate) const ACK_INTERVAL: usize = 16;

    /// So few records are handled in less time than the accuracy that timers need.
    pub(crate) const FEW: usize = 4;

    /// The time until a connect to a process that accepted no ring is retried: another process may own the slot by then.
    pub(crate) const ASKED_AGAIN: u64 = 1_000_000_000;
}

/// Packets for other processes.
pub(crate) mod forwarding {
    /// The maximum number of queued bytes, with what each packet takes besides its own.
    pub(crate) const MAX_BACKLOG_BYTES: usize = 8 << 20;
}

/// Updates of the kernel's steering table.
pub(crate) mod steering {
    /// The minimum interval between updates caused by this process: a program may bind thousands of ports.
    pub(crate) const MIN_INTERVAL: u64 = 50_000_000;
    /// The interval between updates while there is traffic.
    pub(crate) const BUSY_INTERVAL: u64 = 1_000_000_000;
}

/// Published counters.
pub(crate) mod counters {
    /// How old the files may be. Linux drivers read their devices no more often by default.
    pub(crate) const LIFESPAN: u64 = 10_000_000;
}
