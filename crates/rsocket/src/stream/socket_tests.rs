use super::*;

const OPEN: Phase = Phase::Connected { readable: true, writable: true };
const READ_ENDED: Phase = Phase::Connected { readable: false, writable: true };
const WRITE_ENDED: Phase = Phase::Connected { readable: true, writable: false };
const NO_MORE: Phase = Phase::Connected { readable: false, writable: false };

fn state(phase: Phase) -> State {
    let mut state = State::new(FileFlags::default(), Settings::STREAM);
    state.phase = phase;
    state
}

#[test]
fn outcomes_lead_to_these_phases() {
    let table = [
        (OPEN, Outcome::Shutdown, READ_ENDED),
        (READ_ENDED, Outcome::Shutdown, READ_ENDED),
        // Both sides have shut down sending: nothing can follow.
        (WRITE_ENDED, Outcome::Shutdown, Phase::Disconnected),
        (NO_MORE, Outcome::Shutdown, Phase::Disconnected),
        (OPEN, Outcome::Closed, Phase::Disconnected),
        (READ_ENDED, Outcome::Closed, Phase::Disconnected),
        (WRITE_ENDED, Outcome::Closed, Phase::Disconnected),
        (OPEN, Outcome::Failed(libc::EPROTO), Phase::Failed),
        (WRITE_ENDED, Outcome::Failed(libc::EIO), Phase::Failed),
    ];
    for (before, outcome, after) in table {
        let mut state = state(before);
        state.apply(Some(outcome));
        assert_eq!(state.phase, after, "{before:?} {outcome:?}");
    }
    let mut state = state(OPEN);
    state.apply(None);
    assert_eq!(state.phase, OPEN);
}

#[test]
fn the_error_of_a_failure_is_reported_once() {
    let mut state = state(OPEN);
    assert_eq!(state.take_error(), None);
    state.apply(Some(Outcome::Failed(libc::ETIMEDOUT)));
    assert_eq!(state.take_error(), Some(Errno(libc::ETIMEDOUT)));
    assert_eq!(state.take_error(), None);
}

#[test]
fn phases_know_their_directions() {
    let directions =
        |phase: Phase| (phase.is_connected(), phase.is_readable(), phase.is_writable());
    assert_eq!(directions(OPEN), (true, true, true));
    assert_eq!(directions(READ_ENDED), (true, false, true));
    assert_eq!(directions(WRITE_ENDED), (true, true, false));
    for phase in [Phase::New, Phase::Listening, Phase::Connecting, Phase::Disconnected] {
        assert_eq!(directions(phase), (false, false, false), "{phase:?}");
    }
}

#[test]
fn readiness_follows_the_phase() {
    let hangup = libc::POLLIN | libc::POLLOUT | libc::POLLHUP;
    let table = [
        (Phase::New, 0),
        (Phase::Bound, 0),
        (Phase::Listening, 0),
        (Phase::Connecting, 0),
        (Phase::Disconnected, hangup | libc::POLLRDHUP),
        (Phase::Refused, hangup | libc::POLLERR),
        (Phase::Failed, hangup | libc::POLLERR),
        // Without a connection there is nothing to read and no space to send.
        (OPEN, 0),
        // The end of the stream is readable, and a send that fails at once is possible.
        (READ_ENDED, libc::POLLIN | libc::POLLRDHUP),
        (WRITE_ENDED, libc::POLLOUT),
    ];
    for (phase, events) in table {
        assert_eq!(state(phase).readiness(), events, "{phase:?}");
    }
}

#[test]
fn a_listener_is_readable_while_connections_wait() {
    let mut state = state(Phase::Listening);
    state.accept_queue.push_back(StreamSocket::new(libc::AF_INET, false).unwrap());
    assert_eq!(state.readiness(), libc::POLLIN);
    state.accept_queue.clear();
    assert_eq!(state.readiness(), 0);
}

#[test]
fn a_change_is_counted_for_edge_triggering() {
    let socket = StreamSocket::new(libc::AF_INET6, true).unwrap();
    let before = socket.state().change_count();
    socket.change(|state| state.phase = Phase::Bound);
    assert_eq!(socket.state().change_count(), before + 1);
}

#[test]
fn a_call_waits_unless_it_or_the_socket_is_nonblocking() {
    let socket = StreamSocket::new(libc::AF_INET, false).unwrap();
    assert!(socket.waits(0) && !socket.waits(libc::MSG_DONTWAIT));
    socket.control(libc::F_SETFL, libc::O_NONBLOCK).unwrap();
    assert!(!socket.waits(0));
}
