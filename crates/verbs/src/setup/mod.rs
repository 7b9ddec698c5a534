//! The set-up exchange: connects two queue pairs and exchanges memory keys, in five phases that can be observed and timed.
//! `docs/set-up-exchange.md` describes the messages.
//!
//! - [`Client`] starts an exchange: step by step, or as a whole with [`Client::establish`].
//! - [`Server`] responds on an address: event by event, or with [`Server::accept`] and an [`Application`].
//! - [`Search`] discovers servers, and [`Presence`] responds to it.
//!
//! Exchanges end when the device is closed.

mod client;
mod search;
mod server;
mod states;

pub use client::{Client, Established};
pub use search::{GROUP_V4, GROUP_V6, Presence, Search};
pub use server::{Accepted, Application, Server};
pub use states::Side;

pub use ferroce_proto::setup::{
    Agreement, ClientEvent, ConnectionParameters, Device as RemoteDevice, DiscoveryEvent,
    ExchangeHandle, Failure, Growth, Peer, PhaseTime, PhaseTimes, QpParameters, RegionParameters,
    RegisteredRegion, RequestHandle, Responder, RetryPolicy, ServerConfig, ServerEvent, SetupError,
};
pub use ferroce_wire::setup::{
    AccessFlags, Capabilities, DomainId, PeerId, Phase, QpType, RegionId, Status, Transports,
};

use ferroce_wire::number::Guid;

use crate::context::Context;
use crate::engine::Machine;
use crate::error::SystemError;

pub use crate::error::SetupExchangeError as Error;

/// Maximum message length, 2 GiB (IBA C9-94).
const MAX_MESSAGE_LEN: u32 = 1 << 31;

/// The capabilities of a device.
const CAPABILITIES: Capabilities = Capabilities(0x1ff);

/// A state machine of an open device, until the handle is dropped.
#[derive(Debug)]
struct Handle {
    context: Context,
    machine: u64,
}

impl Handle {
    fn new(context: &Context, machine: Machine) -> Result<Self, SystemError> {
        let adapter = context.adapter();
        let machine = adapter.management.exchanges.add(adapter.mads(), machine)?;
        Ok(Self { context: context.clone(), machine })
    }

    /// Calls a function on the state machine, and sends its messages. `None` if the device is closed.
    fn with<T>(&self, act: impl FnOnce(&mut Machine) -> Option<T>) -> Option<T> {
        let adapter = self.context.adapter();
        adapter.management.exchanges.with(adapter.mads(), self.machine, act)?
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let adapter = self.context.adapter();
        adapter.management.exchanges.close(adapter.mads(), self.machine);
    }
}

/// Describes a device to peers.
pub fn present(context: &Context) -> RemoteDevice {
    let limits = context.limits();
    RemoteDevice {
        id: PeerId(std::process::id()),
        capabilities: CAPABILITIES,
        guid: Guid(context.device().guid()),
        max_queue_pairs: limits.max_qp,
        max_memory_regions: limits.max_mr,
        max_message_size: MAX_MESSAGE_LEN,
        // RC, UC, UD and XRC.
        transports: Transports(0xf),
        path_mtu: context.mtu(),
    }
}
