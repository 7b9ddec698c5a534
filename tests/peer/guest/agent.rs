//! Runs commands in a guest for the host. One static program for both ends, of the standard library alone.
//!
//! ```text
//! agent serve ADDRESS:PORT                        in the guest: says so when it listens, then serves for ever
//! agent run ADDRESS:PORT SECONDS COMMAND [ARG…]   on the host: the command's input, outputs and status are ours
//! ```
//!
//! One TCP connection is one command, so any number run at a time. A connection carries frames: a kind, a length of four
//! bytes, big end first, and so many bytes. When it ends before the command does, the command's process group is killed:
//! to end `agent run`, in whatever way, ends the command.

use std::env;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::{CommandExt, ExitStatusExt, parent_id};
use std::process::{Command, ExitCode, Stdio, exit};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// To the guest: one word of the command.
const WORD: u8 = b'w';
/// To the guest: there are no more words.
const START: u8 = b's';
/// To the guest: bytes for the command's input. No bytes: its end.
const INPUT: u8 = b'i';
/// To the host: bytes of the command's output.
const OUTPUT: u8 = b'o';
/// To the host: bytes of the command's error output.
const ERROR: u8 = b'e';
/// To the host: the status that the command ended with, one byte.
const STATUS: u8 = b'x';

const CHUNK: usize = 1 << 16;

/// What `agent run` ends with when the command had to be ended, as the program `timeout` does.
const TOO_LONG: i32 = 124;
/// What `agent run` ends with when it cannot do its work.
const NO_GUEST: i32 = 125;

fn main() -> ExitCode {
    let words: Vec<OsString> = env::args_os().skip(1).collect();
    let text = |at: usize| words.get(at).and_then(|word| word.to_str());
    let result = match (text(0), text(1), text(2).and_then(|seconds| seconds.parse().ok())) {
        (Some("serve"), Some(address), None) => serve(address),
        (Some("run"), Some(address), Some(seconds)) if words.len() > 3 => {
            run(address, Duration::from_secs(seconds), &words[3..])
        }
        _ => Err(io::Error::other(
            "usage: agent serve ADDRESS | agent run ADDRESS SECONDS COMMAND [ARG…]",
        )),
    };
    match result {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("agent: {error}");
            ExitCode::from(NO_GUEST as u8)
        }
    }
}

fn send(mut to: &TcpStream, kind: u8, data: &[u8]) -> io::Result<()> {
    let mut frame = Vec::with_capacity(5 + data.len());
    frame.push(kind);
    frame.extend((data.len() as u32).to_be_bytes());
    frame.extend(data);
    to.write_all(&frame)
}

fn receive(mut from: &TcpStream) -> io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    from.read_exact(&mut head)?;
    let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if len > CHUNK {
        return Err(io::Error::other("a frame is too long"));
    }
    let mut data = vec![0; len];
    from.read_exact(&mut data)?;
    Ok((head[0], data))
}

/// Sends all that can be read as frames of one kind.
fn forward(mut from: impl Read, kind: u8, send: impl Fn(u8, &[u8]) -> io::Result<()>) {
    let mut buffer = vec![0; CHUNK];
    loop {
        match from.read(&mut buffer) {
            Ok(len) if len > 0 => {
                if send(kind, &buffer[..len]).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}

// In the guest.

fn serve(address: &str) -> io::Result<u8> {
    let listener = TcpListener::bind(address)?;
    println!("ferroce-peer: ready");
    loop {
        let (connection, _) = listener.accept()?;
        thread::spawn(move || {
            if let Err(error) = command(&connection) {
                let _ = send(&connection, ERROR, format!("agent: {error}\n").as_bytes());
                let _ = send(&connection, STATUS, &[127]);
                let _ = connection.shutdown(Shutdown::Write);
                // To close while input is unread would reset the connection, and the host might not read the status.
                while receive(&connection).is_ok() {}
            }
        });
    }
}

/// Runs the command that a connection asks for.
fn command(connection: &TcpStream) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let mut words = Vec::new();
    loop {
        match receive(connection)? {
            (WORD, word) => words.push(OsString::from_vec(word)),
            (START, _) => break,
            _ => return Err(io::Error::other("not a command")),
        }
    }
    let (program, arguments) = words.split_first().ok_or_else(|| io::Error::other("no command"))?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|error| io::Error::other(format!("{}: {error}", program.to_string_lossy())))?;
    let (input, output, error) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let group = format!("-{}", child.id());

    // True when the command has ended, and its number may become another's.
    let ended = Arc::new(Mutex::new(false));
    let (incoming, ended_too) = (connection.try_clone()?, Arc::clone(&ended));
    thread::spawn(move || {
        let mut input = input;
        while let Ok((kind, data)) = receive(&incoming) {
            let more = kind == INPUT && !data.is_empty();
            // A command need not read its input to the end.
            input = input.filter(|mut input| more && input.write_all(&data).is_ok());
        }
        let ended = ended_too.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !*ended {
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        }
    });

    // Frames of both outputs share the connection. They end when all that hold them do, also in the background.
    let shared = Arc::new(Mutex::new(connection.try_clone()?));
    let sender = || {
        let shared = Arc::clone(&shared);
        move |kind: u8, data: &[u8]| {
            send(&shared.lock().unwrap_or_else(|p| p.into_inner()), kind, data)
        }
    };
    let (send_output, send_error, send_status) = (sender(), sender(), sender());
    let outputs = [
        thread::spawn(move || {
            output.into_iter().for_each(|output| forward(output, OUTPUT, &send_output))
        }),
        thread::spawn(move || {
            error.into_iter().for_each(|error| forward(error, ERROR, &send_error))
        }),
    ];
    let status = child.wait()?;
    for output in outputs {
        let _ = output.join();
    }
    *ended.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = true;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    send_status(STATUS, &[code as u8])?;
    connection.shutdown(Shutdown::Write)
}

// On the host.

fn run(address: &str, limit: Duration, words: &[OsString]) -> io::Result<u8> {
    // Of whoever started us: when it dies, however it does, nobody wants the answer.
    let parent = parent_id();
    let command = words[0].to_string_lossy().into_owned();
    thread::spawn(move || {
        const STEP: Duration = Duration::from_millis(500);
        let mut left = limit;
        while left > Duration::ZERO && parent_id() == parent {
            thread::sleep(left.min(STEP));
            left = left.saturating_sub(STEP);
        }
        if parent_id() == parent {
            // Whoever reads this may have gone: eprintln! would panic, and this thread end before the process.
            let seconds = limit.as_secs();
            let _ = writeln!(io::stderr(), "agent: {command} ran for {seconds} s and was ended");
        }
        exit(TOO_LONG);
    });
    let connection = TcpStream::connect(address)?;
    connection.set_nodelay(true)?;
    for word in words {
        send(&connection, WORD, word.as_bytes())?;
    }
    send(&connection, START, &[])?;

    let outgoing = connection.try_clone()?;
    thread::spawn(move || {
        forward(io::stdin().lock(), INPUT, |kind, data| send(&outgoing, kind, data));
        let _ = send(&outgoing, INPUT, &[]);
    });
    loop {
        match receive(&connection)? {
            (OUTPUT, data) => show(io::stdout().lock(), &data)?,
            (ERROR, data) => show(io::stderr().lock(), &data)?,
            (STATUS, data) => return Ok(data.first().copied().unwrap_or(NO_GUEST as u8)),
            _ => return Err(io::Error::other("the guest does not speak this protocol")),
        }
    }
}

fn show(mut to: impl Write, data: &[u8]) -> io::Result<()> {
    to.write_all(data)?;
    to.flush()
}
