//! The parts of the page, with captures whose contents are known.

use ferroce_test_support::browser::Browser;
use ferroce_trace::analysis::{self, Options};
use serde_json::{Value, json};

use crate::{Scratch, no_complaint, rxe};

/// The embedded data.
const DATA: &str = "return JSON.parse(document.getElementById('data').textContent).files[0]";

#[test]
fn charts_and_tables_hold_the_data_of_the_capture() {
    let Some(browser) = Browser::start() else { return };
    let scratch = Scratch::new("charts");
    let path = rxe("rping");
    let file = std::fs::File::open(&path).expect("the capture");
    let expected = analysis::analyze("", file, &Options::default(), &mut |_| {});
    scratch.open(&browser, &[&path]);
    no_complaint(&browser);
    assert_eq!(browser.text("#summary .verdict strong"), "No problems found");
    let tiles = browser.text("#summary .tiles");
    assert!(tiles.contains("53") && tiles.contains("all correct"), "{tiles}");

    // The traffic: every byte of every conversation is in one point.
    let data = browser.value(DATA);
    let lines = data["series"]["lines"].as_array().expect("lines");
    let bytes = |line: &Value| -> u64 {
        let points = line["points"].as_array().into_iter().flatten();
        points.filter_map(|point| point[2].as_u64()).sum()
    };
    for conversation in &expected.conversations {
        let line =
            lines.iter().find(|line| line["kind"] == "rdma" && line["id"] == conversation.id);
        let sum = conversation.a_to_b.bytes + conversation.b_to_a.bytes;
        assert_eq!(line.map(bytes), Some(sum), "conversation {}", conversation.id);
    }
    assert_eq!(bytes(&lines[0]), expected.bytes, "all RDMA");
    // One path for each line, with as many points as the drawing has intervals with packets, and zeroes between them.
    let paths = browser.count("#io .chart svg g path:not(.area)");
    assert_eq!(paths, expected.conversations.len());
    let drawn = browser.value(
        "return document.querySelector('#io .chart path:not(.area)').getAttribute('d').length",
    );
    assert!(drawn.as_u64() > Some(20), "{drawn}");
    browser.click("#io .seg button:nth-child(2)");
    browser.wait_until(
        "return document.querySelector('#io .chart').textContent.includes('packets/s')",
    );

    let rows = browser.count("#conversations tbody tr");
    assert_eq!(rows as u64, expected.conversations_total);
    assert_eq!(browser.count("#timeline .chart g.lane") as u64, expected.conversations_total);
    assert_eq!(browser.count("#timeline polygon title"), expected.cm.len(), "set-up messages");
    assert_eq!(browser.count("#latency tbody tr"), expected.latency.len());
    let latency = data["latency"].as_array().expect("latency");
    for one in latency {
        let bins = one["bins"].as_array().into_iter().flatten();
        let sum: u64 = bins.filter_map(|bin| bin[1].as_u64()).sum();
        assert_eq!(one["summary"]["count"], sum, "{}", one["operation"]);
    }
    let tree = browser.text("#protocols table");
    assert!(tree.contains("RoCEv2") && tree.contains("RDMA_WRITE"), "{tree}");
    // PSN progress ends with everything acknowledged.
    let curve = &data["curves"][0]["points"];
    let last = curve.as_array().and_then(|points| points.last()).expect("points");
    assert!(last[2].as_u64() > Some(0) && last[2] == last[3] && last[1] == 0, "{last}");
    assert_eq!(browser.count("#flight .chart svg"), 2);
    no_complaint(&browser);
}

#[test]
fn a_ladder_unfolds_and_is_searched() {
    let Some(browser) = Browser::start() else { return };
    let scratch = Scratch::new("ladder");
    scratch.open(&browser, &[&rxe("rping")]);
    assert_eq!(browser.count(".lrow"), 0, "drawn only when it is unfolded");
    browser.click("#ladder-2 > summary");
    browser.wait_until("return document.querySelectorAll('#ladder-2 .lrow.packet').length > 20");
    let text = browser.text("#ladder-2");
    for part in [
        "CONNECTION SET-UP",
        "CM REQ",
        "CM REP",
        "CM RTU",
        "DATA",
        "RDMA WRITE First",
        "DISCONNECTION",
        "CM DREQ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // States of both queue pairs, in order.
    let states = "return [...document.querySelectorAll('#ladder-2 .qp.' + arguments[0])].map(e => e.textContent)";
    assert_eq!(browser.execute(states, json!(["a"])), json!(["INIT", "RTS", "ERROR"]));
    assert_eq!(browser.execute(states, json!(["b"])), json!(["RTR", "RTS", "ERROR"]));
    browser.type_into("#ladder-2 input[type=search]", "rdma read");
    browser.wait_until(
        "return document.querySelector('#ladder-2 .tools').textContent.includes('found')",
    );
    let script =
        "return [...document.querySelectorAll('#ladder-2 .lrow.packet b')].map(e => e.textContent)";
    let found = browser.value(script);
    let found = found.as_array().expect("titles");
    assert!(!found.is_empty());
    assert!(
        found.iter().all(|title| title.as_str().is_some_and(|it| it.contains("RDMA READ"))),
        "{found:?}"
    );
    assert!(browser.count("#ladder-2 mark") > 0, "matches are marked");

    // The list of all packets is searched likewise.
    browser.type_into("#search", "cm rtu");
    browser.wait_until("return document.querySelector('#found').textContent == '1 packet found'");
    assert!(browser.text("#packets tbody tr").contains("CM RTU"));
    no_complaint(&browser);
}

#[test]
fn loss_and_recovery_are_drawn() {
    let Some(browser) = Browser::start() else { return };
    let scratch = Scratch::new("loss");
    scratch.open(&browser, &[&rxe("loss_requests")]);
    browser.click("#ladder-1 > summary");
    browser.wait_until("return document.querySelectorAll('#ladder-1 .lrow.lost').length > 0");
    assert!(browser.count("#ladder-1 .lrow.again") > 10, "retransmissions are dashed");
    assert!(browser.text("#ladder-1").contains("not in the capture"));
    assert!(browser.count("#flight circle") > 10, "retransmissions in the PSN chart");
    assert!(browser.count("#timeline .mark") > 3);
    no_complaint(&browser);
}

#[test]
fn a_packet_opens_and_explains_its_fields() {
    let Some(browser) = Browser::start() else { return };
    let scratch = Scratch::new("packet");
    scratch.open(&browser, &[&rxe("bad_rkey_write")]);
    // From the diagnosis to the packet that shows it.
    browser.click("#topic-access .evidence a");
    browser.wait_until("return document.querySelector('aside')");
    let text = browser.text("aside");
    for part in ["NAK", "remote access error", "BTH", "AETH", "ICRC"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Every captured byte is in the grid, and belongs to a header.
    let packet = browser.value(&format!("{DATA}.shown[{}]", 3));
    let cells = browser.count(".bytes button");
    assert_eq!(json!(cells), packet["k"]);
    assert_eq!(browser.count(".bytes button[class^=t]"), cells);
    assert!(browser.text("#explain").contains("opcode"), "{}", browser.text("#explain"));
    // The source address of the IPv4 header: bytes 26 to 29.
    browser.execute("document.querySelectorAll('.bytes button')[27].click()", json!([]));
    let explained = browser.text("#explain");
    assert!(explained.contains("IPv4 · source") && explained.contains("10.77.0."), "{explained}");
    assert_eq!(browser.count(".bytes button.on"), 4);
    // A field of single bits shows them.
    browser.execute("document.querySelectorAll('.bytes button')[14].click()", json!([]));
    assert!(browser.count("#explain .bits b") > 0);
    // Keyboard and buttons.
    let heading = browser.text("aside h2");
    browser.click("aside button[aria-label^=Previous]");
    browser.wait_until(&format!(
        "return document.querySelector('aside h2').textContent != '{heading}'"
    ));
    browser.click("#close");
    assert_eq!(browser.count("aside"), 0);
    // A link to a packet works when the page is opened with it.
    browser.open(&format!("file://{}#packet-2", scratch.path("page.html").display()));
    browser.value("location.reload()");
    browser.wait_until("return document.querySelector('aside h2') && document.querySelector('aside h2').textContent == 'Packet 2'");
    no_complaint(&browser);
}

#[test]
fn dark_and_light_follow_the_system_and_the_toggle() {
    let Some(browser) = Browser::start() else { return };
    let scratch = Scratch::new("dark");
    browser.prefer_dark(true);
    scratch.open(&browser, &[&rxe("rping")]);
    // Sum of the red, green and blue of the background.
    let brightness = "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).reduce((sum, one) => sum + Number(one), 0)";
    assert!(browser.value(brightness).as_u64() < Some(150));
    browser.prefer_dark(false);
    browser.wait_until(&format!("{brightness} > 600"));
    browser.click("#theme");
    assert!(browser.value(brightness).as_u64() < Some(150));
    no_complaint(&browser);
}
