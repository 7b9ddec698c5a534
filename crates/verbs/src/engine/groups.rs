//! Multicast groups: their sockets and the attached QPs.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use ferroce_sys::{Interest, Poller, Socket};
use ferroce_wire::address::Gid;

use super::queue_pair::Core;
use crate::error::SystemError;
use crate::options::Options;

#[derive(Debug)]
struct Group {
    gid: Gid,
    address: SocketAddr,
    socket: Arc<Socket>,
    members: Vec<Arc<Core>>,
}

#[derive(Debug, Default)]
pub(crate) struct Groups {
    groups: RwLock<Vec<Group>>,
    /// The number of groups. Spares a pass the lock.
    count: AtomicUsize,
    /// Tells the device thread when to watch other sockets.
    version: AtomicU64,
}

impl Groups {
    /// Attaches a QP. The first one opens the group's socket.
    pub(crate) fn attach(
        &self,
        gid: Gid,
        core: &Arc<Core>,
        interface: u32,
        options: &Options,
    ) -> Result<(), SystemError> {
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = groups.iter_mut().find(|group| group.gid == gid) {
            if !group.members.iter().any(|member| Arc::ptr_eq(member, core)) {
                group.members.push(Arc::clone(core));
            }
            return Ok(());
        }
        let ip = gid.to_ip();
        let mut address = SocketAddr::new(ip, options.port);
        if let (SocketAddr::V6(address), IpAddr::V6(_)) = (&mut address, ip) {
            address.set_scope_id(interface);
        }
        let socket = Arc::new(Socket::group(address, interface, &options.sockets)?);
        groups.push(Group { gid, address, socket, members: vec![Arc::clone(core)] });
        self.changed(&groups);
        Ok(())
    }

    /// Detaches a QP from a group, or from all. The last one closes the group's socket.
    pub(crate) fn detach(&self, gid: Option<Gid>, core: &Core) {
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        for group in groups.iter_mut().filter(|group| gid.is_none_or(|gid| gid == group.gid)) {
            group.members.retain(|member| member.number != core.number);
        }
        groups.retain(|group| !group.members.is_empty());
        self.changed(&groups);
    }

    fn changed(&self, groups: &[Group]) {
        self.count.store(groups.len(), Ordering::Release);
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn members(&self, gid: Gid) -> Vec<Arc<Core>> {
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        let group = groups.iter().find(|group| group.gid == gid);
        group.map(|group| group.members.clone()).unwrap_or_default()
    }

    /// Whether there are none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// The sockets of all groups. The lock is not held while they are used: the handler of a packet takes it again, which
    /// would deadlock with a thread that waits to change the groups.
    pub(crate) fn sockets(&self) -> Vec<(Arc<Socket>, SocketAddr)> {
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        groups.iter().map(|group| (Arc::clone(&group.socket), group.address)).collect()
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    /// Makes the device thread watch the groups' sockets.
    pub(crate) fn watch(&self, poller: &mut Poller) {
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        for group in groups.iter() {
            poller.watch(&group.socket.as_fd(), Interest::Read);
        }
    }
}
