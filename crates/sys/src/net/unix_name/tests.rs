use super::*;

#[test]
fn an_unmapped_user_may_be_anyone() {
    let all = "         0          0 4294967295\n";
    let one = "      1000       1000          1\n";
    for (uid, overflow, map, anyone) in [
        (1000, "65534\n", one, false),
        (65_534, "65534\n", one, true),
        (65_534, "65534\n", "", true),
        // `nobody` of the host.
        (65_534, "65534\n", all, false),
        (99, "99\n", one, true),
        // Without /proc.
        (65_534, "", "", true),
    ] {
        assert_eq!(may_be_anyone(uid, overflow, || map.to_owned()), anyone, "{uid} {map:?}");
    }
    assert!(is_certainly_this_user(user()));
    assert!(!is_certainly_this_user(user() + 1));
}

#[test]
fn roles_are_parsed_as_they_were_written() {
    for role in [
        Role::Slot { slot: 0, bind_index: 0 },
        Role::Slot { slot: 254, bind_index: 13 },
        Role::Service { id: u64::MAX, slot: 7 },
        Role::Liveness(9),
        Role::Ring(9),
    ] {
        assert_eq!(Role::parse(&format!("{role}/0123")), Some(role));
    }
    for other in [
        "",
        "7",
        "7/1",
        "x-0/1",
        "256-0/1",
        "svc/1",
        "svc/1/2",
        "svc/x/1/2",
        "up/1",
        "up/x/1",
        "ring/9/1",
        "ring3/9/1",
        "lock",
    ] {
        assert_eq!(Role::parse(other), None, "{other}");
    }
}

#[test]
fn the_longest_name_fits() {
    let address = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff%4294967295]:65535".parse().unwrap();
    let name = new(address, Role::Service { id: u64::MAX, slot: 255 });
    let address = socket_address(&name).unwrap();
    assert_eq!(address.abstract_name(), Some(name.as_bytes()));
}
