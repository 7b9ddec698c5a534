//! Users of one machine are strangers to each other.

use super::{at, skipped, wait};
use crate::{Arrival, Error, Options, ReceiveBatch, Recipient, Slot, Socket};

/// Runs something as another user, or says that it cannot.
fn as_user<T: Send>(user: u32, test: &str, body: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // The C library would change the user of all threads; the kernel changes that of one.
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

#[test]
fn what_another_user_forwards_is_dropped() {
    let test = "what_another_user_forwards_is_dropped";
    let address = at("127.9.8.1:4791");
    let arrival = Arrival {
        source: at("10.0.0.1:49152"),
        destination: "10.0.0.2".parse().unwrap(),
        interface: None,
        tos: 0,
        hop_limit: None,
        length: 3,
        segment: 3,
        truncated: false,
    };
    let claim = || Slot::claim(address).unwrap();
    let Some(owner) = as_user(1001, test, claim) else { return };
    let send = |data: &[u8]| claim().forward(Recipient::Slot(0), &arrival, data).unwrap();
    as_user(1002, test, || send(b"forged"));
    as_user(1001, test, || send(b"own"));
    // The administrator may do more than this anyway.
    send(b"root");
    wait(&owner);
    let mut batch = ReceiveBatch::new(8, 100);
    assert_eq!(owner.receive(&mut batch).unwrap(), 2);
    let data: Vec<&[u8]> = batch.messages().map(|message| message.data).collect();
    assert_eq!((data, owner.rejected()), (vec![&b"own"[..], b"root"], 1));
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
