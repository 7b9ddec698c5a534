//! TCP beside RDMA, and captures with more packets than a page shows.

use std::path::PathBuf;

use ferroce_test_support::browser::Browser;
use ferroce_tests::capture;
use ferroce_trace::file::{Packet, PcapngWriter, Timestamp};
use ferroce_trace::link::LinkType;

use crate::{Scratch, no_complaint, rxe};

/// Bytes of payload of each TCP segment.
const SEGMENT: usize = 1000;

/// An Ethernet frame with a TCP segment of port 40000 to port 5201.
fn tcp_frame(sequence: u32) -> Vec<u8> {
    let mut frame = vec![0; 54 + SEGMENT];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&((40 + SEGMENT) as u16).to_be_bytes());
    (frame[22], frame[23]) = (64, 6);
    frame[26..30].copy_from_slice(&[192, 0, 2, 1]);
    frame[30..34].copy_from_slice(&[192, 0, 2, 2]);
    frame[34..36].copy_from_slice(&40_000_u16.to_be_bytes());
    frame[36..38].copy_from_slice(&5201_u16.to_be_bytes());
    frame[38..42].copy_from_slice(&sequence.to_be_bytes());
    (frame[46], frame[47]) = (0x50, 0x10);
    frame
}

fn write(scratch: &Scratch, name: &str, frames: impl Iterator<Item = (i64, Vec<u8>)>) -> PathBuf {
    let path = scratch.path(name);
    let file = std::io::BufWriter::new(std::fs::File::create(&path).expect("a file"));
    let mut writer = PcapngWriter::new(file).expect("a capture");
    writer.add_interface(LinkType::ETHERNET, Some("eth0")).expect("an interface");
    for (time, frame) in frames {
        writer.write(&Packet::new(Timestamp::from_nanoseconds(time), &frame)).expect("written");
    }
    writer.finish().expect("written");
    path
}

#[test]
fn rdma_and_tcp_captures_are_compared() {
    let Some(browser) = Browser::start() else { return };
    let scratch = Scratch::new("versus");
    // 100 segments, of which the fifth is sent again.
    let sequences = (0..100).map(|at| at * SEGMENT as u32).chain([4 * SEGMENT as u32]);
    let frames =
        sequences.enumerate().map(|(at, sequence)| (at as i64 * 10_000, tcp_frame(sequence)));
    let tcp = write(&scratch, "tcp.pcapng", frames);
    scratch.open(&browser, &[&rxe("write_65536_mtu4096"), &tcp]);
    let text = browser.text("#versus table");
    let row = |name: &str| text.lines().find(|line| line.starts_with(name)).map(str::to_owned);
    let tcp_row = row("TCP (tcp.pcapng)").expect("a row for TCP");
    assert!(tcp_row.contains("101") && tcp_row.contains("101 kB"), "{text}");
    assert!(tcp_row.ends_with(" 1"), "one retransmission: {text}");
    assert!(
        row("RDMA (write_65536_mtu4096.pcap)").is_some_and(|row| row.ends_with(" 0")),
        "{text}"
    );
    assert_eq!(browser.count("#versus .chart path:not(.area)"), 2);
    // The file without RDMA says so.
    browser.click(".files button:nth-child(2)");
    assert!(browser.text("#summary").contains("No RoCE or InfiniBand packets"));
    assert!(browser.text("#conversations").contains("192.0.2.2:5201"));
    no_complaint(&browser);

    // One capture with RDMA only has no such section.
    scratch.open(&browser, &[&rxe("atomic")]);
    assert_eq!(browser.count("#versus"), 0);
}

#[test]
fn a_large_capture_gives_a_bounded_page() {
    let Some(browser) = Browser::start() else { return };
    let scratch = Scratch::new("large");
    let packets = capture::read(&rxe("write_65536_mtu1024"));
    let frames = (0..400_i64).flat_map(|round| {
        packets
            .iter()
            .enumerate()
            .map(move |(at, packet)| (round * 1_000_000 + at as i64 * 2_000, packet.data.clone()))
    });
    let total = 400 * packets.len();
    let path = write(&scratch, "large.pcapng", frames);
    let arguments =
        ["report", "--packets", "500", "-o", "page.html", path.to_str().expect("UTF-8")];
    scratch.ferroce(&arguments);
    let size = std::fs::metadata(scratch.path("page.html")).expect("a page").len();
    assert!(size < 5_000_000, "{size}");
    browser.open(&format!("file://{}", scratch.path("page.html").display()));
    browser.wait_until("return document.documentElement.hasAttribute('data-ready')");
    let shown =
        "return JSON.parse(document.getElementById('data').textContent).files[0].shown.length";
    assert_eq!(browser.value(shown), 500);
    let hidden = total - 500;
    let footer = browser.text("footer").replace(',', "");
    assert!(footer.contains(&format!("{hidden} packets are counted but not shown")), "{footer}");
    browser.click("#ladder-1 > summary");
    browser.wait_until(
        "return document.querySelector('#ladder-1').textContent.includes('packets not shown')",
    );
    // A packet that is not in the page says how to see it.
    browser.value("location.hash = '#packet-30001'");
    browser.wait_until("return document.querySelector('aside') && document.querySelector('aside').textContent.includes('ferroce decode')");
    no_complaint(&browser);
}
