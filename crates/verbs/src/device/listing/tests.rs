use super::*;

fn interface(index: u32, name: &str, addresses: &[&str]) -> Interface {
    let addresses =
        addresses.iter().map(|ip| Address { ip: ip.parse().unwrap(), prefix: 24, scope: 0 });
    Interface {
        name: name.into(),
        index,
        mtu: 1500,
        up: true,
        running: true,
        loopback: name == "lo",
        neighbours: true,
        multicast: true,
        mac: None,
        addresses: addresses.collect(),
    }
}

fn lo() -> Interface {
    interface(1, "lo", &["127.0.0.1", "::1", "192.0.2.9"])
}

fn names(listing: &Listing) -> Vec<String> {
    listing.devices().iter().map(|device| device.name().to_owned()).collect()
}

fn listing(interfaces: &[Interface], wanted: &str) -> Listing {
    Listing::new(interfaces.to_vec(), wanted, Names::default())
}

#[test]
fn loopback_is_a_device_only_without_others() {
    let eth0 = interface(2, "eth0", &["192.0.2.1"]);
    assert_eq!(names(&listing(&[lo()], "")), ["ferroce_lo"]);
    assert_eq!(names(&listing(&[lo(), eth0.clone()], "")), ["ferroce_eth0"]);
    let down = Interface { up: false, ..eth0.clone() };
    assert_eq!(names(&listing(&[lo(), down], "")), ["ferroce_lo"]);
    let bare = Interface { addresses: Vec::new(), ..eth0 };
    assert_eq!(names(&listing(&[lo(), bare], "")), ["ferroce_lo"]);
}

#[test]
fn first_device_has_a_carrier_and_a_routable_address() {
    let all = [
        lo(),
        Interface { running: false, ..interface(2, "docker0", &["172.17.0.1"]) },
        interface(3, "eth0", &["fe80::1"]),
        interface(4, "eth1", &["fe80::2", "192.0.2.1"]),
        interface(5, "eth2", &["2001:db8::1"]),
    ];
    let order = ["ferroce_eth1", "ferroce_eth2", "ferroce_eth0", "ferroce_docker0"];
    assert_eq!(names(&listing(&all, "")), order);
}

#[test]
fn selected_devices_are_listed_in_that_order() {
    let all = [lo(), interface(2, "eth0", &["192.0.2.1"]), interface(3, "eth1", &["192.0.2.2"])];
    let selected = listing(&all, "none,eth1,ferroce_lo,,ferroce_eth1");
    assert_eq!(names(&selected), ["ferroce_eth1", "ferroce_lo"]);
    assert_eq!(names(&listing(&all, "none")), [""; 0]);
}

#[test]
fn first_device_carries_the_loopback_addresses() {
    let all = [lo(), interface(2, "eth0", &["192.0.2.1"]), interface(3, "eth1", &["192.0.2.2"])];
    let loopback = |wanted: &str| {
        let devices = listing(&all, wanted).devices();
        devices.iter().map(|device| device.loopback.len()).collect::<Vec<_>>()
    };
    // Not 192.0.2.9, which other hosts may reach.
    assert_eq!(loopback(""), [2, 0]);
    assert_eq!(loopback("eth1"), [2]);
    assert_eq!(loopback("eth0,lo"), [0, 0], "lo is a device of its own");
    assert_eq!(loopback("lo"), [0]);
    let unlisted = listing(&all, "eth1").device(&all[1]);
    assert!(unlisted.loopback.is_empty() && unlisted.name() == "ferroce_eth0");
}

#[test]
fn names_contain_the_index_or_the_interface() {
    let all = [lo(), interface(2, "eth0", &["192.0.2.1"]), interface(3, "eth1", &["192.0.2.2"])];
    let named = |pattern: &str| names(&Listing::new(all.to_vec(), "", pattern.parse().unwrap()));
    assert_eq!(named("rxe%d"), ["rxe0", "rxe1"]);
    assert_eq!(named("rxe_%s"), ["rxe_eth0", "rxe_eth1"]);
    assert_eq!(named("mlx5_0"), ["mlx5_0", "mlx5_0_1"]);
}

#[test]
fn names_that_are_not_file_names_are_rejected() {
    let long = "x".repeat(64);
    for pattern in ["", "..", ".x", "a/b", "a b", "a,b", "a:1", "%x", "rxe%", &long] {
        assert_eq!(pattern.parse::<Names>(), Err(NotNames), "{pattern}");
    }
    for pattern in ["rxe%d", "ferroce_%s", "mlx5_0", "a-b.c"] {
        assert_eq!(pattern.parse::<Names>().unwrap().to_string(), pattern);
    }
}
