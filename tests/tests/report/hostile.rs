//! Nothing that a capture contains becomes markup or script.

use std::fs;

use ferroce_test_support::browser::Browser;

use crate::{Scratch, rxe};

const ATTACK: &[u8] =
    b"</script ><script >window.hacked=1</script ><img src=x onerror=window.hacked=1>";

/// Overwrites the bytes of every packet from `start` with the attack.
fn poisoned(capture: &[u8], start: usize) -> Vec<u8> {
    let mut bytes = capture.to_vec();
    let mut at = 24;
    while at + 16 <= bytes.len() {
        let length =
            u32::from_le_bytes([bytes[at + 8], bytes[at + 9], bytes[at + 10], bytes[at + 11]])
                as usize;
        let packet = &mut bytes[at + 16..at + 16 + length];
        if let Some(target) = packet.get_mut(start..) {
            let len = target.len().min(ATTACK.len());
            target[..len].copy_from_slice(&ATTACK[..len]);
        }
        at += 16 + length;
    }
    bytes
}

#[test]
fn hostile_bytes_inject_nothing() {
    let Some(browser) = Browser::start() else { return };
    let scratch = Scratch::new("hostile");
    let rping = fs::read(rxe("rping")).expect("the capture");
    // In the payload and the private data of the connection manager, in the transport header, in the IP header, from the
    // first byte on. The bytes become numbers and hexadecimal; the path is the text that an attacker controls. Names of
    // files have no slash, so folders complete the tag that would end the element of the data. With the space, `<` alone would end it.
    for (at, start) in [200, 100, 54, 42, 26, 0].into_iter().enumerate() {
        let folder = scratch.path(&format!("{at}<")).join("script ><script >window.hacked=1<");
        fs::create_dir_all(&folder).expect("folders");
        let path = folder.join("script ><img src=x onerror=window.hacked=1>\u{2028}\"'&.pcap");
        fs::write(&path, poisoned(&rping, start)).expect("written");
        scratch.open(&browser, &[&path]);
        let script = "for (const one of document.querySelectorAll('details')) one.open = true";
        browser.value(script);
        for packet in [1, 5, 20] {
            browser.value(&format!("location.hash = '#packet-{packet}'"));
            browser.wait_until("return document.querySelector('aside')");
        }
        assert_eq!(browser.value("return window.hacked === undefined"), true, "{start}");
        assert_eq!(browser.count("img, iframe, object, embed"), 0, "{start}");
        assert_eq!(browser.count("script"), 2, "data and script");
        // The name is shown as text.
        let header = browser.value("return document.querySelector('header').textContent");
        let header = header.as_str().expect("text");
        let name =
            "</script ><script >window.hacked=1</script ><img src=x onerror=window.hacked=1>";
        assert!(header.contains(name), "{header}");
        // A violation of the page's policy would be reported here as well.
        assert_eq!(browser.console(), Vec::<String>::new(), "{start}");
    }
}

/// The policy of the page forbids what an injection would need, even if there were one.
#[test]
fn the_policy_forbids_other_scripts_and_the_network() {
    let Some(browser) = Browser::start() else { return };
    let scratch = Scratch::new("policy");
    scratch.open(&browser, &[&rxe("atomic")]);
    browser.value(
        "const s = document.createElement('script'); s.textContent = 'window.hacked = 1'; document.body.append(s); \
         const i = document.createElement('img'); i.src = 'http://127.0.0.1:9/'; document.body.append(i)",
    );
    browser.value("return fetch('http://127.0.0.1:9/').catch(() => 0).then(() => 1)");
    assert_eq!(browser.value("return window.hacked === undefined"), true);
    let refused = browser.console();
    assert!(
        refused.len() >= 3 && refused.iter().all(|it| it.contains("Content Security Policy")),
        "{refused:?}"
    );
}
