//! Goodput under loss.

use std::time::Duration;

use ferroce_proto::congestion::Congestion;
use ferroce_proto::qp::AckTimeout;

use crate::probability::Probability;
use crate::rdma::Transfer;
use crate::scenario::Scenario;
use crate::settings::{Bandwidth, LinkConfig, Settings};

/// A link of 5 GB/s and 20 µs each way that loses packets of both directions. Its queue holds a whole window, as a
/// receiver's socket buffer does.
fn fast_link(loss: f64) -> Settings {
    let uplink = LinkConfig {
        bandwidth: Bandwidth::gigabits(40),
        latency: Duration::from_micros(20),
        loss: Probability::new(loss),
        ..LinkConfig::default()
    };
    Settings { uplink, ..Settings::default() }
}

/// Goodput in GB/s of 64 MiB with a window of 4 MiB: the mean of eight seeds.
fn goodput(loss: f64) -> f64 {
    let bytes = 64 << 20;
    let transfer = |seed| Transfer { scenario: Scenario::Clean, seed, mtu: 4096, bytes };
    let times = (0..8).map(|seed| {
        let time = transfer(seed).run_over(fast_link(loss), |config| {
            config.settings.congestion = Congestion::Window(4 << 20);
            // 67 ms.
            config.attributes.timeout = Some(AckTimeout(14));
        });
        time.expect("the transfer succeeds").as_secs_f64()
    });
    8.0 * f64::from(bytes) / times.sum::<f64>() / 1e9
}

#[test]
fn a_large_window_survives_loss() {
    let [none, rare, frequent] = [0.0, 0.001, 0.01].map(goodput);
    println!("{none:.3} {rare:.3} {frequent:.3} GB/s: {:.3} {:.3}", rare / none, frequent / none);
    assert!(none > 4.7, "{none} GB/s");
    assert!(rare > 0.85 * none, "{rare} of {none} GB/s");
    assert!(frequent > 0.55 * none, "{frequent} of {none} GB/s");
}

/// Goodput in Gbit/s of 4 MiB in WRITEs, by loss and path MTU: the median of seven seeds, so that one unlucky loss does
/// not dominate.
fn recovery_table() -> String {
    let mut text = String::from("| loss | MTU 256 | MTU 1024 | MTU 4096 |\n|---|---|---|---|\n");
    for (name, loss) in [("0", 0.0), ("0.1 %", 0.001), ("1 %", 0.01), ("5 %", 0.05), ("10 %", 0.1)]
    {
        text += &format!("| {name} |");
        for mtu in [256, 1024, 4096] {
            let scenario = if loss == 0.0 { Scenario::Clean } else { Scenario::lossy(loss) };
            let mut times: Vec<_> = (0..7)
                .filter_map(|seed| Transfer { scenario, seed, mtu, bytes: 4 << 20 }.run())
                .collect();
            times.sort();
            let gigabits = |time: Duration| f64::from(4 << 20) * 8.0 / time.as_secs_f64() / 1e9;
            text += &match times.get(3) {
                Some(&time) => format!(" {:.3} |", gigabits(time)),
                None => " fails |".to_owned(),
            };
        }
        text.push('\n');
    }
    text
}

/// A snapshot: a change of loss recovery shows here. `FERROCE_UPDATE_DOCS=1` rewrites it.
#[test]
fn recovery_is_as_fast_as_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/recovery.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (start, table) = (text.find("| loss").unwrap(), recovery_table());
    let end = start + text[start..].find("\n\n").map_or(text.len() - start, |end| end + 1);
    if std::env::var_os("FERROCE_UPDATE_DOCS").is_some() {
        std::fs::write(path, [&text[..start], &table, &text[end..]].concat()).unwrap();
        return;
    }
    assert_eq!(&text[start..end], table, "FERROCE_UPDATE_DOCS=1 rewrites docs/recovery.md");
}
