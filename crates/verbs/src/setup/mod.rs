//! The set-up exchange: from an address to a connection with keys to each other's memory, in five phases that can be
//! seen, timed and made to fail. `docs/set-up-exchange.md` describes the messages.
//!
//! - [`Client`] begins an exchange: step by step, or all at once by [`Client::establish`].
//! - [`Server`] answers those that reach an address: event by event, or by [`Server::accept`] and what an
//!   [`Application`] makes.
//! - [`Search`] asks who is there, and [`Presence`] says so.
//!
//! Exchanges come and go with the device: while none of its handles is left, nobody answers.

mod client;
mod search;
mod server;
mod states;

pub use client::{Client, ClientOptions, Established};
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

pub use crate::error::SetupExchangeError as Error;

/// The longest message, 2 GiB (IBA 9.7.7).
const LONGEST: u32 = 1 << 31;

/// All that a device can do.
const CAPABILITIES: Capabilities = Capabilities(0x1ff);

/// RC, UC, UD and XRC.
const TRANSPORTS: Transports = Transports(0xf);

/// A device as it presents itself.
pub fn present(context: &Context) -> RemoteDevice {
    let limits = context.limits();
    RemoteDevice {
        id: PeerId(std::process::id()),
        capabilities: CAPABILITIES,
        guid: Guid(context.device().guid()),
        max_queue_pairs: limits.max_qp,
        max_memory_regions: limits.max_mr,
        max_message_size: LONGEST,
        transports: TRANSPORTS,
        path_mtu: context.mtu(),
    }
}
