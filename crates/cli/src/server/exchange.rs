//! The demo server for connections set up by the set-up exchange.

use std::net::SocketAddr;
use std::sync::Arc;

use ferroce::setup::{
    Agreement, Application, Peer, QpParameters, RegionParameters, Server, ServerConfig, Status,
    present,
};
use ferroce::{Context, Device, MemoryRegion, Options, QueuePair, clock};

use super::serve::Session;
use super::{Report, Reporter};
use crate::session::bytes::bytes;
use crate::session::dump;
use crate::session::end::{End, Parts, SHARED};
use crate::session::failure::Failure;

/// The maximum memory of a client.
const MAX_MEMORY: u64 = 1 << 32;

/// The resources of the one client.
struct Made<'a> {
    context: Context,
    session: Session<'a>,
    end: Option<End>,
}

/// Serves one client at a time.
pub(super) fn serve(address: SocketAddr, reporter: &Reporter) -> Result<(), Failure> {
    let (device, _) = Device::with_address(address)?;
    let context = Context::open(&device, &Options::from_env()?)?;
    let server = Server::new(&context, address.ip(), ServerConfig::new(present(&context)))?;
    reporter.report(&Report::Listening { address });
    let text = format!("{} serves set-up exchanges on {}", device.name(), address.ip());
    Session::new(reporter).say("setup", text);
    loop {
        let session = Session::new(reporter);
        let mut made = Made { context: context.clone(), session, end: None };
        let Some(accepted) = server.accept(&mut made, None)? else { continue };
        let Made { mut session, end: Some(end), .. } = made else { continue };
        let Some(region) = accepted.regions.first() else { continue };
        session.say("setup", "CONNECTION_CONFIRM: the queue pair is in RTS".into());
        let since = clock::now();
        let served = session.converse(&end, region);
        reporter.report(&Report::Left {
            client: SocketAddr::new(accepted.peer.address.to_ip(), 0),
            duration_ns: clock::now() - since,
            verified_bytes: session.verified,
            failure: served.err().map(|failure| failure.to_string()),
        });
    }
}

impl Application for Made<'_> {
    fn queue_pair(&mut self, _: &Peer, theirs: &QpParameters) -> Result<QueuePair, Status> {
        let since = clock::now();
        let make = || {
            let parts = Parts::new(&self.context)?;
            let queue_pair = parts.pd.queue_pair(&parts.options())?;
            Ok::<_, Failure>(parts.with(queue_pair))
        };
        let end = make().map_err(|_| Status::NO_QUEUE_PAIR)?;
        self.session.steps(|log| {
            log.say("setup", format!("QP_CREATE_REQ: the client has {:#08x}", theirs.qp_number.0));
            log.done("main", since, "Build PD/CQ/QP");
            dump::queue_pair(log, &end.queue_pair);
        });
        let queue_pair = end.queue_pair.clone();
        self.end = Some(end);
        Ok(queue_pair)
    }

    fn region(&mut self, _: &Peer, theirs: &RegionParameters) -> Result<Arc<MemoryRegion>, Status> {
        let since = clock::now();
        let end = self.end.as_ref().ok_or(Status::NO_QUEUE_PAIR)?;
        let length = usize::try_from(theirs.length.min(MAX_MEMORY)).unwrap_or(usize::MAX);
        let region = end.parts.pd.allocate(length, SHARED);
        let region = region.map_err(|_| Status::NO_MEMORY_REGION)?;
        self.session.steps(|log| {
            log.say("setup", format!("MR_REGISTER_REQ: the client has {}", bytes(theirs.length)));
            dump::region(log, since, "remote", &region);
        });
        Ok(Arc::new(region))
    }

    fn connect(&mut self, _: &Peer, _: &Agreement) -> Result<(), Status> {
        let end = self.end.as_ref().ok_or(Status::NO_QUEUE_PAIR)?;
        // The QP is in INIT now, and the client may send as soon as it receives our agreement.
        end.post_receives().map_err(|_| Status::INTERNAL_ERROR)?;
        self.session.say("setup", "CONNECTION_REQ: accepted".into());
        Ok(())
    }
}
