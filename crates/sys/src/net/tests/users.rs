//! Processes of different users do not trust each other.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram, UnixListener};

use super::{at, claim, open_slot, skipped, wait};
use crate::net::forward_header;
use crate::net::start_lock::StartLock;
use crate::net::unix_name::{self, Directory};
use crate::{Error, Options, ReceiveBatch, Recipient, RxInfo, Service, Socket};

/// Runs `body` as another user, or skips the test.
pub(super) fn as_user<T: Send>(
    user: u32,
    test: &str,
    body: impl FnOnce() -> T + Send,
) -> Option<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // The C library would change the user of all threads; the system call changes that of one.
            // SAFETY: the call takes no pointers, and this thread ends as that user.
            let changed = unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) };
            if changed == 0 {
                return Some(body());
            }
            skipped(test, "not allowed to become another user");
            None
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn info() -> RxInfo {
    RxInfo {
        source: at("10.0.0.1:49152"),
        destination: "10.0.0.2".parse().unwrap(),
        interface: None,
        tos: 0,
        hop_limit: None,
        length: 3,
        segment: 3,
        truncated: false,
    }
}

fn bind_datagram(name: &str) -> UnixDatagram {
    let socket = UnixDatagram::bind_addr(&UnixAddress::from_abstract_name(name).unwrap()).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

#[test]
fn packets_from_another_user_are_dropped() {
    let test = "packets_from_another_user_are_dropped";
    let address = at("127.9.8.1:4791");
    let Some(owner) = as_user(1001, test, || claim(address)) else { return };
    as_user(1001, test, || {
        let sender = claim(address);
        sender.forward(Recipient::Slot(0), &info(), b"own").unwrap();
    });
    let mailbox = as_user(1001, test, || Directory::read(address).unwrap()).unwrap();
    let (_, message) = (owner.number(), [&forward_header::encode(&info())[..], b"???"].concat());
    let name = UnixAddress::from_abstract_name(&mailbox.mailbox(0).unwrap().name).unwrap();
    let send = || UnixDatagram::unbound().unwrap().send_to_addr(&message, &name).unwrap();
    as_user(1002, test, send);
    // Root is trusted.
    send();
    wait(&owner);
    let mut batch = ReceiveBatch::new(8, 100);
    assert_eq!(owner.receive(&mut batch).unwrap(), 2);
    let data: Vec<&[u8]> = batch.messages().map(|message| message.data).collect();
    assert_eq!((data, owner.rejected()), (vec![&b"own"[..], b"???"], 1));
}

/// Another user binds every name that is known in advance: slots, a service, the start-up lock.
#[test]
fn squatted_names_block_no_process_and_receive_nothing() {
    let test = "squatted_names_block_no_process_and_receive_nothing";
    let address = at("127.9.8.3:4791");
    let service = 0x0000_0000_0106_4321;
    let squat = || {
        let prefix = unix_name::prefix(address);
        let slots = (0..255).map(|slot| format!("{prefix}{slot}/0"));
        let service = format!("{prefix}svc/{service:016x}/0/0");
        let lock = UnixAddress::from_abstract_name(format!("{prefix}lock")).unwrap();
        let sockets: Vec<_> = slots.chain([service]).map(|name| bind_datagram(&name)).collect();
        (sockets, UnixListener::bind_addr(&lock).unwrap())
    };
    let Some((squatted, _lock)) = as_user(1002, test, squat) else { return };
    // Without a deadline: a lock that another user holds is not waited for.
    let lock = as_user(1001, test, || StartLock::acquire_until(address, u64::MAX).unwrap());
    assert!(lock.unwrap().is_none());
    let (sender, receiver) = as_user(1001, test, || {
        let sender = open_slot(address, &Options::default());
        let receiver = open_slot(address, &Options::default());
        let _claimed = Service::claim(address, service, receiver.0.number()).unwrap();
        assert!(matches!(Service::claim(address, service, 7), Err(Error::ServiceTaken { .. })));
        let [to_slot, to_service] =
            [Recipient::Slot(receiver.0.number()), Recipient::Service(service)];
        sender.0.forward(to_slot, &info(), b"one").unwrap();
        sender.0.forward(to_service, &info(), b"two").unwrap();
        // No process of this user has this slot, and its squatter receives nothing.
        let foreign = sender.0.forward(Recipient::Slot(77), &info(), b"secret");
        assert!(matches!(foreign, Err(Error::NoOwner)));
        (sender.0, receiver.0)
    })
    .unwrap();
    assert_eq!((sender.number(), receiver.number()), (0, 1));
    let mut batch = ReceiveBatch::new(8, 100);
    wait(&receiver);
    assert_eq!(receiver.receive(&mut batch).unwrap(), 2);
    let mut buffer = [0; 100];
    assert!(squatted.iter().all(|socket| socket.recv(&mut buffer).is_err()));
}

/// Another user binds a name that a process of this user had before.
#[test]
fn a_name_rebound_by_another_user_receives_nothing() {
    let test = "a_name_rebound_by_another_user_receives_nothing";
    let address = at("127.9.8.4:4791");
    let Some(slots) = as_user(1001, test, || [(); 2].map(|()| claim(address))) else {
        return;
    };
    let [sender, owner] = slots;
    let (name, owner) = as_user(1001, test, || {
        sender.forward(Recipient::Slot(1), &info(), b"own").unwrap();
        let directory = Directory::read(address).unwrap();
        (directory.mailbox(1).unwrap().name.clone(), owner)
    })
    .unwrap();
    drop(owner);
    let thief = as_user(1002, test, || bind_datagram(&name)).unwrap();
    let sent = as_user(1001, test, || sender.forward(Recipient::Slot(1), &info(), b"secret"));
    assert!(matches!(sent, Some(Err(Error::NoOwner))));
    assert!(thief.recv(&mut [0; 100]).is_err());
}

#[test]
fn users_do_not_share_a_port() {
    let address = at("127.9.8.2:4791");
    let open = || Socket::open(address, &Options::default());
    let test = "users_do_not_share_a_port";
    let Some(Ok(_first)) = as_user(1001, test, open) else { return };
    assert!(as_user(1001, test, open).unwrap().is_ok());
    let error = as_user(1002, test, open).unwrap().unwrap_err();
    assert!(matches!(error, Error::PortTaken { .. }), "{error}");
}
