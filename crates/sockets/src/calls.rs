//! The functions of the C library that we interpose.
//!
//! A call for a descriptor that is not managed goes directly to the next function, from a frame without destructors: a
//! thread may be cancelled there.

use std::ffi::{c_int, c_long, c_uint, c_ulong, c_void};

use libc::{
    EFAULT, EINVAL, FILE, epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t, off_t, pid_t,
    pollfd, pthread_attr_t, pthread_t, sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec,
    timeval,
};

use crate::next::{self, Start, fail};
use crate::table::{self, Entry, connection, is_managed};
use crate::wait::{self, Deadline, Sets, UNMASKED};
use crate::{connect, descriptors, epoll, listen, options, rdma, transfer};

macro_rules! calls {
    ($( fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? { $($body:tt)* } )*) => {$(
        // SAFETY: it has the arguments and the behaviour of the function whose name it has.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "it has those of the function")]
        #[allow(unused_unsafe, reason = "some take no pointers")]
        pub(crate) unsafe extern "C-unwind" fn $name($($argument: $type),*) $(-> $result)? {
            // SAFETY: the program's arguments are passed on unchanged.
            unsafe { $($body)* }
        }
    )*};
}

// Sockets.
calls! {
    fn listen(fd: c_int, backlog: c_int) -> c_int {
        listen::listen(fd, backlog)
    }

    fn accept(fd: c_int, from: *mut sockaddr, length: *mut socklen_t) -> c_int {
        if !is_managed(fd) {
            return next::accept(fd, from, length);
        }
        accept4(fd, from, length, 0)
    }

    fn accept4(fd: c_int, from: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int {
        if !is_managed(fd) {
            return next::accept4(fd, from, length, flags);
        }
        match table::get(fd) {
            Some(Entry::Listener(listener)) => listen::accept(&listener, fd, from, length, flags),
            _ => next::accept4(fd, from, length, flags),
        }
    }

    fn connect(fd: c_int, to: *const sockaddr, length: socklen_t) -> c_int {
        connect::connect(fd, to, length)
    }

    fn shutdown(fd: c_int, how: c_int) -> c_int {
        match connection(fd) {
            Some(connection) => connection.shut_down(how),
            None => next::shutdown(fd, how),
        }
    }

    fn getsockname(fd: c_int, to: *mut sockaddr, length: *mut socklen_t) -> c_int {
        match connection(fd) {
            Some(connection) => options::name(&connection, false, to, length),
            None => next::getsockname(fd, to, length),
        }
    }

    fn getpeername(fd: c_int, to: *mut sockaddr, length: *mut socklen_t) -> c_int {
        match connection(fd) {
            Some(connection) => options::name(&connection, true, to, length),
            None => next::getpeername(fd, to, length),
        }
    }

    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t) -> c_int {
        match connection(fd) {
            Some(connection) => options::set(&connection, fd, level, name, value, length),
            None => next::setsockopt(fd, level, name, value, length),
        }
    }

    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t) -> c_int {
        match connection(fd) {
            Some(connection) => options::get(&connection, fd, level, name, value, length),
            None => next::getsockopt(fd, level, name, value, length),
        }
    }
}

// Receiving.
calls! {
    fn recv(fd: c_int, buffer: *mut c_void, length: size_t, flags: c_int) -> ssize_t {
        if !is_managed(fd) {
            return next::recv(fd, buffer, length, flags);
        }
        match connection(fd) {
            Some(connection) => transfer::receive(&connection, buffer, length, flags),
            None => next::recv(fd, buffer, length, flags),
        }
    }

    fn __recv_chk(fd: c_int, buffer: *mut c_void, length: size_t, room: size_t, flags: c_int) -> ssize_t {
        if !is_managed(fd) || length > room {
            return next::__recv_chk(fd, buffer, length, room, flags);
        }
        recv(fd, buffer, length, flags)
    }

    fn recvfrom(fd: c_int, buffer: *mut c_void, length: size_t, flags: c_int, from: *mut sockaddr, from_length: *mut socklen_t) -> ssize_t {
        if !is_managed(fd) {
            return next::recvfrom(fd, buffer, length, flags, from, from_length);
        }
        // A stream reports no address, as with Linux's TCP.
        if !from.is_null() && !from_length.is_null() {
            *from_length = 0;
        }
        recv(fd, buffer, length, flags)
    }

    fn __recvfrom_chk(fd: c_int, buffer: *mut c_void, length: size_t, room: size_t, flags: c_int, from: *mut sockaddr, from_length: *mut socklen_t) -> ssize_t {
        if !is_managed(fd) || length > room {
            return next::__recvfrom_chk(fd, buffer, length, room, flags, from, from_length);
        }
        recvfrom(fd, buffer, length, flags, from, from_length)
    }

    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
        if !is_managed(fd) {
            return next::recvmsg(fd, message, flags);
        }
        match connection(fd) {
            Some(connection) => transfer::receive_message(&connection, message, flags),
            None => next::recvmsg(fd, message, flags),
        }
    }

    fn recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int {
        if !is_managed(fd) || messages.is_null() || count == 0 {
            return next::recvmmsg(fd, messages, count, flags, timeout);
        }
        // A stream has no messages: the first buffer takes the available bytes.
        let received = recvmsg(fd, &raw mut (*messages).msg_hdr, flags & !libc::MSG_WAITFORONE);
        if received < 0 {
            return -1;
        }
        (*messages).msg_len = received as c_uint;
        1
    }

    fn read(fd: c_int, buffer: *mut c_void, length: size_t) -> ssize_t {
        if !is_managed(fd) {
            return next::read(fd, buffer, length);
        }
        match connection(fd) {
            Some(connection) => transfer::receive(&connection, buffer, length, 0),
            None => next::read(fd, buffer, length),
        }
    }

    fn __read_chk(fd: c_int, buffer: *mut c_void, length: size_t, room: size_t) -> ssize_t {
        if !is_managed(fd) || length > room {
            return next::__read_chk(fd, buffer, length, room);
        }
        read(fd, buffer, length)
    }

    fn readv(fd: c_int, list: *const iovec, count: c_int) -> ssize_t {
        if !is_managed(fd) {
            return next::readv(fd, list, count);
        }
        match connection(fd) {
            Some(connection) => transfer::receive_list(&connection, list, count),
            None => next::readv(fd, list, count),
        }
    }
}

// Sending.
calls! {
    fn send(fd: c_int, buffer: *const c_void, length: size_t, flags: c_int) -> ssize_t {
        if !is_managed(fd) {
            return next::send(fd, buffer, length, flags);
        }
        match connection(fd) {
            Some(connection) => transfer::send(&connection, buffer, length, flags),
            None => next::send(fd, buffer, length, flags),
        }
    }

    fn sendto(fd: c_int, buffer: *const c_void, length: size_t, flags: c_int, to: *const sockaddr, to_length: socklen_t) -> ssize_t {
        if !is_managed(fd) {
            return next::sendto(fd, buffer, length, flags, to, to_length);
        }
        // TCP ignores the address of a connected socket.
        match connection(fd) {
            Some(connection) => transfer::send(&connection, buffer, length, flags),
            None => next::sendto(fd, buffer, length, flags, to, to_length),
        }
    }

    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
        if !is_managed(fd) || message.is_null() {
            return next::sendmsg(fd, message, flags);
        }
        match connection(fd) {
            Some(connection) => {
                let (list, count) = ((*message).msg_iov, (*message).msg_iovlen);
                transfer::send_list(&connection, list, count, flags)
            }
            None => next::sendmsg(fd, message, flags),
        }
    }

    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
        if !is_managed(fd) || messages.is_null() {
            return next::sendmmsg(fd, messages, count, flags);
        }
        let mut done = 0;
        while done < count {
            let one = &mut *messages.add(done as usize);
            let sent = sendmsg(fd, &raw const one.msg_hdr, flags);
            if sent < 0 {
                break;
            }
            one.msg_len = sent as c_uint;
            done += 1;
        }
        if done == 0 && count > 0 { -1 } else { done as c_int }
    }

    fn write(fd: c_int, buffer: *const c_void, length: size_t) -> ssize_t {
        if !is_managed(fd) {
            return next::write(fd, buffer, length);
        }
        match connection(fd) {
            Some(connection) => transfer::send(&connection, buffer, length, 0),
            None => next::write(fd, buffer, length),
        }
    }

    fn writev(fd: c_int, list: *const iovec, count: c_int) -> ssize_t {
        if !is_managed(fd) {
            return next::writev(fd, list, count);
        }
        match (connection(fd), usize::try_from(count)) {
            (Some(connection), Ok(count)) => transfer::send_list(&connection, list, count, 0),
            _ => next::writev(fd, list, count),
        }
    }

    fn sendfile(out: c_int, input: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
        if !is_managed(out) {
            return next::sendfile(out, input, offset, count);
        }
        match connection(out) {
            Some(connection) => transfer::send_file(&connection, input, offset, count),
            None => next::sendfile(out, input, offset, count),
        }
    }

    fn sendfile64(out: c_int, input: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
        sendfile(out, input, offset, count)
    }
}

/// The program's list for poll(2), if an entry is managed.
///
/// # Safety
/// The list has this length.
#[inline]
unsafe fn managed_list<'a>(list: *mut pollfd, count: nfds_t) -> Option<&'a mut [pollfd]> {
    if list.is_null() || count == 0 {
        return None;
    }
    // SAFETY: as the caller promises.
    let list = unsafe { std::slice::from_raw_parts_mut(list, count as usize) };
    if list.iter().any(|one| is_managed(one.fd)) { Some(list) } else { None }
}

// Waiting.
calls! {
    fn poll(list: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
        match managed_list(list, count) {
            Some(list) => wait::poll(list, Deadline::after_milliseconds(timeout), UNMASKED),
            None => next::poll(list, count, timeout),
        }
    }

    fn __poll_chk(list: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int {
        match managed_list(list, count) {
            Some(asked) if size_of_val(asked) <= room => {
                wait::poll(asked, Deadline::after_milliseconds(timeout), UNMASKED)
            }
            _ => next::__poll_chk(list, count, timeout, room),
        }
    }

    fn ppoll(list: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int {
        match managed_list(list, count) {
            Some(list) => wait::poll(list, Deadline::after(wait::duration(timeout)), mask),
            None => next::ppoll(list, count, timeout, mask),
        }
    }

    fn __ppoll_chk(list: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: size_t) -> c_int {
        match managed_list(list, count) {
            Some(asked) if size_of_val(asked) <= room => {
                wait::poll(asked, Deadline::after(wait::duration(timeout)), mask)
            }
            _ => next::__ppoll_chk(list, count, timeout, mask, room),
        }
    }

    fn select(count: c_int, readable: *mut fd_set, writable: *mut fd_set, exceptional: *mut fd_set, timeout: *mut timeval) -> c_int {
        let sets = Sets { count, sets: [readable, writable, exceptional] };
        if !sets.any_managed() {
            return next::select(count, readable, writable, exceptional, timeout);
        }
        let deadline = Deadline::after(wait::duration_of_select(timeout));
        let ready = sets.wait(deadline, UNMASKED);
        wait::write_left(deadline, timeout);
        ready
    }

    fn pselect(count: c_int, readable: *mut fd_set, writable: *mut fd_set, exceptional: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int {
        let sets = Sets { count, sets: [readable, writable, exceptional] };
        if !sets.any_managed() {
            return next::pselect(count, readable, writable, exceptional, timeout, mask);
        }
        sets.wait(Deadline::after(wait::duration(timeout)), mask)
    }

    fn epoll_create(size: c_int) -> c_int {
        epoll::created(next::epoll_create(size))
    }

    fn epoll_create1(flags: c_int) -> c_int {
        epoll::created(next::epoll_create1(flags))
    }

    fn epoll_ctl(number: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
        epoll::control(number, op, fd, event)
    }

    fn epoll_wait(number: c_int, events: *mut epoll_event, max: c_int, timeout: c_int) -> c_int {
        if !is_managed(number) {
            return next::epoll_wait(number, events, max, timeout);
        }
        epoll_waits(number, events, max, Deadline::after_milliseconds(timeout), UNMASKED)
    }

    fn epoll_pwait(number: c_int, events: *mut epoll_event, max: c_int, timeout: c_int, mask: *const sigset_t) -> c_int {
        if !is_managed(number) {
            return next::epoll_pwait(number, events, max, timeout, mask);
        }
        epoll_waits(number, events, max, Deadline::after_milliseconds(timeout), mask)
    }

    fn epoll_pwait2(number: c_int, events: *mut epoll_event, max: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int {
        if !is_managed(number) {
            return next::epoll_pwait2(number, events, max, timeout, mask);
        }
        epoll_waits(number, events, max, Deadline::after(wait::duration(timeout)), mask)
    }
}

/// # Safety
/// The program's list and mask.
unsafe fn epoll_waits(
    number: c_int,
    events: *mut epoll_event,
    max: c_int,
    deadline: Deadline,
    mask: *const sigset_t,
) -> c_int {
    let Some(Entry::Set(set)) = table::get(number) else { return fail(EINVAL) };
    let Some(max) = usize::try_from(max).ok().filter(|&max| max > 0) else {
        return fail(EINVAL);
    };
    if events.is_null() {
        return fail(EFAULT);
    }
    // SAFETY: as the caller promises.
    unsafe {
        epoll::wait(number, &set, std::slice::from_raw_parts_mut(events, max), deadline, mask)
    }
}

// Descriptors.
calls! {
    fn close(fd: c_int) -> c_int {
        if !is_managed(fd) {
            return next::close(fd);
        }
        descriptors::close(fd)
    }

    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        descriptors::close_range(first, last, flags)
    }

    // The C library closes the descriptor of a stdio stream by an internal function.
    fn fclose(stream: *mut FILE) -> c_int {
        if !stream.is_null() {
            descriptors::forget(libc::fileno(stream));
        }
        next::fclose(stream)
    }

    // It also calls close_range(2) internally.
    fn closefrom(first: c_int) {
        descriptors::close_range(first.max(0) as c_uint, c_uint::MAX, 0);
    }

    fn dup(fd: c_int) -> c_int {
        descriptors::dup(fd)
    }

    fn dup2(fd: c_int, to: c_int) -> c_int {
        descriptors::dup_to(fd, to, None)
    }

    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
        descriptors::dup_to(fd, to, Some(flags))
    }

    // C passes the third, variable argument where a declared one would be.
    fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
        match table::get(fd) {
            Some(entry) => descriptors::control(&entry, fd, command, argument),
            None => next::fcntl(fd, command, argument),
        }
    }

    fn fcntl64(fd: c_int, command: c_int, argument: c_long) -> c_int {
        match table::get(fd) {
            Some(entry) => descriptors::control(&entry, fd, command, argument),
            None => next::fcntl64(fd, command, argument),
        }
    }

    fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
        match table::get(fd) {
            Some(entry) => descriptors::device_control(&entry, fd, request, argument),
            None => next::ioctl(fd, request, argument),
        }
    }

    fn pthread_create(thread: *mut pthread_t, attributes: *const pthread_attr_t, start: Start, argument: *mut c_void) -> c_int {
        if rdma::is_inside() {
            return rdma::create_thread(thread, attributes, start, argument);
        }
        next::pthread_create(thread, attributes, start, argument)
    }

    fn fork() -> pid_t {
        descriptors::before_fork();
        next::fork()
    }

    fn daemon(no_chdir: c_int, no_close: c_int) -> c_int {
        descriptors::before_fork();
        next::daemon(no_chdir, no_close)
    }
}

/// Run by the dynamic linker when it has loaded this library.
// SAFETY: entries of this section are functions called at that time, whose arguments may be ignored.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    next::look_up();
    table::at_load();
    connect::at_load();
}
