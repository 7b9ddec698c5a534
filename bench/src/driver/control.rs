//! The TCP connection over which the two processes of a driver agree: lines of words.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

/// One end.
#[derive(Debug)]
pub(super) struct Control {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Control {
    /// Listens on a port of the loopback.
    pub(super) fn listen(port: u16) -> Result<TcpListener, String> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        listener.map_err(|error| format!("cannot listen on TCP port {port}: {error}"))
    }

    /// Waits for the client.
    pub(super) fn accept(listener: &TcpListener) -> Result<Self, String> {
        Self::new(listener.accept().map_err(|error| error.to_string())?.0)
    }

    /// Connects to the server.
    pub(super) fn connect(port: u16) -> Result<Self, String> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
        Self::new(stream.map_err(|error| format!("cannot connect to TCP port {port}: {error}"))?)
    }

    fn new(stream: TcpStream) -> Result<Self, String> {
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let reader = BufReader::new(stream.try_clone().map_err(|error| error.to_string())?);
        Ok(Self { stream, reader })
    }

    /// Sends a line.
    pub(super) fn send(&mut self, line: &str) -> Result<(), String> {
        self.stream.write_all(format!("{line}\n").as_bytes()).map_err(|error| error.to_string())
    }

    /// Receives a line.
    pub(super) fn receive(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => Err("the other process closed the connection".to_owned()),
            Ok(_) => Ok(line.trim_end().to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Receives a line of numbers.
    pub(super) fn numbers<T: std::str::FromStr>(&mut self) -> Result<Vec<T>, String> {
        let line = self.receive()?;
        let numbers: Option<Vec<T>> =
            line.split_whitespace().map(|word| word.parse().ok()).collect();
        numbers.ok_or_else(|| format!("no numbers: {line:?}"))
    }

    /// Receives a line that has to be this one.
    pub(super) fn expect(&mut self, wanted: &str) -> Result<(), String> {
        let line = self.receive()?;
        if line == wanted { Ok(()) } else { Err(format!("expected {wanted:?}: {line:?}")) }
    }
}
