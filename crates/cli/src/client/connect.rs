//! Connecting the client, with a log of the steps.

use std::net::SocketAddr;

use ferroce::clock;
use ferroce::cm::EventChannel;

use crate::session::bytes::bytes;
use crate::session::dump;
use crate::session::end::{End, Parts};
use crate::session::events::{Caller, Haste, parameters};
use crate::session::failure::Failure;
use crate::session::log::Log;
use crate::session::protocol::{MemoryGrant, MemoryRequest};

/// A connection and the server's memory.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) end: End,
    pub(crate) wish: MemoryRequest,
    pub(crate) grant: MemoryGrant,
    pub(crate) caller: Caller,
}

impl Connection {
    /// Connects by the connection manager; the server's address and rkey come with its reply.
    pub(crate) fn open(
        channel: EventChannel,
        server: SocketAddr,
        wish: MemoryRequest,
        haste: Haste,
        log: &mut Log,
    ) -> Result<Self, Failure> {
        log.say("main", "Create CM channel + ID + connect");
        let caller = Caller::new(channel, server)?;
        let since = clock::now();
        log.say("cm", format!("resolve_address({server})"));
        caller.resolve_address()?;
        let nowhere = || Failure::Other("the address has no device".into());
        let context = caller.id.context().ok_or_else(nowhere)?;
        let text = format!("ADDR_RESOLVED: routed through {}", context.device().name());
        log.done("cm", since, text);
        let since = clock::now();
        caller.resolve_route()?;
        let mtu = caller.id.path_mtu().bytes().unwrap_or(0);
        log.done("cm", since, format!("ROUTE_RESOLVED: path MTU {mtu}"));
        let since = clock::now();
        let parts = Parts::new(&context)?;
        let queue_pair = caller.id.create_queue_pair(&parts.pd, &parts.options())?;
        let end = parts.with(queue_pair);
        end.post_receives()?;
        log.done("main", since, "Build PD/CQ/QP, post receives");
        dump::queue_pair(log, &end.queue_pair);
        let since = clock::now();
        log.say("cm", format!("connect() with private data: {} requested", bytes(wish.size)));
        let established = caller.connect(&parameters(wish.emit(), haste))?;
        let grant =
            MemoryGrant::parse(&established.private_data).ok_or(Failure::IncompatiblePeer)?;
        log.done("cm", since, "ESTABLISHED");
        dump::queue_pair(log, &end.queue_pair);
        let remote = grant.remote;
        let text = format!("Got remote addr={:#x} rkey={:#x}", remote.address.0, remote.key.0);
        log.say("main", text);
        Ok(Self { end, wish, grant, caller })
    }
}
