//! `--capture`: one more transfer of each kind, after the measured rounds, so that capturing slows down none of them.

use std::io;
use std::path::{Path, PathBuf};

use ferroce::{Local, Options};

use super::client::Client;
use super::method::Method;
use super::result::CaptureResult;
use super::tcp_capture::TcpCapture;
use crate::session::failure::Failure;

/// The file of a capture: the prefix may contain a path.
fn path(prefix: &Path, suffix: &str) -> PathBuf {
    let mut path = prefix.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// Captures one transfer by RDMA and one by TCP.
pub(super) fn capture(client: &mut Client, prefix: &Path) -> Result<Vec<CaptureResult>, Failure> {
    let rdma = rdma(client, path(prefix, "-rdma.pcapng"))?;
    Ok(vec![rdma, tcp(client, path(prefix, "-tcp.pcapng"))?])
}

/// The library writes what it sends and receives, from the connection request to the disconnect.
fn rdma(client: &mut Client, path: PathBuf) -> Result<CaptureResult, Failure> {
    let options =
        Options { local: Local::Sockets, capture: Some(path.clone()), ..Options::from_env()? };
    let sender = client.open_rdma(options)?;
    let method = Method::RdmaWire;
    client.measure(method, |plan, _| sender.transfer(plan, &mut |_| {}))?;
    let status = sender.close()?.unwrap_or_default();
    let note = status.complaint();
    let (packets, dropped) = (status.written, status.dropped);
    Ok(CaptureResult { method, path: Some(path), packets, dropped, note })
}

/// The frames on the interface, from the SYN to the FIN. Without the right to see them, there is no file, and the result
/// says what to do.
fn tcp(client: &mut Client, path: PathBuf) -> Result<CaptureResult, Failure> {
    let method = Method::Tcp;
    let failed = |error: &io::Error| {
        Failure::Other(format!("cannot write the capture {}: {error}", path.display()))
    };
    let capture = match TcpCapture::start(&path, &client.tcp_addresses, client.server) {
        Ok(capture) => capture,
        Err(error) => {
            let why = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    "capturing TCP from the interface needs CAP_NET_RAW".to_owned()
                }
                _ => error.to_string(),
            };
            let note = Some(without(client, &path, &why));
            return Ok(CaptureResult { method, path: None, packets: 0, dropped: 0, note });
        }
    };
    let sender = client.open_tcp()?;
    client.measure(method, |plan, buffer| sender.transfer(plan, buffer, &mut |_| {}))?;
    drop(sender);
    let captured = capture.finish().map_err(|error| failed(&error))?;
    let note = (captured.dropped > 0).then(|| {
        format!(
            "{} frames are missing: they came faster than they could be written; use a smaller --size",
            captured.dropped
        )
    });
    let (packets, dropped) = (captured.packets, captured.dropped);
    Ok(CaptureResult { method, path: Some(path), packets, dropped, note })
}

/// What to do without the right to capture.
fn without(client: &Client, path: &Path, why: &str) -> String {
    let (address, path) = (client.server, path.display());
    let port = address.port();
    format!(
        "no {path}: {why}; run this command as root, or grant it with `sudo setcap cap_net_raw+ep \
         ferroce`, or run `ferroce compare --server --listen {address}`, `sudo tcpdump -i any -w {path} \
         tcp port {port}` and `ferroce compare {address}`"
    )
}
